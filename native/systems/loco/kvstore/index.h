// A node's index of all keys of the store (paper, section 6): key -> node, slot, counter. A local
// reader-writer lock protects it.
//
// The index is an open-addressing table with linear probing. It replaces the paper's unordered_map,
// which takes about 56 bytes per key. An entry has 16 bytes, and the load is at most 0.8, which
// makes 20 bytes per key.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "env/scope.h"
#include "systems/loco/kvstore/rw_lock.h"

namespace pyrdma::loco {

using Key = std::uint64_t;

/// The place of a key's value.
struct Location {
  NodeId node = 0;  // up to Index::kLastNode
  std::uint32_t slot = 0;
  std::uint32_t counter = 0;  // number of times the slot was filled, modulo 2^24
  bool operator==(const Location&) const = default;
};

constexpr std::uint32_t kCounterMask = (1U << 24) - 1;

/// The hash of the store's keys (CityHash64 in the paper).
inline std::uint64_t hash_of(Key key) { return mix64(key); }

/// Keys 0 to `count`-1, assigned to the nodes in turn. Any node can compute their first locations.
struct Spread {
  std::uint64_t count = 0;
  std::vector<NodeId> nodes;
  std::uint32_t counter = 1;
  Location of(Key key) const {
    return {nodes[key % nodes.size()], static_cast<std::uint32_t>(key / nodes.size()), counter};
  }
};

class Index {
 public:
  static constexpr NodeId kLastNode = 254;  // that an entry can name
  /// Makes room for `keys` entries, 20 bytes each. Pages without entries take no memory.
  Index(Env& env, std::uint64_t keys);

  // Any thread may call these.
  std::optional<Location> find(Key key);
  /// Adds or replaces a key. Throws Error(kInternal), with the number of entries, when the index is
  /// full.
  void set(Key key, const Location& location);
  void erase(Key key);
  /// Adds the keys of `spread` to the index. The index computes their places and does not store
  /// them, so several nodes on one machine need no table of millions of entries each. A computed
  /// key that is erased takes an entry: the index makes room for them. Called before any other use.
  void begin_with(Spread spread);
  /// Starts to fetch the key's entry into the cache.
  void prefetch(Key key) const { env_.prefetch(*footprint_, &table_[home_of(key)]); }

  std::uint64_t size() const { return used_; }  // entries of the table
  std::uint64_t bytes() const { return slots_ * sizeof(Entry); }

 private:
  struct Entry {
    Key key;
    std::uint32_t slot;
    std::uint32_t counter : 24;
    std::uint32_t owner : 8;  // node + 1; 0: the entry is free
  };
  static_assert(sizeof(Entry) == 16);
  static constexpr std::uint32_t kErased = 0;  // counter of a computed key that was erased

  std::uint64_t home_of(Key key) const {
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(hash_of(key)) * slots_ >> 64);
  }
  void make_table();
  Entry* at(Key key) const;
  void put(Key key, const Location& location);
  void free_entry(Entry* entry);

  RwLock lock_;
  Env& env_;
  std::uint64_t keys_, slots_ = 0;
  std::uint64_t used_ = 0;
  Spread spread_;
  struct Free {
    void operator()(Entry* table) const { std::free(table); }
  };
  std::unique_ptr<Entry[], Free> table_;  // calloc
  std::optional<Footprint> footprint_;    // of table_
};

}  // namespace pyrdma::loco
