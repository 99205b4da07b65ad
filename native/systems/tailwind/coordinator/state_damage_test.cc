// The coordinator's file: a power failure at each operation of the disk, and files that are cut,
// damaged or hostile.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/hostile_test.h"
#include "base/rng.h"
#include "systems/tailwind/coordinator/state.h"
#include "systems/tailwind/coordinator/state_test.h"

namespace pyrdma::tailwind {
namespace {

constexpr std::array kCrashes{FakeDisk::Crash::kProcess, FakeDisk::Crash::kLosesUnsynced,
                              FakeDisk::Crash::kTearsUnsynced};

TEST(TailwindCoordinatorState, APowerFailureLeavesTheStateBeforeOrAfter) {
  Rng rng(1);
  FakeDisk disk;
  std::uint64_t kept = 0, lost = 0;
  for (const auto& command : script()) {
    std::string before, after;
    {
      FakeDisk copy(disk);
      CoordinatorState state(copy, kFile);
      before = all_of(state);
      command(state);
      after = all_of(state);
    }
    bool is_finished = false;
    for (std::uint64_t operations = 0; !is_finished; ++operations) {
      for (const auto crash : kCrashes) {
        for (int tries = 0; tries < (crash == FakeDisk::Crash::kTearsUnsynced ? 20 : 1); ++tries) {
          FakeDisk torn(disk);
          is_finished = false;
          {
            // The first operations are those of the load.
            torn.fail_after(operations);
            try {
              CoordinatorState state(torn, kFile);
              command(state);
              is_finished = true;
            } catch (const PowerFailure&) {
            }
          }
          torn.crash(crash, rng);
          const std::string found = all_of(CoordinatorState(torn, kFile));
          if (is_finished) {
            EXPECT_EQ(found, after);
          } else {
            EXPECT_TRUE(found == before || found == after);
            ++(found == before ? lost : kept);
          }
        }
      }
    }
    CoordinatorState state(disk, kFile);
    command(state);
  }
  EXPECT_GT(kept, 0U);
  EXPECT_GT(lost, 0U);
}

/// A file with a snapshot and the records of the script, and where each of them ends.
struct Written {
  Bytes bytes;
  std::vector<std::size_t> ends;
  std::vector<std::string> states;  // at each end
};

Written written() {
  Written result;
  FakeDisk disk;
  CoordinatorState state(disk, kFile);
  const auto note = [&] {
    result.bytes = disk.read(kFile);
    result.ends.push_back(result.bytes.size());
    result.states.push_back(all_of(state));
  };
  note();
  for (const auto& command : script()) {
    command(state);
    note();
  }
  return result;
}

/// The state in a file, or the text of the Error that refuses it.
std::string loaded(const Bytes& bytes) {
  FakeDisk disk;
  disk.write(kFile, bytes);
  try {
    return all_of(CoordinatorState(disk, kFile));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_EQ(disk.read(kFile), bytes) << "a refused file stays as it is";
    return error.what();
  }
}

std::string damaged_at(std::size_t offset) {
  return "tailwind: the coordinator's file 'coordinator' is damaged at offset " +
         std::to_string(offset) + " of ";
}

TEST(TailwindCoordinatorState, ATornRecordIsCutOff) {
  const Written file = written();
  for (std::size_t record = 1; record < file.ends.size(); ++record) {
    for (std::size_t end = file.ends[record - 1]; end <= file.ends[record]; ++end) {
      Bytes bytes = file.bytes;
      bytes.resize(end);
      const std::size_t last = end == file.ends[record] ? record : record - 1;
      EXPECT_EQ(loaded(bytes), file.states[last]) << "record " << record << " up to " << end;
      bytes.resize(file.ends[record]);
      const bool is_whole = std::equal(bytes.begin(), bytes.end(), file.bytes.begin());
      EXPECT_EQ(loaded(bytes), file.states[is_whole ? record : record - 1])
          << "record " << record << ", zeros from " << end << " on";
    }
  }
}

TEST(TailwindCoordinatorState, ATornSnapshotIsDamage) {
  const Written file = written();
  for (std::size_t end = 0; end < file.ends[0]; ++end) {
    Bytes bytes = file.bytes;
    bytes.resize(end);
    EXPECT_TRUE(loaded(bytes).starts_with(damaged_at(0))) << end;
  }
}

TEST(TailwindCoordinatorState, AFlippedBitIsFound) {
  const Written file = written();
  const std::size_t last = file.ends[file.ends.size() - 2];  // where the last record begins
  std::size_t record = 0;
  for (std::size_t bit = 0; bit < 8 * file.bytes.size(); ++bit) {
    if (bit / 8 == file.ends[record]) ++record;
    Bytes bytes = file.bytes;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    const std::string found = loaded(bytes);
    if (bit / 8 < last) {
      EXPECT_TRUE(found.starts_with(damaged_at(record == 0 ? 0 : file.ends[record - 1])))
          << "bit " << bit << ": " << found;
    } else {
      EXPECT_EQ(found, file.states[file.states.size() - 2]) << "bit " << bit;
    }
  }
}

TEST(TailwindCoordinatorState, RecordsStandInTheirOrder) {
  const Written file = written();
  const auto part = [&](std::size_t from, std::size_t to) {
    return ByteView(file.bytes).subspan(file.ends[from], file.ends[to] - file.ends[from]);
  };
  const auto join = [&](std::initializer_list<ByteView> parts) {
    Bytes bytes(file.bytes.begin(), file.bytes.begin() + static_cast<std::ptrdiff_t>(file.ends[0]));
    for (const ByteView each : parts) bytes.insert(bytes.end(), each.begin(), each.end());
    return bytes;
  };
  EXPECT_EQ(loaded(join({part(0, 1), part(1, 2)})), file.states[2]);
  EXPECT_TRUE(loaded(join({part(1, 2)})).starts_with(damaged_at(file.ends[0]))) << "one is lost";
  EXPECT_TRUE(loaded(join({part(0, 1), part(0, 1)})).starts_with(damaged_at(file.ends[1])));
  EXPECT_TRUE(loaded(join({part(0, 1), ByteView(file.bytes).first(file.ends[0])}))
                  .starts_with(damaged_at(file.ends[1])))
      << "a snapshot amid the file";
}

// One damaged record may be a torn one, if it is the last.
TEST(TailwindCoordinatorState, DamageToTheLastTwoRecordsIsNoTear) {
  const Written file = written();
  const std::size_t last = file.ends.size() - 2;
  Bytes bytes = file.bytes;
  bytes[file.ends[last]] ^= std::byte{1};      // the header of the last one
  bytes[file.ends[last] - 1] ^= std::byte{1};  // the change before it
  EXPECT_TRUE(loaded(bytes).starts_with(damaged_at(file.ends[last - 1])));
}

TEST(TailwindCoordinatorState, AFileThatACrashLeftHasNoEffect) {
  const Written file = written();
  FakeDisk disk;
  disk.write(kFile, file.bytes);
  disk.write(std::string(kFile) + ".new", Bytes(5000, std::byte{0x55}));
  EXPECT_EQ(all_of(CoordinatorState(disk, kFile)), file.states.back());
  EXPECT_LT(disk.read(kFile).size(), 1000U);
  EXPECT_EQ(all_of(CoordinatorState(disk, kFile)), file.states.back());
}

TEST(TailwindCoordinatorState, ALargeFileIsWrittenAnew) {
  FakeDisk disk;
  std::string expected;
  std::size_t largest = 0, anew = 0;
  {
    CoordinatorState state(disk, kFile);
    state.enlist({0, 0});
    std::size_t before = 0;
    for (std::uint64_t version = 1; version <= 50'000; ++version) {
      state.raise_version({0, 0}, version % 10, version);
      const std::size_t size = disk.open(kFile)->size();
      anew += size < before ? 1 : 0;
      largest = std::max(largest, before = size);
    }
    expected = all_of(state);
  }
  EXPECT_EQ(anew, 2U);
  EXPECT_GT(largest, std::size_t{1} << 20);
  EXPECT_LT(largest, (std::size_t{1} << 20) + 100);
  EXPECT_EQ(all_of(CoordinatorState(disk, kFile)), expected);
  EXPECT_LT(disk.read(kFile).size(), 1000U) << "a load writes it anew, too";
}

TEST(TailwindCoordinatorState, AFailureOfTheDiskEndsTheCommands) {
  FakeDisk disk;
  {
    CoordinatorState state(disk, kFile);
    state.enlist({0, 0});
    disk.fail_next_file_sync();
    EXPECT_EQ(error_of([&] { state.enlist({1, 0}); }), ErrorCode::kUnavailable);
    EXPECT_EQ(error_of([&] { state.enlist({2, 0}); }), ErrorCode::kUnavailable);
    EXPECT_FALSE(state.view().is_up({1, 0}));
  }
  CoordinatorState state(disk, kFile);
  EXPECT_TRUE(state.view().is_up({0, 0}));
  EXPECT_FALSE(state.view().is_up({2, 0}));
  EXPECT_TRUE(state.enlist({3, 0}));
}

// ---- hostile files ----

std::string text_of_file(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Bytes bytes_of_file(std::string_view input) {
  const auto bytes = std::as_bytes(std::span(input));
  return {bytes.begin(), bytes.end()};
}

/// What is loaded is loaded again.
void load_any_file(const Bytes& bytes) {
  FakeDisk disk;
  disk.write(kFile, bytes);
  std::string first;
  const auto refused = error_of([&] { first = all_of(CoordinatorState(disk, kFile)); });
  PYRDMA_MUST(!refused || *refused == ErrorCode::kUnavailable);
  PYRDMA_MUST(refused || all_of(CoordinatorState(disk, kFile)) == first);
}

TEST(TailwindCoordinatorState, AnyFileIsLoadedOrRefused) {
  hostile::Mutator mutator({text_of_file(written().bytes)}, 1);
  for (int input = 0; input < 5000 && !HasFatalFailure(); ++input)
    load_any_file(bytes_of_file(mutator.next()));
}

constexpr std::size_t kHeader = 24;  // bytes of a record before its change

Bytes with_checksums(std::uint64_t number, std::string_view change) {
  const ByteView contents = std::as_bytes(std::span(change));
  Bytes bytes;
  ByteWriter out(bytes);
  out.put(std::uint32_t{0x43575450});
  out.put(static_cast<std::uint32_t>(contents.size()));
  out.put(number);
  out.put(crc32c(contents));
  out.put(crc32c(bytes));
  out.put(contents);
  return bytes;
}

TEST(TailwindCoordinatorState, OnlyTheFirstRecordIsASnapshot) {
  const Written file = written();
  const auto change = [&](std::size_t from, std::size_t to) {
    return text_of_file(file.bytes).substr(from + kHeader, to - from - kHeader);
  };
  const std::string snapshot = change(0, file.ends[0]), enlist = change(file.ends[0], file.ends[1]);
  const auto behind_snapshot = [&](std::string_view other) {
    Bytes bytes = with_checksums(0, snapshot);
    ByteWriter(bytes).put(ByteView(with_checksums(1, other)));
    return loaded(bytes);
  };
  const std::size_t end = kHeader + snapshot.size();
  EXPECT_EQ(behind_snapshot(enlist), file.states[1]);
  EXPECT_TRUE(behind_snapshot(snapshot).starts_with(damaged_at(end)));
  EXPECT_TRUE(behind_snapshot("").starts_with(damaged_at(end)));
  EXPECT_TRUE(loaded(with_checksums(0, enlist)).starts_with(damaged_at(0)));
  EXPECT_TRUE(loaded(with_checksums(0, "")).starts_with(damaged_at(0)));
}

// Changes that lie, in records whose checksums are right.
TEST(TailwindCoordinatorState, ChangesThatLieAreLoadedOrRefused) {
  const Written file = written();
  FakeDisk disk;
  disk.write(kFile, file.bytes);
  CoordinatorState(disk, kFile);
  const Bytes snapshot = disk.read(kFile);
  std::vector<std::string> changes{text_of_file(snapshot).substr(kHeader)};
  for (std::size_t i = 0; i + 1 < file.ends.size(); ++i) {
    changes.push_back(
        text_of_file(file.bytes)
            .substr(file.ends[i] + kHeader, file.ends[i + 1] - file.ends[i] - kHeader));
  }
  Rng rng(1);
  hostile::Mutator mutator(changes, 1);
  for (int input = 0; input < 10'000 && !HasFatalFailure(); ++input) {
    const std::string change = mutator.next();
    if (input % 2 == 0) {
      load_any_file(with_checksums(0, change));
      continue;
    }
    // Behind some of the true records.
    const std::size_t true_ones = rng.below(file.ends.size());
    Bytes bytes = file.bytes;
    bytes.resize(file.ends[true_ones]);
    ByteWriter(bytes).put(ByteView(with_checksums(true_ones, change)));
    load_any_file(bytes);
  }
}

}  // namespace
}  // namespace pyrdma::tailwind
