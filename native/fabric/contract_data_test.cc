// The fabric's contract, run unchanged on every provider: data, order and completions.
#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "fabric/contract_worlds_test.h"

namespace pyrdma::fabric {
namespace {

INSTANTIATE_TEST_SUITE_P(Worlds, FabricContract, contract_worlds(),
                         [](const auto& info) { return info.param; });

TEST_P(FabricContract, WriteOfAnySizeArrives) {
  connect();
  unsigned seed = 1;
  for (const std::uint32_t size :
       {0u, 1u, 7u, 8u, 63u, 64u, 65u, 1000u, 4096u, 5000u, 16385u, 60000u}) {
    a->fill(0, size, ++seed);
    b->fill(0, size + 8, 0);
    const std::uint64_t after = b->load_word((size + 15) / 8 * 8);
    ASSERT_TRUE(qa->write(a->memory->sge(0, size), b->memory->remote(), 0, size));
    expect_send(size);
    ASSERT_TRUE(qa->read(a->memory->sge(70000, 8), b->memory->remote(), 0, 1));  // drains the write
    expect_send(1);
    EXPECT_TRUE(b->matches(0, size, seed)) << size << " bytes";
    EXPECT_EQ(b->load_word((size + 15) / 8 * 8), after) << "beyond a write of " << size << " bytes";
  }
}

TEST_P(FabricContract, WriteIsSeenByAPollingTarget) {
  connect();
  *a->word(0) = 77;
  ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 64));
  EXPECT_TRUE(b->await_word(64, 77));
}

TEST_P(FabricContract, ReadReturnsTheTargetsMemory) {
  connect();
  for (const std::uint32_t size : {1u, 8u, 64u, 4097u, 50000u}) {
    b->fill(100, size, size);
    ASSERT_TRUE(qa->read(a->memory->sge(0, size), b->memory->remote(), 100, size));
    expect_send(size);
    EXPECT_TRUE(a->matches(0, size, size)) << size << " bytes";
  }
}

TEST_P(FabricContract, AMegabyteBothWays) {
  start();
  Side x(*world, 0, 2 << 20), y(*world, 1, 2 << 20);
  auto qx = x.queue_pair(), qy = y.queue_pair();
  qx->connect(qy->address());
  qy->connect(qx->address());
  x.fill(0, 1 << 20, 5);
  ASSERT_TRUE(qx->write(x.memory->sge(0, 1 << 20), y.memory->remote(), 16, 1));
  EXPECT_EQ(x.await_send().status, Status::kSuccess);
  ASSERT_TRUE(qx->read(x.memory->sge(1 << 20, 1 << 20), y.memory->remote(), 16, 2));
  EXPECT_EQ(x.await_send().status, Status::kSuccess);
  EXPECT_TRUE(x.matches(1 << 20, 1 << 20, 5));
}

TEST_P(FabricContract, FetchAddReturnsTheOldValue) {
  connect();
  *b->word(8) = 40;
  ASSERT_TRUE(qa->fetch_add(a->memory->sge(0, 8), b->memory->remote(), 8, 2, 5));
  expect_send(5);
  EXPECT_EQ(*a->word(0), 40u);
  EXPECT_EQ(b->load_word(8), 42u);
}

TEST_P(FabricContract, CompareSwapSwapsOnlyTheExpectedValue) {
  connect();
  *b->word(8) = 40;
  ASSERT_TRUE(qa->compare_swap(a->memory->sge(0, 8), b->memory->remote(), 8, 39, 1, 1));
  expect_send(1);
  EXPECT_EQ(*a->word(0), 40u);
  EXPECT_EQ(b->load_word(8), 40u);
  ASSERT_TRUE(qa->compare_swap(a->memory->sge(0, 8), b->memory->remote(), 8, 40, 99, 2));
  expect_send(2);
  EXPECT_EQ(*a->word(0), 40u);
  EXPECT_EQ(b->load_word(8), 99u);
}

