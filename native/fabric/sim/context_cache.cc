#include "fabric/sim/context_cache.h"

#include <algorithm>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {

bool ContextCache::may_miss() const { return cache_.overflows() || nic_.faults() != nullptr; }

Picos ContextCache::fetch(Picos now, Picos ready, Picos interval) {
  const Picos next = fetches_.serve(now, ready, interval);
  return std::max(next, next - interval + nic_.times().dma_read);
}

Picos ContextCache::access(std::uint64_t key, double bytes, Picos interval, Picos now,
                           Picos ready) {
  const bool hit = cache_.access(key, bytes);
  ++(hit ? nic_.counters().cache_hits : nic_.counters().cache_misses);
  return hit ? ready : fetch(now, ready, interval);
}

Picos ContextCache::load(const QueuePairCore& qp, Picos now, Picos ready) {
  const NicTimes& t = nic_.times();
  if (NicFaults* faults = nic_.faults()) {
    if (faults->stream.fire(Fault::cache_miss)) {
      faults->stream.reach(Fault::cache_miss);
      return ready + to_picos(faults->stream.duration(Fault::cache_miss));
    }
    if (faults->noisy_until > nic_.fabric().scheduler.clock()) {
      faults->stream.reach(Fault::noisy_neighbour);
      return fetch(now, ready, 2 * std::max(t.qp_miss, t.tx_message));
    }
  }
  if (!cache_.overflows()) [[likely]]
    return ready;
  return access(qp.serial, nic_.fabric().profile.nic_qp_state_bytes, t.qp_miss, now, ready);
}

Picos ContextCache::load(const Region& region, std::uint64_t addr, Picos now, Picos ready) {
  if (!cache_.overflows()) [[likely]]
    return ready;
  const SimProfile& profile = nic_.fabric().profile;
  const std::uint64_t page =
      (addr - region.addr) / static_cast<std::uint64_t>(profile.nic_page_bytes);
  return access((region.serial << 24) ^ page ^ (1ULL << 63),
                profile.nic_page_state_bytes + profile.nic_mr_state_bytes, nic_.times().mr_miss,
                now, ready);
}

// The share of receives that the NIC does not keep misses, at equal distances.
Picos ContextCache::load_receive(Picos now, Picos ready) {
  const double kept = nic_.fabric().profile.nic_receive_cache;
  const auto posted = static_cast<double>(posted_receives_);
  if (posted <= kept) [[likely]]
    return ready;
  receive_misses_ += 1 - kept / posted;
  if (receive_misses_ < 1) return ready;
  receive_misses_ -= 1;
  return fetch(now, ready, nic_.times().qp_miss);
}

}  // namespace pyrdma::fabric::sim
