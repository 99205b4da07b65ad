// What has executed at a target and is not yet visible there: the weak part of the memory model.
//
// Writes of one queue pair become visible in order, each in pieces and in any order of pieces; the
// queue pair's next read, atomic, send or immediate makes all of them visible first (drain). Other
// queue pairs and the CPU see memory as it is. In regions with relaxed ordering, writes overtake
// one another.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "env/sim/event_queue.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;
struct Region;

/// A piece of memory, cut into at most 64 units that become visible one by one. Aligned words are
/// never cut.
struct Pieces {
  Pieces(const std::byte* address, std::uint32_t length, std::uint64_t least_unit);
  /// Copies the units in `mask` from `from` to `to`; both name the piece's first byte.
  void copy(std::byte* to, const std::byte* from, std::uint64_t mask) const;
  std::uint64_t all() const { return count == 64 ? ~0ULL : (1ULL << count) - 1; }

  std::uint64_t unit;  // bytes, a power of two
  std::uint64_t skew;  // of the first byte within its unit
  std::uint32_t length;
  std::uint32_t count;
};

/// The finest pieces that so many bytes come in: words, or cache lines when there are many.
constexpr std::uint64_t least_unit(std::uint32_t length) { return length <= 504 ? 8 : 64; }

class PlacementQueue final : public SimEvent {
 public:
  explicit PlacementQueue(QueuePairCore& qp) : qp_(qp) {}
  bool empty() const { return first_ == entries_.size(); }

  /// Takes over `payload` of a write that executes now at `nic`, or only the write-back of an
  /// atomic.
  void add(Nic& nic, const Region& region, std::byte* to, std::vector<std::byte>& payload,
           const std::byte* small, std::uint32_t length, Picos now, bool ordered, bool atomic);
  /// Makes everything visible.
  void drain();
  /// Makes visible what is on its way to `region`.
  void settle(const Region& region);
  /// Makes visible what is on its way to `bytes` at `at` by atomics.
  void settle_atomics(const Nic& nic, const std::byte* at, std::uint64_t bytes);
  /// The node of `nic` crashes: what was on its way is lost, or torn when its memory is saved.
  void crash(const Nic& nic, bool torn);
  void fire(Picos now) override;

 private:
  struct Entry {
    Entry(Nic& n, const Region& r, std::byte* target, Pieces cut)
        : nic(&n), region(&r), to(target), pieces(cut), left(cut.all()) {}
    Nic* nic;
    const Region* region;
    std::byte* to;
    Pieces pieces;
    std::uint64_t left;  // units that are not visible yet
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
  std::vector<Entry> entries_;  // from first_ on, oldest first
  std::size_t first_ = 0;
  bool listed_ =
      false;  // in Fabric::placing; an event is under way then, which holds the queue pair
  Picos armed_for_ = kNever;
};

}  // namespace pyrdma::fabric::sim
