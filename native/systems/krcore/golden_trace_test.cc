// Figures 2, 4 and 5 of the paper as golden traces: all calls of the control path and all requests
// of a client and its servers in the simulator, without the times, which depend on the profile.
// Lines without a node tell what the client does next. A change may alter a trace only on purpose.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fabric/sim/cluster.h"
#include "systems/krcore/baselines/lite.h"
#include "systems/krcore/baselines/process_pool.h"
#include "systems/krcore/traced_env_test.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {

namespace {

using fabric::Opcode;
using fabric::Status;

/// Runs a client and its servers in the simulator.
class Flow {
 public:
  explicit Flow(std::vector<std::string> roles)
      : regions(roles.size()), cluster_(runtime::sim_options(static_cast<NodeId>(roles.size()))) {
    log_.roles = std::move(roles);
  }
  void run(const std::function<void(Env&)>& per_node) {
    cluster_.run([&](Env& env) {
      TracedEnv traced(env, log_);
      per_node(traced);
    });
  }
  void trace(bool on) { log_.is_on = on; }
  const std::string& text() const { return log_.text; }
  const std::string& role(NodeId node) const { return log_.roles[node]; }
  /// Adds a line that tells what the client does next.
  void say(const std::string& line) { log_.text += line + "\n"; }
  /// A node waits until another one has set the flag.
  static void await(Env& env, const bool& flag) {
    while (!flag) env.sleep_until(env.now() + kMicrosecond);
  }

  std::vector<fabric::RemoteRegion> regions;  // of each node
  bool is_begun = false, is_over = false;

