#include "measure/verbs_load/parameters.h"

#include <algorithm>

#include "base/error.h"

namespace pyrdma::measure::verbs_load {

namespace {

using Int = std::int64_t;

constexpr fabric::Opcode kOps[] = {fabric::Opcode::kWrite,    fabric::Opcode::kRead,
                                   fabric::Opcode::kSend,     fabric::Opcode::kWriteImm,
                                   fabric::Opcode::kFetchAdd, fabric::Opcode::kCompareSwap};

void refuse_unavailable(const Load& load, const char* what) {
  throw Error(ErrorCode::kUnavailable, std::string("verbs_load: this device has no ") + what +
                                           " (transport " + fabric::to_string(load.transport) +
                                           ", op " + fabric::to_string(load.op) +
                                           "); 'pyrdma devices' lists the capabilities");
}

void check_device(const Load& load, const fabric::Capabilities& device) {
  const bool atomic =
      load.op == fabric::Opcode::kFetchAdd || load.op == fabric::Opcode::kCompareSwap;
  if (atomic && !device.atomics) refuse_unavailable(load, "atomics");
  if (load.transport == fabric::Transport::kUc && !device.uc) refuse_unavailable(load, "UC");
  if (load.transport == fabric::Transport::kUd && !device.ud) refuse_unavailable(load, "UD");
  if (load.transport == fabric::Transport::kDc && !device.dc) refuse_unavailable(load, "DC");
  if (load.device_memory && !device.device_memory) refuse_unavailable(load, "device memory");
}

void check_transport(const Params& params, const Load& load, const fabric::Capabilities& device) {
  const bool writes = load.op == fabric::Opcode::kWrite || load.op == fabric::Opcode::kWriteImm;
  if (load.transport == fabric::Transport::kUd && load.op != fabric::Opcode::kSend) {
    throw_parameter(params, "op",
                    "must be send with transport=ud, because datagrams carry only sends");
  }
  if (load.transport == fabric::Transport::kUc && !writes && load.op != fabric::Opcode::kSend) {
    throw_parameter(
        params, "op",
        "must be write, write_imm or send with transport=uc, because UC has no responses");
  }
  if (load.transport != fabric::Transport::kUd && load.receive_strides > 1) {
    throw_parameter(params, "receive_strides",
                    "is " + std::to_string(load.receive_strides) +
                        "; give 1, or transport=ud, because only datagrams share a receive");
  }
  if (load.transport == fabric::Transport::kUd && load.size > device.max_datagram) {
    throw_parameter(params, "size",
                    "is " + std::to_string(load.size) +
                        " B; give at most this device's datagram of " +
                        std::to_string(device.max_datagram) + " B");
  }
  if (load.size > device.max_message) {
    throw_parameter(params, "size",
                    "is above this device's longest message; give at most " +
                        std::to_string(device.max_message) + " B");
  }
}

void check_shape(const Params& params, const Load& load) {
  if (load.servers >= load.nodes) {
    throw_parameter(params, "servers",
                    "is " + std::to_string(load.servers) + " of " + std::to_string(load.nodes) +
                        " nodes; leave at least one client node");
  }
  if (load.nodes < 2) throw_parameter(params, "nodes", "of the cluster is 1; give it at least 2");
  if (load.servers == 0 && load.clients != 0) {
    throw_parameter(params, "clients", "needs servers; without servers, give threads (per node)");
  }
  if (load.servers == 0 && load.pattern == Pattern::kPair && load.nodes % 2 != 0) {
    throw_parameter(params, "pattern", "is pair without servers; give an even number of nodes");
  }
  if (load.measure == Measure::kPingPong) {
    if (load.servers == 0) throw_parameter(params, "servers", "is 0; a ping-pong needs at least 1");
    if (load.op != fabric::Opcode::kWrite && load.op != fabric::Opcode::kSend) {
      throw_parameter(params, "op", "must be write or send with measure=pingpong");
    }
    if (!load.connected())
      throw_parameter(params, "transport", "must be rc or uc with measure=pingpong");
    if (load.qps != 1) throw_parameter(params, "qps", "must be 1 with measure=pingpong");
  }
  if (load.record_one_way) {
    if (load.measure != Measure::kPingPong)
      throw_parameter(params, "record_one_way", "needs measure=pingpong");
    if (load.size < kOneWaySize) {
      throw_parameter(params, "size",
                      "is " + std::to_string(load.size) + "; record_one_way needs at least " +
                          std::to_string(kOneWaySize) + ", for a time and a sequence number");
    }
  }
  if (load.mode == Mode::kOpen && load.interval <= 0) {
    throw_parameter(params, "interval_ns", "must be above 0 with mode=open");
  }
  if (load.duration == 0 && load.iterations == 0) {
    throw_parameter(params, "duration_ns", "and iterations are both 0; give one of them");
  }
  if (load.region_bytes < load.size) {
    throw_parameter(params, "region_bytes",
                    "is below size; give at least " + std::to_string(load.size));
  }
}

// Settles the window in requests, the batch of one post, and the signaled requests. Completions
// must free the window: in the worst case signal_every - 1 requests wait for their signal while a
// whole batch needs space.
void settle_window(const Params& params, Load& load) {
  if (load.mode == Mode::kLatency) load.depth = 1;
  if (load.mode == Mode::kOpen) load.batch = load.signal_every = 1;
  if (load.signal_by_queue) {
    if (load.mode != Mode::kRate || load.record_latency || !load.connected()) {
      throw_parameter(params, "signal_by",
                      "is queue_pair; it needs mode=rate without latencies, transport=rc or uc");
    }
    load.batch = 1;
    load.signal_every = std::max(load.signal_every, 1U);
    return;
  }
  if (load.batch == 0) load.batch = std::clamp<std::uint32_t>(load.depth / 4, 1, 32);
  if (load.batch > load.depth) {
    throw_parameter(params, "batch",
                    "is " + std::to_string(load.batch) + ", above depth; give at most " +
                        std::to_string(load.depth));
  }
  const bool one_route = load.qps == 1 && load.connected();
  if (load.signal_every == 0)
    load.signal_every = one_route ? std::max(load.batch, load.depth / 4) : load.batch;
  // With several queue pairs, no completion would confirm the last unsignaled requests of one of
  // them.
  if (!one_route) load.signal_every = std::min(load.signal_every, load.batch);
  if (load.signal_every > load.batch) load.signal_every -= load.signal_every % load.batch;
  if (load.signal_every > load.batch && load.signal_every + load.batch > load.depth) {
    throw_parameter(params, "signal_every",
                    "is " + std::to_string(params.integer("signal_every")) +
                        "; depth and batch allow at most " +
                        std::to_string(std::max(load.batch, load.depth - load.batch)));
  }
}

}  // namespace

std::span<const ParameterSpec> parameter_specs() {
  static const std::vector<ParameterSpec> specs = {
      {"op",
       std::string("write"),
       "",
       "operation",
       {},
       {},
       {"write", "read", "send", "write_imm", "fetch_add", "compare_swap"}},
      {"transport",
       std::string("rc"),
       "",
       "transport of the queue pairs",
       {},
       {},
       {"rc", "uc", "ud", "dc"}},
      {"size", Int{64}, "B", "payload of a request; atomics have 8", 1, 1 << 30},
      {"depth", Int{128}, "count", "requests in flight per thread", 1, 1 << 15},
      {"batch", Int{0}, "count", "requests per post; 0: a quarter of depth, at most 32", 0, 4096},
      {"signal_every", Int{0}, "count",
       "requests per signaled one; 0: a quarter of depth, or batch with several queue pairs", 0,
       1 << 14},
      {"signal_by",
       std::string("thread"),
       "",
       "mode=rate: whose requests signal_every counts. queue_pair: batch is 1; reads are over when "
       "they are in memory, and depth bounds them. The first of signal_every requests has "
       "completed "
       "before the last is posted",
       {},
       {},
       {"thread", "queue_pair"}},
      {"refill",
       std::string("room"),
       "",
       "mode=rate: post as soon as the window has room, or a whole window when it is empty",
       {},
       {},
       {"room", "empty"}},
      {"threads", Int{1}, "count", "sending threads per client node", 1, 1024},
      {"clients", Int{0}, "count",
       "total number of sending threads, distributed round-robin over the client nodes; 0: threads "
       "on each",
       0, 1 << 20},
      {"qps", Int{1}, "count", "queue pairs per thread", 1, 1 << 16},
      {"servers", Int{1}, "count", "the first nodes, which only answer; 0: every node is both", 0,
       65535},
      {"server_threads", Int{1}, "count", "receiving threads per node, for send and write_imm", 1,
       1024},
      {"receive_strides", Int{1}, "count",
       "transport=ud: datagrams that one posted receive takes, a power of two", 1, 65536},
      {"pattern",
       std::string("all"),
       "",
       "peers: pair (one), all (in turn) or random (a random queue pair for each post)",
       {},
       {},
       {"pair", "all", "random"}},
      {"doorbells", Int{0}, "count",
       "sim: doorbell registers of a node, each behind a lock. Four have one queue pair each, and "
       "the others share the rest, as the mlx5 driver's do; 0: a register for each queue pair",
       0, 4096},
      {"regions", Int{1}, "count", "target regions per server; a request goes to a random one", 1,
       65536},
      {"region_bytes", Int{0}, "B", "bytes of a region; 0: a place for each client", 0, 1LL << 40},
      {"addresses",
       std::string("fixed"),
       "",
       "fixed: the client's own place; random: anywhere, aligned to 8",
       {},
       {},
       {"fixed", "random"}},
      {"device_memory", Int{0}, "bool", "target regions in the NIC's memory", 0, 1},
      {"inline", Int{-1}, "", "payload in the request: 1, 0, or -1 for when it fits", -1, 1},
      {"mode",
       std::string("rate"),
       "",
       "rate: a full window; latency: one request at a time; open: arrivals at random times",
       {},
       {},
       {"rate", "latency", "open"}},
      {"measure",
       std::string("completion"),
       "",
       "latency until the completion, or half a round trip seen in memory",
       {},
       {},
       {"completion", "pingpong"}},
      {"record_latency", Int{0}, "bool", "mode=rate: also the latency of each signaled request", 0,
       1},
      {"record_post", Int{0}, "bool", "mode=latency: also the CPU time of the post", 0, 1},
      {"record_one_way", Int{0}, "bool",
       "measure=pingpong: also the time of each single way, by the clocks of both nodes", 0, 1},
      {"clock_every", Int{1}, "count",
       "round trips per clock reading of a ping-pong; a histogram's value is their mean", 1,
       1 << 20},
      {"interval_ns", Int{0}, "ns", "mode=open: mean time between arrivals at a thread", 0, 1e12},
      {"warmup_ns", Int{50'000}, "ns", "not measured, at the beginning", 0, 1e15},
      {"duration_ns", Int{1'000'000}, "ns", "measured time; 0: by iterations", 0, 1e15},
      {"iterations", Int{0}, "count", "measured requests per thread, at most; 0: by time", 0, 1e15},
  };
  return specs;
}

std::uint32_t Load::senders(NodeId node) const {
  if (!is_client(node)) return 0;
  if (clients == 0) return threads;
  const NodeId index = node - servers;
  return clients / client_nodes() + (index < clients % client_nodes() ? 1 : 0);
}

Load make_load(const Params& params, NodeId nodes, const fabric::Capabilities& capabilities) {
  Load load{};
  load.op = kOps[params.choice<std::size_t>("op")];
  load.transport = params.choice<fabric::Transport>("transport");
  load.pattern = params.choice<Pattern>("pattern");
  load.mode = params.choice<Mode>("mode");
  load.measure = params.choice<Measure>("measure");
  if (load.measure == Measure::kPingPong) load.mode = Mode::kLatency;
  const bool atomic =
      load.op == fabric::Opcode::kFetchAdd || load.op == fabric::Opcode::kCompareSwap;
  load.size = atomic ? 8 : params.count("size");
  load.depth = params.count("depth");
  load.batch = load.mode == Mode::kLatency ? 1 : params.count("batch");
  load.signal_every = load.mode == Mode::kLatency ? 1 : params.count("signal_every");
  load.threads = params.count("threads");
  load.clients = params.count("clients");
  load.qps = params.count("qps");
  load.servers = params.count("servers");
  load.server_threads = params.count("server_threads");
  load.receive_strides = params.count("receive_strides");
  load.regions = params.count("regions");
  load.doorbells = params.count("doorbells");
  load.signal_by_queue = params.choice<std::uint8_t>("signal_by") == 1;
  load.refill_empty = params.choice<std::uint8_t>("refill") == 1;
  load.random_addresses = params.choice<std::uint8_t>("addresses") == 1;
  load.device_memory = params.flag("device_memory");
  load.record_latency = params.flag("record_latency");
  load.record_post = params.flag("record_post");
  load.record_one_way = params.flag("record_one_way");
  load.clock_every = params.count("clock_every");
  load.interval = params.integer("interval_ns");
  load.warmup = params.integer("warmup_ns");
  load.duration = params.integer("duration_ns");
  load.iterations = static_cast<std::uint64_t>(params.integer("iterations"));
  load.nodes = nodes;
  if (load.servers < nodes) {
    load.region_bytes = static_cast<std::uint64_t>(params.integer("region_bytes"));
    if (load.region_bytes == 0)
      load.region_bytes = std::uint64_t{load.all_clients()} * load.stride();
  }
  check_shape(params, load);
  check_device(load, capabilities);
  check_transport(params, load, capabilities);
  settle_window(params, load);
  const bool carries = load.op != fabric::Opcode::kRead && !atomic;
  const std::int64_t inlining = params.integer("inline");
  load.inlined = carries && inlining != 0 && load.size <= capabilities.max_inline;
  if (inlining == 1 && !load.inlined) {
    throw_parameter(
        params, "inline",
        "is 1, but the payload cannot be inline: reads and atomics have no payload, and the "
        "device takes at most " +
            std::to_string(capabilities.max_inline) + " B");
  }
  return load;
}

}  // namespace pyrdma::measure::verbs_load
