// The simulated disk: the content that a crash leaves, and each of the disk's faults.
#include "env/sim/sim_storage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "env/sim/disk_file.h"
#include "env/sim/sim_env.h"

namespace pyrdma {
namespace {

constexpr std::uint64_t kSector = DiskFile::kSector;

std::vector<std::byte> bytes(std::size_t count, int value) {
  return std::vector<std::byte>(count, static_cast<std::byte>(value));
}

/// One node with a disk.
struct Disk {
  explicit Disk(const FaultOptions& wanted = {}, std::uint64_t seed = 1)
      : options(wanted),
        env(scheduler, 0, 1, 4, seed, costs(), 0, kNever, trace, branches),
        storage(env),
        faults(options, seed, 0, counters) {
    storage.set_faults(&faults);
  }
  static const SimCpuCosts& costs() {
    static const SimCpuCosts table = [] {
      SimCpuCosts c;
      c.storage_write = 10 * 1000 * kPicosPerNano;
      c.storage_sync = 100 * 1000 * kPicosPerNano;
      c.storage_picos_per_byte = 1000;
      return c;
    }();
    return table;
  }
  std::vector<std::byte> content(const std::string& name) {
    auto file = storage.open(name);
    std::vector<std::byte> all(file->size());
    file->read(0, all);
    return all;
  }
  std::uint64_t fired(Fault f) const { return counters.fired[static_cast<std::size_t>(f)]; }
  std::uint64_t reached(Fault f) const { return counters.reached[static_cast<std::size_t>(f)]; }

  FaultOptions options;
  SimScheduler scheduler;
  std::vector<std::string> trace;
  BranchCounts branches;
  SimEnv env;
  SimStorage storage;
  FaultCounters counters;
  FaultStream faults;
};

FaultOptions one(Fault fault, double rate = 1) {
  FaultOptions options;
  options[fault].rate = rate;
  return options;
}

/// Returns the code of the error and whether it is definite; the test fails if there is no error.
std::pair<ErrorCode, bool> failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.code(), error.definite()};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorCode::kInternal, false};
}

TEST(SimStorage, AProcessCrashKeepsAllAndAHostCrashWhatWasSynced) {
  Disk disk;
  auto file = disk.storage.open("log");
  disk.storage.sync();
  file->write(0, bytes(100, 1));
  file->sync();
  file->write(50, bytes(100, 2));
  disk.storage.crash(false);
  EXPECT_EQ(disk.content("log").size(), 150u);
  disk.storage.crash(true);
  EXPECT_EQ(disk.content("log"), bytes(100, 1));
}

TEST(SimStorage, ABatterySavesAll) {
  Disk disk;
  disk.storage.open("log")->write(0, bytes(100, 1));
  disk.storage.save();
  disk.storage.preserve("memory-0", bytes(5000, 3));
  disk.storage.crash(true);
  EXPECT_EQ(disk.content("log"), bytes(100, 1));
  EXPECT_EQ(disk.content("memory-0"), bytes(5000, 3));
}

TEST(SimStorage, NamesAreDurableAfterTheirSync) {
  Disk disk;
  disk.storage.open("old")->write(0, bytes(1, 1));
  disk.storage.open("old")->sync();
  disk.storage.sync();
  disk.storage.open("new")->write(0, bytes(1, 2));
  disk.storage.open("new")->sync();
  disk.storage.rename("new", "old");
  EXPECT_EQ(disk.content("old"), bytes(1, 2));
  disk.storage.crash(true);
  EXPECT_EQ(disk.content("old"), bytes(1, 1)) << "the rename was not synced";
  EXPECT_FALSE(disk.storage.exists("new")) << "nor was the creation";
  disk.storage.remove("old");
  disk.storage.crash(true);
  EXPECT_TRUE(disk.storage.exists("old"));
  disk.storage.remove("old");
  disk.storage.sync();
  disk.storage.crash(true);
  EXPECT_FALSE(disk.storage.exists("old"));
}

TEST(SimStorage, ATornWriteLeavesWholeSectors) {
  constexpr std::size_t kSectors = 16;
  int torn = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Disk disk(one(Fault::disk_torn, 0.5), seed);
    auto file = disk.storage.open("log");
    disk.storage.sync();
    file->write(0, bytes(kSectors * kSector, 1));
    file->sync();
    file->write(100, bytes(kSectors * kSector - 200, 2));
    disk.storage.crash(true);
    const std::vector<std::byte> left = disk.content("log");
    ASSERT_EQ(left.size(), kSectors * kSector);
    EXPECT_EQ(left.front(), std::byte{1});
    EXPECT_EQ(left.back(), std::byte{1});
    std::size_t written = 0;
    for (std::size_t s = 0; s < kSectors; ++s) {
      const std::byte first = left[s * kSector + 256];
      written += first == std::byte{2};
      for (std::size_t i = std::max<std::size_t>(s * kSector, 100);
           i < std::min((s + 1) * kSector, kSectors * kSector - 100); ++i)
        ASSERT_EQ(left[i], first) << "sector " << s << " is torn itself";
    }
    torn += written > 0 && written < kSectors;
    EXPECT_EQ(disk.reached(Fault::disk_torn), written > 0 ? 1u : 0u);
  }
  EXPECT_GT(torn, 10);
  EXPECT_LT(torn, 40) << "half of them are lost as a whole";
}