TEST_P(FabricContract, AFailedCompareSwapStoresNothing) {
  start(3);
  if (world->env(0).device().capabilities().swaps_lose_writes)
    GTEST_SKIP() << "the device writes the old value again when a swap fails";
  Side target(*world, 0), swapper(*world, 1), writer(*world, 2);
  auto swaps = swapper.queue_pair(), writes = writer.queue_pair();
  auto from_swaps = target.queue_pair(), from_writes = target.queue_pair();
  for (const auto& [one, other] : {std::pair{&swaps, &from_swaps}, {&writes, &from_writes}}) {
    (*one)->connect((*other)->address());
    (*other)->connect((*one)->address());
  }
  std::atomic<bool> over{false};
  const auto thread = swapper.env.spawn("swaps", [&] {
    while (!over.load()) {
      if (!swaps->compare_swap(swapper.memory->sge(0, 8), target.memory->remote(), 0, ~0ULL, 0) ||
          swapper.await_send().status != Status::kSuccess)
        break;
    }
  });
  std::uint64_t lost = 0;
  for (std::uint64_t round = 1; round <= 3000; ++round) {
    *writer.word(0) = round;
    EXPECT_TRUE(writes->write(writer.memory->sge(0, 8), target.memory->remote(), 0));
    EXPECT_EQ(writer.await_send().status, Status::kSuccess);
    EXPECT_TRUE(writes->read(writer.memory->sge(8, 8), target.memory->remote(), 0));
    EXPECT_EQ(writer.await_send().status, Status::kSuccess);
    if (*writer.word(8) != round) ++lost;
  }
  over.store(true);
  thread->join();
  EXPECT_EQ(lost, 0u) << "writes";
}

TEST_P(FabricContract, AtomicsOfManyNodesAreAtomic) {
  start(4);
  Side target(*world, 0);
  std::vector<std::unique_ptr<Side>> sides;
  std::vector<std::unique_ptr<QueuePair>> queue_pairs, targets;
  for (NodeId node = 1; node < 4; ++node) {
    sides.push_back(std::make_unique<Side>(*world, node));
    queue_pairs.push_back(sides.back()->queue_pair());
    targets.push_back(target.queue_pair());
    queue_pairs.back()->connect(targets.back()->address());
    targets.back()->connect(queue_pairs.back()->address());
  }
  std::vector<std::uint64_t> seen;
  for (int round = 0; round < 20; ++round) {
    for (std::size_t i = 0; i < 3; ++i)
      ASSERT_TRUE(
          queue_pairs[i]->fetch_add(sides[i]->memory->sge(0, 8), target.memory->remote(), 0, 1));
    for (auto& side : sides) {
      ASSERT_EQ(side->await_send().status, Status::kSuccess);
      seen.push_back(*side->word(0));
    }
  }
  std::sort(seen.begin(), seen.end());
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], i);
  EXPECT_EQ(target.load_word(0), 60u);
}

TEST_P(FabricContract, SendsMeetReceivesInOrder) {
  connect();
  for (std::uint64_t i = 0; i < 8; ++i)
    ASSERT_TRUE(qb->receive(b->memory->sge(i * 64, 64), 100 + i));
  for (std::uint64_t i = 0; i < 8; ++i) {
    *a->word(i * 64) = i + 1;
    ASSERT_TRUE(qa->send(a->memory->sge(i * 64, 8 + static_cast<std::uint32_t>(i)), i));
  }
  for (std::uint64_t i = 0; i < 8; ++i) {
    expect_send(i);
    const Completion completion = b->await_receive();
    EXPECT_EQ(completion.wr_id, 100 + i);
    EXPECT_EQ(completion.status, Status::kSuccess);
    EXPECT_EQ(completion.opcode, Opcode::kReceive);
    EXPECT_EQ(completion.byte_count, 8 + i);
    EXPECT_EQ(completion.qp_num, qb->qp_num());
    EXPECT_EQ(completion.flags & kHasImmediate, 0);
    EXPECT_EQ(b->load_word(i * 64), i + 1);
  }
}

TEST_P(FabricContract, ImmediateDataTravelsWithSendsAndWrites) {
  connect();
  ASSERT_TRUE(qb->receive(b->memory->sge(0, 64), 1));
  ASSERT_TRUE(qb->receive(b->memory->sge(0, 64), 2));
  const Sge sge = a->memory->sge(0, 8);
  WorkRequest requests[2];
  for (auto& request : requests) {
    request.sges = &sge;
    request.sge_count = 1;
    request.immediate = 0xdeadbeef;
  }
  requests[0].opcode = Opcode::kSendImm;
  requests[1].opcode = Opcode::kWriteImm;
  requests[1].remote_addr = b->memory->addr() + 512;
  requests[1].rkey = b->memory->rkey();
  *a->word(0) = 321;
  ASSERT_EQ(qa->post(requests).accepted, 2u);
  Completion completion = b->await_receive();
  EXPECT_EQ(completion.opcode, Opcode::kReceive);
  EXPECT_EQ(completion.immediate, 0xdeadbeefu);
  completion = b->await_receive();
  EXPECT_EQ(completion.opcode, Opcode::kReceiveWriteImm);
  EXPECT_EQ(completion.wr_id, 2u);
  EXPECT_NE(completion.flags & kHasImmediate, 0);
  EXPECT_EQ(completion.byte_count, 8u);
  EXPECT_EQ(b->load_word(512), 321u);
}

