#include "fabric/sim/network.h"

#include <algorithm>

#include "base/rng.h"
#include "env/sim/sim_env.h"

namespace pyrdma::fabric::sim {
namespace {
constexpr std::uint64_t kSpineSeed = 0x5317e;  // a spine's hash differs from a rack switch's
}

Network::Network(const SimProfile& profile, std::uint32_t nodes, std::uint32_t devices,
                 std::uint64_t seed)
    : profile_(profile),
      nodes_(nodes),
      two_tier_(profile.topology_two_tier != 0),
      lossless_(profile.link_lossless != 0),
      nodes_per_rack_(static_cast<std::uint32_t>(profile.topology_nodes_per_tor)),
      uplinks_(static_cast<std::uint32_t>(profile.topology_uplinks_per_tor)),
      spines_(std::min(uplinks_, static_cast<std::uint32_t>(profile.topology_spines))),
      mtu_(static_cast<std::uint32_t>(profile.link_mtu_bytes)),
      chunk_bytes_(std::max(mtu_, 16384 / mtu_ * mtu_)),
      alpha_(profile.switch__alpha),
      buffer_bytes_(profile.switch__buffer_bytes),
      quiet_bytes_(
          lossless_ ? std::min(profile.switch__ecn_threshold_bytes, profile.switch__pfc_xoff_bytes)
                    : profile.switch__ecn_threshold_bytes),
      picos_per_byte_(8000.0 / profile.link_rate_gbps),
      uplink_picos_per_byte_(8000.0 / profile.topology_uplink_gbps),
      hop_(to_picos(profile.switch__latency_ns + profile.link_propagation_ns)),
      propagation_(to_picos(profile.link_propagation_ns)),
      port_free_(std::size_t{nodes} * devices),
      red_(seed, -1, "switches mark") {
  if (two_tier_) {
    racks_ = (nodes + nodes_per_rack_ - 1) / nodes_per_rack_;
    links_.resize(std::size_t{2} * racks_ * uplinks_);
  }
  held_.resize(racks_ + spines_);
  if (lossless_) ingress_.resize(port_free_.size() + links_.size());
}

// Uplink l of every rack goes to spine l % spines. So the spine has several links to each rack when
// there are more uplinks than spines.
Network::Path Network::path(std::uint32_t from, std::uint32_t to, std::uint64_t flow) const {
  const std::uint32_t up_links = rack_of(from) * uplinks_;
  const std::uint32_t down_links = (racks_ + rack_of(to)) * uplinks_;
  if (profile_.topology_ecmp == 0) return {up_links + to % uplinks_, down_links + to % uplinks_};
  const auto up = static_cast<std::uint32_t>(mix64(flow) % uplinks_);
  const std::uint32_t spine = up % spines_;
  const std::uint32_t choices = (uplinks_ - spine + spines_ - 1) / spines_;
  const auto choice = static_cast<std::uint32_t>(mix64(flow ^ kSpineSeed) % choices);
  return {up_links + up, down_links + spine + choice * spines_};
}

double Network::buffered_bytes(std::uint32_t at, Picos now) const {
  double bytes = 0;
  const auto add = [&](std::size_t index) {
    const Link& link = links_[index];
    const Picos from = std::max(now, link.paused_until);
    bytes += static_cast<double>(std::max<Picos>(0, link.free - from)) / uplink_picos_per_byte_;
  };
  if (at >= racks_) {
    for (std::uint32_t rack = 0; rack < racks_; ++rack)
      for (std::uint32_t link = at - racks_; link < uplinks_; link += spines_)
        add((racks_ + rack) * uplinks_ + link);
    return bytes;
  }
  const std::uint32_t first = two_tier_ ? at * nodes_per_rack_ : 0;
  const std::uint32_t last = two_tier_ ? std::min(nodes_, first + nodes_per_rack_) : nodes_;
  Picos to_nodes = 0;
  for (std::size_t begin = 0; begin < port_free_.size(); begin += nodes_)
    for (std::uint32_t node = first; node < last; ++node)
      to_nodes += std::max<Picos>(0, port_free_[begin + node] - now);
  for (std::uint32_t link = 0; two_tier_ && link < uplinks_; ++link) add(at * uplinks_ + link);
  return bytes + static_cast<double>(to_nodes) / picos_per_byte_;
}

// Returns the bytes that a queue may hold once `bytes` more have come to the switch: alpha times
// the free part of the buffer (Choudhury and Hahne, 1998). `held_` grows with each message and is
// exact only after a count of all queues. A queue of `queued` bytes needs the count when `held_`
// would refuse it.
double Network::threshold(std::uint32_t at, double queued, double bytes, Picos now) {
  double& held = held_[at];
  held += bytes;
  if (queued > alpha_ * (buffer_bytes_ - held)) held = buffered_bytes(at, now) + bytes;
  return alpha_ * (buffer_bytes_ - held);
}

// Decides whether a queue of `backlog` bytes marks a message. Without RED all are marked above the
// threshold. With RED the share grows from 0 at the threshold to ecn_pmax at ecn_kmax_bytes, and is
// 1 above that (Zhu et al., SIGCOMM 2015, figure 5).
bool Network::marks(double backlog) {
  const double kmin = profile_.switch__ecn_threshold_bytes, kmax = profile_.switch__ecn_kmax_bytes;
  if (backlog <= kmin) return false;
  if (backlog > kmax) return true;
  return red_.uniform() * (kmax - kmin) < profile_.switch__ecn_pmax * (backlog - kmin);
}

Network::PortResult Network::queue(const Queue& queue, Picos arrival, double bytes) {
  const auto time = static_cast<Picos>(bytes * queue.picos_per_byte);
  const Picos start = arrival - time;
  const Picos sends_from = std::max(start, queue.paused_until);
  PortResult result{};
  result.backlog =
      static_cast<double>(std::max<Picos>(0, queue.free - sends_from)) / queue.picos_per_byte;
  const double limit = threshold(queue.at, result.backlog + bytes, bytes, start);
  if (!lossless_ && result.backlog + bytes > limit) {
    held_[queue.at] -= bytes;
    ++queue.counters.dropped;
    result.dropped = true;
    result.delay = queue.free - start;
    return result;
  }
  queue.free += time;
  result.delay = queue.free - arrival;
  result.ecn_marked = marks(result.backlog);
  queue.counters.ecn_marked += result.ecn_marked;
  result.long_queue = lossless_ && result.backlog > profile_.switch__pfc_xoff_bytes;
  result.most = std::clamp(limit, 0.0, profile_.switch__pfc_xoff_bytes);
  return result;
}

Network::PortResult Network::wait_at_port(std::uint32_t to, Picos arrival, double bytes,
                                          bool no_buffer) {
  Picos& free = port_free_[to];
  PortResult result{};
  if (no_buffer) {
    result.dropped = true;
    return result;
  }
  // A short queue needs no count of the buffer, marks nothing and pauses nobody.
  const Picos time = wire_time(bytes);
  result.backlog = static_cast<double>(free - (arrival - time)) / picos_per_byte_;
  double& held = held_[rack_of(to)];
  if (result.backlog <= quiet_bytes_ &&
      result.backlog + bytes <= alpha_ * (buffer_bytes_ - held - bytes)) [[likely]] {
    held += bytes;
    free += time;
    result.delay = free - arrival;
    return result;
  }
  return queue({free, 0, rack_of(to), picos_per_byte_, counters_.node}, arrival, bytes);
}

Network::PortResult Network::enter_link(std::uint32_t index, Picos arrival, double bytes) {
  Link& link = links_[index];
  if (link.free <= arrival - static_cast<Picos>(bytes * uplink_picos_per_byte_)) {
    link.free = arrival;
    return {};
  }
  const std::uint32_t rack = index / uplinks_;
  const bool up = rack < racks_;
  const std::uint32_t at = up ? rack : racks_ + index % uplinks_ % spines_;
  return queue({link.free, link.paused_until, at, uplink_picos_per_byte_,
                up ? counters_.uplink : counters_.spine},
               arrival, bytes);
}

Picos Network::count_ingress(std::uint32_t from, std::uint32_t in, std::uint32_t out, Picos now,
                             Picos leave, double bytes, double most) {
  IngressPort& port = ingress_[in == kNoLink ? from : port_free_.size() + in];
  std::vector<Held>& messages = port.messages;
  for (; port.first < messages.size() && leave_time(messages[port.first]) <= now; ++port.first)
    port.bytes -= messages[port.first].bytes;
  if (port.first > messages.size() / 2) {
    messages.erase(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(port.first));
    port.first = 0;
  }
  messages.push_back({leave, out == kNoLink ? 0 : links_[out].pauses, bytes, out});
  port.bytes += bytes;
  if (port.bytes <= most) return 0;
  ++(out == kNoLink            ? counters_.node
     : out / uplinks_ < racks_ ? counters_.uplink
                               : counters_.spine)
        .paused;
  Picos until = now;
  double excess = port.bytes - most;
  for (std::size_t i = port.first; i < messages.size() && excess > 0; ++i) {
    excess -= messages[i].bytes;
    until = std::max(until, leave_time(messages[i]));
  }
  return until;
}

void Network::pause(std::uint32_t index, Picos now, Picos until) {
  Link& link = links_[index];
  const Picos from = std::max(now, link.paused_until);
  if (until <= from) return;
  link.pauses += until - from;
  link.free = std::max(link.free, from) + (until - from);
  link.paused_until = until;
}

}  // namespace pyrdma::fabric::sim
