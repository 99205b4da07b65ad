// Locks of a node's rings that another node holds for long, as if it were stopped within a send.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "fabric/shm/ring_locks_test.h"

namespace pyrdma::fabric::shm {
namespace {

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

TEST(ShmHeldLocks, OwnRequestsNeedNoLockOfPeers) {
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

TEST(ShmHeldLocks, AFailedRequestDoesNotWaitForThem) {
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

TEST(ShmHeldLocks, AQueuePairThatIsResetHasOtherReceives) {
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
TEST(ShmHeldLocks, SendsToAHeldQueueWaitAndAreNotLost) {
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
    pair.b.env->sleep_until(begin + 20 * kMillisecond);  // longer than all timeouts of the options
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

// A node that stays stopped holds up the others for a moment only. The completions of one sender
// stay in order, whichever rings it uses.
TEST(ShmHeldLocks, AHeldQueueHasOtherRings) {
  Pair pair({}, 3);
  End third;
  third.make(pair.cluster.env(2), {});
  SharedLock& held = completions_lock(pair.a.node(), *pair.a.qp);
  std::uint64_t sent = 0, received = 0;
  const auto send = [&] {
    const Sge into = pair.a.region->sge(0, 64);
    ASSERT_EQ(pair.a.receive({sent, &into, 1}).accepted, 1U);
    ASSERT_TRUE(pair.b.qp->send(pair.b.region->sge(0, 8), sent));
    ++sent;
  };
  const auto receive = [&] {
    while (received < sent) {
      const auto got = pair.b.wait(1), at = pair.a.wait(1);
      ASSERT_GE(at.size(), 1U);
      ASSERT_GE(got.size(), 1U);
      for (const Completion& completion : got) EXPECT_EQ(completion.status, Status::kSuccess);
      for (const Completion& completion : at) {
        EXPECT_EQ(completion.status, Status::kSuccess);
        EXPECT_EQ(completion.wr_id, received++);
      }
    }
  };
  for (int i = 0; i < 3; ++i) send();  // in the first ring
  held.holder.store(third.node().holder());
  const Time begin = pair.b.env->now();
  for (int i = 0; i < 3; ++i) send();
  EXPECT_LT(pair.b.env->now() - begin, kSoon);
  receive();
  for (int i = 0; i < 100; ++i) {
    send();
    receive();
  }
  EXPECT_LT(pair.b.env->now() - begin, 2 * kSecond);
  // A failed queue pair flushes there, and another connection begins in the first ring.
  for (std::uint64_t i = 0; i < 3; ++i) {
    const Sge into = pair.a.region->sge(0, 64);
    ASSERT_EQ(pair.a.receive({i, &into, 1}).accepted, 1U);
  }
  pair.a.qp->modify(QpState::kError);
  const auto flushed = pair.a.wait(3);
  ASSERT_EQ(flushed.size(), 3U);
  for (const Completion& completion : flushed) EXPECT_EQ(completion.status, Status::kFlushed);
  pair.reconnect();
  unlock(held);
  sent = received = 0;
  for (int i = 0; i < 20; ++i) {
    send();
    receive();
  }
  EXPECT_LT(pair.b.env->now() - begin, 3 * kSecond);
}

TEST(ShmHeldLocks, SharedReceivesAreClaimedWithoutALock) {
  Pair pair({}, 3);
  End third;
  third.make(pair.cluster.env(2), {});
  const auto shared = pair.a.device().create_shared_receive_queue(*pair.a.pd, 4);
  auto to = pair.a.device().create_queue_pair(*pair.a.pd, *pair.a.completions, *pair.a.completions,
                                              {}, shared.get());
  auto from =
      pair.b.device().create_queue_pair(*pair.b.pd, *pair.b.completions, *pair.b.completions);
  to->connect(from->address());
  from->connect(to->address());
  SharedLock& held = receives_lock(pair.a.node(), *to);
  held.holder.store(third.node().holder());
  const Time begin = pair.b.env->now();
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Sge into = pair.a.region->sge(0, 64);
    const ReceiveRequest request{i, &into, 1};
    ASSERT_EQ(shared->post_receive({&request, 1}).accepted, 1U);
    ASSERT_TRUE(from->send(pair.b.region->sge(0, 8), i));
    ASSERT_EQ(pair.b.wait(1).at(0).status, Status::kSuccess);
    ASSERT_EQ(pair.a.wait(1).at(0).wr_id, i);
  }
  to->modify(QpState::kReset);
  EXPECT_LT(pair.b.env->now() - begin, kSoon);
  unlock(held);
}

// A long message that finds the completions held after its copy keeps the shared receive that it
// has taken.
TEST(ShmHeldLocks, ALongMessageKeepsItsSharedReceive) {
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

}  // namespace
}  // namespace pyrdma::fabric::shm
