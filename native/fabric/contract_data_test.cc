// The fabric's contract, run unchanged on every provider: data, order and completions.
#include <algorithm>

#include "base/error.h"
#include "fabric/contract_worlds_test.h"

namespace pyrdma::fabric {
namespace {

INSTANTIATE_TEST_SUITE_P(Worlds, FabricContract, testing::Values("sim", "shm"),
                         [](const auto& info) { return info.param; });

TEST_P(FabricContract, WriteOfAnySizeArrives) {
  connect();
  unsigned seed = 1;
  for (const std::uint32_t size : {0u, 1u, 7u, 8u, 63u, 64u, 65u, 1000u, 4096u, 5000u, 16385u, 60000u}) {
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
      ASSERT_TRUE(queue_pairs[i]->fetch_add(sides[i]->memory->sge(0, 8), target.memory->remote(), 0, 1));
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
  for (std::uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(qb->receive(b->memory->sge(i * 64, 64), 100 + i));
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
    *b->word(0) = round;
    *a->word(0) = 0;
    ASSERT_TRUE(qa->read(a->memory->sge(8, 8), b->memory->remote(), 0, 1));
    ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 0, 2));
    expect_send(1);
    expect_send(2);
    EXPECT_EQ(*a->word(8), round);
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

TEST_P(FabricContract, AFencedRequestWaitsForEarlierReads) {
  connect();
  *b->word(0) = 5;
  ASSERT_TRUE(qa->read(a->memory->sge(0, 8), b->memory->remote(), 0, 1, 0));
  ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 64, 2, kSignaled | kFence));
  expect_send(2);
  EXPECT_TRUE(b->await_word(64, 5)) << "the write sends what the read brought";
}

TEST_P(FabricContract, UnreliableConnectionsWriteAndSend) {
  start();
  if (!world->env(0).device().capabilities().uc) GTEST_SKIP() << "the device has no UC";
  QpOptions options;
  options.transport = Transport::kUc;
  connect(options);
  *a->word(0) = 6;
  ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 8, 1));
  expect_send(1);
  EXPECT_TRUE(b->await_word(8, 6));
  EXPECT_TRUE(qa->send(a->memory->sge(0, 8), 2)) << "nobody receives it";
  expect_send(2);
  ASSERT_TRUE(qb->receive(b->memory->sge(64, 8), 3));
  ASSERT_TRUE(qa->send(a->memory->sge(0, 8), 4));
  expect_send(4);
  EXPECT_EQ(b->await_receive().wr_id, 3u);
}

TEST_P(FabricContract, DatagramsReachAnyQueuePairAndCarryTheirSource) {
  start(3);
  if (!world->env(0).device().capabilities().ud) GTEST_SKIP() << "the device has no UD";
  QpOptions options;
  options.transport = Transport::kUd;
  std::vector<std::unique_ptr<Side>> sides;
  std::vector<std::unique_ptr<QueuePair>> queue_pairs;
  for (NodeId node = 0; node < 3; ++node) {
    sides.push_back(std::make_unique<Side>(*world, node));
    queue_pairs.push_back(sides.back()->queue_pair(options));
    queue_pairs.back()->connect({});
  }
  for (std::uint64_t i = 0; i < 2; ++i) ASSERT_TRUE(queue_pairs[0]->receive(sides[0]->memory->sge(i * 128, 128), i));
  for (NodeId node = 1; node < 3; ++node) {
    Side& side = *sides[node];
    auto handle = side.device.create_address_handle(*side.pd, queue_pairs[0]->address());
    *side.word(0) = node;
    const Sge sge = side.memory->sge(0, 8);
    WorkRequest request;
    request.sges = &sge;
    request.sge_count = 1;
    request.opcode = Opcode::kSendImm;
    request.immediate = node;
    request.address_handle = handle.get();
    request.remote_qpn = queue_pairs[0]->qp_num();
    request.remote_qkey = options.qkey + 1;
    ASSERT_EQ(queue_pairs[node]->post({&request, 1}).accepted, 1u);  // a wrong key: silently dropped
    EXPECT_EQ(side.await_send().status, Status::kSuccess);
    request.remote_qkey = options.qkey;
    ASSERT_EQ(queue_pairs[node]->post({&request, 1}).accepted, 1u);
    EXPECT_EQ(side.await_send().status, Status::kSuccess);
    const Completion completion = sides[0]->await_receive();
    EXPECT_EQ(completion.byte_count, 8 + kGrhBytes);
    EXPECT_NE(completion.flags & kHasGrh, 0);
    EXPECT_EQ(completion.immediate, node);
    EXPECT_EQ(completion.source_qpn, queue_pairs[node]->qp_num());
    EXPECT_EQ(sides[0]->load_word(completion.wr_id * 128 + kGrhBytes), node);
  }
  EXPECT_TRUE(sides[0]->quiet(*sides[0]->receives));
}

