// Peers that are stopped, or die, where they hold locks of another node's rings.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

#include "fabric/shm/pair_test.h"
#include "fabric/shm/process_test.h"

namespace pyrdma::fabric::shm {
namespace {

constexpr Time kSoon = 500 * kMillisecond;  // much less than kLockTimeout, on a busy machine

QpEntry& entry_of(Node& node, const QueuePair& qp) {
  return node.control().queue_pairs[qp_slot(qp.qp_num())];
}
SharedLock& lock_at(Node& node, std::uint64_t offset) {
  return reinterpret_cast<RingHead*>(reinterpret_cast<std::byte*>(&node.control()) + offset)->lock;
}
SharedLock& receives_lock(Node& node, const QueuePair& qp) {
  return lock_at(node, relaxed(entry_of(node, qp).receives));
}
SharedLock& completions_lock(Node& node, const QueuePair& qp) {
  return lock_at(node, relaxed(entry_of(node, qp).completions));
}

/// Three nodes. Node 2 holds the locks of node 0's rings, as if it were stopped within a send.
struct Held {
  Held() : pair({}, 3) {
    third.make(pair.cluster.env(2), {});
    const std::uint32_t holder = third.node().holder();
    receives().holder.store(holder);
    completions().holder.store(holder);
  }
  SharedLock& receives() { return receives_lock(pair.a.node(), *pair.a.qp); }
  SharedLock& completions() { return completions_lock(pair.a.node(), *pair.a.qp); }
  void release() {
    if (relaxed(receives().holder) == third.node().holder()) unlock(receives());
    if (relaxed(completions().holder) == third.node().holder()) unlock(completions());
  }
  Time now() { return pair.a.env->now(); }

  Pair pair;
  End third;
};

TEST(ShmStopped, OwnRequestsNeedNoLockOfPeers) {
  Held held;
  const Time begin = held.now();
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(held.pair.post(Opcode::kWrite, held.pair.a.region->sge(0, 8)));
    ASSERT_TRUE(held.pair.post(Opcode::kRead, held.pair.a.region->sge(0, 8)));
    ASSERT_TRUE(held.pair.post(Opcode::kFetchAdd, held.pair.a.region->sge(0, 8)));
  }
  const auto got = held.pair.a.wait(9);
  ASSERT_EQ(got.size(), 9U);
  for (const Completion& completion : got) EXPECT_EQ(completion.status, Status::kSuccess);
  EXPECT_LT(held.now() - begin, kSoon);
  held.release();
}

TEST(ShmStopped, AFailedRequestDoesNotWaitForThem) {
  Held held;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(held.pair.a.receive(held.pair.a.region->sge(0, 64)));
  const Time begin = held.now();
  const Sge sge = held.pair.a.region->sge(0, 8);
  RemoteRegion wrong = held.pair.b.region->remote();
  wrong.rkey ^= 1;
  ASSERT_TRUE(held.pair.a.qp->write(sge, wrong, 0, 1));
  ASSERT_TRUE(held.pair.a.qp->write(sge, wrong, 0, 2));
  auto got = held.pair.a.wait(2);
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0].status, Status::kRemoteAccess);
  EXPECT_EQ(got[1].status, Status::kFlushed);
  EXPECT_EQ(held.pair.a.qp->state(), QpState::kError);
  held.pair.a.qp->modify(QpState::kError);
  EXPECT_LT(held.now() - begin, kSoon);
  held.release();  // the receives are flushed now
  got = held.pair.a.wait(4);
  ASSERT_EQ(got.size(), 4U);
  for (const Completion& completion : got) EXPECT_EQ(completion.status, Status::kFlushed);
}

