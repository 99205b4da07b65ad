// Datagrams and messages of nodes that claim to be another one, or send anything.
#include "systems/krcore/control/stranger_test.h"

#include <cstring>

#include "base/error_test.h"
#include "env/env_decorator.h"
#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

using fabric::Opcode;
using fabric::Status;

constexpr NodeId kStranger = 3;
constexpr Time kEnd = 100 * kSecond;

Options among_strangers(Bug bug = Bug::kNone) {
  Options options = one_core(bug);
  options.lease = 2 * kMillisecond;
  options.meta_servers = {2};
  return options;
}

/// Tells how much of node 0's service no longer works: a connect to node 1 within a millisecond, a
/// reliable connection to it, the end of a region.
int broken_parts(Service& service) {
  Env& env = service.env();
  App app(service);
  service.clear_caches();
  const Time begin = env.now();
  int broken = 0;
  try {
    app.connect(app.create_queue(), 1, 7);
  } catch (const Error&) {
    ++broken;
  }
  broken += env.now() - begin > kMillisecond;
  const std::uint64_t made = service.counters().rc_made;
  service.make_one_more(0, 1);
  broken += service.counters().rc_made == made;
  app.dereg_mr(app.reg_mr(64));
  env.sleep_until(env.now() + 2 * service.regions().grace() + kSecond);
  return broken + (service.regions().ending() != 0);
}

/// The stranger sends to node 0; returns how much is broken there afterwards.
int broken_by(Bug bug, const std::function<void(Env&, Stranger&)>& sends) {
  fabric::sim::SimCluster cluster(runtime::sim_options(4));
  int broken = 0;
  cluster.run([&](Env& env) {
    if (env.node() == kStranger) {
      Stranger stranger(env);
      // It has no service, and takes part in the boot by its keys.
      env.device().rendezvous().publish_value(key_of(kStranger), stranger.port());
      seem_booted(env);
      runtime::node_barrier(env, "up");
      sends(env, stranger);
      runtime::node_barrier(env, "sent");
      return runtime::node_barrier(env, "done", kEnd);
    }
    Service service(env, among_strangers(bug));
    runtime::node_barrier(env, "up");
    runtime::node_barrier(env, "sent", kEnd);
    if (env.node() == 0) {
      env.sleep_until(env.now() + kMillisecond);
      broken = broken_parts(service);
    }
    runtime::node_barrier(env, "done", kEnd);
  });
  return broken;
}

TEST(KrcoreStrangerSim, NobodySpeaksForAnotherNode) {
  for (const Bug bug : {Bug::kNone, Bug::kStrangersBelieved}) {
    // Another life of node 1, with the stranger's own port.
    const int life = broken_by(bug, [](Env& env, Stranger& stranger) {
      ControlMessage message;
      message.kind = ControlKind::kQuery;
      message.from = 1;
      message.incarnation = 7;
      message.port = stranger.port();
      send(env, stranger, 0, message);
    });
    EXPECT_EQ(life != 0, bug != Bug::kNone);
    // The same, from a port that claims to be node 1's.
    const int port = broken_by(bug, [](Env& env, Stranger& stranger) {
      ControlMessage message;
      message.kind = ControlKind::kQuery;
      message.from = 1;
      message.incarnation = 7;
      message.port = stranger.port();
      message.port.node = 1;
      send(env, stranger, 0, message);
    });
    EXPECT_EQ(port != 0, bug != Bug::kNone);
  }
}

// What the port of a node sends may be anything, also addresses that do not exist.
class AnyDatagrams : public testing::TestWithParam<std::uint64_t> {};

TEST_P(AnyDatagrams, HarmNoOtherNode) {
  const int broken = broken_by(Bug::kNone, [](Env& env, Stranger& stranger) {
    Rng rng(GetParam(), kStranger, "datagrams");
    for (int i = 0; i < 2000; ++i) {
      ControlMessage message;
      message.kind = static_cast<ControlKind>(rng.below(12));
      message.from = rng.below(2) == 0 ? kStranger : static_cast<NodeId>(rng.below(6));
      message.to = static_cast<NodeId>(rng.below(8) == 0 ? rng.below(6) : 0);
      message.incarnation = static_cast<std::uint32_t>(rng.below(4) == 0 ? rng.below(4) : 0);
      message.to_incarnation =
          rng.below(2) == 0 ? ControlMessage::kAnyLife : static_cast<std::uint32_t>(rng.below(2));
      message.about = static_cast<std::uint32_t>(rng());
      message.ticket = rng.below(50);
      message.core = static_cast<std::uint32_t>(rng());
      message.from_core = static_cast<std::uint32_t>(rng());
      message.meta = {static_cast<std::uint32_t>(rng()), static_cast<std::uint32_t>(rng()), 0};
      message.port = stranger.port();
      message.queue_pair = stranger.port();
      if (rng.below(2) == 0) message.queue_pair.node = static_cast<NodeId>(rng.below(6));
      message.queue_pair.qp_num = static_cast<std::uint32_t>(rng.below(40));
      if (rng.below(4) == 0) message.queue_pair.lid = static_cast<std::uint16_t>(rng());
      if (rng.below(4) == 0) message.port.node = static_cast<NodeId>(rng.below(1000));
      if (rng.below(4) == 0) message.port.lid = static_cast<std::uint16_t>(rng());
      message.tables[0].buckets = static_cast<std::uint32_t>(rng());
      message.tables[0].entries = static_cast<std::uint32_t>(rng());
      send(env, stranger, 0, message);
    }
  });
  EXPECT_EQ(broken, 0);
}
INSTANTIATE_TEST_SUITE_P(KrcoreStrangerSim, AnyDatagrams,
                         testing::Range(std::uint64_t{1}, std::uint64_t{31}));

