// Links and switches between the NICs. A message reserves each shared link in the order in which it
// reaches it; what it must wait is the link's backlog. A star has one switch; two tiers add one
// rack switch per group of nodes, joined by a spine through `uplinks_per_tor` links each way,
// chosen per flow (ECMP).
#pragma once
#include <cstdint>
#include <vector>

#include "env/sim/event_queue.h"
#include "fabric/sim/profile.h"

namespace pyrdma::fabric::sim {

class Network {
 public:
  Network(const SimProfile& profile, std::uint32_t nodes);

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

  /// When the last byte of a message that left `from` at `departure` reaches `to`'s port of the
  /// last switch plus the cable behind it, if that port is idle. Reserves the links between racks.
  /// `flow` picks the path.
  Picos cross(std::uint32_t from, std::uint32_t to, Picos departure, double bytes,
              std::uint64_t flow);

  struct PortResult {
    Picos delay;     // behind the port's backlog
    double backlog;  // bytes before this message
    bool dropped;    // the shared buffer is full (lossy networks)
    bool ecn_marked;
    Picos pause_sender;  // 0, or until when flow control stops the sender
  };
  /// Passes `bytes` through the port towards `to`; they would have arrived at `arrival` on an idle
  /// port. `no_buffer`: what would have to wait is dropped.
  PortResult enter_port(std::uint32_t to, Picos arrival, double bytes, bool no_buffer = false);

  /// How long the port towards `to` still sends what it holds.
  Picos port_backlog(std::uint32_t to, Picos now) const {
    return port_free_[to] > now ? port_free_[to] - now : 0;
  }

  /// Two empty crossings of the nearest switch.
  Picos round_trip() const { return 2 * (propagation_ + hop_); }

  /// Longest piece that reserves a link at once: a few packets, so that long messages share links.
  std::uint32_t chunk_bytes() const { return chunk_bytes_; }

 private:
  WireSize wire(std::uint32_t payload, double overhead) const {
    const std::uint32_t packets = payload <= mtu_ ? 1 : (payload + mtu_ - 1) / mtu_;
    return {packets, static_cast<double>(payload) + static_cast<double>(packets) * overhead};
  }
  double buffered_bytes(std::uint32_t rack, Picos now) const;
  std::uint32_t rack_of(std::uint32_t node) const { return two_tier_ ? node / nodes_per_rack_ : 0; }

  const SimProfile& profile_;
  std::uint32_t nodes_;
  bool two_tier_;
  std::uint32_t nodes_per_rack_;
  std::uint32_t mtu_;
  std::uint32_t chunk_bytes_;
  double picos_per_byte_, uplink_picos_per_byte_;
  Picos hop_;  // switch and the cable behind it
  Picos propagation_;
  std::vector<Picos> port_free_;                    // per node: the port of its switch towards it
  std::vector<Picos> uplink_free_, downlink_free_;  // per rack and link
};

}  // namespace pyrdma::fabric::sim
