// Tests beyond the contract suite: hostile peers, keys, locks of dead nodes, threads at one queue.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "base/error_test.h"
#include "base/remote_word.h"
#include "fabric/shm/copy.h"
#include "fabric/shm/lock.h"
#include "fabric/shm/pair_test.h"
#include "fabric/shm/rings.h"

namespace pyrdma::fabric::shm {
namespace {

TEST(ShmCopy, CopiesEveryAlignmentAndLength) {
  std::vector<std::byte> from(9000), to(9000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  const std::size_t lengths[] = {1,  2,  3,  7,  8,   9,   12,   15,   16,   17,  24,
                                 31, 63, 64, 65, 128, 200, 4095, 4096, 4103, 8200};
  for (const std::size_t length : lengths) {
    for (std::size_t source = 0; source < 9; ++source) {
      for (std::size_t target = 0; target < 9; ++target) {
        for (const bool out : {true, false}) {
          std::fill(to.begin(), to.end(), std::byte{0});
          (out ? copy_out : copy_in)(to.data() + 16 + target, from.data() + source, length);
          ASSERT_EQ(std::memcmp(to.data() + 16 + target, from.data() + source, length), 0);
          ASSERT_EQ(to[15 + target], std::byte{0});
          ASSERT_EQ(to[16 + target + length], std::byte{0})
              << length << " " << source << " " << target;
        }
      }
    }
  }
}

// The last word arrives last, and no word is torn: the reader checks every word against the last
// one.
TEST(ShmCopy, WordsAreWholeAndTheLastIsLast) {
  Pair pair;
  constexpr std::uint64_t kWords = 24;
  constexpr std::uint64_t kRounds = 3000;
  pair.cluster.run([&](Env& env) {
    auto* words =
        reinterpret_cast<std::uint64_t*>((env.node() == 0 ? pair.a : pair.b).region->data());
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      const std::uint64_t value = round * 0x0101010101010101ULL;
      if (env.node() == 0) {
        for (std::uint64_t i = 0; i < kWords; ++i) words[100 + i] = value;
        ASSERT_TRUE(
            pair.a.qp->write(pair.a.region->sge(800, kWords * 8), pair.b.region->remote(), 8));
        ASSERT_EQ(pair.a.wait(1).size(), 1U);
        ASSERT_TRUE(env.poll_until([&] { return load_acquire(&words[0]) == value; },
                                   env.now() + 10 * kSecond));
      } else {
        ASSERT_TRUE(env.poll_until([&] { return load_acquire(&words[kWords]) == value; },
                                   env.now() + 10 * kSecond));
        for (std::uint64_t i = 1; i <= kWords; ++i) ASSERT_EQ(load_acquire(&words[i]), value);
        words[200] = value;
        ASSERT_TRUE(
            pair.b.qp->write(pair.b.region->sge(1600, 8), pair.a.region->remote(), 0, 1, 0));
        if (round % 32 == 0) {
          ASSERT_TRUE(pair.b.qp->write(pair.b.region->sge(1600, 8), pair.a.region->remote(), 2000));
          ASSERT_EQ(pair.b.wait(1).size(), 1U);
        }
      }
    }
  });
}

TEST(ShmKeys, AreSparse) {
  Pair pair;
  std::vector<std::unique_ptr<MemoryRegion>> regions;
  for (int i = 0; i < 1000; ++i)
    regions.push_back(pair.b.device().allocate(*pair.b.pd, 64, kAllAccess));
  const std::shared_ptr<Peer> known = pair.a.node().peer(1);
  Peer& peer = *known;
  ASSERT_TRUE(peer.attach());
  FoundRegion found;
  for (const auto& region : regions) ASSERT_TRUE(peer.find_region(region->rkey(), found));
  std::mt19937 random(1);
  int guessed = 0;
  for (int i = 0; i < 200000; ++i)
    guessed += peer.find_region(static_cast<std::uint32_t>(random()), found) ? 1 : 0;
  EXPECT_LE(guessed, 2);  // the expected number is 0.05
  int near = 0;
  for (const auto& region : regions) near += peer.find_region(region->rkey() + 1, found) ? 1 : 0;
  EXPECT_EQ(near, 0);
}

TEST(ShmRegion, IsGoneAtOnceAndItsMemoryIsNotUsedAgain) {
  Pair pair;
  auto region = pair.b.device().allocate(*pair.b.pd, 4096, kAllAccess);
  const RemoteRegion remote = region->remote();
  ASSERT_TRUE(pair.a.qp->write(pair.a.region->sge(0, 64), remote, 0));
  ASSERT_EQ(pair.a.wait(1).at(0).status, Status::kSuccess);
  region.reset();
  ASSERT_TRUE(pair.a.qp->write(pair.a.region->sge(0, 64), remote, 0));
  ASSERT_EQ(pair.a.wait(1).at(0).status, Status::kRemoteAccess);
  for (int i = 0; i < 100; ++i) {
    auto next = pair.b.device().allocate(*pair.b.pd, 4096, kAllAccess);
    ASSERT_NE(next->addr(), remote.addr);
  }
}

TEST(ShmRegion, LargeOnesComeAndGo) {
  Pair pair;
  for (int i = 0; i < 20; ++i) {
    auto region = pair.b.device().allocate(*pair.b.pd, 32 << 20, kAllAccess);
    region->data()[(32 << 20) - 1] = std::byte{7};
    ASSERT_TRUE(pair.a.qp->read(pair.a.region->sge(0, 1), region->remote(), (32 << 20) - 1));
    ASSERT_EQ(pair.a.wait(1).at(0).status, Status::kSuccess);
    ASSERT_EQ(pair.a.region->data()[0], std::byte{7});
  }
}

TEST(ShmWaiting, TheMonitorDeliversWhenNobodyPolls) {
  Pair pair;
  ASSERT_TRUE(pair.a.qp->send(pair.a.region->sge(0, 8)));  // there is no receive yet
  ASSERT_TRUE(pair.b.qp->receive(pair.b.region->sge(0, 64)));
  EXPECT_EQ(pair.b.wait(1).at(0).status, Status::kSuccess);
  EXPECT_EQ(pair.a.wait(1).at(0).status, Status::kSuccess);
}

TEST(ShmWaiting, ManyRequestsKeepTheirOrder) {
  QpOptions options;
  options.max_inline = 64;
  Pair pair(options);
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Sge from{reinterpret_cast<std::uint64_t>(&i), 8, 0};
    ASSERT_TRUE(pair.a.qp->send(from, i, kSignaled | kInline));
  }
  for (std::uint64_t i = 0; i < 100; ++i)
    ASSERT_TRUE(pair.b.qp->receive(pair.b.region->sge(i * 8, 8), i));
  const auto received = pair.b.wait(100);
  const auto sent = pair.a.wait(100);
  ASSERT_EQ(received.size(), 100U);
  ASSERT_EQ(sent.size(), 100U);
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(received[i].wr_id, i);
    EXPECT_EQ(sent[i].wr_id, i);
    EXPECT_EQ(reinterpret_cast<std::uint64_t*>(pair.b.region->data())[i], i);
  }
}

