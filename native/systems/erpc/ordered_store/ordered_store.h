// The ordered store (eRPC, section 7.2): a map of 8-byte keys to 8-byte values, in memory. Gets and
// scans run beside puts without a lock, each on a snapshot. All operations are linearizable.
//
// The map is LMDB, a B-tree whose changed pages are copied (README.md has the choice). Its files
// lie in /dev/shm and have no name after the constructor, so nothing is left of a killed process.
//
// Threads: any thread of the node puts. Each reading thread has a StoreReader of its own. No
// simulated thread is interrupted while it holds LMDB's own locks.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "env/env.h"
#include "env/scope.h"
#include "env/sync.h"
#include "systems/erpc/ordered_store/bugs.h"
#include "systems/erpc/ordered_store/lmdb.h"

namespace pyrdma::erpc {

/// Returns why this machine can have no ordered store, with the package to install; empty if it
/// can. Cost: milliseconds at the first time.
std::string ordered_store_problem();

struct OrderedStoreOptions {
  std::uint64_t max_keys = 1'000'000;  // 1..2^32; a key takes 40 bytes of /dev/shm
  std::uint32_t readers = 64;          // StoreReaders that exist at one time, 1..4096
  StoreBugs bugs = {};
};

struct StoreEntry {
  std::uint64_t key = 0;
  std::uint64_t value = 0;
  bool operator==(const StoreEntry&) const = default;
};

enum class StoreOutcome : std::uint8_t {
  kDone,
  kAbsent,    // the key to erase is not there
  kFull,      // the store has max_keys keys and the key is new; nothing has changed
  kNoMemory,  // /dev/shm is full, or a reader stands still in a read; nothing has changed
};

class OrderedStore {
 public:
  /// Throws Error(kInvalidArgument) for an option outside its bounds, Error(kUnavailable) for
  /// ordered_store_problem(), and Error(kExhausted) without room in /dev/shm.
  OrderedStore(Env& env, const OrderedStoreOptions& options);
  /// Its StoreReaders are gone.
  ~OrderedStore();
  OrderedStore(const OrderedStore&) = delete;
  OrderedStore& operator=(const OrderedStore&) = delete;

  /// Sets the value of `key`. Blocks while another thread changes the store. Later reads of any
  /// thread see it. Cost: a few page copies, some 20 us.
  StoreOutcome put(std::uint64_t key, std::uint64_t value) {
    const StoreEntry entry{key, value};
    return put_all({&entry, 1});
  }
  /// Puts all entries at one moment: a read sees all of them or none. The way to fill a store: a
  /// key costs about 1 us.
  StoreOutcome put_all(std::span<const StoreEntry> entries);
  StoreOutcome erase(std::uint64_t key);

 private:
  friend class StoreBugs;
  friend class StoreReader;
  void check_options() const;
  void open_map();
  Lmdb::Transaction* begin(unsigned flags);
  std::size_t entries(Lmdb::Transaction* transaction);
  int insert(Lmdb::Transaction* transaction, std::span<const StoreEntry> entries);
  void charge_commit();
  StoreOutcome outcome_of(int error, const char* calls) const;
  /// Does nothing for 0. Throws Error(kInternal) for an error of LMDB that the store cannot cause.
  void require(int error, const char* call) const;

  Env& env_;
  const OrderedStoreOptions options_;
  Lmdb lmdb_;
  Lmdb::Environment* map_ = nullptr;
  Lmdb::Database database_ = 0;
  Mutex changing_;  // LMDB's own mutex would block a simulation
  Footprint footprint_;
};

/// Reads an OrderedStore, which outlives it. One thread uses it. It takes no lock, and waits for no
/// thread.
class StoreReader {
 public:
  /// Throws Error(kExhausted) if OrderedStoreOptions::readers of them exist.
  explicit StoreReader(OrderedStore& store);
  ~StoreReader();
  StoreReader(const StoreReader&) = delete;
  StoreReader& operator=(const StoreReader&) = delete;

  std::optional<std::uint64_t> get(std::uint64_t key);
  /// Copies the entries from the least key >= `first` on, in the order of the keys, until `out` is
  /// full or the map ends. All are of one moment. Returns their number.
  std::size_t scan(std::uint64_t first, std::span<StoreEntry> out);

 private:
  friend class StoreBugs;
  void begin_read();
  void end_read();
  std::size_t scan_once(std::uint64_t first, std::span<StoreEntry> out);
  void charge_descent();

  OrderedStore& store_;
  Lmdb::Transaction* transaction_ = nullptr;
  Lmdb::Cursor* cursor_ = nullptr;
};

}  // namespace pyrdma::erpc
