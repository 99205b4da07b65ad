// Fences over requests that were lost: no fence says that they are placed, whatever was posted and
// ended after them.
#include "base/error_test.h"
#include "runtime/node_barrier.h"
#include "runtime/worlds_test.h"

namespace pyrdma::runtime {
namespace {

using fabric::Status;

using LostRequests = RuntimeWorlds;

INSTANTIATE_TEST_SUITE_P(Worlds, LostRequests, testing::ValuesIn(world_names()),
                         [](const auto& param) { return param.param; });

constexpr NodeId kDead = 2;

/// The ways of node 0 to ask whether what it did to `kDead` is placed.
struct Asking {
  const char* name;
  Status (*ask)(Runtime& runtime);
};
Status of_a_mark(Runtime& runtime, Caller& asks) {
  AckKey key;
  const Mark mark = asks.mark_of(runtime.caller(0), kDead, key);
  if (!mark.reached()) asks.wait_until([&] { return mark.reached(); }, "the mark");
  return mark.status();
}
constexpr Asking kAskings[] = {
    {"thread", [](Runtime& runtime) { return runtime.caller(0).fence_thread(); }},
    {"global", [](Runtime& runtime) { return runtime.caller(0).fence_global(); }},
    {"global of another", [](Runtime& runtime) { return runtime.caller(1).fence_global(); }},
    {"pair", [](Runtime& runtime) { return runtime.caller(0).fence_pair(kDead); }},
    {"mark", [](Runtime& runtime) { return of_a_mark(runtime, runtime.caller(0)); }},
    {"mark by another", [](Runtime& runtime) { return of_a_mark(runtime, runtime.caller(1)); }},
};

/// Requests of node 0 to a node that has died.
class ADeadPeer {
 public:
  ADeadPeer(Env& env, const Options& options, const Kill& kill)
      : runtime_(env, options), words_((runtime_.connect(), runtime_), "words", 8) {
    at_ = words_.at(kDead);
    node_barrier(env, "told");
    if (env.node() == kDead) {
      kill(kDead);
      env.sleep_until(kForever);
    }
    // The other caller finds the death, which closes the connections of both.
    const Time deadline = env.now() + kSetupTimeout;
    while (post(1, fabric::Opcode::kRead).key.wait() == Status::kSuccess && env.now() < deadline) {
    }
  }
  Runtime& runtime() { return runtime_; }
  Caller& me() { return runtime_.caller(0); }
  void write() { static_cast<void>(post(0, fabric::Opcode::kWrite)); }
  void add() { static_cast<void>(post(0, fabric::Opcode::kFetchAdd)); }
  void read() { EXPECT_NE(post(0, fabric::Opcode::kRead).key.wait(), Status::kSuccess); }