TEST(ShmLock, OfADeadNodeIsTakenOver) {
  Pair pair({}, 3);
  SessionBlock& session = pair.a.node().session();
  SharedLock held{};
  const std::uint32_t self = pair.a.node().holder();
  held.holder = holder_word(2, 0);
  EXPECT_FALSE(session.declare_dead(2, 1));  // the report names another incarnation
  ASSERT_TRUE(session.declare_dead(2, 0));
  EXPECT_FALSE(session.declare_dead(2, 0));
  EXPECT_TRUE(lock(held, self, session));
  EXPECT_EQ(held.holder.load(), self);
}

TEST(ShmLock, OfADeadNodeIsNotItsSuccessors) {
  Pair pair({}, 3);
  SessionBlock& session = pair.a.node().session();
  ASSERT_TRUE(session.declare_dead(2, 0));
  EXPECT_EQ(session.claim(2), 1U);
  EXPECT_THROW(session.claim(2), Error);
  ASSERT_TRUE(session.change(2, 1, NodeState::kAttaching, NodeState::kAttached));
  SharedLock held{};
  held.holder = holder_word(2, 0);
  const Time begin = pair.a.env->now();
  EXPECT_TRUE(lock(held, pair.a.node().holder(), session));
  EXPECT_LT(pair.a.env->now(), begin + kLockTimeout);
  ASSERT_TRUE(session.declare_dead(2, 1));
}