TEST(ShmStopped, AQueuePairThatIsResetHasOtherReceives) {
  Held held;
  unlock(held.completions());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(held.pair.a.receive(held.pair.a.region->sge(0, 64)));
  SharedLock& before = held.receives();
  const Time begin = held.now();
  held.pair.reconnect();
  EXPECT_LT(held.now() - begin, kSoon);
  EXPECT_NE(&held.receives(), &before);
  ASSERT_TRUE(held.pair.a.receive({7, nullptr, 0}).accepted == 1);
  ASSERT_TRUE(held.pair.b.qp->send(held.pair.b.region->sge(0, 0)));
  const auto got = held.pair.a.wait(1);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].wr_id, 7U);
  EXPECT_EQ(got[0].status, Status::kSuccess);
  // The space of the old ring serves again when its holder has left it.
  unlock(before);
  const auto another = held.pair.a.device().create_queue_pair(
      *held.pair.a.pd, *held.pair.a.completions, *held.pair.a.completions);
  EXPECT_EQ(&receives_lock(held.pair.a.node(), *another), &before);
}

// One node of several that send to a queue holds its lock: the others wait, and block nobody.
TEST(ShmStopped, SendsToAHeldQueueWaitAndAreNotLost) {
  for (const Transport transport : {Transport::kRc, Transport::kUc}) {
    QpOptions options;
    options.transport = transport;
    Pair pair(options, 3);
    End third;
    third.make(pair.cluster.env(2), options);
    for (std::uint64_t i = 0; i < 3; ++i) {
      const Sge into = pair.a.region->sge(0, 64);
      ASSERT_EQ(pair.a.receive({i, &into, 1}).accepted, 1U);
    }
    SharedLock& held = completions_lock(pair.a.node(), *pair.a.qp);
    held.holder.store(third.node().holder());
    const Time begin = pair.b.env->now();
    for (std::uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(pair.b.qp->send(pair.b.region->sge(0, 8), i));
    EXPECT_LT(pair.b.env->now() - begin, kSoon);
    pair.b.env->sleep_until(begin + 50 * kMillisecond);  // longer than all timeouts of the options
    Completion completion;
    EXPECT_EQ(pair.b.completions->poll({&completion, 1}), 0U);
    unlock(held);
    const auto sent = pair.b.wait(3), received = pair.a.wait(3);
    ASSERT_EQ(sent.size(), 3U);
    ASSERT_EQ(received.size(), 3U);
    for (std::uint64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(sent[i].status, Status::kSuccess);
      EXPECT_EQ(sent[i].wr_id, i);
      EXPECT_EQ(received[i].wr_id, i);
    }
  }
}

// A long message that finds the completions held after its copy keeps the shared receive that it
// has taken.
TEST(ShmStopped, ALongMessageKeepsItsSharedReceive) {
  constexpr std::uint32_t kBytes = 4 << 20;
  constexpr std::uint64_t kMessages = 40;
  Pair pair({}, 3);
  End third;
  third.make(pair.cluster.env(2), {});
  const auto into = pair.a.device().allocate(*pair.a.pd, 2 * kBytes, kLocalWrite);
  const auto out = pair.b.device().allocate(*pair.b.pd, kBytes, kLocalWrite);
  const auto shared = pair.a.device().create_shared_receive_queue(*pair.a.pd, 2);
  auto to = pair.a.device().create_queue_pair(*pair.a.pd, *pair.a.completions, *pair.a.completions,
                                              {}, shared.get());
  auto from =
      pair.b.device().create_queue_pair(*pair.b.pd, *pair.b.completions, *pair.b.completions);
  to->connect(from->address());
  from->connect(to->address());
  const auto post = [&](std::uint64_t i) {
    const Sge sge = into->sge(i % 2 * kBytes, kBytes);
    const ReceiveRequest request{i, &sge, 1};
    ASSERT_EQ(shared->post_receive({&request, 1}).accepted, 1U);
  };
  post(0);
  post(1);
  // A message waits while the lock is held, and the lock is free while a message is copied.
  std::atomic<bool> done{false};
  std::thread holder([&] {
    SharedLock& held = completions_lock(pair.a.node(), *to);
    while (!done.load()) {
      if (!lock(held, third.node().holder(), third.node().session(), kMillisecond)) continue;
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      unlock(held);
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
  });
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    std::memset(out->data(), static_cast<int>(i + 1), kBytes);
    EXPECT_TRUE(from->send(out->sge(0, kBytes), i));
    const auto sent = pair.b.wait(1), received = pair.a.wait(1);
    if (sent.size() != 1 || received.size() != 1) {
      ADD_FAILURE() << "message " << i << " is lost";
      break;
    }
    EXPECT_EQ(sent[0].status, Status::kSuccess);
    EXPECT_EQ(received[0].wr_id, i);
    EXPECT_EQ(received[0].byte_count, kBytes);
    const std::byte* data = into->data() + i % 2 * kBytes;
    EXPECT_EQ(data[0], static_cast<std::byte>(i + 1));
    EXPECT_EQ(data[kBytes - 1], static_cast<std::byte>(i + 1));
    post(i + 2);
  }
  done.store(true);
  holder.join();
}

constexpr std::uint32_t kLongMessage = 1 << 20;
constexpr std::uint32_t kReceives = 64;

/// Node 0 takes long messages of node 1 without end. A pair of its own shares the completions.
struct Receiver {
  explicit Receiver(Env& env)
      : device(env.device()),
        pd(device.create_protection_domain()),
        region(device.allocate(*pd, kLongMessage, kAllAccess)),
        completions(device.create_completion_queue(1024)) {
    QpOptions options;
    options.receive_entries = 2 * kReceives;
    options.timeout_us = 5'000'000;
    qp = device.create_queue_pair(*pd, *completions, *completions, options);
    const std::string self = std::to_string(env.node()), peer = std::to_string(1 - env.node());
    const Time deadline = env.now() + 20 * kSecond;
    Rendezvous& meeting = device.rendezvous();
    meeting.publish_value("qp" + self, qp->address());
    meeting.publish_value("region" + self, region->remote());
    const auto address = meeting.await_value<QpAddress>("qp" + peer, deadline);
    remote = meeting.await_value<RemoteRegion>("region" + peer, deadline);
    qp->modify(QpState::kInit);
    for (std::uint64_t i = 0; i < kReceives; ++i) post_receive();
    qp->modify(QpState::kReadyToReceive, &address);
    qp->modify(QpState::kReadyToSend);
    meeting.publish_value("ready" + self, 1);
    meeting.await_value<int>("ready" + peer, deadline);
  }
  void post_receive() { EXPECT_TRUE(qp->receive(region->sge(0, kLongMessage), kOfReceive)); }

  static constexpr std::uint64_t kOfReceive = 1'000'000;
  Device& device;
  std::unique_ptr<ProtectionDomain> pd;
  std::unique_ptr<MemoryRegion> region;
  std::unique_ptr<CompletionQueue> completions;
  std::unique_ptr<QueuePair> qp;
  RemoteRegion remote;
};

TEST(ShmStoppedChild, DISABLED_Runs) {
  const char* role = std::getenv(kRole);
  ASSERT_NE(role, nullptr);
  std::istringstream words(role);
  std::string what, name, token;
  NodeId node = 0;
  words >> what >> name >> token >> node;
  ShmNode self(name, node, 2, token);
  Receiver sender(self.env());
  for (;;) {
    sender.qp->send(sender.region->sge(0, kLongMessage));
    Completion completion;
    while (sender.completions->poll({&completion, 1}) == 1) {
    }
  }
}

/// Takes messages until the child is stopped within one, or killed there.
class Within {
 public:
  Within()
      : session_({2, 1}),
        self_(session_.name(), 0, 2, session_.token()),
        child_(role("sender", session_, 1), "ShmStoppedChild.DISABLED_Runs"),
        env(self_.env()),
        receiver(env) {}

  /// Returns false when chance never stopped it within a message.
  bool stop() {
    for (int attempt = 0; attempt < 200; ++attempt) {
      for (int i = 0; i < 20; ++i) take(kMillisecond);
      child_.signal(SIGSTOP);
      Node& node = static_cast<ShmDevice&>(receiver.device).node();
      if (relaxed(receives_lock(node, *receiver.qp).holder) != 0) return true;
      child_.signal(SIGCONT);
    }
    return false;
  }
  void go_on() { child_.signal(SIGCONT); }
  void kill() { child_.kill(); }
  /// Returns whether a message came within `time`, and posts its receive again.
  bool take(Time time) {
    Completion completion;
    const bool got = env.poll_until(
        [&] {
          return receiver.completions->poll({&completion, 1}) == 1;
        },
        env.now() + time);
    if (got && completion.status == Status::kSuccess) receiver.post_receive();
    return got;
  }

 private:
  Session session_;
  ShmNode self_;
  Child child_;

 public:
  Env& env;
  Receiver receiver;
};

TEST(ShmStopped, AProcessWithinASendHoldsUpNothingElse) {
  Within test;
  if (!test.stop()) GTEST_SKIP() << "the peer never stopped within a message";
  while (test.take(0)) {
  }
  Receiver& node = test.receiver;
  const Time begin = test.env.now();
  for (std::uint64_t i = 0; i < 3; ++i)
    ASSERT_TRUE(node.qp->write(node.region->sge(0, 8), node.remote, 0, i));
  // Queue pairs within the node that share its completions.
  auto from = node.device.create_queue_pair(*node.pd, *node.completions, *node.completions);
  auto to = node.device.create_queue_pair(*node.pd, *node.completions, *node.completions);
  from->connect(to->address());
  to->connect(from->address());
  ASSERT_TRUE(to->receive(node.region->sge(0, 64), 4));
  ASSERT_TRUE(from->send(node.region->sge(0, 8), 3));
  std::uint64_t seen = 0;
  EXPECT_TRUE(test.env.poll_until(
      [&] {
        Completion completion;
        if (node.completions->poll({&completion, 1}) == 1) {
          EXPECT_EQ(completion.status, Status::kSuccess);
          seen |= std::uint64_t{1} << completion.wr_id;
        }
        return seen == 0x1f;
      },
      begin + 2 * kSecond));
  EXPECT_LT(test.env.now() - begin, kSoon);
  EXPECT_FALSE(node.qp->is_quiet());
  test.go_on();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(test.take(10 * kSecond));
}

TEST(ShmStopped, AQueuePairLeavesAProcessWithinASend) {
  Within test;
  if (!test.stop()) GTEST_SKIP() << "the peer never stopped within a message";
  while (test.take(0)) {
  }
  const Time begin = test.env.now();
  test.receiver.qp->modify(QpState::kError);
  EXPECT_LT(test.env.now() - begin, kSoon);
  EXPECT_FALSE(test.receiver.qp->is_quiet());
  EXPECT_FALSE(test.take(20 * kMillisecond));
  test.go_on();
  // Each receive ends once, the one under way, too.
  for (std::uint32_t i = 0; i < kReceives; ++i) {
    Completion completion;
    ASSERT_TRUE(test.env.poll_until(
        [&] {
          return test.receiver.completions->poll({&completion, 1}) == 1;
        },
        test.env.now() + 10 * kSecond));
    EXPECT_EQ(completion.status, Status::kFlushed);
  }
  EXPECT_TRUE(
      test.env.poll_until([&] { return test.receiver.qp->is_quiet(); }, begin + 10 * kSecond));
  EXPECT_FALSE(test.take(10 * kMillisecond));
}

TEST(ShmStopped, AProcessThatDiesWithinASendLeavesItsReceive) {
  Within test;
  if (!test.stop()) GTEST_SKIP() << "the peer never stopped within a message";
  while (test.take(0)) {
  }
  test.kill();
  const Time begin = test.env.now();
  ASSERT_TRUE(test.receiver.qp->write(test.receiver.region->sge(0, 8), test.receiver.remote, 0, 1));
  std::uint32_t flushed = 0;
  bool written = false;
  EXPECT_TRUE(test.env.poll_until(
      [&] {
        Completion completion;
        if (test.receiver.completions->poll({&completion, 1}) == 1) {
          if (completion.wr_id != Receiver::kOfReceive)
            written = true;
          else
            flushed += completion.status == Status::kFlushed ? 1 : 0;
        }
        // A write may still have found the memory of the dead process.
        if (test.receiver.qp->state() == QpState::kReadyToSend && written) {
          written = false;
          test.receiver.qp->write(test.receiver.region->sge(0, 8), test.receiver.remote, 0, 1);
        }
        return flushed == kReceives;
      },
      begin + 2 * kSecond));
  EXPECT_EQ(test.receiver.qp->state(), QpState::kError);
  EXPECT_TRUE(test.receiver.qp->is_quiet());
}

}  // namespace
}  // namespace pyrdma::fabric::shm
