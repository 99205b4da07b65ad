// control_path: sets up connections from scratch (KRCore, sections 2.3.1 and 5.1).
//
// Every client repeats the whole sequence with one server. The server creates its end of the next
// connection while the client creates its own. So a client waits only for its own steps, until the
// server's NIC, which executes one command at a time, becomes the limit. With `on_demand` the
// server waits for the client's address before it creates anything, as a connection manager does.
#include <deque>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "measure/load.h"
#include "measure/shared_workloads.h"
#include "runtime/exchange.h"
#include "runtime/handshake.h"
#include "runtime/node_barrier.h"

namespace pyrdma::measure {

namespace {

using Int = std::int64_t;

/// Times the steps of one connection after another, in histograms named after the steps.
class Steps {
 public:
  Steps(Env& env, ThreadRecorder& recorder, bool open)
      : env_(env), recorder_(recorder), open_(open), last_(env.now()) {}
  void done(const char* name) {
    const Time now = env_.now();
    if (open_) recorder_.histogram(name).record(now - last_);
    last_ = now;
  }

 private:
  Env& env_;
  ThreadRecorder& recorder_;
  bool open_;
  Time last_;
};

class ControlPath final : public Workload {
 public:
  std::span<const ParameterSpec> parameters() const override {
    static const std::vector<ParameterSpec> specs = {
        {"clients", Int{1}, "count",
         "total number of connecting threads, distributed over all nodes except node 0, the server",
         1, 1 << 16},
        {"skip_open", Int{0}, "bool",
         "keep device, protection domain and memory, as a kernel module does", 0, 1},
        {"keep", Int{0}, "bool",
         "keep every connection until the end, as a pool of connections does", 0, 1},
        {"on_demand", Int{0}, "bool",
         "the server sets its end up when the client asks, as a connection manager does", 0, 1},
        {"region_bytes", Int{4096}, "B", "memory that a client registers", 1, 1LL << 40},
        {"queue_entries", Int{128}, "count", "entries of the send, receive and completion queues",
         1, 1 << 15},
        {"warmup_ns", Int{0}, "ns", "not measured, at the beginning", 0, 1e15},
        {"duration_ns", Int{0}, "ns", "measured time; 0: by iterations", 0, 1e15},
        {"iterations", Int{1}, "count", "connections per client, at most; 0: by time", 0, 1e9},
    };
    return specs;
  }

  void run(Env& env, const Params& params, Recorder& recorder) override {
    Side side(env, params);
    if (env.nodes() < 2)
      throw_parameter(params, "nodes", "of the cluster is 1; give it at least 2");
    if (side.duration == 0 && side.iterations == 0)
      throw_parameter(params, "duration_ns", "and iterations are both 0; give one of them");
    const std::uint32_t threads = env.node() == 0 ? side.clients : side.clients_of(env.node());
    recorder.prepare_threads(env.node() == 0 ? 0 : threads);
    side.device.open();
    runtime::node_barrier(env, params.key("barrier/start"));
    std::vector<std::unique_ptr<Thread>> running;
    const auto body = [&](std::uint32_t i) {
      if (env.node() == 0)
        serve(side, i);
      else
        connect(side, i, recorder.thread(i));
    };
    for (std::uint32_t i = 1; i < threads; ++i) {
      running.push_back(env.spawn("control" + std::to_string(i), [&, i] { body(i); }));
    }
    if (threads != 0) body(0);
    for (auto& thread : running) thread->join();
    runtime::node_barrier(env, params.key("barrier/done"),
                          side.window(0).deadline() + runtime::kSetupTimeout);
  }