TEST(ShmCluster, NodesOfOneProcessSendToOneSharedQueue) {
  constexpr std::uint32_t kSenders = 3;
  constexpr std::uint64_t kMessages = 5000;
  ShmCluster cluster({kSenders + 1, 1});
  cluster.run([&](Env& env) {
    Device& device = env.device();
    auto pd = device.create_protection_domain();
    auto region = device.allocate(*pd, 1 << 16, kAllAccess);
    auto completions = device.create_completion_queue(2048);
    const Time deadline = env.now() + 30 * kSecond;
    if (env.node() != 0) {
      auto qp = device.create_queue_pair(*pd, *completions, *completions);
      const std::string self = std::to_string(env.node());
      device.rendezvous().publish_value("sender" + self, qp->address());
      qp->connect(device.rendezvous().await_value<QpAddress>("receiver" + self, deadline));
      auto* value = reinterpret_cast<std::uint64_t*>(region->data());
      std::uint64_t done = 0;
      for (std::uint64_t i = 0; i < kMessages; ++i) {
        value[0] = i;
        ASSERT_TRUE(qp->send(region->sge(0, 8)));
        Completion c;
        ASSERT_TRUE(env.poll_until([&] { return completions->poll({&c, 1}) == 1; }, deadline));
        ASSERT_EQ(c.status, Status::kSuccess);
        ++done;
      }
      EXPECT_EQ(done, kMessages);
      return;
    }
    auto receives = device.create_shared_receive_queue(*pd, 64);
    std::vector<std::unique_ptr<QueuePair>> qps;
    for (std::uint32_t sender = 1; sender <= kSenders; ++sender) {
      qps.push_back(device.create_queue_pair(*pd, *completions, *completions, {}, receives.get()));
      const std::string name = std::to_string(sender);
      qps.back()->connect(device.rendezvous().await_value<QpAddress>("sender" + name, deadline));
      device.rendezvous().publish_value("receiver" + name, qps.back()->address());
    }
    const auto post = [&](std::uint64_t slot) {
      const Sge into = region->sge(slot * 64, 64);
      const ReceiveRequest request{slot, &into, 1};
      return receives->post_receive({&request, 1}).accepted == 1;
    };
    for (std::uint64_t slot = 0; slot < 64; ++slot) ASSERT_TRUE(post(slot));
    std::vector<std::uint64_t> next(kSenders, 0);
    for (std::uint64_t got = 0; got < kSenders * kMessages; ++got) {
      Completion c;
      ASSERT_TRUE(env.poll_until([&] { return completions->poll({&c, 1}) == 1; }, deadline));
      ASSERT_EQ(c.status, Status::kSuccess);
      std::uint64_t value = 0;
      std::memcpy(&value, region->data() + c.wr_id * 64, 8);
      for (std::uint32_t i = 0; i < kSenders; ++i) {
        if (qps[i]->qp_num() == c.qp_num) {
          ASSERT_EQ(value, next[i]++);
        }
      }
      ASSERT_TRUE(post(c.wr_id));
    }
  });
}

TEST(ShmCluster, KilledNodeIsUnreachableAndUnwinds) {
  Pair pair;
  bool unwound = false;
  pair.cluster.run([&](Env& env) {
    if (env.node() == 1) {
      try {
        env.poll_until([] { return false; }, kForever);
      } catch (const NodeKilled&) {
        unwound = true;
        throw;
      }
      return;
    }
    env.sleep_until(env.now() + 20 * kMillisecond);
    pair.cluster.kill(1);
    ASSERT_TRUE(pair.a.qp->write(pair.a.region->sge(0, 8), pair.b.region->remote(), 0, 1));
    ASSERT_TRUE(pair.a.qp->write(pair.a.region->sge(0, 8), pair.b.region->remote(), 0, 2));
    const auto completions = pair.a.wait(2);
    ASSERT_EQ(completions.size(), 2U);
    EXPECT_EQ(completions[0].status, Status::kRetryExceeded);
    EXPECT_EQ(completions[1].status, Status::kFlushed);
  });
  EXPECT_TRUE(unwound);
}

TEST(ShmCluster, StopEndsARun) {
  ShmCluster cluster({2, 1});
  EXPECT_THROW(cluster.run([&](Env& env) {
    if (env.node() == 0) cluster.request_stop();
    env.poll_until([] { return false; }, kForever);
  }),
               Error);
  cluster.run([](Env& env) { env.sleep_until(env.now() + kMillisecond); });  // the next run works
}

TEST(ShmRendezvous, NamesDeadNodesAndKeepsFirstValues) {
  ShmCluster cluster({3, 1});
  Rendezvous& meeting = cluster.env(0).device().rendezvous();
  meeting.publish_value("key", 1);
  meeting.publish_value("key", 1);
  EXPECT_THROW(meeting.publish_value("key", 2), Error);
  EXPECT_EQ(cluster.env(1).device().rendezvous().await_value<int>("key", kForever), 1);
  EXPECT_THROW(meeting.publish(std::string(Rendezvous::kMaxKey + 1, 'k'), {}), Error);
  cluster.kill(2);
  EXPECT_TRUE(
      refuses([&] { meeting.await("never", kForever); }, ErrorCode::kUnavailable, {"never", "2"}));
}

}  // namespace
}  // namespace pyrdma::fabric::shm
