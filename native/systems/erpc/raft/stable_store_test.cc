// The store on disk: what was acknowledged is there after a crash, or the store refuses to open.
#include "systems/erpc/raft/stable_store.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/error_test.h"
#include "env/sim/disk_file.h"
#include "env/sim/sim_env.h"

namespace pyrdma::erpc::raft {
namespace {

constexpr std::size_t kDiskSector = SectorLog::kSector;
const std::string kStateName = "raft.0.state";

/// One node with a disk.
struct Disk {
  SimScheduler scheduler;
  SimCpuCosts costs;
  std::vector<std::string> trace;
  BranchCounts branches;
  SimEnv env{scheduler, 0, 1, 1, 1, costs, 0, kNever, trace, branches};

  Bytes read(const std::string& name) {
    const auto file = env.storage().open(name);
    Bytes bytes(file->size());
    file->read(0, bytes);
    return bytes;
  }
  void replace(const std::string& name, ByteView bytes) {
    env.storage().remove(name);
    const auto file = env.storage().open(name);
    file->write(0, bytes);
    file->sync();
    env.storage().sync();
  }
};

/// What a store acknowledged.
struct Known {
  std::uint64_t term = 0, vote = 0, first = 1;
  std::vector<Bytes> payloads;  // from `first` on
};

Known known_of(const StableStore& store) {
  Known known{store.term(), store.vote(), store.first_index(), {}};
  for (std::uint64_t i = store.first_index(); i <= store.last_index(); ++i)
    known.payloads.push_back(store.read(i).payload);
  return known;
}

bool operator==(const Known& a, const Known& b) {
  return a.term == b.term && a.vote == b.vote && a.first == b.first && a.payloads == b.payloads;
}

Bytes payload_of(std::size_t bytes, std::uint64_t number) {
  Bytes payload(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    payload[i] = static_cast<std::byte>(mix64(number + i / 8) >> (i % 8 * 8));
  return payload;
}

void add(StableStore& store, std::size_t bytes) {
  store.append({store.term(), EntryType::kCommand, payload_of(bytes, store.last_index())});
}

/// Batches of one sector and of several, an entry longer than a sector, a truncation. The numbers
/// of the batches and of the syncs have nothing to do with those of the entries.
void fill(StableStore& store) {
  store.write_state(1, 0);
  for (int i = 0; i < 4; ++i) {
    add(store, 30);
    store.sync();
  }
  for (int i = 0; i < 20; ++i) add(store, 100);
  store.sync();
  store.write_state(2, 1);
  add(store, 2000);
  store.sync();
  store.truncate(24);
  add(store, 60);
  store.sync();
}

void take_snapshot(StableStore& store) {
  StoredSnapshot snapshot;
  snapshot.index = 20;
  snapshot.term = 1;
  snapshot.servers_index = 1;
  snapshot.servers = {{1, Role::kVoter}};
  snapshot.data = payload_of(1500, 7);
  store.put_snapshot(std::move(snapshot), 3);
}

Known make(Disk& disk, bool with_snapshot) {
  StableStore store(disk.env, Durability::kDisk, {});
  store.load();
  fill(store);
  if (with_snapshot) take_snapshot(store);
  add(store, 700);
  store.sync();
  return known_of(store);
}

/// Opens the store. The result is empty if all is there, or it was refused by an error that names
/// the file and what to do.
std::string open_again(Disk& disk, const Known& before, const std::string& file,
                       Bug bug = Bug::kNone) {
  try {
    StableStore store(disk.env, Durability::kDisk, bug);
    store.load();
    if (known_of(store) == before) return {};
    return "it has entries " + std::to_string(store.first_index()) + " to " +
           std::to_string(store.last_index()) + ", term " + std::to_string(store.term()) +
           ", vote " + std::to_string(store.vote());
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnavailable && error.definite() && names(error.what(), {file}))
      return {};
    return std::string("a bad error: ") + error.what();
  }
}

/// Flips a bit of each byte, one after the other. Returns what the store forgot in silence.
std::string forgotten_after_flips(bool with_snapshot, Bug bug) {
  Disk disk;
  const Known before = make(disk, with_snapshot);
  const std::string log = with_snapshot ? "raft.0.log.1" : "raft.0.log.0";
  const Bytes state_bytes = disk.read(kStateName), log_bytes = disk.read(log);
  for (const std::string& name : {kStateName, log}) {
    const Bytes& whole = name == log ? log_bytes : state_bytes;
    for (std::size_t at = 0; at < whole.size(); ++at) {
      Bytes bytes = whole;
      bytes[at] ^= static_cast<std::byte>(1U << (at * 5 % 8));
      disk.replace(name, bytes);
      const std::string wrong = open_again(disk, before, name, bug);
      if (!wrong.empty()) return name + ", byte " + std::to_string(at) + ": " + wrong;
    }
    disk.replace(name, whole);
  }
  return {};
}

TEST(ErpcRaftStore, AFlippedBitIsRefused) {
  for (const bool with_snapshot : {false, true}) {
    EXPECT_EQ(forgotten_after_flips(with_snapshot, Bug::kNone), "");
    EXPECT_NE(forgotten_after_flips(with_snapshot, Bug::kDamageEndsLog), "");
    EXPECT_NE(forgotten_after_flips(with_snapshot, Bug::kOlderSlotTaken), "");
  }
}

// The last batch has two sectors. Each other one is proven to have been durable.
TEST(ErpcRaftStore, ASectorThatIsMissingBeforeTheLastBatchIsRefused) {
  Disk disk;
  const Known before = make(disk, false);
  const std::string log = "raft.0.log.0";
  const Bytes whole = disk.read(log);
  Known last_lost = before;
  last_lost.payloads.pop_back();
  ASSERT_EQ(whole.size() % kDiskSector, 0u);
  for (std::size_t sector = 0; sector < whole.size() / kDiskSector; ++sector) {
    Bytes bytes = whole;
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(sector * kDiskSector), kDiskSector,
                std::byte{0});
    const bool is_last = (sector + 2) * kDiskSector >= whole.size();
    disk.replace(log, bytes);
    EXPECT_EQ(open_again(disk, is_last ? last_lost : before, log), "") << "sector " << sector;
  }
  // The state file tells how much was durable when the second term was stored.
  const std::size_t at_term = 10 * kDiskSector;
  for (std::size_t size = 0; size < whole.size(); size += 37) {
    disk.replace(log, ByteView(whole).first(size));
    if (size % kDiskSector != 0 || size < at_term) {
      EXPECT_EQ(open_again(disk, before, log), "") << size;
    }
  }
}

// All sectors of an unfinished batch may be there or not, in any choice.
TEST(ErpcRaftStore, ATornBatchIsLeftOutAndNeverComesBack) {
  Disk disk;
  Known before;
  {
    StableStore store(disk.env, Durability::kDisk, {});
    store.load();
    fill(store);
    before = known_of(store);
  }
  const std::string log = "raft.0.log.0";
  const Bytes durable = disk.read(log), state_bytes = disk.read(kStateName);
  {
    StableStore store(disk.env, Durability::kDisk, {});
    store.load();
    for (int i = 0; i < 5; ++i) add(store, 300);
    store.sync();
  }
  const Bytes whole = disk.read(log);
  const std::size_t first = durable.size() / kDiskSector,
                    count = whole.size() / kDiskSector - first;
  ASSERT_EQ(count, 4u);
  for (std::size_t choice = 0; choice + 1 < std::size_t{1} << count; ++choice) {
    Bytes bytes = whole;
    for (std::size_t i = 0; i < count; ++i) {
      if ((choice >> i & 1) == 0)
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>((first + i) * kDiskSector),
                    kDiskSector, std::byte{0});
    }
    disk.replace(log, bytes);
    disk.replace(kStateName, state_bytes);
    EXPECT_EQ(open_again(disk, before, log), "") << choice;
    // A shorter batch takes the place of the torn one.
    Known after = before;
    {
      StableStore store(disk.env, Durability::kDisk, {});
      store.load();
      add(store, 10);
      store.sync();
      after = known_of(store);
    }
    disk.env.disk().crash(true);
    EXPECT_EQ(open_again(disk, after, log), "") << choice;
  }
}

