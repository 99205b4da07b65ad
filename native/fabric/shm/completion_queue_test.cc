// Completion queues that overrun, and the order of the two kinds of completions.
#include <gtest/gtest.h>

#include "fabric/shm/pair_test.h"

namespace pyrdma::fabric::shm {
namespace {

constexpr std::uint32_t kEntries = 4;

/// Two nodes with two pairs of queue pairs. Those of b share a short queue.
struct Short {
  explicit Short(Transport transport = Transport::kRc) {
    QpOptions options;
    options.transport = transport;
    a.make(cluster.env(0), options);
    b.make(cluster.env(1), options);
    small = b.device().create_completion_queue(kEntries);
    for (std::size_t i = 0; i < 2; ++i) {
      from.push_back(a.device().create_queue_pair(*a.pd, *a.completions, *a.completions, options));
      to.push_back(b.device().create_queue_pair(*b.pd, *small, *small, options));
      from[i]->connect(to[i]->address());
      to[i]->connect(from[i]->address());
      for (int k = 0; k < 8; ++k) EXPECT_TRUE(to[i]->receive(b.region->sge(0, 64)));
    }
  }
  Status send(std::size_t i) {
    EXPECT_TRUE(from[i]->send(a.region->sge(0, 8)));
    const auto got = a.wait(1);
    return got.size() == 1 ? got[0].status : Status::kGeneral;
  }
  std::size_t polled() {
    Completion batch[16];
    return small->poll(batch);
  }

  ShmCluster cluster{{2, 1}};
  End a, b;
  std::unique_ptr<CompletionQueue> small;
  std::vector<std::unique_ptr<QueuePair>> from, to;
};

TEST(ShmOverrun, AMessageWhoseCompletionIsLostIsNoSuccess) {
  Short test;
  for (std::uint32_t i = 0; i < kEntries; ++i) EXPECT_EQ(test.send(0), Status::kSuccess);
  EXPECT_FALSE(test.small->overrun());
  EXPECT_EQ(test.send(0), Status::kRemoteOperation);
  EXPECT_TRUE(test.small->overrun());
  EXPECT_EQ(test.from[0]->state(), QpState::kError);
  EXPECT_EQ(test.to[0]->state(), QpState::kError);
  EXPECT_EQ(test.send(0), Status::kFlushed);
  EXPECT_EQ(test.polled(), 0U);
  // The other queue pair of the queue serves until it needs an entry.
  EXPECT_EQ(test.to[1]->state(), QpState::kReadyToSend);
  ASSERT_TRUE(test.from[1]->write(test.a.region->sge(0, 8), test.b.region->remote(), 0));
  EXPECT_EQ(test.a.wait(1).at(0).status, Status::kSuccess);
  EXPECT_EQ(test.send(1), Status::kRemoteOperation);
  EXPECT_EQ(test.to[1]->state(), QpState::kError);
}

TEST(ShmOverrun, ASenderWhoseCompletionIsLostIsInError) {
  Short test;
  const auto write = [&](std::size_t i) {
    return test.to[i]->write(test.b.region->sge(0, 8), test.a.region->remote(), 0);
  };
  for (std::uint32_t i = 0; i < kEntries; ++i) EXPECT_TRUE(write(0));
  EXPECT_EQ(test.to[0]->state(), QpState::kReadyToSend);
  EXPECT_TRUE(write(0));
  EXPECT_TRUE(test.small->overrun());
  EXPECT_EQ(test.to[0]->state(), QpState::kError);
  EXPECT_EQ(test.to[1]->state(), QpState::kReadyToSend);
  EXPECT_TRUE(write(1));
  EXPECT_EQ(test.to[1]->state(), QpState::kError);
  EXPECT_EQ(test.polled(), 0U);
}

TEST(ShmOverrun, EachCompletionOfABatchNeedsAnEntry) {
  Short test;
  const Sge sge = test.b.region->sge(0, 8);
  WorkRequest request;
  request.sges = &sge;
  request.sge_count = 1;
  request.remote_addr = test.a.region->addr();
  request.rkey = test.a.region->rkey();
  const std::vector<WorkRequest> batch(kEntries + 1, request);
  EXPECT_EQ(test.to[0]->post({batch.data(), kEntries}).accepted, kEntries);
  EXPECT_EQ(test.to[0]->state(), QpState::kReadyToSend);
  EXPECT_EQ(test.polled(), kEntries);
  test.to[0]->post(batch);
  EXPECT_EQ(test.to[0]->state(), QpState::kError);
  EXPECT_TRUE(test.small->overrun());
}

TEST(ShmOverrun, AnUnreliableSenderDoesNotSeeIt) {
  Short test(Transport::kUc);
  for (std::uint32_t i = 0; i < kEntries + 2; ++i) EXPECT_EQ(test.send(0), Status::kSuccess);
  EXPECT_TRUE(test.small->overrun());
  EXPECT_EQ(test.to[0]->state(), QpState::kError);
  EXPECT_EQ(test.from[0]->state(), QpState::kReadyToSend);
}

TEST(ShmCompletions, NeitherKindWaitsForTheOther) {
  Pair pair;
  for (std::uint64_t i = 0; i < 64; ++i) {
    ASSERT_TRUE(pair.a.receive(pair.a.region->sge(0, 64)));
    ASSERT_TRUE(pair.b.qp->send(pair.b.region->sge(0, 8)));
  }
  int receives = 0, writes = 0;
  for (int i = 0; i < 128; ++i) {  // one more write for each poll of one
    ASSERT_TRUE(pair.a.qp->write(pair.a.region->sge(0, 8), pair.b.region->remote(), 0));
    Completion completion;
    ASSERT_EQ(pair.a.completions->poll({&completion, 1}), 1U);
    ++(completion.opcode == Opcode::kReceive ? receives : writes);
  }
  EXPECT_EQ(receives, 64);
  EXPECT_EQ(writes, 64);
}

}  // namespace
}  // namespace pyrdma::fabric::shm
