// Tests of each behaviour of the weak memory model and of the faults of the simulated fabric. Every
// permitted behaviour happens, and no other.
#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "fabric/contract_worlds_test.h"

namespace pyrdma::fabric::sim {
namespace {

SimOptions options(MemoryModel memory, std::uint64_t seed, std::uint32_t nodes = 2) {
  SimOptions result;
  result.nodes = nodes;
  result.profile = test_profile();
  result.memory = memory;
  result.seed = seed;
  return result;
}

class SeededWorld final : public World {
 public:
  explicit SeededWorld(SimOptions wanted) : cluster(std::move(wanted)) {}
  Env& env(NodeId node) override { return cluster.env(node); }
  void kill(NodeId node) override { cluster.kill(node); }
  SimCluster cluster;
};

/// Two nodes and one connection. The test's own thread drives both nodes.
struct SeededPair {
  explicit SeededPair(SimOptions wanted, QpOptions qp = {})
      : world(std::move(wanted)), a(world, 0), b(world, 1) {
    qa = a.queue_pair(qp);
    qb = b.queue_pair(qp);
    qa->connect(qb->address());
    qb->connect(qa->address());
  }
  void write(std::size_t from, std::uint32_t bytes, std::size_t to) {
    ASSERT_TRUE(qa->write(a.memory->sge(from, bytes), b.memory->remote(), to));
  }
  void wait(Time ns) { a.env.sleep_until(a.env.now() + ns); }
  SeededWorld world;
  Side a, b;
  std::unique_ptr<QueuePair> qa, qb;
};

TEST(WeakMemory, ACompletedWriteMayBeInvisibleUntilAReadOrTheBound) {
  int late = 0, drained = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SeededPair pair(options(MemoryModel::weak(), seed));
    *pair.a.word(0) = 7;
    pair.write(0, 8, 0);
    ASSERT_EQ(pair.a.await_send().status, Status::kSuccess);
    const bool seen = pair.b.load_word(0) == 7;
    late += !seen;
    if (seed % 2 == 0) {
      ASSERT_TRUE(pair.qa->read(pair.a.memory->sge(64, 8), pair.b.memory->remote(), 64));
      ASSERT_EQ(pair.a.await_send().status, Status::kSuccess);
      drained += !seen;
    } else {
      pair.wait(MemoryModel::weak().max_delay_ns);
    }
    EXPECT_EQ(pair.b.load_word(0), 7u) << "seed " << seed;
  }
  EXPECT_GT(late, 10);
  EXPECT_GT(drained, 5);
}

TEST(WeakMemory, StrongWritesAreVisibleAtCompletion) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SeededPair pair(options(MemoryModel::strong(), seed));
    *pair.a.word(0) = 7;
    pair.write(0, 8, 0);
    ASSERT_EQ(pair.a.await_send().status, Status::kSuccess);
    EXPECT_EQ(pair.b.load_word(0), 7u);
  }
}

/// Writes two words at b in order and watches them until both are visible. Returns the counts of
/// the orders seen.
std::array<int, 2> watch_two_words(MemoryModel memory, std::uint32_t access) {
  std::array<int, 2> seen{};  // [0]: the first word alone, [1]: the second alone
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SeededPair pair(options(memory, seed));
    auto region = pair.b.device.allocate(*pair.b.pd, 4096, access);
    auto* words = reinterpret_cast<std::uint64_t*>(region->data());
    *pair.a.word(0) = 1;
    for (const std::size_t at : {0U, 2048U})
      EXPECT_TRUE(pair.qa->write(pair.a.memory->sge(0, 8), region->remote(), at));
    const Time end = pair.a.env.now() + 20 * kMicrosecond;
    while (pair.a.env.now() < end && (words[0] == 0 || words[256] == 0)) {
      pair.wait(10);
      seen[0] += words[0] == 1 && words[256] == 0;
      seen[1] += words[0] == 0 && words[256] == 1;
    }
  }
  return seen;
}