 private:
  InFlight post(std::uint32_t caller, fabric::Opcode opcode) {
    InFlight word(runtime_.caller(caller).block(8));
    const fabric::Sge sge = word.block.sge(8);
    fabric::WorkRequest request;
    request.opcode = opcode;
    request.sges = &sge;
    request.sge_count = 1;
    request.remote_addr = at_.addr;
    request.rkey = at_.rkey;
    word.key = runtime_.caller(caller).post(kDead, {&request, 1});
    return word;
  }
  Runtime runtime_;
  SharedWords words_;
  fabric::RemoteRegion at_;
};

// The read after the lost request has ended: nothing is in flight when the fence begins.
TEST_P(LostRequests, NoFencePassesALostWriteOrAtomic) {
  for (const Asking& asking : kAskings) {
    for (const bool is_write : {true, false}) {
      run(3, [&](Env& env, const Kill& kill) {
        ADeadPeer peer(env, options(2), kill);
        if (env.node() == 0) {
          is_write ? peer.write() : peer.add();
          peer.read();
          EXPECT_EQ(asking.ask(peer.runtime()), Status::kRetryExceeded) << asking.name;
          EXPECT_EQ(asking.ask(peer.runtime()), Status::kSuccess) << asking.name << ", again";
          peer.write();
          peer.read();
          EXPECT_EQ(asking.ask(peer.runtime()), Status::kRetryExceeded) << asking.name << ", anew";
        }
        node_barrier(env, "end", kSetupTimeout, std::vector<NodeId>{0, 1});
      });
    }
  }
}

// Nothing is lost by a read: the key of the read reports it. A pair fence that waits reports the
// connection in any case.
TEST_P(LostRequests, AFencePassesALostRead) {
  run(3, [&](Env& env, const Kill& kill) {
    ADeadPeer peer(env, options(2), kill);
    if (env.node() == 0) {
      peer.read();
      for (const Asking& asking : kAskings)
        EXPECT_EQ(asking.ask(peer.runtime()), Status::kSuccess) << asking.name;
      EXPECT_EQ(peer.me().await_pair(kDead), Status::kFlushed);
    }
    node_barrier(env, "end", kSetupTimeout, std::vector<NodeId>{0, 1});
  });
}

// Each caller hears of the loss, whoever has heard of it before.
TEST_P(LostRequests, EachCallerHearsOnce) {
  run(3, [&](Env& env, const Kill& kill) {
    ADeadPeer peer(env, options(2), kill);
    if (env.node() == 0) {
      peer.write();
      peer.read();
      for (const std::uint32_t caller : {1U, 0U}) {
        Caller& asks = peer.runtime().caller(caller);
        EXPECT_EQ(asks.fence_global(), Status::kRetryExceeded) << caller;
        EXPECT_EQ(asks.fence_global(), Status::kSuccess) << caller;
      }
    }
    node_barrier(env, "end", kSetupTimeout, std::vector<NodeId>{0, 1});
  });
}

// The loss happens while the fence waits: its report is the only one.
TEST_P(LostRequests, ALossDuringTheFenceIsReportedOnce) {
  run(3, [&](Env& env, const Kill& kill) {
    ADeadPeer peer(env, options(2), kill);
    if (env.node() == 0) {
      peer.write();
      EXPECT_EQ(peer.me().fence_thread(), Status::kRetryExceeded);
      EXPECT_EQ(peer.me().fence_thread(), Status::kSuccess);
    }
    node_barrier(env, "end", kSetupTimeout, std::vector<NodeId>{0, 1});
  });
}

// The peer is there again, without the write.
TEST_P(LostRequests, AConnectionThatIsMadeAgainForgetsNoLoss) {
  for (const Asking& asking : kAskings) {
    run(3, [&](Env& env, const Kill&) {
      Runtime runtime(env, options(2));
      runtime.connect();
      SharedWords words(runtime, "words", 8);
      const fabric::RemoteRegion at = words.at(kDead);
      node_barrier(env, "told");
      if (env.node() != 1) {
        const NodeId peer = kDead - env.node();
        runtime.declare_down(peer);
        Caller& me = runtime.caller(0);
        if (env.node() == 0) me.write(kDead, at, 0, me.block(8).sge(8));
        ASSERT_TRUE(runtime.reconnect(peer, env.now() + kSetupTimeout));
        if (env.node() == 0) {
          MemRef word = me.block(8);
          EXPECT_EQ(me.read(kDead, at, 0, word.sge(8)).wait(), Status::kSuccess);
          EXPECT_EQ(asking.ask(runtime), Status::kRetryExceeded) << asking.name;
          EXPECT_EQ(me.write(kDead, at, 0, word.sge(8)).wait(), Status::kSuccess);
          EXPECT_EQ(asking.ask(runtime), Status::kSuccess) << asking.name << ", again";
        }
      }
      runtime.leave();
    });
  }
}

// A mark tells those who wait for it, and no fence counts it as told: neither of the caller that
// made the mark, nor of the one whose requests it marks.
TEST_P(LostRequests, AMarkLeavesTheLossToTheFences) {
  run(3, [&](Env& env, const Kill& kill) {
    ADeadPeer peer(env, options(2), kill);
    if (env.node() == 0) {
      peer.write();
      peer.read();
      Runtime& runtime = peer.runtime();
      for (const std::uint32_t caller : {1U, 0U}) {
        EXPECT_EQ(of_a_mark(runtime, runtime.caller(caller)), Status::kRetryExceeded) << caller;
        EXPECT_EQ(runtime.caller(caller).fence_global(), Status::kRetryExceeded) << caller;
        EXPECT_EQ(of_a_mark(runtime, runtime.caller(caller)), Status::kSuccess) << caller;
        EXPECT_EQ(runtime.caller(caller).fence_global(), Status::kSuccess) << caller;
      }
    }
    node_barrier(env, "end", kSetupTimeout, std::vector<NodeId>{0, 1});
  });
}

// An order of reads asks for no report.
TEST_P(LostRequests, AnOrderOfReadsTakesNoReport) {
  run(3, [&](Env& env, const Kill& kill) {
    ADeadPeer peer(env, options(2), kill);
    if (env.node() == 0) {
      peer.write();
      peer.read();
      peer.me().order_pair(kDead);
      EXPECT_EQ(peer.me().fence_pair(kDead), Status::kRetryExceeded);
    }
    node_barrier(env, "end", kSetupTimeout, std::vector<NodeId>{0, 1});
  });
}

// The fence waits for node 1, which is cut off for too long. The loss at node 2 is reported by the
// next one. So it is when a mark waits for room.
TEST(LostRequestsSim, AFenceThatThrowsReportsNothing) {
  Options options;
  options.wait_timeout = 3 * kMillisecond;
  for (const bool is_mark : {false, true}) {
    fabric::sim::SimCluster cluster(sim_options(3));
    cluster.run([&](Env& env) {
      Runtime runtime(env, options);
      runtime.connect();
      SharedWords words(runtime, "words", 8);
      const fabric::RemoteRegion at = words.at(1), lost = words.at(kDead);
      node_barrier(env, "told");
      if (env.node() == 0) {
        Caller& me = runtime.caller(0);
        MemRef word = me.block(8);
        runtime.declare_down(kDead);
        EXPECT_NE(me.write(kDead, lost, 0, word.sge(8)).wait(), Status::kSuccess);
        const auto ask = [&] {
          if (!is_mark) return me.fence_thread();
          AckKey key;
          return me.mark(kDead, key).status();
        };
        cluster.block(0, 1, 6 * kMillisecond);
        for (std::uint32_t i = 0; i < (is_mark ? options.max_in_flight : 1); ++i)
          me.write(1, at, 0, word.sge(8));
        EXPECT_TRUE(refuses([&] { static_cast<void>(ask()); }, ErrorCode::kTimeout));
        env.sleep_until(env.now() + 10 * kMillisecond);
        EXPECT_EQ(ask(), Status::kRetryExceeded) << is_mark;
        EXPECT_EQ(ask(), Status::kSuccess) << is_mark;
      }
      node_barrier(env, "end");
    });
  }
}

/// Node 0 loses and regains node 2; calls `of_node_0(runtime, reconnects)`.
void run_reconnecting(FunctionRef<void(Runtime&, SharedWords&, FunctionRef<void()>)> of_node_0,
                      int times, fabric::sim::SimCluster& cluster) {
  cluster.run([&](Env& env) {
    Options options;
    options.callers = 2;
    Runtime runtime(env, options);
    runtime.connect();
    SharedWords words(runtime, "words", 8);
    node_barrier(env, "told");
    const NodeId peer = kDead - env.node();
    const auto reconnect = [&] {
      runtime.declare_down(peer);
      ASSERT_TRUE(runtime.reconnect(peer, env.now() + kSetupTimeout));
    };
    if (env.node() == 0) of_node_0(runtime, words, reconnect);
    for (int i = 0; env.node() == 2 && i < times; ++i) reconnect();
    runtime.leave();
  });
}

// The connection fails twice between the mark and the look at it.
TEST(LostRequestsSim, AMarkKnowsALossBeforeTwoFailures) {
  for (const bool is_lost : {true, false}) {
    fabric::sim::SimCluster cluster(sim_options(3));
    run_reconnecting(
        [&](Runtime& runtime, SharedWords& words, FunctionRef<void()> reconnect) {
          Caller& me = runtime.caller(0);
          const fabric::RemoteRegion at = words.at(kDead);
          MemRef word = me.block(8);
          AckKey key;
          if (is_lost) {
            runtime.declare_down(kDead);
            me.write(kDead, at, 0, word.sge(8), key);
          }
          const Mark mark = me.mark(kDead, key);
          for (int i = 0; i < 2; ++i) {
            runtime.declare_down(kDead);
            EXPECT_NE(me.read(kDead, at, 0, word.sge(8)).wait(), Status::kSuccess);
            reconnect();
          }
          ASSERT_TRUE(mark.reached());
          EXPECT_EQ(mark.status() == Status::kSuccess, !is_lost);
        },
        2, cluster);
  }
}

// The connection fails and is made again by another thread, while the fence waits for node 1.
TEST(LostRequestsSim, AReconnectDuringTheFenceHidesNoLoss) {
  fabric::sim::SimCluster cluster(sim_options(3));
  run_reconnecting(
      [&](Runtime& runtime, SharedWords& words, FunctionRef<void()> reconnect) {
        Env& env = runtime.env();
        Caller& me = runtime.caller(0);
        MemRef word = me.block(8);
        cluster.block(0, 1, 5 * kMillisecond);
        cluster.block(0, 2, 100 * kMicrosecond);
        for (const NodeId node : {NodeId{1}, kDead})
          me.fetch_add(node, words.at(node), 0, 1, word.sge(8));
        const auto other = env.spawn("reconnects", [&] { reconnect(); });
        EXPECT_EQ(me.fence_thread(), Status::kRetryExceeded);
        EXPECT_TRUE(runtime.is_up(kDead)) << "it came back during the fence";
        EXPECT_EQ(me.fence_thread(), Status::kSuccess);
      },
      1, cluster);
}

}  // namespace
}  // namespace pyrdma::runtime