TEST(SimStorage, AnUnreadableSectorFailsUntilItIsWrittenAgain) {
  Disk disk(one(Fault::disk_unreadable));
  auto file = disk.storage.open("log");
  file->write(0, bytes(4 * kSector, 1));
  std::vector<std::byte> out(4 * kSector);
  EXPECT_EQ(file->read(0, out), out.size()) << "it is in the disk's cache";
  file->sync();
  EXPECT_EQ(failure_of([&] { file->read(2 * kSector, std::span(out).first(10)); }),
            std::pair(ErrorCode::kUnavailable, true));
  EXPECT_EQ(disk.reached(Fault::disk_unreadable), 1u);
  disk.faults.heal();
  EXPECT_THROW(file->read(0, out), Error) << "it stays";
  EXPECT_EQ(file->read(0, std::span(out).first(2 * kSector)), 2 * kSector);
  disk.storage.crash(true);
  disk.storage.open("log");
  EXPECT_THROW(file->read(0, out), Error);
  file->write(2 * kSector, bytes(kSector, 2));
  file->sync();
  EXPECT_EQ(file->read(0, out), out.size());
  EXPECT_EQ(out[2 * kSector], std::byte{2});
}

TEST(SimStorage, AMisdirectedWriteLandsInAnotherSector) {
  Disk disk(one(Fault::disk_misdirected));
  auto file = disk.storage.open("log");
  file->write(0, bytes(10, 1));
  EXPECT_EQ(disk.reached(Fault::disk_misdirected), 0u) << "there is no other place";
  EXPECT_EQ(disk.content("log"), bytes(10, 1));
  disk.faults.heal();
  file->write(0, bytes(8 * kSector, 1));
  Disk* const at = &disk;
  FaultStream again(at->options, 2, 0, at->counters);
  disk.storage.set_faults(&again);
  file->write(3 * kSector + 7, bytes(20, 2));
  EXPECT_EQ(disk.reached(Fault::disk_misdirected), 1u);
  const std::vector<std::byte> left = disk.content("log");
  EXPECT_EQ(left[3 * kSector + 7], std::byte{1});
  EXPECT_EQ(std::count(left.begin(), left.end(), std::byte{2}), 20);
  const auto first = std::find(left.begin(), left.end(), std::byte{2}) - left.begin();
  EXPECT_EQ(static_cast<std::uint64_t>(first) % kSector, 7u);
}

TEST(SimStorage, OneBitOfADurableSectorFlips) {
  Disk disk(one(Fault::disk_rot));
  auto file = disk.storage.open("log");
  disk.storage.sync();
  file->write(0, bytes(2 * kSector, 0));
  EXPECT_EQ(disk.content("log"), bytes(2 * kSector, 0)) << "it is in the disk's cache";
  file->sync();
  std::vector<std::byte> out(2 * kSector);
  file->read(0, out);
  EXPECT_EQ(disk.reached(Fault::disk_rot), 1u);
  disk.faults.heal();
  const std::vector<std::byte> left = disk.content("log");
  EXPECT_EQ(left, out) << "and stays";
  int bits = 0;
  for (const std::byte byte : left) bits += __builtin_popcount(static_cast<unsigned>(byte));
  EXPECT_EQ(bits, 1);
  disk.storage.crash(true);
  EXPECT_EQ(disk.content("log"), left);
}

