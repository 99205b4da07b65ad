// Links and switches between the NICs. Every egress port of a switch is a queue that takes its
// memory from the switch's shared buffer. A star has one switch. Two tiers have one rack switch per
// group of nodes and spine switches that join the racks. NETWORK.md describes the model.
#pragma once
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "env/sim/event_queue.h"
#include "fabric/sim/cluster.h"
#include "fabric/sim/profile.h"

namespace pyrdma::fabric::sim {

class Network {
 public:
  /// Each of a node's `devices` has a port: device d of node n has port d * nodes + n.
  /// `seed` is that of the run; RED draws from it.
  Network(const SimProfile& profile, std::uint32_t nodes, std::uint32_t devices,
          std::uint64_t seed = 0);

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

  Picos propagation() const { return propagation_; }
  /// Returns the latency of a switch and of the cable behind it.
  Picos hop() const { return hop_; }
  bool lossless() const { return lossless_; }
  /// Returns true when receivers see the marks of switches.
  bool shows_marks() const { return profile_.switch__ecn_kmax_bytes != 0; }
  /// Returns true when a message between the ports of two NICs crosses a spine switch.
  bool crosses_spine(std::uint32_t from, std::uint32_t to) const {
    return two_tier_ && rack_of(from) != rack_of(to);
  }
  /// Returns the latency of the idle path between two NICs, without the time on the wire.
  Picos latency(std::uint32_t from, std::uint32_t to) const {
    return propagation_ + (crosses_spine(from, to) ? 3 : 1) * hop_;
  }

  /// The links of a path between racks: egress ports of the rack switch and of the spine switch.
  struct Path {
    std::uint32_t up, down;
  };
  /// Returns the path of `flow`. With ECMP each switch hashes the flow with a seed of its own.
  /// Otherwise the path depends on the target only, as in InfiniBand's forwarding tables.
  Path path(std::uint32_t from, std::uint32_t to, std::uint64_t flow) const;

  struct PortResult {
    Picos delay;     // wait behind the port's queue
    double backlog;  // bytes in the queue before this message
    bool dropped;    // the queue has used up its share of the buffer (lossy networks)
    bool ecn_marked;
    bool long_queue;  // lossless networks: count_ingress() counts the message
    double most;      // bytes that the buffer now allows to one ingress port
  };
  /// Passes `bytes` through the port towards `to`. `arrival` is their arrival time on an idle port.
  /// With `no_buffer`, the switch drops a message that would have to wait.
  PortResult enter_port(std::uint32_t to, Picos arrival, double bytes, bool no_buffer = false) {
    Picos& free = port_free_[to];
    if (free > arrival - wire_time(bytes)) [[unlikely]]
      return wait_at_port(to, arrival, bytes, no_buffer);
    free = arrival;
    return {};
  }
  /// Passes `bytes` through the egress port of a link between racks, in the same way.
  PortResult enter_link(std::uint32_t link, Picos arrival, double bytes);

  /// The number of a NIC's link or a node's port where others take that of a link between racks.
  static constexpr std::uint32_t kNoLink = ~0U;
  /// Counts `bytes` that reach a switch from the NIC `from`, or by the link `in` if that is a link,
  /// at `now`. They leave by the link `out`, or to a node, at `leave`. Returns the time until which
  /// flow control must stop the port that sent them, or 0.
  Picos count_ingress(std::uint32_t from, std::uint32_t in, std::uint32_t out, Picos now,
                      Picos leave, double bytes, double most);
  /// Flow control stops the port of `link` from `now` until `until`.
  void pause(std::uint32_t link, Picos now, Picos until);
  /// Returns the total time of the pauses of `link`. A message that leaves late by a later pause
  /// compares two of these values.
  Picos pauses(std::uint32_t link) const { return links_[link].pauses; }

  /// Returns the time that the port towards `to` still needs to send its backlog.
  Picos port_backlog(std::uint32_t to, Picos now) const {
    return port_free_[to] > now ? port_free_[to] - now : 0;
  }

  /// Returns the longest piece that reserves a link at once. A piece is a few packets, so that long
  /// messages share links.
  std::uint32_t chunk_bytes() const { return chunk_bytes_; }
  const NetworkCounters& counters() const { return counters_; }

 private:
  struct Link {
    Picos free = 0;          // end of the backlog
    Picos paused_until = 0;  // flow control stops the port until then
    Picos pauses = 0;        // total time of all pauses
  };
  struct Held {  // a message in an egress queue, as its ingress port counts it
    Picos leave;
    Picos pauses;  // of the link `out` when the message joined its queue
    double bytes;
    std::uint32_t out;
  };
  struct IngressPort {
    std::vector<Held> messages;  // from `first` on
    std::size_t first = 0;
    double bytes = 0;
  };
  struct Queue {  // one egress port, as queue() needs it
    Picos& free;
    Picos paused_until;
    std::uint32_t at;  // number of the switch: racks come before spines
    double picos_per_byte;
    QueueCounters& counters;
  };
  Picos leave_time(const Held& held) const {
    return held.out == kNoLink ? held.leave : held.leave + links_[held.out].pauses - held.pauses;
  }
  WireSize wire(std::uint32_t payload, double overhead) const {
    const std::uint32_t packets = payload <= mtu_ ? 1 : (payload + mtu_ - 1) / mtu_;
    return {packets, static_cast<double>(payload) + static_cast<double>(packets) * overhead};
  }
  PortResult wait_at_port(std::uint32_t to, Picos arrival, double bytes, bool no_buffer);
  PortResult queue(const Queue& queue, Picos arrival, double bytes);
  bool marks(double backlog);
  double threshold(std::uint32_t at, double queued, double bytes, Picos now);
  double buffered_bytes(std::uint32_t at, Picos now) const;
  std::uint32_t rack_of(std::uint32_t port) const {
    return two_tier_ ? port % nodes_ / nodes_per_rack_ : 0;
  }

  const SimProfile& profile_;
  std::uint32_t nodes_;
  bool two_tier_, lossless_;
  std::uint32_t nodes_per_rack_, uplinks_, spines_;
  std::uint32_t racks_ = 1;
  std::uint32_t mtu_;
  std::uint32_t chunk_bytes_;
  double alpha_, buffer_bytes_;
  double quiet_bytes_;  // a queue up to this length marks nothing and pauses nobody
  double picos_per_byte_, uplink_picos_per_byte_;
  Picos hop_;
  Picos propagation_;
  std::vector<Picos> port_free_;  // per NIC, the port towards it: end of its backlog
  std::vector<Link> links_;       // rack switches' uplinks by rack, then the spines' links by rack
  std::vector<double> held_;      // per switch: at least the bytes in its buffer
  std::vector<IngressPort> ingress_;  // lossless networks: per NIC, then per link
  NetworkCounters counters_;
  Rng red_;  // draws which messages RED marks
};

}  // namespace pyrdma::fabric::sim
