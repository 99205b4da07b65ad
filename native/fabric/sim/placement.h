// A placement queue holds writes that have executed at a target and are not yet visible there. The
// queue is the weak part of the memory model.
//
// Writes of one queue pair become visible in order. Each write becomes visible in pieces, and the
// pieces come in any order. The queue pair's next read, atomic, send or immediate first makes all
// writes visible (drain). Other queue pairs and the CPU see memory as it is. In regions with
// relaxed ordering, writes overtake one another.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "env/sim/event_queue.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;
struct Region;

/// A range of memory is cut into at most 64 units. Units become visible one by one. An aligned word
/// of 8 bytes is never cut.
struct Pieces {
  Pieces(const std::byte* address, std::uint32_t length, std::uint64_t least_unit);
  /// Copies the units in `mask` from `from` to `to`. Both pointers name the first byte of the
  /// range.
  void copy(std::byte* to, const std::byte* from, std::uint64_t mask) const;
  std::uint64_t all() const { return count == 64 ? ~0ULL : (1ULL << count) - 1; }

  std::uint64_t unit;  // bytes, a power of two
  std::uint64_t skew;  // offset of the first byte within its unit, in bytes
  std::uint32_t length;
  std::uint32_t count;
};

/// Returns the smallest unit for `length` bytes, in bytes: a word, or a cache line for long ranges.
constexpr std::uint64_t least_unit(std::uint32_t length) { return length <= 504 ? 8 : 64; }

class PlacementQueue final : public SimEvent {
 public:
  explicit PlacementQueue(QueuePairCore& qp) : qp_(qp) {}
  bool empty() const { return first_ == entries_.size(); }

  /// Adds a write that executes now at queue pair `target` of `nic`, and takes over its `payload`.
  /// `atomic`: the write is the write-back of an atomic.
  void add(Nic& nic, const Region& region, std::byte* to, std::vector<std::byte>& payload,
           const std::byte* small, std::uint32_t length, Picos now, bool ordered, bool atomic,
           std::uint32_t target);
  /// Makes all queued writes visible.
  void drain();
  /// Makes the queued writes to `region` visible.
  void settle(const Region& region);
  /// Makes the queued writes of queue pair `target` of `nic` visible.
  void settle(const Nic& nic, std::uint32_t target);
  /// Makes the queued write-backs of atomics visible that overlap `bytes` bytes at `at`.
  void settle_atomics(const Nic& nic, const std::byte* at, std::uint64_t bytes);
  /// Discards the queued writes to `nic`, whose node crashes. `torn`: the node's memory is saved,
  /// and some units of a write may survive in it.
  void crash(const Nic& nic, bool torn);
  void fire(Picos now) override;

 private:
  struct Entry {
    Entry(Nic& n, const Region& r, std::byte* address, Pieces cut)
        : nic(&n), region(&r), to(address), pieces(cut), left(cut.all()) {}
    Nic* nic;
    const Region* region;
    std::byte* to;
    Pieces pieces;
    std::uint64_t left;        // units that are not visible yet
    std::uint32_t target = 0;  // queue pair
    Picos next = 0, last = 0;
    bool ordered = true, atomic = false;
    std::vector<std::byte> large;
    std::array<std::byte, 64> small{};
    const std::byte* bytes() const { return large.empty() ? small.data() : large.data(); }
  };
  static void show(Entry& entry, std::uint64_t mask);
  void show_up_to(std::size_t index);
  void arm();
  QueuePairCore& qp_;
  std::vector<Entry> entries_;  // live entries start at first_, oldest first
  std::size_t first_ = 0;
  // Fabric::placing lists this queue. A scheduled event then holds a reference to the queue pair.
  bool listed_ = false;
  Picos armed_for_ = kNever;
};

}  // namespace pyrdma::fabric::sim
