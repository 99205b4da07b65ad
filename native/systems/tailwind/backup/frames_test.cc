// The index of a backup's files: it stays small, and a loss of power leaves it whole.
#include "systems/tailwind/backup/frames.h"

#include <gtest/gtest.h>

#include <set>

#include "systems/tailwind/backup/backup_world_test.h"
#include "systems/tailwind/coordinator/state_test.h"
#include "systems/tailwind/log/scan.h"

namespace pyrdma::tailwind {
namespace {

constexpr std::uint64_t kLog = 7;
constexpr std::uint32_t kMostBytes = 4096;

Bytes frame_data() {
  const Replica replica = segment(ServerId::of(kLog), 1);
  const ByteView bytes = written(replica);
  return {bytes.begin(), bytes.end()};
}
void write_frame(Frames& frames, std::uint64_t number) {
  const Bytes data = frame_data();
  const Scan found = scan(data);
  frames.write({kLog, number, 1, 0, static_cast<std::uint32_t>(data.size()),
                static_cast<std::uint32_t>(found.entries), found.checksum},
               data);
}
/// The test's disk may tear a record, which a real one's sectors do not.
std::set<std::uint64_t> numbers_of(Storage& disk, bool may_tear = false) {
  std::vector<std::string> problems;
  std::set<std::uint64_t> numbers;
  for (const Frame& frame : Frames(disk, kMostBytes).find(problems)) numbers.insert(frame.segment);
  EXPECT_TRUE(may_tear || problems.empty()) << problems.front();
  return numbers;
}

TEST(TailwindFrames, TheIndexStaysSmall) {
  FakeDisk disk;
  Frames frames(disk, kMostBytes);
  std::vector<std::string> problems;
  EXPECT_TRUE(frames.find(problems).empty());
  for (std::uint64_t number = 1; number <= 5000; ++number) {
    write_frame(frames, number);
    if (number > 10) frames.remove(kLog, number - 10);
    ASSERT_LE(disk.read("replicas").size(), 32U * (1024 + 2 * 11));
  }
  const std::set<std::uint64_t> found = numbers_of(disk);
  EXPECT_EQ(found.size(), 10U);
  EXPECT_EQ(*found.begin(), 4991U);
}

TEST(TailwindFrames, AReplicaMayFillASegmentButNotMore) {
  FakeDisk disk;
  std::vector<std::string> problems;
  Frames writer(disk, kMostBytes);
  writer.find(problems);
  write_frame(writer, 1);
  const auto bytes = static_cast<std::uint32_t>(frame_data().size());
  EXPECT_EQ(Frames(disk, bytes).find(problems).size(), 1U);
  EXPECT_TRUE(problems.empty());
  EXPECT_TRUE(Frames(disk, bytes - 1).find(problems).empty());
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].find("larger segment_bytes"), std::string::npos) << problems[0];
}

TEST(TailwindFrames, ADiskThatFailsWhileTheIndexIsWrittenAnewHoldsUpNoRemoval) {
  FakeDisk disk;
  Frames frames(disk, kMostBytes);
  std::vector<std::string> problems;
  frames.find(problems);
  write_frame(frames, 1);
  constexpr std::size_t kRecord = 32;
  std::uint64_t number = 2;
  for (std::size_t before = 0, records = 0; records >= before; ++number) {
    before = disk.read("replicas").size() / kRecord;
    write_frame(frames, number);
    // One replica stays, so the index is due when 1,026 records are stale.
    if (disk.read("replicas").size() == 1027 * kRecord) disk.fail_next_file_sync();
    frames.remove(kLog, number);
    EXPECT_FALSE(numbers_of(disk).contains(number));
    records = disk.read("replicas").size() / kRecord;
    ASSERT_LE(records, 4096U);
  }
  EXPECT_GT(number, 1500U) << "it was put off";
  write_frame(frames, number);
  EXPECT_EQ(numbers_of(disk), (std::set<std::uint64_t>{1, number}));
}

TEST(TailwindFrames, ALossOfPowerWhileTheIndexIsWrittenAnewLosesNoReplica) {
  Rng rng(1);
  FakeDisk disk;
  std::uint64_t next = 1, before = 0;
  {
    Frames frames(disk, kMostBytes);
    std::vector<std::string> problems;
    frames.find(problems);
    for (; next <= 5; ++next) write_frame(frames, next);
    // The next removal but one writes the index anew.
    for (; next < 5 + 1024 + 5; ++next) {
      write_frame(frames, next);
      frames.remove(kLog, next);
    }
    before = disk.read("replicas").size();
  }
  std::uint64_t rewritten = 0, kept = 0;
  bool is_finished = false;
  for (std::uint64_t operations = 0; !is_finished; ++operations) {
    for (const auto crash : {FakeDisk::Crash::kProcess, FakeDisk::Crash::kLosesUnsynced,
                             FakeDisk::Crash::kTearsUnsynced}) {
      for (int tries = 0; tries < (crash == FakeDisk::Crash::kTearsUnsynced ? 20 : 1); ++tries) {
        FakeDisk torn(disk);
        is_finished = false;
        torn.fail_after(operations);
        try {
          Frames frames(torn, kMostBytes);
          std::vector<std::string> problems;
          frames.find(problems);
          frames.remove(kLog, 1);
          frames.remove(kLog, 2);
          write_frame(frames, 9999);
          is_finished = true;
        } catch (const PowerFailure&) {
        }
        torn.crash(crash, rng);
        std::set<std::uint64_t> found = numbers_of(torn, crash == FakeDisk::Crash::kTearsUnsynced);
        for (const std::uint64_t number : {3U, 4U, 5U}) EXPECT_TRUE(found.contains(number));
        EXPECT_LE(found.size(), 6U);
        if (is_finished) {
          EXPECT_EQ(found, (std::set<std::uint64_t>{3, 4, 5, 9999}));
        }
        ++(torn.read("replicas").size() < before ? rewritten : kept);
        // What is written later is found, too.
        {
          Frames frames(torn, kMostBytes);
          std::vector<std::string> problems;
          frames.find(problems);
          write_frame(frames, 7777);
        }
        torn.crash(FakeDisk::Crash::kLosesUnsynced, rng);
        EXPECT_TRUE(numbers_of(torn, true).contains(7777));
      }
    }
  }
  EXPECT_GT(rewritten, 20U);
  EXPECT_GT(kept, 20U);
}

}  // namespace
}  // namespace pyrdma::tailwind