TEST(WeakMemory, WritesOfOneQueuePairBecomeVisibleInOrderUnlessRelaxed) {
  const auto ordered = watch_two_words(MemoryModel::weak(), kAllAccess);
  EXPECT_GT(ordered[0], 0);
  EXPECT_EQ(ordered[1], 0);
  const auto relaxed = watch_two_words(MemoryModel::weak(), kAllAccess | kRelaxedOrdering);
  EXPECT_GT(relaxed[1], 0);
  MemoryModel broken = MemoryModel::weak();
  broken.mutation = MemoryMutation::kUnorderedWrites;
  EXPECT_GT(watch_two_words(broken, kAllAccess)[1], 0);
}

/// Writes a word to b's host memory and then a word to b's NIC memory on one queue pair. With
/// `read_between`, a read of no bytes stands between the writes. Returns the number of runs in
/// which the second word was visible before the first.
int count_overtaken(MemoryModel memory, bool read_between) {
  int overtaken = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SeededPair pair(options(memory, seed));
    auto on_nic = pair.b.device.allocate_device_memory(*pair.b.pd, 64, kAllAccess);
    auto q1 = pair.a.queue_pair(), q2 = pair.b.queue_pair();
    q1->connect(q2->address());
    q2->connect(q1->address());
    *pair.a.word(0) = 1;
    pair.write(0, 8, 0);
    if (read_between) {
      EXPECT_TRUE(pair.qa->read(pair.a.memory->sge(64, 0), pair.b.memory->remote(), 0));
    }
    EXPECT_TRUE(pair.qa->write(pair.a.memory->sge(0, 8), on_nic->remote(), 0));
    for (int unanswered = read_between ? 3 : 2; unanswered > 0; --unanswered) pair.a.await_send();
    EXPECT_TRUE(q1->read(pair.a.memory->sge(8, 8), on_nic->remote(), 0));
    EXPECT_EQ(pair.a.await_send().status, Status::kSuccess);
    EXPECT_EQ(*pair.a.word(8), 1U) << "seed " << seed;
    overtaken += pair.b.load_word(0) == 0;
  }
  return overtaken;
}

TEST(WeakMemory, AWordOnTheNicMayOvertakeOneOnItsWayToTheHost) {
  EXPECT_GT(count_overtaken(MemoryModel::weak(), false), 5);
  EXPECT_EQ(count_overtaken(MemoryModel::weak(), true), 0);
  EXPECT_EQ(count_overtaken(MemoryModel::strong(), false), 0);
}

TEST(WeakMemory, LongWritesAreTornInAnyOrderButNeverAWord) {
  int middle_missing = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SeededPair pair(options(MemoryModel::weak(), seed));
    constexpr std::uint32_t kBytes = 1020, kAt = 4;  // the write's ends cut words in two
    for (std::uint32_t i = 0; i < kBytes; ++i) pair.a.memory->data()[i] = std::byte{0xff};
    pair.write(0, kBytes, kAt);
    for (int look = 0; look < 400; ++look) {
      pair.wait(10);
      bool hole = false, after_hole = false;
      for (std::size_t word = 8; word < kBytes; word += 8) {
        const std::uint64_t value = pair.b.load_word(word);
        ASSERT_TRUE(value == 0 || value == ~0ULL) << "seed " << seed << ", word " << word;
        hole = hole || value == 0;
        after_hole = after_hole || (hole && value != 0);
      }
      middle_missing += after_hole;
    }
    EXPECT_EQ(pair.b.load_word(1016), ~0ULL);
    EXPECT_EQ(pair.b.load_word(1024), 0u) << "the write changed bytes beyond its end";
    EXPECT_EQ(pair.b.load_word(0), 0xffffffff00000000u);
  }
  EXPECT_GT(middle_missing, 0);
}

