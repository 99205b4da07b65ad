// Searches the crash points of code that keeps something on a disk, as ALICE (Pillai 2014) and
// CrashMonkey (Mohan 2018) do. It explores, up to the bounds below,
//   - a power failure after each operation of the disk, with each choice of what was not durable;
//   - the end of the process at each operation, and amid each write: the next process sees all that
//     was written, and acts on it, though nothing made it durable; then the power fails;
//   - an operation that fails, after which the store is opened again; then the power fails;
//   - a power failure while the store is opened behind one of these.
//
// After each of them the store is opened, compared with what was promised, and used. Its owner
// gives two things:
//   - Promise: what must be on the disk, and what may be there beside it. A copy is made before
//   each
//     operation of the disk, so the owner keeps it up to date: before a call what may be there from
//     now on, behind the call what must be.
//   - live(storage, promise, life): one life of the store. It opens the store and compares what is
//     there with the promise, which then is what is there: the process acts on it from now on. Then
//     it does something. It passes errors on. Returns what is wrong, or an empty text. Life 0 finds
//     a disk as it was at the begin; later ones are repeated often, so they do little.
#pragma once
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/rng.h"
#include "env/sim/crash_disk_test.h"

namespace pyrdma {

struct CrashBounds {
  /// Of so many pieces or fewer every choice is explored. Of more pieces: none, all, each prefix,
  /// each piece alone, all but each, and some drawn choices.
  std::size_t every_choice_of = 5;
  std::size_t drawn = 10;
  /// The same behind a restart or an error.
  std::size_t every_choice_later = 3, drawn_later = 3;
  /// One in so many states is opened with a power failure at each operation of the opening.
  std::size_t deep_every = 60;
  /// If the store goes on after an operation that failed, each later one fails, too.
  bool is_failing_twice = false;
};

struct CrashCounts {
  std::uint64_t points = 0;    // after which the power failed
  std::uint64_t states = 0;    // different ones at these
  std::uint64_t restarts = 0;  // of the process alone
  std::uint64_t failures = 0;  // operations that failed
  std::uint64_t deep = 0;      // states that were left by a power failure in a later life
  CrashCounts& operator+=(const CrashCounts& other) {
    points += other.points;
    states += other.states;
    restarts += other.restarts;
    failures += other.failures;
    deep += other.deep;
    return *this;
  }
};

template <class Promise>
class CrashSearch {
 public:
  using Live = std::function<std::string(Storage&, Promise&, unsigned life)>;

  /// The disk has `image` at the begin.
  explicit CrashSearch(Live live, CrashDisk::Image image = {}, CrashBounds bounds = {})
      : live_(std::move(live)),
        image_(std::move(image)),
        bounds_(bounds),
        rng_(1, -1, "crash points") {}

  /// Returns what is wrong in the first state that breaks a promise, and how it came about; or an
  /// empty text.
  std::string run() {
    Run whole(image_);
    std::string wrong = whole.live(live_, 0, /*may_fail=*/false);
    if (!wrong.empty()) return wrong;
    wrong = fail_power(whole, 0, bounds_.every_choice_of, bounds_.drawn, 1);
    using Fault = CrashDisk::Fault;
    for (std::size_t at = 0; at < whole.disk.operations() && wrong.empty(); ++at) {
      for (const Fault fault :
           {Fault::kEnds, Fault::kEndsAmid, Fault::kFails, Fault::kFailsAmid, Fault::kFull}) {
        if (wrong.empty()) wrong = live_on(at, fault);
      }
    }
    return wrong;
  }
  const CrashCounts& counts() const { return counts_; }

 private:
  /// A disk, and the promise before each of its operations and behind the last one.
  struct Run {
    explicit Run(const CrashDisk::Image& image, Promise begin = {})
        : disk(image), promise(std::move(begin)) {
      disk.before_each([this] { note(); });
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    std::string live(const Live& live, unsigned life, bool may_fail) {
      std::string wrong;
      try {
        wrong = live(disk, promise, life);
      } catch (const CrashDisk::ProcessEnded&) {
        return {};
      } catch (const Error& error) {
        if (!may_fail || !disk.has_met_fault()) wrong = std::string("refused: ") + error.what();
      }
      note();
      return wrong;
    }
    void note() {
      promises.resize(disk.operations() + 1);
      promises.back() = promise;
    }
    CrashDisk disk;
    Promise promise;
    std::vector<Promise> promises;
  };

