// Deliberate bugs: one for each field and step of the protocol, and those of public
// re-implementations. Tests switch one on to show that the checks find it. A question costs one
// comparison of a constant.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pyrdma::krcore::race {

enum class Bug : std::uint8_t {
  kNone,
  kNoSecondLook,
  kHeaderUnchecked,
  kPrefixForKey,
  kFingerprintForKey,
  kCrcUnchecked,
  kInsertsLeftBehind,
  kLockReturnsAtOnce,
  kSplitNeverFinished,
  kPublishedFirst,
  kReusedAtOnce,
};

/// The names of the bugs after kNone, for the scenario's mutations.
inline constexpr std::array<std::string_view, 10> kBugNames{
    "no_second_look",        // an insertion does not look for duplicates
    "header_unchecked",      // a stale directory is not noticed
    "prefix_for_key",        // the first bytes of a key are taken for the key
    "fingerprint_for_key",   // an equal fingerprint is taken for an equal key
    "crc_unchecked",         // a torn block is taken for a whole one
    "inserts_left_behind",   // a split does not stop insertions into what it has passed
    "lock_returns_at_once",  // a split's lock is taken for held
    "split_never_finished",  // nobody finishes the split of a dead client
    "published_first",       // the directory names a subtable before it has its entries
    "reused_at_once",        // a freed block is used again at once, and readers do not notice
};

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

  bool looks_again() const { return !is(Bug::kNoSecondLook); }
  bool checks_header() const { return !is(Bug::kHeaderUnchecked); }
  /// How many bytes of a key are compared.
  std::size_t compared(std::size_t key_bytes) const {
    if (is(Bug::kFingerprintForKey)) return 0;
    return is(Bug::kPrefixForKey) && key_bytes > 8 ? 8 : key_bytes;
  }
  bool checks_crc() const { return !is(Bug::kCrcUnchecked) && !is(Bug::kReusedAtOnce); }
  bool passes_free_slots() const { return !is(Bug::kInsertsLeftBehind); }
  bool holds_lock(bool correct) const { return correct || is(Bug::kLockReturnsAtOnce); }
  bool looks_at_lock() const { return !is(Bug::kLockReturnsAtOnce); }
  bool finishes_for_others() const { return !is(Bug::kSplitNeverFinished); }
  bool moves_first() const { return !is(Bug::kPublishedFirst); }
  bool renews_versions() const { return !is(Bug::kReusedAtOnce); }

 private:
  constexpr bool is(Bug bug) const { return __builtin_expect(bug_ == bug, 0) != 0; }
  Bug bug_;
};

}  // namespace pyrdma::krcore::race