 private:
  fabric::sim::SimCluster cluster_;
  TraceLog log_;
};

std::string trace_of_verbs() {
  Flow flow({"CL", "S0", "S1"});
  flow.run([&](Env& env) {
    ProcessPool pool(env, "verbs", 0);
    if (env.node() != 0) {
      const auto memory = env.device().allocate(pool.domain(), 64, fabric::kAllAccess);
      flow.regions[env.node()] = memory->remote();
      Flow::await(env, flow.is_begun);
      // The client connects to one server after the other.
      if (env.node() == 2) env.sleep_until(env.now() + 200 * kMicrosecond);
      pool.accept(0, 0, env.now() + kSecond);
      return Flow::await(env, flow.is_over);
    }
    env.sleep_until(env.now() + kMillisecond);
    flow.trace(true);
    flow.say("start");
    const auto memory = env.device().allocate(pool.domain(), 64);
    flow.is_begun = true;
    for (const NodeId server : {1U, 2U}) {
      flow.say("connect to " + flow.role(server));
      ProcessPool::Connection& to = pool.connect(server, 0, env.now() + kSecond);
      flow.say("read");
      EXPECT_TRUE(to.qp->read(memory->sge(0, 8), flow.regions[server], 0));
      fabric::Completion done;
      env.poll_until([&] { return to.completions->poll({&done, 1}) == 1; }, env.now() + kSecond);
      EXPECT_EQ(done.status, Status::kSuccess);
    }
    flow.trace(false);
    flow.is_over = true;
  });
  return flow.text();
}

std::string trace_of_lite() {
  Flow flow({"CL", "S0", "S1"});
  flow.run([&](Env& env) {
    LiteOptions options;
    options.connections_per_peer = 1;
    options.builders = 1;
    Lite lite(env, options);
    const auto memory = lite.allocate(64);
    flow.regions[env.node()] = memory->remote();
    if (env.node() != 0) return Flow::await(env, flow.is_over);
    EXPECT_TRUE(lite.connect(1));
    flow.trace(true);
    for (const NodeId server : {1U, 2U}) {
      flow.say("connect to " + flow.role(server));
      EXPECT_TRUE(lite.connect(server));
      flow.say("read");
      EXPECT_EQ(lite.read(memory->sge(0, 8), flow.regions[server], 0), Status::kSuccess);
    }
    flow.trace(false);
    flow.is_over = true;
  });
  return flow.text();
}

Options flow_options() {
  Options options;
  options.cores = 1;
  options.arena_bytes = 1 << 20;
  options.rc_policy = RcPolicy::kNever;
  return options;
}

void read_once(App& app, Queue queue, const Registration& own, const fabric::RemoteRegion& from) {
  const fabric::Sge into = piece(own, 0, 8);
  fabric::WorkRequest read = one_sided(Opcode::kRead, into, from.addr, from.rkey);
  fabric::Completion done;
  done.status = Status::kGeneral;
  EXPECT_EQ(app.push(queue, {&read, 1}, {&done, 1}).accepted, 1U);
  EXPECT_EQ(done.status, Status::kSuccess);
}

/// Runs services. `client` is the application of node 1; nodes 2 and 3 have memory.
std::string trace_of_services(const Options& options,
                              const std::function<void(Flow&, App&, const Registration&)>& client) {
  Flow flow({"MS", "CL", "S0", "S1"});
  flow.run([&](Env& env) {
    Service service(env, options);
    App app(service);
    const Registration own = app.reg_mr(64);
    flow.regions[env.node()] = {own.addr, own.bytes, own.key, env.node()};
    if (env.node() != 1) return Flow::await(env, flow.is_over);
    env.sleep_until(env.now() + 10 * kMillisecond);  // all services are at rest
    client(flow, app, own);
    flow.trace(false);
    flow.is_over = true;
  });
  return flow.text();
}

std::string trace_of_connects(const Options& options) {
  return trace_of_services(options, [](Flow& flow, App& app, const Registration& own) {
    app.service().make_one_more(0, 2);
    flow.trace(true);
    for (const NodeId server : {2U, 3U}) {
      flow.say("connect to " + flow.role(server));
      const Queue queue = app.create_queue();
      app.connect(queue, server, 1);
      flow.say("read");
      read_once(app, queue, own, flow.regions[server]);
      if (server == 2) continue;
      flow.say("wait for a reliable queue pair");
      const Time end = app.env().now() + 10 * kMillisecond;
      while (!app.service().uses_reliable(queue) && app.env().now() < end)
        app.env().sleep_until(app.env().now() + kMicrosecond);
      flow.say("read again");
      read_once(app, queue, own, flow.regions[server]);
      flow.say("connect again");
      app.connect(app.create_queue(), server, 1);
    }
  });
}

/// READs that turn from S0 to S1 and back, and which of them take longer by a reconnection.
std::string turns(bool is_reliable) {
  Options options = flow_options();
  options.dc_queue_pairs = 1;
  return trace_of_services(options, [&](Flow& flow, App& app, const Registration& own) {
    Queue to[4];
    for (const NodeId server : {2U, 3U}) {
      if (is_reliable) app.service().make_one_more(0, server);
      to[server] = app.create_queue();
      app.connect(to[server], server, 1);
    }
    const auto time_of = [&](NodeId server) {
      const Time begin = app.env().now();
      read_once(app, to[server], own, flow.regions[server]);
      return static_cast<double>(app.env().now() - begin);
    };
    for (const NodeId server : {3U, 2U}) time_of(server);  // learns the regions
    const double usual = time_of(2);
    const double reconnection = fabric::sim::test_profile().nic_dc_reconnect_ns;
    for (const NodeId server : {2U, 3U, 3U, 2U}) {
      const double more = time_of(server) - usual;
      EXPECT_LT(more, 1.2 * reconnection);
      flow.say(flow.role(server) + (more > 0.8 * reconnection ? ", reconnects" : ""));
    }
  });
}

}  // namespace