  // A fault in the first life, then another process on the same disk, then a power failure.
  std::string live_on(std::size_t at, CrashDisk::Fault fault,
                      std::size_t again = CrashDisk::kNever) {
    Run run(image_);
    run.disk.set_fault(at, fault);
    run.disk.set_fault(again, CrashDisk::Fault::kFails);
    const auto where = [&] {
      return "\nfault " + std::to_string(static_cast<int>(fault)) + " at operation " +
             std::to_string(at) + run.disk.text(run.disk.operations());
    };
    std::string wrong = run.live(live_, 0, /*may_fail=*/true);
    if (!wrong.empty()) return wrong + where();
    if (!run.disk.has_met_fault()) return {};
    const bool is_end = fault == CrashDisk::Fault::kEnds || fault == CrashDisk::Fault::kEndsAmid;
    ++(is_end ? counts_.restarts : counts_.failures);
    const std::size_t end = run.disk.operations();
    wrong = run.live(live_, 1, /*may_fail=*/false);
    if (!wrong.empty()) return wrong + " at the restart" + where();
    wrong = fail_power(run, at, bounds_.every_choice_later, bounds_.drawn_later, 2);
    if (!wrong.empty()) return wrong + where();
    const bool is_twice = bounds_.is_failing_twice && !is_end && again == CrashDisk::kNever;
    for (std::size_t next = at + 1; is_twice && next < end && wrong.empty(); ++next)
      wrong = live_on(at, fault, next);
    return wrong;
  }

  std::string fail_power(const Run& run, std::size_t first, std::size_t every, std::size_t drawn,
                         unsigned life) {
    for (std::size_t point = first; point <= run.disk.operations(); ++point) {
      ++counts_.points;
      std::set<std::uint64_t> seen;
      const std::size_t pieces = run.disk.doubtful(point);
      std::string wrong;
      for_each_choice(pieces, every, drawn, [&](const std::vector<bool>& keeps) {
        std::size_t piece = 0;
        const auto image = run.disk.left(point, [&] { return static_cast<bool>(keeps[piece++]); });
        if (!seen.insert(sum_of(image)).second) return true;
        ++counts_.states;
        wrong =
            open(image, run.promises[point], life, ++opened_ % bounds_.deep_every == 0 && life < 3);
        if (wrong.empty()) return true;
        wrong += " in life " + std::to_string(life) + ", pieces ";
        for (const bool each : keeps) wrong += each ? '1' : '0';
        wrong += " are left after" + run.disk.text(point);
        return false;
      });
      if (!wrong.empty()) return wrong;
    }
    return {};
  }

  // Opens the store on what is left, and once more on what is durable then.
  std::string open(const CrashDisk::Image& image, const Promise& promise, unsigned life,
                   bool is_deep) {
    Run run(image, promise);
    std::string wrong = run.live(live_, life, /*may_fail=*/false);
    if (!wrong.empty()) return wrong + run.disk.text(run.disk.operations());
    if (is_deep) {
      const std::uint64_t before = counts_.states;
      wrong = fail_power(run, 0, 1, 2, life + 2);
      counts_.deep += counts_.states - before;
      return wrong;
    }
    Run next(run.disk.durable(), run.promise);
    wrong = next.live(live_, life + 1, /*may_fail=*/false);
    return wrong.empty()
               ? wrong
               : wrong + ", all else is lost after" + run.disk.text(run.disk.operations());
  }

  /// Until `act` returns false.
  void for_each_choice(std::size_t pieces, std::size_t every, std::size_t drawn,
                       const std::function<bool(const std::vector<bool>&)>& act) {
    std::vector<bool> keeps(pieces);
    if (pieces <= every) {
      for (std::size_t choice = 0; choice < std::size_t{1} << pieces; ++choice) {
        for (std::size_t i = 0; i < pieces; ++i) keeps[i] = (choice >> i & 1) != 0;
        if (!act(keeps)) return;
      }
      return;
    }
    for (std::size_t length = 0; length <= pieces; ++length) {
      for (std::size_t i = 0; i < pieces; ++i) keeps[i] = i < length;
      if (!act(keeps)) return;
    }
    for (const bool alone : {true, false}) {
      for (std::size_t piece = 0; piece < pieces; ++piece) {
        for (std::size_t i = 0; i < pieces; ++i) keeps[i] = (i == piece) == alone;
        if (!act(keeps)) return;
      }
    }
    for (std::size_t left = drawn; left != 0; --left) {
      for (std::size_t i = 0; i < pieces; ++i) keeps[i] = rng_.below(2) != 0;
      if (!act(keeps)) return;
    }
  }
  static std::uint64_t sum_of(const CrashDisk::Image& image) {
    std::uint64_t sum = 0;
    for (const auto& [name, bytes] : image) sum = checksum(bytes, mix64(sum ^ hash_text(name)));
    return sum;
  }

  const Live live_;
  const CrashDisk::Image image_;
  const CrashBounds bounds_;
  Rng rng_;
  CrashCounts counts_;
  std::uint64_t opened_ = 0;
};

/// Calls `act` for all words of up to `longest` letters.
inline void for_each_word(std::string_view letters, std::size_t longest,
                          const std::function<void(const std::string&)>& act) {
  std::vector<std::string> words{""};
  for (std::size_t length = 1; length <= longest; ++length) {
    std::vector<std::string> longer;
    for (const std::string& word : words) {
      for (const char letter : letters) act(longer.emplace_back(word + letter));
    }
    words = std::move(longer);
  }
}

}  // namespace pyrdma