TEST(WeakMemory, TheSourceMayBeReadLateUnlessInline) {
  int late = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    QpOptions qp;
    qp.max_inline = 64;
    SeededPair pair(options(MemoryModel::weak(), seed), qp);
    *pair.a.word(0) = 1;
    *pair.a.word(8) = 1;
    pair.write(0, 8, 0);
    ASSERT_TRUE(pair.qa->write(pair.a.memory->sge(8, 8), pair.b.memory->remote(), 8, 0,
                               kSignaled | kInline));
    pair.wait(700);  // the NIC has usually fetched the source by then
    *pair.a.word(0) = 2;
    *pair.a.word(8) = 2;
    pair.a.await_send();
    pair.a.await_send();
    pair.wait(10 * kMicrosecond);
    late += pair.b.load_word(0) == 2;
    EXPECT_EQ(pair.b.load_word(8), 1u);
  }
  EXPECT_GT(late, 10);
  EXPECT_LT(late, 190);
}

TEST(WeakMemory, AtomicsAreAtomicAmongOneNicAndNotWithTheCpu) {
  int lost = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SeededPair pair(options(MemoryModel::weak(), seed));
    auto q2 = pair.a.queue_pair();
    auto p2 = pair.b.queue_pair();
    q2->connect(p2->address());
    p2->connect(q2->address());
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(pair.qa->fetch_add(pair.a.memory->sge(0, 8), pair.b.memory->remote(), 0, 1));
      ASSERT_TRUE(q2->fetch_add(pair.a.memory->sge(8, 8), pair.b.memory->remote(), 0, 1));
    }
    for (int i = 0; i < 8; ++i) ASSERT_EQ(pair.a.await_send().status, Status::kSuccess);
    pair.wait(10 * kMicrosecond);
    EXPECT_EQ(pair.b.load_word(0), 8u) << "seed " << seed;
    // The CPU increments the word at the same time. Some of its increments may be lost.
    ASSERT_TRUE(pair.qa->fetch_add(pair.a.memory->sge(0, 8), pair.b.memory->remote(), 64, 100));
    for (int i = 0; i < 300; ++i) {
      pair.wait(10);
      *pair.b.word(64) += 1;
    }
    pair.a.await_send();
    pair.wait(10 * kMicrosecond);
    EXPECT_GE(pair.b.load_word(64), 100u);
    lost += pair.b.load_word(64) < 400;
  }
  EXPECT_GT(lost, 10);
}

TEST(WeakMemory, AReadIsSampledAtMoreThanOneMoment) {
  int torn = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SeededPair pair(options(MemoryModel::weak(), seed));
    ASSERT_TRUE(pair.qa->read(pair.a.memory->sge(0, 1024), pair.b.memory->remote(), 0));
    for (std::uint64_t value = 1; value < 400; ++value) {
      pair.wait(5);
      for (std::size_t word = 0; word < 1024; word += 8) *pair.b.word(word) = value;
    }
    ASSERT_EQ(pair.a.await_send().status, Status::kSuccess);
    torn += *pair.a.word(0) != *pair.a.word(512) || *pair.a.word(8) != *pair.a.word(1016);
  }
  EXPECT_GT(torn, 10);
}

TEST(WeakMemory, AReadsDataMayLandBeforeItsCompletionAndNeverAfter) {
  int early = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SeededPair pair(options(MemoryModel::weak(), seed));
    for (std::size_t word = 0; word < 512; word += 8) *pair.b.word(word) = 1;
    ASSERT_TRUE(pair.qa->read(pair.a.memory->sge(0, 512), pair.b.memory->remote(), 0));
    Completion completion;
    for (bool done = false; !done;) {
      pair.wait(10);
      int landed = 0;
      for (std::size_t word = 0; word < 512; word += 8) landed += *pair.a.word(word) == 1;
      done = pair.a.sends->poll({&completion, 1}) == 1;
      early += !done && landed > 0 && landed < 64;
    }
    for (std::size_t word = 0; word < 512; word += 8) ASSERT_EQ(*pair.a.word(word), 1u);
  }
  EXPECT_GT(early, 10);
}

}  // namespace
}  // namespace pyrdma::fabric::sim
