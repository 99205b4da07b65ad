// A bounded exhaustive search of the schedules and failures of a small core. The core is compiled
// code; a World around it says what may happen next and makes it happen. The search takes every
// choice of every state, nearest states first, so the choices that lead to a violation are the
// fewest that do.
//
// A state is known by 128 bits of its hash (StateHash), which prune it when it is reached again.
// Two states of ten million share them with a probability of about 10^-25. A World whose hash
// leaves out what matters for its future is pruned wrongly, and nobody notices: hash all of it, and
// also that a step was wrong.
//
//   struct World {
//     struct Choice { ... };                       // plain data
//     std::vector<Choice> choices() const;         // what may happen next, in a fixed order
//     void take(const Choice&);
//     std::string describe(const Choice&) const;   // for traces
//     StateHash hash() const;                      // of the state
//     std::string wrong() const;                   // what must never be; empty if all is well
//     std::string finish();                        // optional: nothing more goes wrong from here;
//   };                                             //   returns what has not ended well
//
// A World that can be copied is copied, unless too many copies wait for their turn. Any other one
// is made anew and replays the choices that lead to its state, so it must do the same each time;
// the search asserts it.
#pragma once
#include <algorithm>
#include <concepts>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/checksum.h"
#include "base/rng.h"

namespace pyrdma::check {

/// The hash of a state, 128 bits from two different chains.
class StateHash {
 public:
  void add(std::uint64_t word) {
    low_ = mix64(low_ ^ word);
    high_ = mix64((high_ + word) * 0x9e3779b97f4a7c15ULL);
  }
  void add(ByteView bytes) {
    add(checksum(bytes));
    add(checksum(bytes, kOther));
  }
  void add(const StateHash& part) {
    add(part.low_);
    add(part.high_);
  }
  /// Adds parts whose order does not matter.
  void add_set(std::vector<StateHash> parts) {
    std::ranges::sort(parts, {},
                      [](const StateHash& each) { return std::pair(each.low_, each.high_); });
    add(parts.size());
    for (const StateHash& part : parts) add(part);
  }
  bool operator==(const StateHash&) const = default;
  struct InTable {
    std::size_t operator()(const StateHash& hash) const { return hash.low_; }
  };

 private:
  static constexpr std::uint64_t kOther = 0x6a09e667f3bcc909ULL;
  std::uint64_t low_ = 0, high_ = kOther;
};

struct Bounds {
  std::uint32_t depth = std::numeric_limits<std::uint32_t>::max();  // choices from the begin
  std::uint64_t states = 10'000'000;
};

struct Explored {
  std::string wrong;               // the first violation; empty: none
  std::vector<std::string> trace;  // the choices that lead to it
  std::uint64_t states = 0, steps = 0;
  std::uint64_t ends = 0;   // states after which nothing can happen
  std::uint32_t depth = 0;  // of the deepest state
  bool is_cut = false;      // a bound has left out states

  std::string text() const {
    std::string all = wrong.empty() ? "nothing wrong" : wrong;
    all += ": " + std::to_string(states) + " states, " + std::to_string(steps) + " steps, " +
           std::to_string(ends) + " ends, depth " + std::to_string(depth) + (is_cut ? ", cut" : "");
    for (const std::string& each : trace) all += "\n  " + each;
    return all;
  }
};

/// Explores the worlds that make() begins; it returns a std::unique_ptr<World>.
template <class Make>
class Explorer {
  using World = typename std::invoke_result_t<Make&>::element_type;
  using Choice = typename World::Choice;

 public:
  explicit Explorer(Make make, Bounds bounds = {}) : make_(std::move(make)), bounds_(bounds) {}

  Explored run() {
    arrive(make_(), kNone, Choice{}, 0);
    while (!open_.empty() && explored_.wrong.empty()) {
      Open open = std::move(open_.front());
      open_.pop_front();
      if (open.world != nullptr) --kept_;
      if (open.depth >= bounds_.depth)
        explored_.is_cut = true;
      else
        expand(std::move(open));
    }
    return explored_;
  }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::size_t kMostKept = 50'000;
  struct Reached {
    std::uint32_t from = kNone;
    Choice by{};
  };
  struct Open {
    std::uint32_t place = 0, depth = 0;
    StateHash hash;
    std::unique_ptr<World> world;  // null: replay it
  };

  void expand(Open open) {
    std::unique_ptr<World> world = open.world != nullptr ? std::move(open.world) : replay(open);
    for (const Choice& choice : world->choices()) {
      if (explored_.states >= bounds_.states) {
        explored_.is_cut = true;
        return;
      }
      std::unique_ptr<World> after;
      if constexpr (std::copy_constructible<World>)
        after = std::make_unique<World>(*world);
      else
        after = world != nullptr ? std::move(world) : replay(open);
      after->take(choice);
      ++explored_.steps;
      arrive(std::move(after), open.place, choice, open.depth + 1);
      if (!explored_.wrong.empty()) return;
    }
  }

  // The choices that lead to a place, first one first.
  std::vector<Choice> path_to(std::uint32_t place) const {
    std::vector<Choice> path;
    for (; reached_[place].from != kNone; place = reached_[place].from)
      path.push_back(reached_[place].by);
    std::ranges::reverse(path);
    return path;
  }

  std::unique_ptr<World> replay(const Open& open) {
    std::unique_ptr<World> world = make_();
    for (const Choice& choice : path_to(open.place)) world->take(choice);
    PYRDMA_ASSERT(world->hash() == open.hash);
    return world;
  }

  void arrive(std::unique_ptr<World> world, std::uint32_t from, const Choice& by,
              std::uint32_t depth) {
    Open open{static_cast<std::uint32_t>(reached_.size()), depth, world->hash(), nullptr};
    if (!known_.insert(open.hash).second) return;
    reached_.push_back({from, by});
    ++explored_.states;
    explored_.depth = std::max(explored_.depth, depth);
    const bool is_end = world->choices().empty();
    explored_.ends += is_end;
    explored_.wrong = world->wrong();
    if constexpr (std::copy_constructible<World>) {
      if (!is_end && kept_ < kMostKept) open.world = std::make_unique<World>(*world);
      kept_ += open.world != nullptr;
    }
    if constexpr (requires { world->finish(); }) {
      if (explored_.wrong.empty()) explored_.wrong = world->finish();
    }
    if (!explored_.wrong.empty()) return tell(open.place);
    if (!is_end) open_.push_back(std::move(open));
  }

  void tell(std::uint32_t place) {
    const std::unique_ptr<World> world = make_();
    for (const Choice& choice : path_to(place)) {
      explored_.trace.push_back(world->describe(choice));
      world->take(choice);
    }
  }

  Make make_;
  Bounds bounds_;
  Explored explored_;
  std::vector<Reached> reached_;
  std::deque<Open> open_;  // nearest first
  std::size_t kept_ = 0;   // copies of worlds in it
  std::unordered_set<StateHash, StateHash::InTable> known_;
};

}  // namespace pyrdma::check
