// The parameters of a store, and its options that follow from them.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "measure/interval.h"
#include "measure/params.h"
#include "systems/tailwind/options.h"

namespace pyrdma::tailwind {

/// Returns the parameters of the store and of Interval, then the workload's own.
inline std::vector<measure::ParameterSpec> with_store_parameters(
    std::vector<measure::ParameterSpec> own) {
  using Int = std::int64_t;
  using Text = std::string;
  std::vector<measure::ParameterSpec> specs = {
      {"servers", Int{4}, "count",
       "the first nodes; the next one is the coordinator, and all others are clients", 1, 1000},
      {"replication",
       Text("tailwind"),
       "",
       "how a primary brings its log to its backups: RPCs, or RDMA writes",
       0,
       0,
       {kReplicationNames.begin(), kReplicationNames.end()}},
      {"replicas", Int{3}, "count", "of each segment, beside the primary's memory; 0: none", 0, 16},
      {"durability",
       Text("completion"),
       "",
       "when a write counts as being at a backup: completed, or in memory by a read behind it",
       0,
       0,
       {kDurabilityNames.begin(), kDurabilityNames.end()}},
      {"placement",
       Text("random"),
       "",
       "which servers a primary asks for replicas",
       0,
       0,
       {kPlacementNames.begin(), kPlacementNames.end()}},
      {"workers", Int{7}, "count",
       "threads of a server beside its dispatch thread; 0: that one does all work", 0, 64},
      {"group_commit", Int{0}, "bool",
       "a server without workers writes to its backups once for all requests that it has, 64 at "
       "most; "
       "not in the paper",
       0, 1},
      {"log_bytes", Int{256} << 20, "bytes", "memory of a server's log", 1 << 20, 1e14},
      {"segment_bytes", Int{8} << 20, "bytes", "of a segment, and of a buffer at a backup",
       64 << 10, (16 << 20) - 1},
      {"buffers", Int{32}, "count", "of a backup", 2, 1 << 16},
      {"keys", Int{100'000}, "count", "objects before the load begins, spread over the servers", 1,
       1e10},
      {"key_bytes", Int{30}, "bytes", "of a key", 8, 65'535},
      {"value_bytes", Int{100}, "bytes", "of a value", 8, 1 << 20},
      {"dispatch_ns", Int{0}, "ns",
       "work of a thread for each message that it sends or takes, beyond this code's own", 0, 1e6},
      {"write_ns", Int{0}, "ns", "work of a worker for each update, beyond this code's own", 0,
       1e6},
      {"lease_ms", Int{60'000}, "ms",
       "for which a server may serve without the coordinator; one that has not answered for about "
       "a "
       "third of it, or for 0.3 s if that is longer, is taken for dead",
       1, 1e6},
      {"wait_timeout_ms", Int{60'000}, "ms",
       "time after which a wait for another node fails and names that node", 1, 1e9},
  };
  const std::vector<measure::ParameterSpec> interval = measure::interval_parameters();
  specs.insert(specs.end(), interval.begin(), interval.end());
  specs.insert(specs.end(), own.begin(), own.end());
  return specs;
}

inline Options store_options(const measure::Params& params) {
  Options options;
  options.name = params.key("tailwind");
  options.servers = params.count("servers");
  options.coordinator = options.servers;
  options.replication = params.choice<Replication>("replication");
  options.replicas = params.count("replicas");
  options.durability = params.choice<Durability>("durability");
  options.placement = params.choice<Placement>("placement");
  options.workers = params.count("workers");
  options.group_commit = params.flag("group_commit");
  options.log_bytes = static_cast<std::uint64_t>(params.integer("log_bytes"));
  options.segment_bytes = params.count("segment_bytes");
  options.buffers = params.count("buffers");
  options.keys = static_cast<std::uint64_t>(params.integer("keys"));
  options.dispatch_work = params.integer("dispatch_ns");
  options.write_work = params.integer("write_ns");
  options.lease = params.integer("lease_ms") * kMillisecond;
  // Where a load has more threads than there are cores, a dispatch thread may get none for seconds,
  // and answers no ping. Nobody dies in most loads, so the default lease is long, and the patience
  // with a silent server is part of it: a server is taken for dead after five pings. A load in
  // which servers die asks for a short lease, and has short timeouts then.
  options.ping_timeout = std::max(options.ping_timeout, options.lease / 20);
  options.call_timeout = std::max(options.call_timeout, options.lease / 20);
  return options;
}

}  // namespace pyrdma::tailwind
