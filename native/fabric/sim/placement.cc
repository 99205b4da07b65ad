#include "fabric/sim/placement.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {
namespace {
constexpr Picos kLeastDelay = 20 * kPicosPerNano;

// Delays are roughly uniform on a logarithmic scale. Halving avoids floating point.
Picos draw_delay(Rng& rng, Picos most) {
  most >>= rng.below(6);
  return kLeastDelay + static_cast<Picos>(rng.below(static_cast<std::uint64_t>(most)));
}
}  // namespace

Pieces::Pieces(const std::byte* address, std::uint32_t bytes, std::uint64_t least_unit)
    : unit(std::max<std::uint64_t>(least_unit, std::bit_ceil((bytes + 62ULL) / 63))),
      skew(reinterpret_cast<std::uintptr_t>(address) & (unit - 1)),
      length(bytes),
      count(static_cast<std::uint32_t>((skew + bytes + unit - 1) / unit)) {}

void Pieces::copy(std::byte* to, const std::byte* from, std::uint64_t mask) const {
  for (mask &= all(); mask != 0;) {
    // One memcpy copies a run of neighbouring units.
    const auto begin = static_cast<std::uint64_t>(std::countr_zero(mask));
    const auto run = static_cast<std::uint64_t>(std::countr_one(mask >> begin));
    const std::uint64_t first = begin == 0 ? 0 : begin * unit - skew;
    const std::uint64_t last = std::min<std::uint64_t>(length, (begin + run) * unit - skew);
    std::memcpy(to + first, from + first, last - first);
    if (begin + run >= 64) break;
    mask &= ~0ULL << (begin + run);
  }
}

void PlacementQueue::add(Nic& nic, const Region& region, std::byte* to,
                         std::vector<std::byte>& payload, const std::byte* small,
                         std::uint32_t length, Picos now, bool ordered, bool atomic,
                         std::uint32_t target) {
  if (empty()) {
    entries_.clear();
    first_ = 0;
  }
  Rng& rng = nic.weak_memory.draws();
  const std::uint64_t least = rng.below(2) == 0 ? least_unit(length) : 64;
  Entry& entry = entries_.emplace_back(nic, region, to, Pieces(to, length, least));
  if (length <= entry.small.size())
    std::memcpy(entry.small.data(), small, length);
  else
    entry.large.swap(payload);
  entry.ordered = ordered;
  entry.atomic = atomic;
  entry.target = target;
  entry.last = now + draw_delay(rng, to_picos(nic.weak_memory.model().max_delay_ns) - kLeastDelay);
  entry.next =
      entry.pieces.count == 1 || rng.below(2) == 0
          ? entry.last
          : now + static_cast<Picos>(rng.below(static_cast<std::uint64_t>(entry.last - now + 1)));
  if (atomic) nic.weak_memory.count_split_atomic(1);
  if (!listed_) {
    listed_ = true;
    nic.fabric().placing.push_back(this);
  }
  arm();
}

void PlacementQueue::show(Entry& entry, std::uint64_t mask) {
  mask &= entry.left;
  if (mask == 0) return;
  entry.left &= ~mask;
  WeakMemory& memory = entry.nic->weak_memory;
  if (entry.atomic)
    memory.count_split_atomic(-1);
  else
    memory.settle_atomics(entry.to, entry.pieces.length);
  entry.pieces.copy(entry.to, entry.bytes(), mask);
  entry.nic->touch();
}

// An ordered write becomes visible after all earlier ordered writes. This function makes the
// earlier ordered writes visible now.
void PlacementQueue::show_up_to(std::size_t index) {
  for (std::size_t i = first_; i < index; ++i)
    if (entries_[index].ordered && entries_[i].ordered) show(entries_[i], ~0ULL);
}

void PlacementQueue::drain() {
  for (std::size_t i = first_; i < entries_.size(); ++i) show(entries_[i], ~0ULL);
  first_ = entries_.size();
}

void PlacementQueue::settle(const Region& region) {
  for (std::size_t i = first_; i < entries_.size(); ++i)
    if (entries_[i].region == &region) show(entries_[i], ~0ULL);
}

void PlacementQueue::settle(const Nic& nic, std::uint32_t target) {
  for (std::size_t i = first_; i < entries_.size(); ++i)
    if (entries_[i].nic == &nic && entries_[i].target == target) show(entries_[i], ~0ULL);
}

void PlacementQueue::settle_atomics(const Nic& nic, const std::byte* at, std::uint64_t bytes) {
  for (std::size_t i = first_; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (!entry.atomic || entry.left == 0 || entry.nic != &nic) continue;
    if (entry.to + 8 <= at || at + bytes <= entry.to) continue;
    show_up_to(i);
    show(entries_[i], ~0ULL);
  }
}

void PlacementQueue::crash(const Nic& nic, bool torn) {
  for (std::size_t i = first_; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (entry.nic != &nic || entry.left == 0) continue;
    WeakMemory& memory = entry.nic->weak_memory;
    if (torn && memory.tears_at_crash()) show(entry, memory.draws()());
    if (entry.atomic && entry.left != 0) memory.count_split_atomic(-1);
    entry.left = 0;
  }
}

void PlacementQueue::fire(Picos now) {
  if (now != armed_for_) return drop_reference(&qp_);  // superseded
  armed_for_ = kNever;
  for (std::size_t i = first_; i < entries_.size(); ++i) {
    if (entries_[i].left == 0 || entries_[i].next > now) continue;
    show_up_to(i);
    Entry& entry = entries_[i];
    if (entry.last <= now) {
      show(entry, ~0ULL);
    } else {
      show(entry, entry.nic->weak_memory.draws()());
      entry.next = entry.last;
    }
  }
  while (first_ < entries_.size() && entries_[first_].left == 0) ++first_;
  if (empty()) {
    listed_ = false;
    auto& placing = qp_.nic.fabric().placing;
    placing.erase(std::find(placing.begin(), placing.end(), this));
  } else {
    arm();
  }
  drop_reference(&qp_);  // may delete this
}

void PlacementQueue::arm() {
  Picos next = armed_for_;
  for (std::size_t i = first_; i < entries_.size(); ++i)
    if (entries_[i].left != 0) next = std::min(next, entries_[i].next);
  if (next == armed_for_ || next == kNever) return;
  armed_for_ = next;
  ++qp_.references;  // the scheduled event holds this reference
  qp_.nic.fabric().scheduler.schedule(*this, next);
}

}  // namespace pyrdma::fabric::sim
