// Deliberate bugs, each taken from a published system. Tests switch one on to show that the checks
// find it.
//
// The protocol asks Bugs at the few steps that a bug changes, and mentions bugs nowhere else. An
// answer costs one comparison of a constant. Without a bug it is the correct answer.
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

/// The names of the bugs after kNone, for `pyrdma fuzz loco --mutation`.
inline constexpr std::array<std::string_view, 7> kBugNames{
    "release_without_fence",     "completion_taken_for_placement",
    "published_before_placed",   "checksum_of_the_ends",
    "host_adds_by_cpu",          "tail_is_a_flag",
    "acknowledged_before_copied"};

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

  /// Correct: a fence stands between the last write of a critical section and the release of the
  /// lock.
  bool releases_without_fence() const { return is(Bug::kReleaseWithoutFence); }
  /// Correct: a fence reads back, because a completed write may not be visible yet.
  bool fences_trust_completions() const { return is(Bug::kCompletionTakenForPlacement); }
  /// Correct: a value is placed before the entry that points to it is published.
  bool publishes_before_placed() const { return is(Bug::kPublishedBeforePlaced); }
  /// Correct: the checksum covers all bytes of a value. With the bug it covers the first and the
  /// last word.
  std::uint64_t checksum_of_value(std::span<const std::byte> bytes) const {
    if (!is(Bug::kChecksumOfTheEnds)) return checksum(bytes);
    return checksum(bytes.first(8)) ^ checksum(bytes.last(8));
  }
  /// Correct: nothing; the host adds to its word through its NIC, as every node does. With the bug:
  /// the value that the host's CPU found when it added. `word()` is null on other nodes.
  template <class Word>
  std::optional<std::uint64_t> add_by_cpu(Word&& word, std::uint64_t addend) const {
    if (!is(Bug::kHostAddsByCpu)) return std::nullopt;
    std::uint64_t* at = word();
    if (at == nullptr) return std::nullopt;
    return __atomic_fetch_add(at, addend, __ATOMIC_ACQ_REL);
  }
  /// Correct: a message ends with a checksum. With the bug it ends with a flag, here its first
  /// word, and the reader takes the flag as proof that all earlier bytes have arrived.
  std::uint64_t tail_of_message(std::uint64_t sum, std::uint64_t flag) const {
    return is(Bug::kTailIsAFlag) ? flag : sum;
  }
  /// Correct: a reader acknowledges a message after it has copied the message.
  bool acknowledges_before_copy() const { return is(Bug::kAcknowledgedBeforeCopied); }

 private:
  bool is(Bug bug) const { return __builtin_expect(static_cast<long>(bug_ == bug), 0L) != 0; }
  Bug bug_;
};

}  // namespace pyrdma::loco