TEST_P(FabricContract, ScatterAndGather) {
  connect();
  a->fill(0, 300, 3);
  const Sge gather[] = {a->memory->sge(0, 100), a->memory->sge(100, 1), a->memory->sge(101, 199)};
  const Sge scatter[] = {b->memory->sge(1000, 150), b->memory->sge(1150, 150)};
  const ReceiveRequest receive{9, scatter, 2};
  ASSERT_EQ(qb->post_receive({&receive, 1}).accepted, 1u);
  WorkRequest request;
  request.sges = gather;
  request.sge_count = 3;
  request.opcode = Opcode::kSend;
  ASSERT_EQ(qa->post({&request, 1}).accepted, 1u);
  EXPECT_EQ(b->await_receive().byte_count, 300u);
  EXPECT_TRUE(b->matches(1000, 300, 3));
  request.opcode = Opcode::kRead;
  request.remote_addr = b->memory->addr() + 1000;
  request.rkey = b->memory->rkey();
  a->fill(0, 300, 0);
  ASSERT_EQ(qa->post({&request, 1}).accepted, 1u);
  expect_send(0);
  expect_send(0);
  EXPECT_TRUE(a->matches(0, 300, 3));
}

TEST_P(FabricContract, InlineBuffersMayBeReusedAtOnce) {
  QpOptions options;
  options.max_inline = 64;
  connect(options);
  const Sge sge{reinterpret_cast<std::uint64_t>(a->word(0)), 8, 0};  // no lkey needed
  for (std::uint64_t i = 0; i < 10; ++i) {
    *a->word(0) = 1000 + i;
    ASSERT_TRUE(qa->write(sge, b->memory->remote(), i * 8, i, kSignaled | kInline));
    *a->word(0) = 0;
  }
  for (std::uint64_t i = 0; i < 10; ++i) expect_send(i);
  EXPECT_TRUE(b->await_word(72, 1009));
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(b->load_word(i * 8), 1000 + i);
}

TEST_P(FabricContract, OnlySignaledRequestsComplete) {
  connect();
  for (std::uint64_t i = 0; i < 9; ++i)
    ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 0, i, i == 8 ? kSignaled : 0));
  expect_send(8);
  EXPECT_TRUE(a->quiet(*a->sends));
}

TEST_P(FabricContract, AFullSendQueueIsBackPressure) {
  QpOptions options;
  options.send_entries = 16;
  connect(options);
  const Sge sge = a->memory->sge(0, 8);
  std::vector<WorkRequest> requests(40);
  for (auto& request : requests) {
    request.sges = &sge;
    request.sge_count = 1;
    request.remote_addr = b->memory->addr();
    request.rkey = b->memory->rkey();
  }
  const PostResult result = qa->post(requests);
  EXPECT_GE(result.accepted, 16u);
  EXPECT_LT(result.accepted, 40u);
  EXPECT_EQ(result.error, PostError::kQueueFull);
  for (std::uint32_t i = 0; i < result.accepted; ++i) expect_send(0);
  EXPECT_EQ(qa->post({requests.data(), 10}).accepted, 10u) << "polling gives the slots back";
}

TEST_P(FabricContract, AWriteIsVisibleBeforeALaterSendIsReceived) {
  connect();
  for (std::uint64_t round = 1; round <= 50; ++round) {
    ASSERT_TRUE(qb->receive(b->memory->sge(0, 8), round));
    a->fill(4096, 2048, static_cast<unsigned>(round));
    ASSERT_TRUE(qa->write(a->memory->sge(4096, 2048), b->memory->remote(), 4096, 0, 0));
    ASSERT_TRUE(qa->send(a->memory->sge(0, 8), round));
    ASSERT_EQ(b->await_receive().wr_id, round);
    ASSERT_TRUE(b->matches(4096, 2048, static_cast<unsigned>(round)));
    expect_send(round);
  }
}

