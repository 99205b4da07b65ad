// The memory that the threads of a simulated node share: last-level cache and memory bandwidth.
// README.md has the model.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "env/sim/event_queue.h"

namespace pyrdma {

/// What the profile says of a CPU. Times in picoseconds; lines of 64 bytes.
struct SimCpu {
  double instruction = 0;                               // instructions per cycle and clock, in one
  double near = 0, llc = 0, nic = 0, core = 0;          // latencies of a line
  double own = 0;                                       // from the NIC, for a request of the node
  double memory = 0, memory_loaded = 0;                 // of an idle and of a busy memory
  double near_copy = 0, llc_copy = 0, memory_copy = 0;  // per byte, of one core
  double memory_byte = 0;                               // per byte, of the whole node
  double near_bytes = 0, llc_bytes = 0, nic_llc_bytes = 0;
  double numa_hop = 0;
  std::uint32_t cores_per_socket = 1;
};

class NodeMemory {
 public:
  static constexpr double kLine = 64;
  explicit NodeMemory(const SimCpu& cpu) : cpu_(cpu) {}

  void add_footprint(std::uint64_t bytes) { footprints_ += static_cast<double>(bytes); }
  void remove_footprint(std::uint64_t bytes) { footprints_ -= static_cast<double>(bytes); }

  /// Notes that the NIC has written to the node's memory: for a request of the node itself, such as
  /// the data of a read, or of another node.
  void place(Picos now, std::uint64_t bytes, bool own) {
    placed_ += bytes;
    if (own) own_ += bytes;
    if (cpu_.nic_llc_bytes == 0) use(now, static_cast<double>(bytes), 0);
  }
  std::uint64_t placed() const { return placed_; }
  std::uint64_t own() const { return own_; }

  /// Returns the time that a thread needs for a line that the NIC wrote, when the NIC has placed
  /// `since` bytes since the thread read such a line before, the part `own` of them for requests of
  /// the node. The NIC's part of the cache keeps the newest ones.
  double nic_line(Picos now, std::uint64_t since, double own) const {
    const double cached = own * cpu_.own + (1 - own) * cpu_.nic;
    if (static_cast<double>(since) <= cpu_.nic_llc_bytes || since == 0) return cached;
    const double kept = cpu_.nic_llc_bytes / static_cast<double>(since);
    return kept * cached + (1 - kept) * latency(now);
  }
  /// Returns the time for `lines` lines from memory.
  double memory_lines(Picos now, double lines) {
    const double time = lines * latency(now);
    use(now, lines * kLine, time);
    return time;
  }
  /// Returns the time for one line of a footprint of `bytes`.
  double walk(Picos now, std::uint64_t bytes) {
    const Shares part = shares(static_cast<double>(bytes));
    return part.near * cpu_.near + part.llc * cpu_.llc + memory_lines(now, part.memory);
  }
  /// Returns the time to copy `bytes` bytes from or to a footprint of `footprint` bytes.
  double copy(Picos now, double bytes, double footprint) {
    const Shares part = shares(footprint);
    const double far = part.memory * bytes;
    const double far_time = far * std::max(cpu_.memory_copy, cpu_.memory_copy * demand(now, far));
    if (far != 0) use(now, far, far_time);
    return bytes * (part.near * cpu_.near_copy + part.llc * cpu_.llc_copy) + far_time;
  }
  /// Returns the part of the node's memory bandwidth that its threads ask for now.
  double demand(Picos now) const { return demand(now, 0); }

 private:
  struct Shares {
    double near, llc, memory;
  };
  /// A copy that takes longer than a window.
  struct Stream {
    Picos until;
    double demand;
  };
  static constexpr Picos kWindow = 2'000'000;

  // The footprints of a node share what the NIC leaves of the last-level cache, by their sizes.
  Shares shares(double footprint) const {
    const double cache = cpu_.llc_bytes - (placed_ != 0 ? cpu_.nic_llc_bytes : 0);
    const double near = footprint <= cpu_.near_bytes ? 1 : cpu_.near_bytes / footprint;
    const double all = std::max(footprints_, footprint);
    const double cached = std::max(near, all <= cache ? 1 : cache / all);
    return {near, cached - near, 1 - cached};
  }
  double latency(Picos now) const {
    const double asked = demand(now, kLine);
    return (cpu_.memory + (cpu_.memory_loaded - cpu_.memory) * std::min(1.0, asked)) *
           std::max(1.0, asked);
  }
  double demand(Picos now, double bytes) const {
    double sum = demand_;
    for (const Stream& stream : streams_)
      if (stream.until > now) sum += stream.demand;
    // A copy of more than a window asks for its core's share beside the others.
    if (bytes * cpu_.memory_copy > static_cast<double>(kWindow))
      sum += cpu_.memory_byte / cpu_.memory_copy;
    return sum;
  }
  void use(Picos now, double bytes, double time) {
    if (time > static_cast<double>(kWindow)) {
      std::erase_if(streams_, [now](const Stream& stream) { return stream.until <= now; });
      streams_.push_back({now + static_cast<Picos>(time), cpu_.memory_byte / cpu_.memory_copy});
      return;
    }
    if (now - window_begin_ >= kWindow) {
      // What was taken at a slowed pace would have been taken faster: the demand is larger.
      const double taken = used_ * cpu_.memory_byte / static_cast<double>(now - window_begin_);
      demand_ = taken * std::max(1.0, demand_);
      used_ = 0;
      window_begin_ = now;
    }
    used_ += bytes;
  }

  const SimCpu& cpu_;
  double footprints_ = 0;
  std::uint64_t placed_ = 0, own_ = 0;
  double used_ = 0, demand_ = 0;  // bytes in this window; part of the bandwidth in the last one
  Picos window_begin_ = 0;
  std::vector<Stream> streams_;
};

}  // namespace pyrdma
