// The parameters of verbs_load: perftest's axes.
#pragma once
#include <cstdint>
#include <span>

#include "env/env.h"
#include "fabric/types.h"
#include "measure/params.h"

namespace pyrdma::measure::verbs_load {

std::span<const ParameterSpec> parameter_specs();

enum class Pattern : std::uint8_t { kPair, kAll, kRandom };
enum class Mode : std::uint8_t { kRate, kLatency, kOpen };
/// Least size of a message of record_one_way: a time, and the sequence number.
inline constexpr std::uint32_t kOneWaySize = sizeof(Time) + 1;

enum class Measure : std::uint8_t { kCompletion, kPingPong };

/// Load holds the parameters, checked against each other and against the device, and the shape of
/// the cluster.
struct Load {
  fabric::Opcode op;
  fabric::Transport transport;
  Pattern pattern;
  Mode mode;
  Measure measure;
  std::uint32_t size = 0;
  std::uint32_t depth = 0;         // requests in flight per thread
  std::uint32_t batch = 0;         // requests per post
  std::uint32_t signal_every = 0;  // one request in so many is signaled
  std::uint32_t threads = 0, clients = 0, qps = 0, servers = 0, server_threads = 0;
  std::uint32_t receive_strides = 1;
  std::uint32_t regions = 0;
  std::uint32_t doorbells = 0;  // registers that a node's queue pairs share; 0: one for each
  std::uint64_t region_bytes = 0;
  bool random_addresses = false, record_latency = false, record_post = false, inlined = false;
  bool record_one_way = false;
  bool device_memory = false;
  bool refill_empty = false;     // post only when nothing is in flight, a whole window then
  bool signal_by_queue = false;  // signal_every counts the requests of each queue pair
  Time interval = 0;             // open loop: mean time between a thread's requests
  Time warmup = 0, duration = 0;
  std::uint64_t iterations = 0;  // per thread; 0: by time
  std::uint32_t clock_every = 0;
  NodeId nodes = 0;

  bool two_sided() const { return op == fabric::Opcode::kSend || op == fabric::Opcode::kWriteImm; }
  bool connected() const {
    return transport == fabric::Transport::kRc || transport == fabric::Transport::kUc;
  }
  bool is_server(NodeId node) const { return servers == 0 || node < servers; }
  bool is_client(NodeId node) const { return servers == 0 || node >= servers; }
  NodeId client_nodes() const { return nodes - servers; }
  /// Returns the sending threads of `node`. Clients are distributed round-robin over the client
  /// nodes.
  std::uint32_t senders(NodeId node) const;
  /// Returns the number of a sending thread among those of the whole run.
  std::uint32_t client_number(NodeId node, std::uint32_t thread) const {
    return thread * client_nodes() + (node - servers);
  }
  std::uint32_t all_clients() const { return clients != 0 ? clients : threads * client_nodes(); }
  /// Returns the bytes between two clients' places in a region, and between requests in a local
  /// buffer.
  std::uint32_t stride() const { return (size + 63) / 64 * 64; }
};

/// Throws Error(kInvalidArgument) for a combination that cannot run, Error(kUnavailable) for a
/// feature that the device lacks.
Load make_load(const Params& params, NodeId nodes, const fabric::Capabilities& capabilities);

}  // namespace pyrdma::measure::verbs_load