TEST_P(FabricContract, ALaterReadSeesEarlierWritesAndAtomics) {
  connect();
  for (std::uint64_t round = 1; round <= 50; ++round) {
    *a->word(0) = round;
    ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 0, 1, 0));
    ASSERT_TRUE(qa->fetch_add(a->memory->sge(8, 8), b->memory->remote(), 0, 1000, 2, 0));
    ASSERT_TRUE(qa->read(a->memory->sge(16, 8), b->memory->remote(), 0, 3));
    expect_send(3);
    EXPECT_EQ(*a->word(8), round);
    EXPECT_EQ(*a->word(16), round + 1000);
  }
}

TEST_P(FabricContract, AReadIsNotOvertakenByALaterWrite) {
  connect();
  for (std::uint64_t round = 1; round <= 50; ++round) {
    const std::uint64_t at = round * 8;  // an earlier round's write may still be in flight
    *b->word(at) = round;
    *a->word(0) = 0;
    ASSERT_TRUE(qa->read(a->memory->sge(8, 8), b->memory->remote(), at, 1));
    ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), at, 2));
    expect_send(1);
    expect_send(2);
    EXPECT_EQ(*a->word(8), round);
  }
}

TEST_P(FabricContract, ALongReadIsNotOvertakenByTheAnswersBehindIt) {
  connect();
  b->fill(0, 60000, 3);
  for (std::uint64_t i = 0; i < 3; ++i) {
    a->fill(0, 60000, 0);
    ASSERT_TRUE(qa->read(a->memory->sge(0, 60000), b->memory->remote(), 0, 1,
                         static_cast<std::uint8_t>(i == 0 ? kSignaled : 0)));
    ASSERT_TRUE(qa->read(a->memory->sge(65536, 30000), b->memory->remote(), 0, 2));
    ASSERT_TRUE(qa->write(a->memory->sge(0, 0), b->memory->remote(), 0, 3));
    if (i == 0) expect_send(1);
    expect_send(2);
    EXPECT_TRUE(a->matches(0, 60000, 3));
    EXPECT_TRUE(a->matches(65536, 30000, 3));
    expect_send(3);
  }
}

TEST_P(FabricContract, ManyReadsBeyondTheOutstandingLimitComplete) {
  QpOptions options;
  options.max_outstanding_reads = 2;
  connect(options);
  for (std::uint64_t i = 0; i < 64; ++i) {
    *b->word(i * 8) = i + 1;
    ASSERT_TRUE(qa->read(a->memory->sge(i * 8, 8), b->memory->remote(), i * 8, i));
  }
  for (std::uint64_t i = 0; i < 64; ++i) expect_send(i);
  for (std::uint64_t i = 0; i < 64; ++i) EXPECT_EQ(*a->word(i * 8), i + 1);
}

TEST_P(FabricContract, ReadsKeepToTheLimitOfThePeer) {
  start();
  a = std::make_unique<Side>(*world, 0);
  b = std::make_unique<Side>(*world, 1);
  QpOptions many, one;
  many.max_outstanding_reads = std::min(16U, a->device.capabilities().max_outstanding_reads);
  one.max_outstanding_reads = 1;
  qa = a->queue_pair(many);
  qb = b->queue_pair(one);
  EXPECT_EQ(qa->address().reads, many.max_outstanding_reads);
  EXPECT_EQ(qb->address().reads, 1u);
  qa->connect(qb->address());
  qb->connect(qa->address());
  for (std::uint64_t i = 0; i < 32; ++i) {
    *b->word(i * 8) = i + 1;
    if (i % 2 == 0)
      ASSERT_TRUE(qa->read(a->memory->sge(i * 8, 8), b->memory->remote(), i * 8, i));
    else
      ASSERT_TRUE(qa->fetch_add(a->memory->sge(i * 8, 8), b->memory->remote(), i * 8, 1, i));
  }
  for (std::uint64_t i = 0; i < 32; ++i) expect_send(i);
  for (std::uint64_t i = 0; i < 32; ++i) EXPECT_EQ(*a->word(i * 8), i + 1);
}

TEST_P(FabricContract, AFencedRequestWaitsForEarlierReads) {
  connect();
  *b->word(0) = 5;
  ASSERT_TRUE(qa->read(a->memory->sge(0, 8), b->memory->remote(), 0, 1, 0));
  ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 64, 2, kSignaled | kFence));
  expect_send(2);
  EXPECT_TRUE(b->await_word(64, 5)) << "the write sends the data of the read";
}

}  // namespace
}  // namespace pyrdma::fabric
