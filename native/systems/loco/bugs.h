// Deliberate bugs, most of them taken from published systems. Tests switch one on to show that the
// checks find it.
//
// The protocol asks Bugs at the steps that a bug changes, and holds no code for a bug itself. A
// member function runs the correct step or returns the correct value, unless its bug is on; the
// wrong steps are in bugs.cc. A question costs one comparison of a constant.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/checksum.h"
#include "runtime/caller.h"
#include "systems/loco/names.h"

namespace pyrdma::loco {

class AcquireOp;
class AtomicVars;
class KvOperation;
class RingBuffer;

enum class Bug : std::uint8_t {
  kNone,
  kReleaseWithoutFence,
  kCompletionTakenForPlacement,
  kPublishedBeforePlaced,
  kChecksumOfTheEnds,
  kHostAddsByCpu,
  kTailIsAFlag,
  kAcknowledgedBeforeCopied,
  kUnfenced,
};

/// The names of the bugs after kNone, for `pyrdma fuzz loco --mutation`.
inline constexpr std::array<std::string_view, 8> kBugNames{
    "release_without_fence",      "completion_taken_for_placement",
    "published_before_placed",    "checksum_of_the_ends",
    "host_adds_by_cpu",           "tail_is_a_flag",
    "acknowledged_before_copied", "unfenced"};

class Bugs {
 public:
  constexpr Bugs(Bug bug = Bug::kNone) : bug_(bug) {}  // NOLINT: a bug is a hook by itself
  /// Returns the bug with this name; nothing for an unknown name.
  static constexpr Bugs named(std::string_view name) {
    for (std::size_t i = 0; i < kBugNames.size(); ++i) {
      if (kBugNames[i] == name) return static_cast<Bug>(i + 1);
    }
    return {};
  }

  // Fences.

  /// The fence between the last write of a critical section and the release of its lock.
  template <class Step>
  void fence_release(Step&& correct) const {
    if (!is(Bug::kReleaseWithoutFence)) correct();
  }
  /// Correct: the fence reads back, because a completed write may not be visible yet.
  fabric::Status fence_thread(Caller& me) const {
    return is(Bug::kCompletionTakenForPlacement) ? await_thread(me) : me.fence_thread();
  }
  fabric::Status fence_global(Caller& me) const {
    return is(Bug::kCompletionTakenForPlacement) ? await_global(me) : me.fence_global();
  }

  // Words of many writers.

  /// Correct: the host adds to its word through its NIC, as every node does.
  template <class Step>
  std::uint64_t fetch_add(const AtomicVars& words, std::uint64_t i, std::uint64_t addend,
                          Step&& correct) const {
    if (is(Bug::kHostAddsByCpu)) {
      if (const auto old = add_by_cpu(words, i, addend)) return *old;
    }
    return correct();
  }
  /// The same for the ticket of a lock.
  template <class Step>
  void ask_ticket(AcquireOp& op, Step&& correct) const {
    if (!is(Bug::kHostAddsByCpu) || !take_by_cpu(op)) correct();
  }

  // The store.

  /// The write of an update. Correct: it is placed before the lock is released.
  template <class Step>
  void write_update(KvOperation& op, Step&& correct) const {
    is(Bug::kReleaseWithoutFence) ? write_and_release(op) : correct();
  }
  /// Returns whether an update's write, or a removal's, is placed before its lock is released.
  bool places_update(bool correct) const {
    return correct && !is(Bug::kUnfenced) && !is(Bug::kCompletionTakenForPlacement);
  }
  bool places_removal() const { return !is(Bug::kCompletionTakenForPlacement); }
  /// The end of an insertion. Correct: the value is in its slot.
  template <class Step>
  bool publish(KvOperation& op, Step&& correct) const {
    if (is(Bug::kPublishedBeforePlaced)) write_again(op);
    return correct();
  }
  /// Correct: the checksum covers all bytes of a value. With the bug it covers the first and the
  /// last word.
  std::uint64_t checksum_of_value(std::span<const std::byte> bytes) const {
    if (!is(Bug::kChecksumOfTheEnds)) return checksum(bytes);
    return checksum(bytes.first(8)) ^ checksum(bytes.last(8));
  }

  // Ring buffers.

  /// Correct: a message ends with a checksum. With the bug it ends with a flag, here its first
  /// word, and the reader takes the flag as proof that all earlier bytes have arrived.
  std::uint64_t tail_of_message(std::uint64_t sum, std::uint64_t flag) const {
    return is(Bug::kTailIsAFlag) ? flag : sum;
  }
  /// Returns the message for the reader. Correct: the copy, which the reader then acknowledges.
  std::span<const std::byte> received(RingBuffer& ring, Caller& me,
                                      std::span<const std::byte> in_ring,
                                      std::span<const std::byte> copy) const {
    if (!is(Bug::kAcknowledgedBeforeCopied)) return copy;
    acknowledge(ring, me);
    return in_ring;
  }

 private:
  bool is(Bug bug) const { return __builtin_expect(static_cast<long>(bug_ == bug), 0L) != 0; }

  // The wrong steps.
  static fabric::Status await_thread(Caller& me);
  static fabric::Status await_global(Caller& me);
  static std::optional<std::uint64_t> add_by_cpu(const AtomicVars& words, std::uint64_t i,
                                                 std::uint64_t addend);
  static bool take_by_cpu(AcquireOp& op);
  static void post_value(KvOperation& op);
  static void write_and_release(KvOperation& op);
  static void write_again(KvOperation& op);
  static void acknowledge(RingBuffer& ring, Caller& me);

  Bug bug_;
};

}  // namespace pyrdma::loco
