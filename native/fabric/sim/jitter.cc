#include "fabric/sim/jitter.h"

#include "env/sim/sim_env.h"
#include "fabric/sim/nic.h"

namespace pyrdma::fabric::sim {

Jitter::Jitter(Nic& nic, const SimOptions& options, Rng stream)
    : nic_(nic),
      on_(options.variance),
      pcie_(to_picos(options.profile.variance_pcie_ns)),
      refresh_(to_picos(options.profile.variance_refresh_ns)),
      numa_(to_picos(options.profile.variance_numa_ns)),
      refresh_share_(options.profile.variance_refresh_ns /
                     options.profile.variance_refresh_period_ns),
      cached_bytes_(options.profile.cpu_llc_bytes),
      stream_(stream),
      crossings_(stream_()) {}

Picos Jitter::drawn_access(Picos mean, const Message& message) {
  const bool reads = is_one_of(message.header.opcode, kReturning);
  if (!reads && nic_.fabric().device_regions == 0) return drawn_crossing(mean);
  const std::uint32_t rkey = message.header.rkey;
  const Region* region = rkey != 0 ? nic_.regions.find(rkey) : nullptr;
  if (region == nullptr) return drawn_crossing(mean);
  if (region->on_device) return mean;
  return drawn_crossing(mean) + (reads ? drawn_wait(region->size) : 0);
}

// A region beyond the cache is in it with the share that fits, and half of it is on each socket.
// Writes go to the cache.
Picos Jitter::drawn_wait(std::uint64_t region_bytes) {
  const auto size = static_cast<double>(region_bytes);
  if (size <= cached_bytes_ || stream_.uniform() * size < cached_bytes_) return 0;
  const Picos hop = numa_ != 0 && stream_.below(2) == 0 ? numa_ : 0;
  if (stream_.uniform() >= refresh_share_) return hop;
  return hop + static_cast<Picos>(stream_.below(static_cast<std::uint64_t>(refresh_) + 1));
}

}  // namespace pyrdma::fabric::sim
