// Links and switches between the NICs. Messages reserve a shared link in the order of their arrival
// at the link. A message waits for the link's backlog. A star has one switch. Two tiers have one
// rack switch per group of nodes and a spine that joins the racks. A rack switch has
// `uplinks_per_tor` links each way to the spine and chooses one per flow (ECMP).
#pragma once
#include <cstdint>
#include <vector>

#include "env/sim/event_queue.h"
#include "fabric/sim/profile.h"

namespace pyrdma::fabric::sim {

class Network {
 public:
  /// Each of a node's `devices` has a port: device d of node n has port d * nodes + n.
  Network(const SimProfile& profile, std::uint32_t nodes, std::uint32_t devices);

  struct WireSize {
    std::uint32_t packets;
    double bytes;
  };
  WireSize connected(std::uint32_t payload) const {
    return wire(payload, profile_.link_overhead_bytes);
  }
  WireSize datagram(std::uint32_t payload) const {
    return wire(payload, profile_.link_datagram_overhead_bytes);
  }
  WireSize control() const { return {1, profile_.link_ack_bytes}; }
  Picos wire_time(double bytes) const { return static_cast<Picos>(bytes * picos_per_byte_); }

  /// Sends a message that leaves `from` at `departure`. Returns the time at which its last byte has
  /// passed the last switch's port towards `to` and the cable behind the port, if the port is idle.
  /// Reserves the links between racks. `flow` picks the path.
  Picos cross(std::uint32_t from, std::uint32_t to, Picos departure, double bytes,
              std::uint64_t flow);

  struct PortResult {
    Picos delay;     // wait behind the port's backlog
    double backlog;  // bytes in the port before this message
    bool dropped;    // the shared buffer is full (lossy networks)
    bool ecn_marked;
    Picos pause_sender;  // time until which flow control stops the sender, or 0
  };
  /// Passes `bytes` through the port towards `to`. `arrival` is their arrival time on an idle port.
  /// With `no_buffer`, the switch drops a message that would have to wait.
  PortResult enter_port(std::uint32_t to, Picos arrival, double bytes, bool no_buffer = false);

  /// Returns the time that the port towards `to` still needs to send its backlog.
  Picos port_backlog(std::uint32_t to, Picos now) const {
    return port_free_[to] > now ? port_free_[to] - now : 0;
  }

  /// Returns the time of two crossings of the idle nearest switch.
  Picos round_trip() const { return 2 * (propagation_ + hop_); }

  /// Returns the longest piece that reserves a link at once. A piece is a few packets, so that long
  /// messages share links.
  std::uint32_t chunk_bytes() const { return chunk_bytes_; }

 private:
  WireSize wire(std::uint32_t payload, double overhead) const {
    const std::uint32_t packets = payload <= mtu_ ? 1 : (payload + mtu_ - 1) / mtu_;
    return {packets, static_cast<double>(payload) + static_cast<double>(packets) * overhead};
  }
  double buffered_bytes(std::uint32_t rack, Picos now) const;
  std::uint32_t rack_of(std::uint32_t port) const {
    return two_tier_ ? port % nodes_ / nodes_per_rack_ : 0;
  }

  const SimProfile& profile_;
  std::uint32_t nodes_;
  bool two_tier_;
  std::uint32_t nodes_per_rack_;
  std::uint32_t mtu_;
  std::uint32_t chunk_bytes_;
  double picos_per_byte_, uplink_picos_per_byte_;
  Picos hop_;  // latency of a switch and of the cable behind it
  Picos propagation_;
  std::vector<Picos> port_free_;                    // per port of a switch: end of its backlog
  std::vector<Picos> uplink_free_, downlink_free_;  // per rack and link
};

}  // namespace pyrdma::fabric::sim