TEST_P(FabricContract, QueuePairsShareAReceiveQueue) {
  start(3);
  Side x(*world, 0), y(*world, 1), z(*world, 2);
  if (!x.device.capabilities().srq) GTEST_SKIP() << "the device has no shared receive queues";
  auto shared = x.device.create_shared_receive_queue(*x.pd, 16);
  auto xy = x.queue_pair({}, shared.get()), xz = x.queue_pair({}, shared.get());
  auto yx = y.queue_pair(), zx = z.queue_pair();
  xy->connect(yx->address());
  yx->connect(xy->address());
  xz->connect(zx->address());
  zx->connect(xz->address());
  EXPECT_EQ(xy->post_receive({}).error, PostError::kInvalid);
  for (std::uint64_t i = 0; i < 4; ++i) {
    const Sge sge = x.memory->sge(i * 64, 64);
    const ReceiveRequest request{i, &sge, 1};
    ASSERT_EQ(shared->post_receive({&request, 1}).accepted, 1u);
  }
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(yx->send(y.memory->sge(0, 8)));
    EXPECT_EQ(x.await_receive().qp_num, xy->qp_num());
    ASSERT_TRUE(zx->send(z.memory->sge(0, 8)));
    EXPECT_EQ(x.await_receive().qp_num, xz->qp_num());
  }
}

TEST_P(FabricContract, ADynamicQueuePairReachesManyTargets) {
  start(3);
  if (!world->env(0).device().capabilities().dc) GTEST_SKIP() << "the device has no DC";
  Side x(*world, 0), y(*world, 1), z(*world, 2);
  QpOptions options;
  options.transport = Transport::kDc;
  auto initiator = x.queue_pair(options);
  initiator->connect({});
  options.dc_target = true;
  options.qkey = 73;
  std::vector<std::unique_ptr<SharedReceiveQueue>> shared;
  std::vector<std::unique_ptr<QueuePair>> targets;
  std::vector<std::unique_ptr<AddressHandle>> handles;
  for (Side* side : {&y, &z}) {
    shared.push_back(side->device.create_shared_receive_queue(*side->pd, 16));
    targets.push_back(side->queue_pair(options, shared.back().get()));
    targets.back()->connect({});
    handles.push_back(x.device.create_address_handle(*x.pd, targets.back()->address()));
    *side->word(0) = 100 + side->env.node();
  }
  for (std::size_t i = 0; i < 6; ++i) {
    const Sge sge = x.memory->sge(i * 8, 8);
    WorkRequest request;
    request.wr_id = i;
    request.sges = &sge;
    request.sge_count = 1;
    request.opcode = Opcode::kRead;
    request.remote_addr = (i % 2 == 0 ? y : z).memory->addr();
    request.rkey = (i % 2 == 0 ? y : z).memory->rkey();
    request.address_handle = handles[i % 2].get();
    request.remote_qpn = targets[i % 2]->qp_num();
    request.remote_qkey = 73;
    ASSERT_EQ(initiator->post({&request, 1}).accepted, 1u);
  }
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(x.await_send().wr_id, i);
    EXPECT_EQ(*x.word(i * 8), 101 + i % 2);
  }
}

TEST_P(FabricContract, DeviceMemoryIsReachedByRequestsOnly) {
  connect();
  if (!b->device.capabilities().device_memory) GTEST_SKIP() << "the device has no memory of its own";
  auto memory = b->device.allocate_device_memory(*b->pd, 4096);
  EXPECT_EQ(memory->data(), nullptr);
  *a->word(0) = 12;
  ASSERT_TRUE(qa->write(a->memory->sge(0, 8), memory->remote(), 64, 1));
  ASSERT_TRUE(qa->read(a->memory->sge(8, 8), memory->remote(), 64, 2));
  expect_send(1);
  expect_send(2);
  EXPECT_EQ(*a->word(8), 12u);
  EXPECT_THROW(b->device.allocate_device_memory(*b->pd, 1 << 20), Error);
}

TEST_P(FabricContract, LoopbackWithinANode) {
  start();
  Side x(*world, 0);
  auto q1 = x.queue_pair(), q2 = x.queue_pair();
  q1->connect(q2->address());
  q2->connect(q1->address());
  *x.word(0) = 9;
  ASSERT_TRUE(q1->write(x.memory->sge(0, 8), x.memory->remote(), 64));
  EXPECT_EQ(x.await_send().status, Status::kSuccess);
  EXPECT_TRUE(x.await_word(64, 9));
}

TEST_P(FabricContract, RendezvousExchangesBlobs) {
  start();
  Rendezvous& r0 = world->env(0).device().rendezvous();
  Rendezvous& r1 = world->env(1).device().rendezvous();
  r0.publish_value("a/b", 42);
  r0.publish_value("a/b", 42);
  EXPECT_EQ(r1.await_value<int>("a/b", kForever), 42);
  EXPECT_THROW(r1.publish_value("a/b", 43), Error);
  EXPECT_THROW(r1.publish_value(std::string(Rendezvous::kMaxKey + 1, 'k'), 1), Error);
  EXPECT_THROW(r1.await_value<char>("a/b", kForever), Error);
  try {
    r1.await("nobody", world->env(1).now() + kMillisecond);
    FAIL() << "await returned";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_NE(std::string(error.what()).find("nobody"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace pyrdma::fabric
