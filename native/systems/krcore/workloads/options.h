// The common parameters of KRCore's workloads, and the parts that their nodes share.
#pragma once
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "measure/interval.h"
#include "measure/params.h"
#include "runtime/node_barrier.h"
#include "systems/krcore/app.h"

namespace pyrdma::krcore {

/// How requests of a workload reach the network.
enum class Transport : std::uint8_t { kDynamic, kReliable };

inline std::vector<measure::ParameterSpec> with_service_parameters(
    std::vector<measure::ParameterSpec> own) {
  using Int = std::int64_t;
  using Text = std::string;
  std::vector<measure::ParameterSpec> specs = {
      {"preset",
       Text("paper"),
       "",
       "the paper's steps, or what the authors' public code does",
       0,
       0,
       {"paper", "public"}},
      {"cores", Int{0}, "count",
       "pools of a node; 0: one for each core that the fabric names, else 2", 0, 256},
      {"dc_queue_pairs", Int{2}, "count", "dynamic queue pairs of a pool", 1, 256},
      {"rc_queue_pairs", Int{64}, "count", "reliable queue pairs of a pool, at most", 0, 4096},
      {"virtual_queue_pairs", Int{16384}, "count", "of a node, at most", 1, 65535},
      {"meta_servers", Int{1}, "count", "the first nodes, which hold the metadata of all", 1, 64},
      {"check_regions", Int{1}, "bool", "check remote regions against ValidMR", 0, 1},
      {"message_bytes", Int{16384}, "bytes", "of payload in a buffer of the service", 64, 16 << 20},
      {"zero_copy_above", Int{16384}, "bytes", "of payload that the receiver reads itself", 0,
       16 << 20},
      {"arena_bytes", Int{64} << 20, "bytes", "registered memory of a node's applications", 4096,
       1e12},
  };
  for (auto& spec : own) specs.push_back(std::move(spec));
  for (auto& spec : measure::interval_parameters()) specs.push_back(std::move(spec));
  return specs;
}

inline Options service_options(const measure::Params& params, NodeId nodes) {
  Options options = params.text("preset") == "public" ? Options::public_code() : Options::paper();
  options.name = params.key("krcore");
  options.rc_policy = RcPolicy::kNever;
  options.cores = params.count("cores");
  options.dc_queue_pairs = params.count("dc_queue_pairs");
  options.rc_queue_pairs = params.count("rc_queue_pairs");
  options.virtual_queue_pairs = params.count("virtual_queue_pairs");
  options.check_regions = params.flag("check_regions") && options.check_regions;
  options.message_bytes = params.count("message_bytes");
  options.zero_copy_above = std::min(params.count("zero_copy_above"), options.message_bytes);
  options.arena_bytes = static_cast<std::uint64_t>(params.integer("arena_bytes"));
  options.meta_servers.clear();
  for (NodeId node = 0; node < std::min(params.count("meta_servers"), nodes); ++node)
    options.meta_servers.push_back(node);
  return options;
}

/// Clients are spread over the nodes that are no servers, the first `servers` nodes.
struct Spread {
  Spread(Env& env, std::uint32_t clients, std::uint32_t servers)
      : nodes(env.nodes() - servers), first(servers) {
    if (env.node() >= servers) {
      const NodeId place = env.node() - servers;
      count = clients / nodes + (place < clients % nodes ? 1 : 0);
    }
  }
  /// The number of this node's client `index` among all clients.
  std::uint32_t client(NodeId node, std::uint32_t index) const {
    return index * nodes + (node - first);
  }
  std::uint32_t nodes, first;
  std::uint32_t count = 0;  // of this node
};

inline void check_nodes(Env& env, const measure::Params& params, std::uint32_t servers) {
  if (env.nodes() > servers) return;
  measure::throw_parameter(params, "nodes",
                           "of the cluster are " + std::to_string(env.nodes()) +
                               ", and the first " + std::to_string(servers) +
                               " are servers; give it at least one more");
}

/// Returns a time at which all nodes begin together. Node 0 chooses it.
inline Time common_begin(Env& env, const measure::Params& params) {
  std::uint64_t at = 0;
  if (env.node() == 0) {
    at = static_cast<std::uint64_t>(env.now() + 20 * kMillisecond);
    env.device().rendezvous().publish_value(params.key("krcore/begin_at"), at);
  } else {
    at = env.device().rendezvous().await_value<std::uint64_t>(params.key("krcore/begin_at"),
                                                              env.now() + runtime::kSetupTimeout);
  }
  return static_cast<Time>(at);
}

/// Waits until the core of this thread has a reliable connection to the node.
inline void await_reliable(Service& service, NodeId node) {
  CorePool& pool = service.pool(service.env().core());
  service.want_reliable(pool.core, node);
  const Time deadline = service.env().now() + runtime::kSetupTimeout;
  const auto is_made = [&] {
    const std::lock_guard<Mutex> lock(pool.mutex);
    return pool.reliable_to(node) != nullptr;
  };
  // It takes milliseconds: many pollers would only take the cores from those who make it.
  while (!is_made() && service.env().now() < deadline)
    service.env().sleep_until(service.env().now() + kMillisecond);
  if (!is_made()) {
    throw Error(ErrorCode::kTimeout,
                "krcore: no reliable connection to node " + std::to_string(node) + " could be made")
        .blaming({node});
  }
}

inline void share_region(Env& env, const std::string& key, const Registration& region) {
  env.device().rendezvous().publish_value(
      key, fabric::RemoteRegion{region.addr, region.bytes, region.key, env.node()});
}
inline fabric::RemoteRegion shared_region(Env& env, const std::string& key) {
  return env.device().rendezvous().await_value<fabric::RemoteRegion>(
      key, env.now() + runtime::kSetupTimeout);
}

/// Adds what the services of all nodes have counted.
inline void add_counters(measure::Recorder& recorder, Service& service) {
  Counters& counters = service.counters();
  const auto add = [&](const char* name, std::uint64_t value) {
    recorder.add(name, "count", static_cast<double>(value));
  };
  add("connects", counters.connects.load());
  add("rc_hits", counters.rc_hits.load());
  add("cache_hits", counters.cache_hits.load());
  add("region_misses", counters.region_misses.load());
  add("transfers", counters.transfers.load());
  add("refused_messages", counters.refused_messages.load());
  add("queue_pairs", service.physical_queue_pairs());
}

}  // namespace pyrdma::krcore