// A connection takes Init, Create, Handshake and Configure. The servers take part.
TEST(KrcoreGoldenTrace, Figure2UserSpaceVerbs) {
  EXPECT_EQ("\n" + trace_of_verbs(), R"(
start
CL: open
CL: create a protection domain
CL: register memory
connect to S0
CL: create a completion queue
S0: create a completion queue
CL: create a queue pair, RC
S0: create a queue pair, RC
CL: handshake, offer
S0: handshake, offer
CL: handshake, the other's offer
CL: change to INIT
CL: change to RTR
CL: change to RTS
read
CL: read 8 bytes, RC to S0
S0: handshake, the other's offer
S0: change to INIT
S0: change to RTR
S0: change to RTS
connect to S1
CL: create a completion queue
CL: create a queue pair, RC
CL: handshake, offer
S1: create a completion queue
S1: create a queue pair, RC
S1: handshake, offer
S1: handshake, the other's offer
S1: change to INIT
S1: change to RTR
S1: change to RTS
CL: handshake, the other's offer
CL: change to INIT
CL: change to RTR
CL: change to RTS
read
CL: read 8 bytes, RC to S1
)");
}

// The queue pair to S0 is cached, so the connect is a system call. S1 costs all but Init.
TEST(KrcoreGoldenTrace, Figure4LiteWithACachedQueuePairToS0) {
  EXPECT_EQ("\n" + trace_of_lite(), R"(
connect to S0
CL: system call
read
CL: system call
CL: read 8 bytes, RC to S0
connect to S1
CL: system call
CL: handshake, look
CL: send 208 bytes, UD to S1
CL: create a completion queue
S1 in the background: create a completion queue
CL: create a queue pair, RC
S1 in the background: create a queue pair, RC
CL: send 208 bytes, UD to S1
S1 in the background: send 208 bytes, UD to CL
S1 in the background: change to INIT
S1 in the background: change to RTR
S1 in the background: change to RTS
S1 in the background: send 208 bytes, UD to CL
CL: change to INIT
CL: change to RTR
CL: change to RTS
read
CL: system call
CL: read 8 bytes, RC to S1
)");
}

// A reliable queue pair to S0 is in the pool. S1 has two READs of the meta server and then a
// dynamic queue pair, until the background has made a reliable one and moved the virtual queue pair
// behind a fake request, the message of 64 bytes (section 4.6). The first READ of a region looks it
// up (section 4.2): the node's table at the meta server, the region in the table.
TEST(KrcoreGoldenTrace, Figure5KRCore) {
  Options options = flow_options();
  options.rc_policy = RcPolicy::kAtOnce;
  EXPECT_EQ("\n" + trace_of_connects(options), R"(
connect to S0
CL: system call
CL: system call
read
CL: system call
CL: read 32 bytes, RC to MS
CL: read 32 bytes, RC to MS
CL: read 32 bytes, RC to S0
CL: read 32 bytes, RC to S0
CL: read 8 bytes, RC to S0
connect to S1
CL: system call
CL: system call
CL: read 32 bytes, RC to MS
CL: read 20 bytes, RC to MS
read
CL: system call
CL: read 32 bytes, RC to MS
CL: read 32 bytes, RC to MS
CL: read 32 bytes, DC to S1
CL: read 32 bytes, DC to S1
CL: read 8 bytes, DC to S1
wait for a reliable queue pair
CL in the background: register memory
CL in the background: create a completion queue
CL in the background: create a queue pair, RC
CL in the background: send 208 bytes, UD to S1
S1 in the background: register memory
S1 in the background: create a completion queue
S1 in the background: create a queue pair, RC
S1 in the background: change to INIT
S1 in the background: change to RTR
S1 in the background: change to RTS
S1 in the background: send 208 bytes, UD to CL
CL in the background: change to INIT
CL in the background: change to RTR
CL in the background: change to RTS
CL in the background: send 208 bytes, UD to S1
S1 in the background: send 208 bytes, UD to CL
CL in the background: send 64 bytes, DC to S1
read again
CL: system call
CL: read 8 bytes, RC to S1
connect again
CL: system call
CL: system call
)");
}

// Section 3.1: a dynamic queue pair reconnects for each change of its target.
TEST(KrcoreGoldenTrace, ADynamicQueuePairReconnects) {
  EXPECT_EQ("\n" + turns(false), R"(
S0
S1, reconnects
S1
S0, reconnects
)");
  EXPECT_EQ("\n" + turns(true), R"(
S0
S1
S1
S0
)");
}

}  // namespace pyrdma::krcore
