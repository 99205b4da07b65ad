// Deliberate bugs, each that of a published system. Tests switch one on to show that the checks
// find it.
//
// The protocol asks Bugs at the few steps that a bug changes, and knows of bugs nowhere else. An
// answer costs one comparison of a constant, and without a bug it is the right one.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "systems/loco/checksum.h"

namespace pyrdma::loco {

enum class Bug : std::uint8_t {
  kNone,
  kReleaseWithoutFence,
  kCompletionTakenForPlacement,
  kPublishedBeforePlaced,
  kChecksumOfTheEnds,
  kHostAddsByCpu,
  kTailIsAFlag,
  kAcknowledgedBeforeCopied,
};

/// The names of the bugs behind kNone, as `pyrdma fuzz loco --mutation` takes them.
inline constexpr std::array<std::string_view, 7> kBugNames{
    "release_without_fence",     "completion_taken_for_placement",
    "published_before_placed",   "checksum_of_the_ends",
    "host_adds_by_cpu",          "tail_is_a_flag",
    "acknowledged_before_copied"};

class Bugs {
 public:
  constexpr Bugs(Bug bug = Bug::kNone) : bug_(bug) {}  // NOLINT: a bug is a hook by itself
  /// The bug of a name; none for another one.
  static constexpr Bugs named(std::string_view name) {
    for (std::size_t i = 0; i < kBugNames.size(); ++i) {
      if (kBugNames[i] == name) return static_cast<Bug>(i + 1);
    }
    return {};
  }

  /// Right: between the last write of a critical section and the release of the lock is a fence.
  bool releases_without_fence() const { return is(Bug::kReleaseWithoutFence); }
  /// Right: a fence reads back, since a write that has completed may not be visible yet.
  bool fences_trust_completions() const { return is(Bug::kCompletionTakenForPlacement); }
  /// Right: a value is placed before the entry that it belongs to is published.
  bool publishes_before_placed() const { return is(Bug::kPublishedBeforePlaced); }
  /// Right: of all bytes of a value. With the bug: of its first and its last word.
  std::uint64_t checksum_of_value(std::span<const std::byte> bytes) const {
    if (!is(Bug::kChecksumOfTheEnds)) return checksum(bytes);
    return checksum(bytes.first(8)) ^ checksum(bytes.last(8));
  }
  /// Right: nothing, the host of a word adds to it through its NIC, as everybody does. With the
  /// bug: what its CPU found there when it added. `word()` is null elsewhere.
  template <class Word>
  std::optional<std::uint64_t> add_by_cpu(Word&& word, std::uint64_t addend) const {
    if (!is(Bug::kHostAddsByCpu)) return std::nullopt;
    std::uint64_t* at = word();
    if (at == nullptr) return std::nullopt;
    return __atomic_fetch_add(at, addend, __ATOMIC_ACQ_REL);
  }
  /// Right: a message ends with a checksum. With the bug: with a flag, here its first word, that is
  /// trusted to mean that all before it has arrived.
  std::uint64_t tail_of_message(std::uint64_t sum, std::uint64_t flag) const {
    return is(Bug::kTailIsAFlag) ? flag : sum;
  }
  /// Right: a reader acknowledges a message when it has copied it.
  bool acknowledges_before_copy() const { return is(Bug::kAcknowledgedBeforeCopied); }

 private:
  bool is(Bug bug) const { return __builtin_expect(static_cast<long>(bug_ == bug), 0L) != 0; }
  Bug bug_;
};

}  // namespace pyrdma::loco