// A message that ends requests or transfers counts if it is of the node at the other end.
TEST(KrcoreStrangerSim, AMessageOfAnotherNodeEndsNothing) {
  fabric::sim::SimCluster cluster(runtime::sim_options(4));
  Queue victim;
  DctMeta target;
  cluster.run([&](Env& env) {
    Service service(env, among_strangers());
    App app(service);
    if (env.node() == 0) {
      victim = app.create_queue();
      app.connect(victim, 1, 7);
      target = service.pool(0).target();
    }
    runtime::node_barrier(env, "connected");
    if (env.node() == kStranger) {
      // A kernel sends what it likes; its own name is the best that it can do here.
      const auto domain = env.device().create_protection_domain();
      const auto completions = env.device().create_completion_queue(8);
      fabric::QpOptions options;
      options.transport = fabric::Transport::kDc;
      options.send_entries = 8;
      options.receive_entries = 1;
      const auto qp = env.device().create_queue_pair(*domain, *completions, *completions, options);
      qp->connect({});
      fabric::QpAddress there;
      there.node = 0;
      const auto handle = env.device().create_address_handle(*domain, there);
      const auto memory = env.device().allocate(*domain, sizeof(MessageHeader));
      for (const MessageKind kind :
           {MessageKind::kRefused, MessageKind::kZeroCopyDone, MessageKind::kTransferAck}) {
        MessageHeader header;
        header.kind = kind;
        header.to = victim.number();
        header.from_node = kStranger;
        header.key = static_cast<std::uint32_t>(Status::kRemoteOperation);
        header.ticket = 1;
        std::memcpy(memory->data(), &header, sizeof header);
        const fabric::Sge sge = memory->sge(0, sizeof header);
        fabric::WorkRequest request = one_sided(Opcode::kSend, sge, 0, 0);
        request.address_handle = handle.get();
        request.remote_qpn = target.number;
        request.remote_qkey = target.key;
        ASSERT_EQ(qp->post({&request, 1}).accepted, 1u);
        fabric::Completion done;
        ASSERT_TRUE(env.poll_until(
            [&] {
              return completions->poll({&done, 1}) == 1;
            },
            env.now() + kSecond));
        EXPECT_EQ(done.status, Status::kSuccess);
      }
    }
    runtime::node_barrier(env, "sent");
    if (env.node() == 0) {
      env.sleep_until(env.now() + kMillisecond);
      EXPECT_EQ(service.state(victim), VqpState::kConnected);
      EXPECT_EQ(service.refusal(victim), Status::kSuccess);
    }
    runtime::node_barrier(env, "done");
  });
}

/// An Env whose threads cannot sleep any more.
class BrokenEnv final : public EnvDecorator {
 public:
  using EnvDecorator::EnvDecorator;
  bool is_broken = false;
  void sleep_until(Time t) override {
    if (is_broken) throw Error(ErrorCode::kExhausted, "no timer is left");
    EnvDecorator::sleep_until(t);
  }
};

// A background thread ends: the users of the service learn of it at their next call, and whoever
// waits in one.
TEST(KrcoreStrangerSim, TheEndOfAThreadIsToldToTheUsers) {
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  cluster.run([&](Env& env) {
    BrokenEnv breaks(env);
    Options options = among_strangers();
    options.meta_servers = {1};
    {
      Service service(breaks, options);
      App app(service);
      const Queue queue = app.create_queue();
      app.bind(queue, 7);
      runtime::node_barrier(env, "up");
      if (env.node() == 0) {
        const auto breaker = env.spawn("breaks", [&] {
          env.sleep_until(env.now() + kMillisecond);
          breaks.is_broken = true;
        });
        Message message;
        const auto expect_told = [&](auto call) {
          EXPECT_TRUE(refuses(call, ErrorCode::kExhausted, {"node 0", "no timer is left"}));
        };
        expect_told([&] { app.wait_messages(queue, {&message, 1}); });
        expect_told([&] { app.create_queue(); });
        expect_told([&] { app.connect(queue, 1, 7); });
        expect_told([&] { app.pop(queue, {}); });
        app.destroy(queue);
      }
      runtime::node_barrier(env, "done");
    }
  });
}

}  // namespace
}  // namespace pyrdma::krcore