// The first write of the state file is lost in part. Nothing was acknowledged.
TEST(ErpcRaftStore, ATornFirstSlotBeginsAnew) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{48}, std::size_t{4096 + 48}}) {
    Disk disk;
    disk.replace(kStateName, Bytes(size));
    StableStore store(disk.env, Durability::kDisk, {});
    EXPECT_NO_THROW(store.load()) << size;
    EXPECT_TRUE(store.fresh());
  }
  // But entries need a term.
  Disk disk;
  make(disk, false);
  disk.replace(kStateName, Bytes(4096 + 48));
  StableStore store(disk.env, Durability::kDisk, {});
  EXPECT_TRUE(refuses([&] { store.load(); }, ErrorCode::kUnavailable, {kStateName}));
}

/// Random batches on a disk that fails and loses its power; the owner opens the store again after
/// each error, and the power fails at any time. Returns what was acknowledged and is lost.
std::string lost_on_a_bad_disk(std::uint64_t seed, Bug bug) {
  Disk disk;
  FaultOptions options;
  options[Fault::disk_torn].rate = 0.7;
  options[Fault::disk_io_error].rate = 0.15;
  FaultCounters counters;
  FaultStream faults(options, seed, 0, counters);
  disk.env.disk().set_faults(&faults);
  Rng rng(seed, 0, "store on a bad disk");
  Known known;
  for (int life = 0; life < 8; ++life) {
    try {
      StableStore store(disk.env, Durability::kDisk, bug);
      store.load();
      const Known found = known_of(store);
      if (found.term < known.term || (found.term == known.term && found.vote != known.vote))
        return "term " + std::to_string(known.term) + " is forgotten";
      if (found.first + found.payloads.size() < known.first + known.payloads.size())
        return "entry " + std::to_string(known.first + known.payloads.size() - 1) + " is forgotten";
      known = found;
      if (store.term() == 0) store.write_state(1, 0);
      for (int i = 0; i < 6; ++i) {
        if (rng.below(4) == 0) store.write_state(store.term() + 1, rng.below(3));
        const std::uint64_t entries = rng.below(8);
        for (std::uint64_t n = 0; n < entries; ++n) add(store, 1 + rng.below(600));
        store.sync();
        if (rng.below(8) == 0 && store.last_index() >= 20 && store.snapshot() == nullptr)
          take_snapshot(store);
        known = known_of(store);
      }
    } catch (const Error& error) {
      if (error.definite()) return std::string("refused: ") + error.what();
    }
    if (rng.below(2) == 0) disk.env.disk().crash(true);
  }
  return {};
}

TEST(ErpcRaftStore, NothingIsLostOnABadDisk) {
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    EXPECT_EQ(lost_on_a_bad_disk(seed, Bug::kNone), "") << "seed " << seed;
    found += !lost_on_a_bad_disk(seed, Bug::kReadBackTrusted).empty();
  }
  EXPECT_GT(found, 10u) << "what a failed sync has left is taken for durable";
}

}  // namespace
}  // namespace pyrdma::erpc::raft
