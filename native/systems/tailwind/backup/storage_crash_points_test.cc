// What servers keep on their disks, at every crash point: replicas in files, memory that a battery
// has saved, and the coordinator's file. Each holds what was durable, or what was on its way.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "env/sim/crash_points_test.h"
#include "fuzz/small_test.h"
#include "systems/tailwind/backup/backup_world_test.h"
#include "systems/tailwind/backup/buffer_pool.h"
#include "systems/tailwind/backup/frames.h"
#include "systems/tailwind/coordinator/state.h"
#include "systems/tailwind/coordinator/state_test.h"
#include "systems/tailwind/log/scan.h"

namespace pyrdma::tailwind {
namespace {

constexpr std::uint64_t kCrashLog = 7;
constexpr std::uint32_t kCrashBytes = 4096;

/// The attempts of each segment that its file may have; 0: there is no file.
using Replicas = std::map<std::uint64_t, std::set<std::uint64_t>>;

/// Calls of Frames, and what is known of their effects.
struct FrameWriter {
  Frames& frames;
  Replicas& known;

  void write(std::uint64_t segment, std::uint64_t attempt) {
    const Replica replica = tailwind::segment(ServerId::of(kCrashLog), segment);
    const Bytes data(written(replica).begin(), written(replica).end());
    const Scan found = scan(data);
    known[segment].insert(attempt);
    frames.write({kCrashLog, segment, attempt, 0, static_cast<std::uint32_t>(data.size()),
                  static_cast<std::uint32_t>(found.entries), found.checksum},
                 data);
    known[segment] = {attempt};
  }
  void remove(const std::vector<std::uint64_t>& segments) {
    std::vector<Frames::Name> names;
    for (const std::uint64_t segment : segments) {
      names.emplace_back(kCrashLog, segment);
      known[segment].insert(0);
    }
    frames.remove(names);
    for (const std::uint64_t segment : segments) known[segment] = {0};
  }
};

std::string compare_frames(Frames& frames, Replicas& known) {
  std::vector<std::string> problems;
  std::map<std::uint64_t, std::uint64_t> found;
  for (const Frame& frame : frames.find(problems)) found[frame.segment] = frame.attempt;
  if (!problems.empty()) return problems.front();
  for (auto& [segment, attempts] : known) {
    const std::uint64_t attempt = found.contains(segment) ? found[segment] : 0;
    if (!attempts.contains(attempt))
      return "of segment " + std::to_string(segment) + " there is attempt " +
             std::to_string(attempt);
    attempts = {attempt};
    found.erase(segment);
  }
  return found.empty() ? "" : "a segment that nobody wrote";
}

/// `retries`: a call that has failed is made again, as the thread of a backup does.
CrashSearch<Replicas>::Live life_of_frames(bool retries) {
  return [retries](Storage& disk, Replicas& known, unsigned life) -> std::string {
    Frames frames(disk, kCrashBytes);
    if (known.empty()) known = {{1, {0}}, {2, {0}}, {3, {0}}};
    std::string wrong = compare_frames(frames, known);
    if (!wrong.empty()) return wrong;
    FrameWriter writer{frames, known};
    const auto call = [&](const auto& act) {
      try {
        act();
      } catch (const Error&) {
        if (!retries) throw;
        act();
      }
    };
    if (life == 0) {
      call([&] { writer.write(1, 1); });
      call([&] { writer.write(2, 1); });
      call([&] { writer.write(1, 2); });
      call([&] { writer.remove({2, 3}); });
      call([&] { writer.write(2, 3); });
    } else {
      call([&] { writer.write(3, 10 + life); });
      call([&] { writer.remove({1}); });
    }
    return {};
  };
}

TEST(TailwindFramesCrashPoints, AReplicaIsThereOrNot) {
  for (const bool retries : {false, true}) {
    CrashSearch<Replicas> search(life_of_frames(retries));
    EXPECT_EQ(search.run(), "");
    EXPECT_GE(search.counts().states, 4000U);
    EXPECT_GE(search.counts().restarts, 30U);
    EXPECT_GE(search.counts().failures, 50U);
  }
}

// The index has so many records of files that are gone that a removal writes it anew.
TEST(TailwindFramesCrashPoints, TheIndexIsWrittenAnewOrNot) {
  CrashDisk::Image image;
  {
    FakeDisk disk;
    Frames frames(disk, kCrashBytes);
    Replicas known;
    compare_frames(frames, known);
    FrameWriter writer{frames, known};
    // Segment 9 stays. Otherwise the index would be written anew here.
    for (const std::uint64_t segment : {9U, 10U, 11U}) writer.write(segment, 1);
    writer.remove({10, 11});
    for (std::uint64_t segment = 100; segment < 100 + 1023; ++segment) {
      writer.write(segment, 1);
      writer.remove({segment});
    }
    image["replicas"] = disk.read("replicas");
  }
  const std::size_t before = image["replicas"].size();
  std::uint64_t rewritten = 0;
  const auto live = life_of_frames(true);
  CrashSearch<Replicas> search(
      [&](Storage& storage, Replicas& known, unsigned life) {
        std::string wrong = live(storage, known, life);
        rewritten += storage.open("replicas")->size() < before;
        return wrong;
      },
      image, {3, 1, 1, 1, 1000});
  EXPECT_EQ(search.run(), "");
  EXPECT_GT(rewritten, 1000U);
  EXPECT_GE(search.counts().states, 1000U);
}

/// What a battery has saved: the segments, and whether they are on the way to be removed.
struct Saved {
  std::set<std::uint64_t> must{1, 2, 3};
  bool may_go = false;
};

std::string live_with_saved_memory(Storage& disk, Saved& known, unsigned life) {
  keep_saved_memory(disk);
  std::vector<std::string> problems;
  std::set<std::uint64_t> found;
  for (const SavedMemory& memory :
       find_saved_buffers(disk, backup_options().segment_bytes, problems)) {
    for (const SavedBuffer& buffer : memory.buffers) found.insert(buffer.contents.segment);
  }
  const bool is_part = std::ranges::includes(known.must, found);
  // A crash has ended a removal: some are left, and others may come back.
  if (!is_part || (!known.may_go && (found != known.must || !problems.empty())))
    return std::to_string(found.size()) + " of " + std::to_string(known.must.size()) +
           " replicas are found" + (problems.empty() ? "" : "; " + problems.front());
  if (life == 1) return {};  // a process that ends at once
  known.may_go = true;
  remove_saved_memory(disk, 0);
  known = {{}, false};
  for (std::size_t number = 0; number < 9; ++number) {
    if (disk.exists("saved-0-" + std::to_string(number))) return "a file is left";
  }
  return {};
}

TEST(TailwindSavedMemoryCrashPoints, AllOfItIsFoundUntilItIsRemoved) {
  CrashDisk::Image saved;
  {
    BackupWorld world;
    for (const std::uint64_t number : {1U, 2U, 3U})
      world.open({number, 1}, segment(BackupWorld::kPrimary, number));
    world.world.cluster.kill(0, fabric::sim::Crash::kHostBattery);
    world.stop();
    for (std::size_t number = 0;; ++number) {
      const std::string name = "memory-" + std::to_string(number);
      if (!world.disk().exists(name)) break;
      const auto file = world.disk().open(name);
      Bytes& bytes = saved[name];
      bytes.resize(file->size());
      file->read(0, bytes);
    }
  }
  ASSERT_GE(saved.size(), 4U);
  CrashSearch<Saved> search(live_with_saved_memory, saved);
  EXPECT_EQ(search.run(), "");
  EXPECT_GE(search.counts().states, 300U);
  EXPECT_GE(search.counts().restarts, 20U);
}

/// How many of the script's commands have happened.
struct Happened {
  std::size_t must = 0, may = 0;
};

TEST(TailwindCoordinatorCrashPoints, AChangeHappenedOrNot) {
  const auto commands = script();
  std::vector<std::string> states;  // after so many commands
  {
    CrashDisk disk;
    CoordinatorState state(disk, kFile);
    states.push_back(all_of(state));
    for (const auto& command : commands) {
      command(state);
      states.push_back(all_of(state));
    }
  }
  CrashSearch<Happened> search([&](Storage& disk, Happened& known, unsigned life) -> std::string {
    CoordinatorState state(disk, kFile);
    const std::string found = all_of(state);
    if (found != states[known.must]) {
      if (found != states[known.may])
        return "the state is neither that of " + std::to_string(known.must) + " commands nor of " +
               std::to_string(known.may);
      known.must = known.may;
    }
    for (std::size_t left = life == 0 ? commands.size() : 1;
         left != 0 && known.must < commands.size(); --left) {
      known.may = known.must + 1;
      try {
        commands[known.must](state);
      } catch (const Error&) {
        commands[known.must](state);  // fails, too
        return "it goes on after an error";
      }
      known.must = known.may;
    }
    return all_of(state) == states[known.must] ? "" : "a command has another effect";
  });
  EXPECT_EQ(search.run(), "");
  EXPECT_GE(search.counts().states, 2000U);
  EXPECT_GE(search.counts().restarts, 25U);
}

}  // namespace
}  // namespace pyrdma::tailwind
