// The NIC's cache of queue-pair contexts and address translations, and the unit that fetches what
// the cache lacks from host memory. A fetch takes the latency of a PCIe read. The unit has several
// fetches in flight: it starts the next one after `qp_miss_ns` or `mr_miss_ns`. Only the message
// that misses waits.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/rng.h"
#include "fabric/sim/server.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;
struct Region;

/// A cache with random replacement. The NIC consults the cache only while the node's whole working
/// set does not fit; until then every access hits.
class StateCache {
 public:
  StateCache(double capacity_bytes, Rng rng) : capacity_(capacity_bytes), rng_(rng) {}

  /// Adds `bytes` (negative: removes) of NIC state that belongs to the node's objects.
  void change_footprint(double bytes) { footprint_ += bytes; }
  bool overflows() const { return footprint_ > capacity_; }

  /// Returns true on a hit. A miss loads the entry and evicts random others. `key` names the entry.
  bool access(std::uint64_t key, double bytes) {
    if (index_.find(key) != index_.end()) return true;
    used_ += bytes;
    while (used_ > capacity_ && !entries_.empty()) evict(rng_.below(entries_.size()));
    index_.emplace(key, entries_.size());
    entries_.push_back({key, bytes});
    return false;
  }

 private:
  struct Entry {
    std::uint64_t key;
    double bytes;
  };
  void evict(std::size_t victim) {
    used_ -= entries_[victim].bytes;
    index_.erase(entries_[victim].key);
    if (victim + 1 != entries_.size()) {
      entries_[victim] = entries_.back();
      index_[entries_[victim].key] = victim;
    }
    entries_.pop_back();
  }
  double capacity_;
  double footprint_ = 0, used_ = 0;
  Rng rng_;
  std::unordered_map<std::uint64_t, std::size_t> index_;  // used for look-ups only, never iterated
  std::vector<Entry> entries_;
};

class ContextCache {
 public:
  ContextCache(Nic& nic, double capacity_bytes, Rng rng) : nic_(nic), cache_(capacity_bytes, rng) {}

  /// Adds `bytes` (negative: removes) of NIC state that belongs to the node's objects.
  void change_footprint(double bytes) { cache_.change_footprint(bytes); }
  /// False while every access hits.
  bool may_miss() const;
  /// Accesses a queue pair's context at `ready`. Returns the time at which the NIC has it.
  Picos load(const QueuePairCore& qp, Picos now, Picos ready);
  /// Accesses the translation of an address at `ready`. Returns the time at which the NIC has it.
  Picos load(const Region& region, std::uint64_t addr, Picos now, Picos ready);
  /// The number of posted receives of all receive queues.
  std::uint64_t& posted_receives() { return posted_receives_; }
  /// A message takes a receive at `ready`. Returns the time at which the NIC has the receive.
  Picos load_receive(Picos now, Picos ready);
  /// Returns the time at which the fetch unit can start another fetch.
  Picos fetches_until() const { return fetches_.free_at(); }

 private:
  Picos access(std::uint64_t key, double bytes, Picos interval, Picos now, Picos ready);
  Picos fetch(Picos now, Picos ready, Picos interval);
  Nic& nic_;
  StateCache cache_;
  Server fetches_;
  std::uint64_t posted_receives_ = 0;
  double receive_misses_ = 0;  // the fraction of a miss that is still to happen
};

}  // namespace pyrdma::fabric::sim