TEST(SimStorage, AFailedWriteOrSyncSaysNothingDefinite) {
  int partly = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Disk disk(one(Fault::disk_io_error), seed);
    auto file = disk.storage.open("log");
    const auto indefinite = std::pair(ErrorCode::kUnavailable, false);
    EXPECT_EQ(failure_of([&] { file->write(0, bytes(8 * kSector, 1)); }), indefinite);
    EXPECT_EQ(file->size() % kSector, 0u);
    EXPECT_LE(file->size(), 8 * kSector);
    disk.storage.set_faults(nullptr);
    disk.storage.sync();
    for (std::uint64_t i = 0; i < 8; ++i) file->write(i * kSector, bytes(kSector, 2));
    disk.storage.set_faults(&disk.faults);
    EXPECT_EQ(failure_of([&] { file->sync(); }), indefinite);
    EXPECT_EQ(disk.reached(Fault::disk_io_error), 2u);
    disk.storage.set_faults(nullptr);
    EXPECT_EQ(disk.content("log"), bytes(8 * kSector, 2)) << "reads still see it";
    file->sync();  // succeeds, and does not restore the writes that the failed sync has dropped
    disk.storage.crash(true);
    const auto left = disk.content("log");
    const auto kept = std::count(left.begin(), left.end(), std::byte{2});
    EXPECT_EQ(kept % static_cast<long>(kSector), 0);
    partly += kept > 0 && kept < static_cast<long>(8 * kSector);
  }
  EXPECT_GT(partly, 15);
}

TEST(SimStorage, AFullDiskTakesOnlyWhatDoesNotGrow) {
  Disk disk;
  auto file = disk.storage.open("log");
  file->write(0, bytes(100, 1));
  disk.storage.set_full_until(disk.scheduler.clock() + to_picos(kMillisecond));
  file->write(0, bytes(100, 2));
  EXPECT_EQ(failure_of([&] { file->write(50, bytes(51, 3)); }),
            std::pair(ErrorCode::kExhausted, true));
  EXPECT_EQ(disk.content("log"), bytes(100, 2)) << "the old content stays";
  EXPECT_EQ(disk.reached(Fault::disk_full), 1u);
  disk.env.sleep_until(disk.env.now() + kMillisecond);
  file->write(50, bytes(51, 3));
  EXPECT_EQ(file->size(), 101u);
  EXPECT_EQ(failure_of([&] { file->write(~0ULL, bytes(1, 3)); }).first, ErrorCode::kExhausted);
}

TEST(SimStorage, ASlowSyncTakesItsTime) {
  FaultOptions options = one(Fault::disk_slow);
  options[Fault::disk_slow].min = options[Fault::disk_slow].max = 5 * kMillisecond;
  Disk disk(options);
  auto file = disk.storage.open("log");
  const Time start = disk.env.now();
  file->sync();
  EXPECT_EQ(disk.env.now() - start, 5 * kMillisecond + 100 * kMicrosecond);
  EXPECT_EQ(disk.reached(Fault::disk_slow), 1u);
}