 private:
  struct Side {
    Side(Env& e, const Params& p)
        : env(e),
          params(p),
          device(e.device()),
          clients(p.count("clients")),
          entries(p.count("queue_entries")),
          region_bytes(static_cast<std::size_t>(p.integer("region_bytes"))),
          skip_open(p.flag("skip_open")),
          keep(p.flag("keep")),
          on_demand(p.flag("on_demand")),
          warmup(p.integer("warmup_ns")),
          duration(p.integer("duration_ns")),
          iterations(static_cast<std::uint64_t>(p.integer("iterations"))) {}
    std::uint32_t clients_of(NodeId node) const {
      const std::uint32_t nodes = env.nodes() - 1;
      return clients / nodes + (node - 1 < clients % nodes ? 1 : 0);
    }
    Window window(Time start) const { return Window(start, warmup, duration, iterations); }
    /// The set-up of a client's next connection. A client that offers no queue pair makes no
    /// further connection.
    runtime::Handshake handshake(NodeId peer, std::uint32_t client, std::uint64_t attempt) const {
      return {env, params.key("control/" + std::to_string(client) + '/' + std::to_string(attempt)),
              peer};
    }
    std::unique_ptr<fabric::QueuePair> queue_pair(fabric::ProtectionDomain& pd,
                                                  fabric::CompletionQueue& cq) const {
      fabric::QpOptions options;
      options.send_entries = options.receive_entries = entries;
      return device.create_queue_pair(pd, cq, cq, options);
    }
    Env& env;
    const Params& params;
    fabric::Device& device;
    std::uint32_t clients, entries;
    std::size_t region_bytes;
    bool skip_open, keep, on_demand;
    Time warmup, duration;
    std::uint64_t iterations;
  };

  /// One end of a connection. The members are destroyed in the reverse order.
  struct Connection {
    std::unique_ptr<fabric::ProtectionDomain> pd;
    std::unique_ptr<fabric::MemoryRegion> region;
    std::unique_ptr<fabric::CompletionQueue> cq;
    std::unique_ptr<fabric::QueuePair> qp;
  };

  static void serve(const Side& side, std::uint32_t client) {
    const auto pd = side.device.create_protection_domain();
    const NodeId node = 1 + client % (side.env.nodes() - 1);
    const Time deadline = side.window(side.env.now()).deadline();
    std::deque<Connection> connections;
    for (std::uint64_t attempt = 0;; ++attempt) {
      Connection& next = connections.emplace_back();
      runtime::Handshake handshake = side.handshake(node, client, attempt);
      if (side.on_demand) handshake.await(deadline);
      if (side.on_demand && handshake.offered() == 0) return;
      next.cq = side.device.create_completion_queue(side.entries);
      next.qp = side.queue_pair(*pd, *next.cq);
      handshake.add(*next.qp);
      if (!side.on_demand) {
        handshake.offer();
        handshake.await(deadline);
        if (handshake.offered() == 0) return;
      }
      handshake.connect();
      if (side.on_demand) handshake.offer();
      // The client may still use the newest connection.
      if (!side.keep && connections.size() > 1) connections.pop_front();
    }
  }

  static void connect(const Side& side, std::uint32_t thread, ThreadRecorder& recorder) {
    Env& env = side.env;
    fabric::Device& device = side.device;
    const std::uint32_t client = thread * (env.nodes() - 1) + env.node() - 1;
    Connection shared;  // by all connections of this client, with skip_open
    if (side.skip_open) {
      shared.pd = device.create_protection_domain();
      shared.region = device.allocate(*shared.pd, side.region_bytes);
    }
    std::vector<Connection> kept;
    Window window = side.window(env.now());
    const Time deadline = window.deadline();
    std::uint64_t attempt = 0;
    for (; !window.over(env.now(), attempt); ++attempt) {
      const Time begin = env.now();
      Steps steps(env, recorder, window.open());
      Connection made;
      if (!side.skip_open) {
        device.open();
        steps.done("open");
        made.pd = device.create_protection_domain();
        steps.done("create_pd");
        made.region = device.allocate(*made.pd, side.region_bytes);
        steps.done("register");
      }
      made.cq = device.create_completion_queue(side.entries);
      steps.done("create_cq");
      made.qp = side.queue_pair(side.skip_open ? *shared.pd : *made.pd, *made.cq);
      steps.done("create_qp");
      runtime::Handshake handshake = side.handshake(0, client, attempt);
      handshake.add(*made.qp);
      handshake.offer();
      handshake.await(deadline);
      steps.done("handshake");
      handshake.connect();
      steps.done("configure");
      if (window.open()) recorder.histogram("connect").record(env.now() - begin);
      if (side.keep) kept.push_back(std::move(made));
    }
    side.handshake(0, client, attempt).offer();
    add_rates(recorder, window, 0);
  }
};

}  // namespace

std::unique_ptr<Workload> make_control_path() { return std::make_unique<ControlPath>(); }

}  // namespace pyrdma::measure
