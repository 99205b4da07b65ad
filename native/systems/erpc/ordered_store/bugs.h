// Deliberate bugs of the ordered store. Tests switch one on to show that they find it.
//
// The store hands its steps to StoreBugs, which runs the correct step unless its bug is on; the
// wrong steps are in bugs.cc. A question costs one comparison of a constant.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace pyrdma::erpc {

class StoreReader;
struct StoreEntry;

enum class StoreBug : std::uint8_t {
  kNone,
  kScanOfTwoMoments,  // a scan reads its second half in a later transaction
  kSnapshotKept,      // a reader begins its transaction once, and never again
  kKeysAsBytes,       // keys are ordered by their bytes in memory, not by their values
};

/// The names of the bugs after kNone.
inline constexpr std::array<std::string_view, 3> kStoreBugNames{"scan_of_two_moments",
                                                                "snapshot_kept", "keys_as_bytes"};

class StoreBugs {
 public:
  constexpr StoreBugs(StoreBug bug = StoreBug::kNone) : bug_(bug) {}  // NOLINT: it is a hook
  /// Returns the bug with this name; nothing for an unknown name.
  static constexpr StoreBugs named(std::string_view name) {
    for (std::size_t i = 0; i < kStoreBugNames.size(); ++i) {
      if (kStoreBugNames[i] == name) return static_cast<StoreBug>(i + 1);
    }
    return {};
  }

  /// The begin and the end of a read. Correct: a new snapshot, given back at the end.
  template <class Step>
  void begin_read(StoreReader& reader, Step&& correct) const {
    is(StoreBug::kSnapshotKept) ? begin_once(reader) : correct();
  }
  template <class Step>
  void end_read(Step&& correct) const {
    if (!is(StoreBug::kSnapshotKept)) correct();
  }
  /// Correct: one snapshot for the whole scan.
  template <class Step>
  std::size_t scan(StoreReader& reader, std::uint64_t first, std::span<StoreEntry> out,
                   Step&& correct) const {
    return is(StoreBug::kScanOfTwoMoments) ? scan_halves(reader, first, out) : correct(first, out);
  }
  /// Returns the flags of the map. Correct: keys are numbers.
  unsigned map_flags(unsigned correct) const { return is(StoreBug::kKeysAsBytes) ? 0 : correct; }

 private:
  bool is(StoreBug bug) const { return __builtin_expect(static_cast<long>(bug_ == bug), 0L) != 0; }

  // The wrong steps.
  static void begin_once(StoreReader& reader);
  static std::size_t scan_halves(StoreReader& reader, std::uint64_t first,
                                 std::span<StoreEntry> out);

  StoreBug bug_;
};

}  // namespace pyrdma::erpc
