// A profile describes a testbed to the simulator. One table lists every number of a TOML profile.
// The TOML file carries the unit and the source of each value. SimProfile checks names and bounds.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace pyrdma::fabric::sim {

// clang-format off
//      table, key, unit, min, max, meaning
#define PYRDMA_SIM_PARAMETERS(X)                                                                          \
  X(topology, two_tier, "bool", 0, 1, "racks behind a spine instead of one switch")                       \
  X(topology, nodes_per_tor, "count", 1, 4096, "nodes below one top-of-rack switch")                      \
  X(topology, uplinks_per_tor, "count", 1, 1024, "links from one rack to the spines")                     \
  X(topology, uplink_gbps, "Gbps", 0.001, 10000, "rate of one link to a spine")                           \
  X(topology, spines, "count", 1, 1024, "spine switches, which share out the uplinks of each rack")       \
  X(topology, ecmp, "bool", 0, 1, "links between racks by a hash of the flow, not by target")             \
  X(link, rate_gbps, "Gbps", 0.001, 10000, "node link, data rate after line coding")                      \
  X(link, mtu_bytes, "B", 64, 65536, "payload of a full packet")                                          \
  X(link, overhead_bytes, "B", 0, 1024, "headers and framing of a packet on a connected transport")       \
  X(link, datagram_overhead_bytes, "B", 0, 1024, "headers and framing of a datagram")                     \
  X(link, ack_bytes, "B", 1, 1024, "an acknowledgement or read request on the wire")                      \
  X(link, propagation_ns, "ns", 0, 1e6, "one cable")                                                      \
  X(link, lossless, "bool", 0, 1, "flow control instead of drops")                                        \
  X(switch_, latency_ns, "ns", 0, 1e6, "port to port")                                                    \
  X(switch_, buffer_bytes, "B", 1024, 1e12, "dynamic buffer that all ports share")                        \
  X(switch_, alpha, "ratio", 0.001, 1000, "a port holds at most alpha times the free buffer")             \
  X(switch_, ecn_threshold_bytes, "B", 0, 1e12, "backlog of a port above which packets are marked")       \
  X(switch_, ecn_kmax_bytes, "B", 0, 1e12, "backlog above which RED marks all packets; 0: no RED, and receivers see no marks") \
  X(switch_, ecn_pmax, "ratio", 0, 1, "share of packets that RED marks at ecn_kmax_bytes")                \
  X(switch_, pfc_xoff_bytes, "B", 0, 1e12, "bytes from one port above which it is paused")                \
  X(pcie, doorbell_ns, "ns", 0, 1e5, "from the CPU's store until the NIC has the request")                \
  X(pcie, read_ns, "ns", 0, 1e5, "DMA read, round trip")                                                  \
  X(pcie, write_ns, "ns", 0, 1e5, "DMA write, until visible to the CPU")                                  \
  X(pcie, rate_gbps, "Gbps", 0.1, 100000, "rate each way after line code and link-layer packets")         \
  X(pcie, payload_bytes, "B", 64, 4096, "longest payload of a packet")                                    \
  X(pcie, header_bytes, "B", 0, 64, "framing and header of a packet")                                     \
  X(nic, tx_latency_ns, "ns", 0, 1e5, "fixed latency of the sending pipeline")                            \
  X(nic, rx_latency_ns, "ns", 0, 1e5, "fixed latency of the receiving pipeline")                          \
  X(nic, tx_packet_ns, "ns", 0, 1e5, "sending pipeline, per packet of either role")                       \
  X(nic, rx_packet_ns, "ns", 0, 1e5, "receiving pipeline, per packet of either role")                     \
  X(nic, tx_message_ns, "ns", 0, 1e5, "requester engine, per request")                                    \
  X(nic, qp_message_ns, "ns", 0, 1e5, "least time between two requests of one queue pair")                \
  X(nic, qp_read_ns, "ns", 0, 1e5, "least time between two reads or atomics of one queue pair")           \
  X(nic, rx_write_ns, "ns", 0, 1e5, "responder engine, per write")                                        \
  X(nic, rx_read_ns, "ns", 0, 1e5, "responder engine, per read")                                          \
  X(nic, rx_send_ns, "ns", 0, 1e5, "responder engine, per send")                                          \
  X(nic, rx_atomic_ns, "ns", 0, 1e5, "responder engine, per atomic")                                      \
  X(nic, atomic_address_ns, "ns", 0, 1e5, "least time between two atomics at one address")                \
  X(nic, device_atomic_address_ns, "ns", 0, 1e5, "the same at one address of the memory on the NIC")       \
  X(nic, rx_ack_ns, "ns", 0, 1e5, "requester engine, per response")                                       \
  X(nic, scatter_ns, "ns", 0, 1e5, "DMA engine, per response with data, besides its PCIe time")          \
  X(nic, completion_ns, "ns", 0, 1e5, "requester engine, extra for a signaled request")                   \
  X(nic, dma_read_ns, "ns", 0, 1e5, "requester engine, extra for each payload fetch")                     \
  X(nic, max_inline_bytes, "B", 0, 4096, "longest inline payload")                                        \
  X(nic, cache_bytes, "B", 0, 1e12, "on-NIC memory for queue-pair contexts and translations")             \
  X(nic, qp_state_bytes, "B", 0, 65536, "context of one queue pair in the cache")                         \
  X(nic, qp_miss_ns, "ns", 0, 1e5, "fetch unit, per context miss; the latency is pcie.read_ns")           \
  X(nic, mr_state_bytes, "B", 0, 65536, "state of one memory region in the cache")                        \
  X(nic, page_state_bytes, "B", 0, 65536, "translation of one page in the cache")                         \
  X(nic, mr_miss_ns, "ns", 0, 1e5, "fetch unit, per translation miss")                                    \
  X(nic, request_cache, "count", 1, 1e9, "posted requests that the NIC keeps until their responses")                         \
  X(nic, request_miss_ns, "ns", 0, 1e5, "requester engine, extra for data of a request not kept")              \
  X(nic, receive_prefetch, "count", 1, 65536, "receives that the NIC fetches at once, ahead of messages")  \
  X(nic, receive_cache, "count", 1, 1e12, "posted receives that the NIC keeps or fetches ahead")  \
  X(nic, receive_strides, "count", 1, 65536, "most datagrams that one receive takes; 1: no strides")       \
  X(nic, doorbell_carries_any, "bool", 0, 1, "a doorbell carries a single request without inline payload") \
  X(nic, answers_overrun, "bool", 0, 1, "a message whose completion is lost is answered with an error") \
  X(nic, page_bytes, "B", 4096, 1e12, "page size of registered memory")                                   \
  X(nic, max_outstanding_reads, "count", 1, 1024, "reads and atomics in flight per queue pair")           \
  X(nic, device_memory_bytes, "B", 0, 1e12, "memory on the NIC; 0 where there is none")                   \
  X(nic, device_memory_saving_ns, "ns", 0, 1e5, "time that an access saves over host memory")             \
  X(nic, has_dc, "bool", 0, 1, "dynamically connected transport")                                         \
  X(nic, dc_message_ns, "ns", 0, 1e5, "requester engine, extra for a dynamically connected request")       \
  X(nic, dc_reconnect_ns, "ns", 0, 1e6, "a drained DC queue pair connects to another target") \
  X(cpu, post_ns, "ns", 0, 1e6, "one doorbell")                                                           \
  X(cpu, post_request_ns, "ns", 0, 1e6, "each request of a doorbell")                                     \
  X(cpu, poll_ns, "ns", 0, 1e6, "taking one completion")                                                  \
  X(cpu, empty_poll_ns, "ns", 1, 1e6, "finding no completion")                                            \
  X(cpu, clock_read_ns, "ns", 0, 1e6, "reading the clock")                                                \
  X(cpu, clock_ghz, "GHz", 0.1, 20, "cycles per nanosecond under load")                                   \
  X(cpu, ipc, "1/cycle", 0.05, 20, "instructions per cycle of code in the first-level cache")             \
  X(cpu, atomic_ns, "ns", 0, 1e6, "an atomic read-modify-write of a word in the own cache")               \
  X(cpu, near_line_ns, "ns", 0, 1e6, "a line from the second-level cache")                                \
  X(cpu, llc_line_ns, "ns", 0, 1e6, "a line from the last-level cache")                                   \
  X(cpu, nic_line_ns, "ns", 0, 1e6, "a line that the NIC wrote, in its part of the last-level cache")     \
  X(cpu, own_line_ns, "ns", 0, 1e6, "a line that the NIC wrote for a request of its own node")            \
  X(cpu, core_line_ns, "ns", 0, 1e6, "a line that another core of the socket has written")                \
  X(cpu, memory_line_ns, "ns", 0, 1e6, "a line from idle memory")                                         \
  X(cpu, memory_loaded_ns, "ns", 0, 1e6, "a line from memory at its full bandwidth")                      \
  X(cpu, near_bytes, "B", 0, 1e12, "second-level cache of a core")                                        \
  X(cpu, llc_bytes, "B", 0, 1e12, "last-level cache that a thread can use")                               \
  X(cpu, nic_llc_bytes, "B", 0, 1e12, "part of the last-level cache that the NIC writes to; 0: it writes to memory")\
  X(cpu, near_copy_gbps, "Gbps", 0.1, 1e5, "copying within the second-level cache")                       \
  X(cpu, llc_copy_gbps, "Gbps", 0.1, 1e5, "one core copying within the last-level cache")                 \
  X(cpu, memory_copy_gbps, "Gbps", 0.1, 1e5, "one core copying in memory")                                \
  X(cpu, memory_gbps, "Gbps", 0.1, 1e6, "memory bandwidth of the node")                                   \
  X(cpu, sockets, "count", 1, 64, "the NIC is at the first")                                              \
  X(cpu, numa_hop_ns, "ns", 0, 1e6, "what the way to another socket adds to a line or a doorbell")        \
  X(cpu, system_call_ns, "ns", 0, 1e6, "user to kernel and back")                                         \
  X(cpu, context_switch_ns, "ns", 0, 1e6, "between threads that share a core")                            \
  X(cpu, process_start_ns, "ns", 0, 1e10, "starting a small program: fork, exec and exit")                \
  X(cpu, timeslice_us, "us", 1, 1e6, "longest run of a thread that shares a core")                        \
  X(control, open_us, "us", 0, 1e7, "opening the device: library and kernel, beside commands")            \
  X(control, open_commands, "count", 0, 1000, "commands of opening the device")                           \
  X(control, pd_commands, "count", 0, 1000, "commands of creating, or destroying, a protection domain")   \
  X(control, create_us, "us", 0, 1e7, "creating a queue or queue pair: library and kernel")               \
  X(control, create_qp_commands, "count", 0, 1000, "commands of creating, or destroying, a queue pair")   \
  X(control, create_qp_command_us, "us", 0, 1e7, "the command that creates a queue pair")                 \
  X(control, register_us, "us", 0, 1e7, "registering, or deregistering, memory, fixed part")              \
  X(control, register_page_us, "us", 0, 1e7, "pinning one page, under the lock of the memory map")        \
  X(control, register_commands, "count", 0, 1000, "commands of registering, or deregistering, memory")    \
  X(control, command_us, "us", 0, 1e7, "any other command; the NIC executes one at a time")               \
  X(control, handshake_us, "us", 0, 1e7, "exchanging addresses with a peer")                              \
  X(variance, pcie_ns, "ns", 0, 1e4, "spread of the times of a PCIe crossing, around its mean")           \
  X(variance, refresh_ns, "ns", 0, 1e4, "longest wait of a memory access for a refresh")                  \
  X(variance, refresh_period_ns, "ns", 1, 1e9, "time between two refreshes of a memory bank")             \
  X(variance, numa_ns, "ns", 0, 1e4, "hop to the memory of the other socket; 0: one socket")              \
  X(variance, start_us, "us", 0, 1e6, "spread of the times at which threads begin, and nodes leave a handshake") \
  X(variance, tick_us, "us", 0, 1000, "mean time that a timer interrupt takes from its core")             \
  X(variance, tick_period_us, "us", 1, 1e7, "time between two timer interrupts of a core")                \
  X(storage, write_us, "us", 0, 1e7, "writing to a file, fixed part")                                     \
  X(storage, sync_us, "us", 0, 1e7, "making a file durable")                                              \
  X(storage, rate_gbps, "Gbps", 0.001, 1e5, "disk bandwidth")
// clang-format on

struct ParameterInfo {
  std::string_view name;  // "link.rate_gbps"
  std::string_view unit;
  double min, max;
  std::string_view meaning;
};

struct SimProfile {
#define PYRDMA_FIELD(table, key, unit, min, max, meaning) double table##_##key = 0;
  PYRDMA_SIM_PARAMETERS(PYRDMA_FIELD)
#undef PYRDMA_FIELD

  /// Returns every parameter with its unit and bounds.
  static std::span<const ParameterInfo> parameters();
  /// Builds a profile from flat names such as "link.rate_gbps". `values` must have every name.
  /// Throws Error(kInvalidArgument) for a missing, unknown or out-of-range parameter. The error
  /// names the parameter and, for a known parameter, the range and the unit.
  static SimProfile from_values(const std::map<std::string, double>& values);
};

}  // namespace pyrdma::fabric::sim
