// Errors of work that was dropped, posts that fail in the middle of a change, and lost writes: an
// error is heard where the work began, and no other object loses anything by it, or hears it first.
#include "base/error_test.h"
#include "runtime/node_barrier.h"
#include "systems/loco/kvstore/small_store_test.h"
#include "systems/loco/owned_var.h"
#include "systems/loco/ring_buffer.h"
#include "systems/loco/shared_queue.h"
#include "systems/loco/shared_region.h"
#include "systems/loco/worlds_test.h"

namespace pyrdma::loco {
namespace {

constexpr NodeId kDead = 2;
constexpr std::uint32_t kRoom = 64;  // requests of a caller in flight
const std::vector<NodeId> kOthers = {0, 1, 3};

ManagerOptions with_little_room(Time wait_timeout) {
  ManagerOptions options;
  options.callers = 2;
  options.max_in_flight = kRoom;
  options.wait_timeout = wait_timeout;
  return options;
}

/// A node with four locks, one per node; node kDead dies in the constructor.
struct LocksNode {
  LocksNode(Env& env, fabric::sim::SimCluster& cluster, Time wait_timeout,
            const std::function<void(LocksNode&)>& make = {})
      : manager(env, with_little_room(wait_timeout)),
        locks(manager, "locks", 4),
        words(manager, "words", 8, kReadWrite) {
    if (env.node() != kDead && make) make(*this);
    manager.wait_for_ready();
    runtime::node_barrier(env, "made", kSecond);
    if (env.node() == kDead) {
      cluster.kill(kDead);
      env.sleep_until(kForever);
    }
  }
  /// Drops an acquisition that will fail.
  void drop(std::uint32_t caller = 0) {
    static_cast<void>(locks.start_acquire(manager.caller(caller), kDead));
  }
  /// Fills the room of caller 0 but for `left` requests, for as long as the retries to a dead node
  /// take.
  void fill(std::uint32_t left) {
    Caller& me = manager.caller(0);
    const MemRef word = me.block(8);
    for (std::uint32_t i = left; i < kRoom; ++i) words.write(me, kDead, 0, word.sge(8));
  }
  void meet(const std::string& name) {
    runtime::node_barrier(manager.env(), name, kSecond, kOthers);
  }
  Manager manager;
  TicketLocks locks;
  SharedRegion words;
  std::optional<TicketLocks> others;
  std::optional<RingBuffer> ring;
  std::optional<SharedQueueOf<std::uint64_t>> queue;
  std::optional<KvStore> store;
};

void run_with_a_dead_node(const std::function<void(Env&, fabric::sim::SimCluster&)>& per_node) {
  fabric::sim::SimCluster cluster(sim_options(4));
  cluster.run([&](Env& env) { per_node(env, cluster); });
}

std::optional<ErrorCode> error_code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return std::nullopt;
}

bool blames_the_dead(const std::function<void()>& call) {
  return refuses(call, ErrorCode::kUnavailable, {"locks", "2"}) &&
         blamed_by(call).empty();  // the second time it is not refused
}

TEST(LocoDroppedErrors, AreHeardByTheNextAcquisitionOfThatCaller) {
  run_with_a_dead_node([](Env& env, fabric::sim::SimCluster& cluster) {
    LocksNode node(env, cluster, kSecond);
    Caller& me = node.manager.caller(0);
    if (env.node() == 0) {
      node.drop();
      me.wait_until([&] { return !me.has_unfinished(); }, "end of the dropped acquisition");
      MemRef block = me.block(8);
      node.locks.acquire(node.manager.caller(1), 0);  // another caller's
      node.locks.release(node.manager.caller(1), 0, Fence::kNone);
      TicketLocks others(node.manager, "of one node", 1, {}, {0});
      others.acquire(me, 0);
      others.release(me, 0, Fence::kNone);
      EXPECT_TRUE(blames_the_dead([&] { static_cast<void>(node.locks.start_acquire(me, 0)); }));
    }
    node.meet("end");
  });
}

TEST(LocoDroppedErrors, AreHeardAtTheEndOtherwise) {
  run_with_a_dead_node([](Env& env, fabric::sim::SimCluster& cluster) {
    LocksNode node(env, cluster, kSecond);
    runtime::Runtime& runtime = node.manager.caller(0).runtime();
    if (env.node() == 0) {
      node.drop(1);
      EXPECT_TRUE(blames_the_dead([&] { runtime.drain(); }));
    }
    node.meet("end");
  });
}

// Another object at the address of the one that is gone begins without its errors.
TEST(LocoDroppedErrors, AreNotHeardFromAnotherObject) {
  run_with_a_dead_node([](Env& env, fabric::sim::SimCluster& cluster) {
    LocksNode node(env, cluster, kSecond, [](LocksNode& made) {
      made.others.emplace(made.manager, "locks of all", 1, TicketLockOptions{}, kOthers);
    });
    if (env.node() == 0) {
      Caller& me = node.manager.caller(0);
      class Failing final : public runtime::Unfinished {
       public:
        explicit Failing(const void* object) : Unfinished(object, false) {}
        bool poll() override { throw Error(ErrorCode::kUnavailable, "locks at 2"); }
      };
      me.finish_later(std::make_unique<Failing>(&*node.others));
      me.block(8);  // takes a step
      EXPECT_FALSE(me.has_unfinished());
      node.others.emplace(node.manager, "locks of one", 1, TicketLockOptions{},
                          std::vector<NodeId>{0});
      node.others->acquire(me, 0);
      node.others->release(me, 0, Fence::kNone);
      EXPECT_TRUE(blames_the_dead([&] { me.runtime().drain(); }));
    }
    node.meet("end");
  });
}

// The caller waits in each call, for room or for another node, while its dropped work fails.
TEST(LocoDroppedErrors, TakeNothingFromOtherObjects) {
  run_with_a_dead_node([](Env& env, fabric::sim::SimCluster& cluster) {
    LocksNode node(env, cluster, kSecond, [](LocksNode& made) {
      made.ring.emplace(made.manager, "ring", 0, 256, kOthers);
      made.queue.emplace(made.manager, "queue", 4, kOthers);
      made.store.emplace(made.manager, "kv", small_store(8), kOthers);
    });
    Caller& me = node.manager.caller(0);
    const std::uint64_t value = 5;
    const auto bytes = std::as_bytes(std::span(&value, 1));
    if (env.node() == 0) {
      for (std::uint32_t left = 0; left < 3;
           ++left) {  // the queue fills up before a reader, or none
        node.drop();
        node.fill(left);
        node.ring->broadcast(me, bytes);
        EXPECT_TRUE(blames_the_dead([&] { static_cast<void>(node.locks.start_acquire(me, 0)); }));
      }
      node.drop();
      node.fill(1);
      EXPECT_EQ(node.store->insert(me, 7, bytes), Outcome::kOk);
      EXPECT_TRUE(blames_the_dead([&] { static_cast<void>(node.locks.start_acquire(me, 0)); }));
      node.drop();
      EXPECT_EQ(node.queue->pop(me), 1U);
      EXPECT_TRUE(blames_the_dead([&] { static_cast<void>(node.locks.start_acquire(me, 0)); }));
    } else {
      for (int i = 0; i < 3; ++i) {
        std::optional<std::span<const std::byte>> got;
        me.wait_until([&] { return (got = node.ring->next(me)).has_value(); }, "a message");
        EXPECT_TRUE(std::ranges::equal(*got, bytes));
        node.ring->acknowledge(me);
      }
      env.sleep_until(env.now() + 60 * kMillisecond);
      if (env.node() == 1) node.queue->push(me, 1);
    }
    node.meet("done");
    EXPECT_TRUE(node.store->locate(7).has_value()) << env.node();
    node.meet("end");
  });
}

// The queue stays full for longer than the patience of a call. A message that is refused is not
// sent, and the others come to every reader, once and in order. With room for one request the
// answer of the first reader is late: the message is sent then, and goes on to the other one.
TEST(LocoFullQueues, ARefusedMessageIsNotSentAndASentOneComesToAll) {
  for (const std::uint32_t left : {0U, 1U}) {
    run_with_a_dead_node([left](Env& env, fabric::sim::SimCluster& cluster) {
      constexpr std::uint64_t kMessages = 30;
      LocksNode node(env, cluster, 5 * kMillisecond, [](LocksNode& made) {
        made.ring.emplace(made.manager, "ring", 0, 256, kOthers);
      });
      Caller& me = node.manager.caller(0);
      if (env.node() == 0) {
        node.fill(left);
        if (left == 1) cluster.block(1, 0, 6 * kMillisecond);
        int refused = 0;
        const auto send = [&](std::uint64_t i) {
          node.ring->broadcast(me, std::as_bytes(std::span(&i, 1)));
        };
        for (std::uint64_t i = 0; i < kMessages; ++i) {
          while (error_code_of([&] { send(i); }) == ErrorCode::kTimeout && refused < 100) ++refused;
        }
        EXPECT_LT(refused, 100);
        EXPECT_EQ(refused != 0, left == 0);
      } else {
        for (std::uint64_t i = 0; i < kMessages; ++i) {
          std::optional<std::span<const std::byte>> got;
          const auto has_come = [&] { return (got = node.ring->next(me)).has_value(); };
          ASSERT_TRUE(env.poll_until([&] { return node.manager.turn(), has_come(); }, kSecond));
          EXPECT_TRUE(std::ranges::equal(*got, std::as_bytes(std::span(&i, 1))));
          node.ring->acknowledge(me);
        }
      }
      node.meet("end");
    });
  }
}

// A release that is refused leaves the lock held and its requests as they were.
TEST(LocoFullQueues, ARefusedReleaseIsTriedAgain) {
  run_with_a_dead_node([](Env& env, fabric::sim::SimCluster& cluster) {
    LocksNode node(env, cluster, 5 * kMillisecond);
    Caller& me = node.manager.caller(0);
    if (env.node() == 0) {
      node.locks.acquire(me, 1);
      const MemRef word = me.block(8);
      const fabric::Sge sge = word.sge(8);
      node.fill(0);
      Requests before;
      before.add(fabric::Opcode::kWrite, node.words.at(1), 0, sge);
      const auto release = [&] { node.locks.release(me, 1, Fence::kBefore, before); };
      EXPECT_EQ(error_code_of(release), ErrorCode::kTimeout);
      EXPECT_EQ(before.size(), 1U);
      while (error_code_of(release) == ErrorCode::kTimeout) {
      }
      EXPECT_EQ(node.locks.acquire(me, 1), 1U);
      node.locks.release(me, 1, Fence::kNone);
    }
    node.meet("end");
  });
}

// The queue is full when a change of the store gets its lock: the change is not done, and goes on.
TEST(LocoFullQueues, ARefusedChangeOfTheStoreIsTriedAgain) {
  for (const bool removes : {false, true}) {
    run_with_a_dead_node([removes](Env& env, fabric::sim::SimCluster& cluster) {
      constexpr Key kKey = 7;
      LocksNode node(env, cluster, 5 * kMillisecond, [](LocksNode& made) {
        made.store.emplace(made.manager, "kv", small_store(8), kOthers);
      });
      Caller& me = node.manager.caller(0);
      const auto bytes = [](const std::uint64_t& value) {
        return std::as_bytes(std::span(&value, 1));
      };
      const std::uint64_t first = 5, last = 6;
      if (env.node() == 1) {
        EXPECT_EQ(node.store->insert(me, kKey, bytes(first)), Outcome::kOk);
      }
      node.meet("inserted");
      if (env.node() == 0) {
        KvOperation op(*node.store, me);
        const auto is_over = [&] { return op.poll(); };
        op.update(kKey, bytes(first));
        me.wait_until(is_over, "the first change");
        removes ? op.remove(kKey) : op.update(kKey, bytes(last));
        env.sleep_until(env.now() + kMillisecond);
        node.manager.turn();
        node.fill(0);
        EXPECT_EQ(error_code_of([&] { op.poll(); }), ErrorCode::kTimeout);
        me.wait_until(is_over, "the second change");
        EXPECT_EQ(op.outcome(), Outcome::kOk);
        std::uint64_t found = 0;
        const Outcome looked =
            node.store->lookup(me, kKey, std::as_writable_bytes(std::span(&found, 1)));
        EXPECT_EQ(looked, removes ? Outcome::kMissing : Outcome::kOk);
        EXPECT_TRUE(removes || found == last) << found;
      }
      node.meet("end");
    });
  }
}

// An acknowledgement that is refused is tried again.
TEST(LocoFullQueues, ARefusedAcknowledgementIsSentLater) {
  run_with_a_dead_node([](Env& env, fabric::sim::SimCluster& cluster) {
    LocksNode node(env, cluster, 5 * kMillisecond, [](LocksNode& made) {
      if (made.manager.self() != 3)
        made.ring.emplace(made.manager, "ring", 0, 64, std::vector<NodeId>{0, 1});
    });
    Caller& me = node.manager.caller(0);
    if (env.node() == 0) {
      const std::uint64_t end = node.ring->broadcast(me, {});
      const auto is_known = [&] { return node.manager.turn(), node.ring->acknowledged(end); };
      EXPECT_TRUE(env.poll_until(is_known, kSecond));
    } else if (env.node() == 1) {
      env.sleep_until(env.now() + kMillisecond);
      ASSERT_TRUE(node.ring->next(me).has_value());
      node.fill(0);
      const auto acknowledge = [&] { node.ring->acknowledge(me); };
      EXPECT_EQ(error_code_of(acknowledge), ErrorCode::kTimeout);
      while (error_code_of(acknowledge) == ErrorCode::kTimeout) {
      }
    }
    node.meet("end");
  });
}

// Node 0 has lost a write, and nobody has told its callers. An object that gives its own requests
// an order must not hear of the loss in their place: their next fence fails.
TEST(LocoLostWrites, AnObjectsOwnOrderTakesNoReportFromTheUser) {
  for (const bool is_queue : {false, true}) {
    const NodeId dead = is_queue ? 0 : 2;  // the queue's words are at node 0
    fabric::sim::SimCluster cluster(sim_options(3));
    cluster.run([&](Env& env) {
      ManagerOptions options;
      options.callers = 2;
      Manager manager(env, options);
      SharedRegion region(manager, "region", 8, kReadWrite);
      OwnedVar<std::uint64_t> var(manager, "var", 1, Updates::kPushed);
      SharedQueueOf<std::uint64_t> queue(manager, "queue", 4);
      manager.wait_for_ready();
      runtime::node_barrier(env, "made", kSecond);
      if (env.node() == dead) {
        cluster.kill(dead);
        env.sleep_until(kForever);
      }
      Caller &first = manager.caller(0), &second = manager.caller(1);
      if (env.node() == 1) {
        const MemRef word = first.block(8);
        if (!is_queue) var.push_to(first, 0).wait();
        AckKey lost = region.write(first, dead, 0, word.sge(8));
        EXPECT_NE(lost.wait(), fabric::Status::kSuccess);
        if (is_queue) {
          EXPECT_EQ(error_code_of([&] { queue.try_push(first, 7); }), ErrorCode::kUnavailable);
          EXPECT_NE(first.fence_thread(), fabric::Status::kSuccess);
        } else {
          EXPECT_EQ(var.push_to(second, 0).wait(), fabric::Status::kSuccess);
          EXPECT_NE(second.fence_global(), fabric::Status::kSuccess);
        }
      }
      env.sleep_until(env.now() + kSecond);
    });
  }
}

}  // namespace
}  // namespace pyrdma::loco