// A byte takes 1 ns, a write 10 us besides.
TEST(SimStorage, RequestsShareTheRateAndOverlapTheirLatency) {
  Disk disk;
  auto file = disk.storage.open("log");
  const Time start = disk.env.now();
  Time first = 0;
  auto writer = disk.env.spawn("writer", [&] {
    file->write(0, bytes(20'000, 1));
    first = disk.env.now() - start;
  });
  file->write(20'000, bytes(20'000, 2));
  const Time second = disk.env.now() - start;
  writer->join();
  EXPECT_EQ(std::min(first, second), 30 * kMicrosecond);
  EXPECT_EQ(std::max(first, second), 50 * kMicrosecond);
  // A sync waits for the bytes before it.
  auto late = disk.env.spawn("writer", [&] { file->write(0, bytes(30'000, 3)); });
  disk.env.sleep_until(disk.env.now() + kMicrosecond);
  const Time begin = disk.env.now();
  file->sync();
  EXPECT_EQ(disk.env.now() - begin, (29 + 100) * kMicrosecond);
}

TEST(SimStorage, EqualBlocksOfAllDisksAreKeptOnce) {
  const auto pool = std::make_shared<BlockPool>();
  Disk disks[3];
  std::vector<std::byte> data(64 * sizeof(DiskBlock));
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(mix64(i));
  for (Disk& disk : disks) {
    disk.storage.share_blocks(pool);
    auto file = disk.storage.open("log");
    disk.storage.sync();
    file->write(0, data);
    file->sync();
  }
  EXPECT_EQ(pool->blocks(), 64U);
  // A change of one file is not one of the others.
  disks[1].storage.open("log")->write(5000, bytes(1, 9));
  disks[1].storage.open("log")->sync();
  std::vector<std::byte> changed = data;
  changed[5000] = std::byte{9};
  EXPECT_EQ(disks[0].content("log"), data);
  EXPECT_EQ(disks[1].content("log"), changed);
  // The block may be changed where it lies; the next one with its old bytes is another one.
  const auto alone = std::make_shared<BlockPool>();
  DiskContent first(alone), second(alone), third(alone);
  const auto block = std::span(data).first(sizeof(DiskBlock));
  first.write(0, block);
  first.write(5, bytes(1, 9));
  second.write(0, block);
  third.write(0, block);
  EXPECT_EQ(alone->blocks(), 1U);
  std::vector<std::byte> seen(block.size());
  second.read(0, seen);
  EXPECT_TRUE(std::ranges::equal(seen, block));
  first.read(0, seen);
  EXPECT_EQ(seen[5], std::byte{9});
  for (Disk& disk : disks) {
    disk.storage.remove("log");
    disk.storage.sync();
  }
  EXPECT_EQ(pool->blocks(), 0U);
}

TEST(SimStorage, ALyingSyncLosesTheData) {
  Disk disk(one(Fault::disk_lies));
  auto file = disk.storage.open("log");
  disk.storage.sync();
  file->write(0, bytes(100, 1));
  file->sync();
  EXPECT_EQ(disk.reached(Fault::disk_lies), 0u) << "no data is lost yet";
  disk.storage.crash(true);
  EXPECT_EQ(disk.content("log").size(), 0u);
  EXPECT_EQ(disk.fired(Fault::disk_lies), 1u);
  EXPECT_EQ(disk.reached(Fault::disk_lies), 1u);
  file->write(0, bytes(100, 1));
  file->sync();
  disk.faults.heal();
  file->sync();
  disk.storage.crash(true);
  EXPECT_EQ(disk.content("log").size(), 100u)
      << "a true sync also syncs data of an earlier false sync";
}

TEST(SimStorage, WhatIsWrittenDuringASyncIsNotSyncedByIt) {
  Disk disk;
  auto file = disk.storage.open("log");
  disk.storage.sync();
  file->write(0, bytes(10, 1));
  auto writer = disk.env.spawn("writer", [&] {
    disk.env.sleep_until(disk.env.now() + 50 * kMicrosecond);
    file->write(10, bytes(10, 2));
  });
  file->sync();
  disk.storage.crash(true);
  EXPECT_EQ(disk.content("log"), bytes(10, 1));
}

TEST(SimStorage, AHostCrashDuringASyncLeavesWhatItFinds) {
  Disk disk;
  auto file = disk.storage.open("log");
  disk.storage.sync();
  file->write(0, bytes(10, 1));
  bool returned = false;
  auto syncer = disk.env.spawn("syncer", [&] {
    file->sync();
    returned = true;
  });
  disk.env.sleep_until(disk.env.now() + 50 * kMicrosecond);
  disk.storage.crash(true);
  disk.scheduler.kill(disk.env.threads());
  syncer.reset();
  EXPECT_FALSE(returned);
  EXPECT_EQ(file->size(), 0u);
}

TEST(SimStorage, WhatIsNotSyncedIsWrittenBackInTheEnd) {
  DiskFile file("big", std::make_shared<BlockPool>());
  const std::vector<std::byte> chunk = bytes(1 << 20, 1);
  for (std::uint64_t i = 0; i < 65; ++i) file.write(i << 20, chunk, nullptr, false);
  file.crash(nullptr);
  EXPECT_EQ(file.size(), 1u << 20) << "the cache of the disk holds 64 MiB";
}

TEST(SimStorage, EqualSeedsFailEqually) {
  const auto run = [](std::uint64_t seed) {
    FaultOptions options;
    for (std::size_t i = 0; i < kFaults; ++i) {
      const auto fault = static_cast<Fault>(i);
      if (fault_info(fault).number == "F24" && fault_info(fault).draw == FaultDraw::kDraw)
        options[fault].rate = 0.1;
    }
    Disk disk(options, seed);
    Rng rng(seed, 0, "disk test");
    std::uint64_t hash = 0;
    int errors = 0;
    for (int i = 0; i < 400; ++i) {
      auto file = disk.storage.open(rng.below(2) == 0 ? "a" : "b");
      try {
        switch (rng.below(8)) {
          case 0:
            file->sync();
            break;
          case 1:
            disk.storage.sync();
            break;
          case 2:
            disk.storage.crash(rng.below(2) == 0);
            break;
          case 3: {
            std::vector<std::byte> out(rng.below(3000));
            const std::size_t got = file->read(rng.below(5000), out);
            for (std::size_t k = 0; k < got; ++k)
              hash = mix64(hash ^ static_cast<std::uint64_t>(out[k]));
            break;
          }
          default:
            file->write(rng.below(5000), bytes(1 + rng.below(3000), static_cast<int>(i)));
        }
      } catch (const Error&) {
        ++errors;
      }
    }
    EXPECT_GT(errors, 10);
    for (const Fault fault : {Fault::disk_torn, Fault::disk_unreadable, Fault::disk_misdirected,
                              Fault::disk_rot, Fault::disk_io_error, Fault::disk_slow})
      EXPECT_GT(disk.reached(fault), 0u) << fault_info(fault).key;
    return mix64(hash ^ disk.scheduler.fingerprint());
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

}  // namespace
}  // namespace pyrdma
