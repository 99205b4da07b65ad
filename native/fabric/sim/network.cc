#include "fabric/sim/network.h"

#include <algorithm>

#include "base/rng.h"
#include "env/sim/sim_env.h"

namespace pyrdma::fabric::sim {

Network::Network(const SimProfile& profile, std::uint32_t nodes, std::uint32_t devices)
    : profile_(profile),
      nodes_(nodes),
      two_tier_(profile.topology_two_tier != 0),
      nodes_per_rack_(static_cast<std::uint32_t>(profile.topology_nodes_per_tor)),
      mtu_(static_cast<std::uint32_t>(profile.link_mtu_bytes)),
      chunk_bytes_(std::max(mtu_, 16384 / mtu_ * mtu_)),
      picos_per_byte_(8000.0 / profile.link_rate_gbps),
      uplink_picos_per_byte_(8000.0 / profile.topology_uplink_gbps),
      hop_(to_picos(profile.switch__latency_ns + profile.link_propagation_ns)),
      propagation_(to_picos(profile.link_propagation_ns)),
      port_free_(std::size_t{nodes} * devices) {
  if (!two_tier_) return;
  const std::uint32_t racks = (nodes + nodes_per_rack_ - 1) / nodes_per_rack_;
  uplink_free_.resize(racks * static_cast<std::uint32_t>(profile.topology_uplinks_per_tor));
  downlink_free_.resize(uplink_free_.size());
}

Picos Network::cross(std::uint32_t from, std::uint32_t to, Picos departure, double bytes,
                     std::uint64_t flow) {
  Picos at = departure + propagation_;
  const std::uint32_t from_rack = rack_of(from), to_rack = rack_of(to);
  if (from_rack != to_rack) {
    const auto links = static_cast<std::uint32_t>(profile_.topology_uplinks_per_tor);
    const auto link = static_cast<std::uint32_t>(mix64(flow) % links);
    const auto time = static_cast<Picos>(bytes * uplink_picos_per_byte_);
    Picos& up = uplink_free_[from_rack * links + link];
    Picos& down = downlink_free_[to_rack * links + link];
    up = std::max(up + time, at);
    at = up + hop_;
    down = std::max(down + time, at);
    at = down + hop_;
  }
  return at + hop_;
}

double Network::buffered_bytes(std::uint32_t rack, Picos now) const {
  const std::uint32_t first = two_tier_ ? rack * nodes_per_rack_ : 0;
  const std::uint32_t last = two_tier_ ? std::min(nodes_, first + nodes_per_rack_) : nodes_;
  Picos total = 0;
  for (std::size_t begin = 0; begin < port_free_.size(); begin += nodes_)
    for (std::uint32_t node = first; node < last; ++node)
      total += std::max<Picos>(0, port_free_[begin + node] - now);
  return static_cast<double>(total) / picos_per_byte_;
}

Network::PortResult Network::enter_port(std::uint32_t to, Picos arrival, double bytes,
                                        bool no_buffer) {
  Picos& free = port_free_[to];
  const Picos start = arrival - wire_time(bytes);
  if (free <= start) [[likely]] {
    free = arrival;
    return {0, 0, false, false, 0};
  }
  PortResult result{};
  result.backlog = static_cast<double>(free - start) / picos_per_byte_;
  const bool lossless = profile_.link_lossless != 0;
  if (no_buffer) {
    result.dropped = true;
    return result;
  }
  if (!lossless &&
      result.backlog > profile_.switch__buffer_bytes / static_cast<double>(port_free_.size()) &&
      buffered_bytes(rack_of(to), start) + bytes > profile_.switch__buffer_bytes) {
    result.dropped = true;
    return result;
  }
  free += wire_time(bytes);
  result.delay = free - arrival;
  result.ecn_marked = result.backlog > profile_.switch__ecn_threshold_bytes;
  if (lossless && result.backlog > profile_.switch__pfc_xoff_bytes)
    result.pause_sender =
        arrival +
        static_cast<Picos>((result.backlog - profile_.switch__pfc_xoff_bytes) * picos_per_byte_);
  return result;
}

}  // namespace pyrdma::fabric::sim
