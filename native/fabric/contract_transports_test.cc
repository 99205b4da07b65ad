// The fabric's contract: transports, shared objects, device memory and the set-up exchange.
#include <map>
#include <vector>

#include "base/error_test.h"
#include "fabric/contract_worlds_test.h"

namespace pyrdma::fabric {
namespace {

class FabricTransports : public FabricContract {};
INSTANTIATE_TEST_SUITE_P(Worlds, FabricTransports, contract_worlds(),
                         [](const auto& info) { return info.param; });

TEST_P(FabricTransports, TheRateOfALinkIsKnownOrZero) {
  start();
  const double gbps = world->env(0).device().capabilities().link_gbps;
  if (GetParam().starts_with("sim"))
    EXPECT_EQ(gbps, sim::test_profile().link_rate_gbps);
  else if (GetParam().starts_with("shm"))
    EXPECT_EQ(gbps, 0) << "a copy crosses no link";
  else
    EXPECT_TRUE(gbps >= 0 && gbps < 10000) << gbps;
}

TEST_P(FabricTransports, UnreliableConnectionsWriteAndSend) {
  start();
  if (!world->env(0).device().capabilities().uc) GTEST_SKIP() << "the device has no UC";
  QpOptions options;
  options.transport = Transport::kUc;
  connect(options);
  *a->word(0) = 6;
  ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 8, 1));
  expect_send(1);
  EXPECT_TRUE(b->await_word(8, 6));
  EXPECT_TRUE(qa->send(a->memory->sge(0, 8), 2)) << "no queue pair receives it";
  expect_send(2);
  ASSERT_TRUE(qb->receive(b->memory->sge(64, 8), 3));
  ASSERT_TRUE(qa->send(a->memory->sge(0, 8), 4));
  expect_send(4);
  EXPECT_EQ(b->await_receive().wr_id, 3u);
}

TEST_P(FabricTransports, DatagramsReachAnyQueuePairAndCarryTheirSource) {
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
  for (std::uint64_t i = 0; i < 2; ++i)
    ASSERT_TRUE(queue_pairs[0]->receive(sides[0]->memory->sge(i * 128, 128), i));
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
    ASSERT_EQ(queue_pairs[node]->post({&request, 1}).accepted,
              1u);  // a wrong key: silently dropped
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

// A node that sends to itself has the completions of both ends in one queue.
TEST_P(FabricTransports, ManySignaledDatagramsCompleteAtBothEnds) {
  start();
  if (!world->env(0).device().capabilities().ud) GTEST_SKIP() << "the device has no UD";
  constexpr std::uint32_t kMany = 100;
  Side side(*world, 0);
  const auto queue = side.device.create_completion_queue(2 * kMany + 2);
  QpOptions options;
  options.transport = Transport::kUd;
  options.send_entries = options.receive_entries = kMany + 1;
  options.max_sges = 1;
  const auto qp = side.device.create_queue_pair(*side.pd, *queue, *queue, options);
  qp->connect({});
  const auto handle = side.device.create_address_handle(*side.pd, qp->address());
  const Sge sges[] = {side.memory->sge(0, 8), side.memory->sge(8, 8)};
  std::vector<WorkRequest> requests(kMany + 1);
  for (std::uint32_t i = 0; i <= kMany; ++i) {
    ASSERT_TRUE(qp->receive(side.memory->sge(64, 64), 1000 + i));
    requests[i].wr_id = i;
    requests[i].sges = sges;
    requests[i].sge_count = 1;
    requests[i].opcode = Opcode::kSend;
    requests[i].address_handle = handle.get();
    requests[i].remote_qpn = qp->qp_num();
    requests[i].remote_qkey = options.qkey;
  }
  ASSERT_EQ(qp->post({requests.data(), 1}).accepted, 1u);  // later ones know the way
  ASSERT_EQ(qp->post({requests.data() + 1, kMany}).accepted, kMany);
  std::map<std::uint64_t, int> seen;
  for (std::uint32_t i = 0; i < 2 * (kMany + 1); ++i) {
    const Completion completion = side.await(*queue);
    EXPECT_EQ(completion.status, Status::kSuccess);
    ++seen[completion.wr_id];
  }
  for (std::uint32_t i = 0; i <= kMany; ++i) {
    EXPECT_EQ(seen[i], 1) << "send " << i;
    EXPECT_EQ(seen[1000 + i], 1) << "receive " << i;
  }
  requests[0].sge_count = 2;
  EXPECT_EQ(qp->post({requests.data(), 1}).error, PostError::kInvalid) << "it has one piece";
}

TEST_P(FabricTransports, QueuePairsShareAReceiveQueue) {
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

TEST_P(FabricTransports, ADynamicQueuePairReachesManyTargets) {
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

TEST_P(FabricTransports, DeviceMemoryIsReachedByRequestsOnly) {
  connect();
  if (!b->device.capabilities().device_memory)
    GTEST_SKIP() << "the device has no memory of its own";
  auto memory = b->device.allocate_device_memory(*b->pd, 4096, kAllAccess);
  EXPECT_EQ(memory->data(), nullptr);
  *a->word(0) = 12;
  ASSERT_TRUE(qa->write(a->memory->sge(0, 8), memory->remote(), 64, 1));
  ASSERT_TRUE(qa->read(a->memory->sge(8, 8), memory->remote(), 64, 2));
  expect_send(1);
  expect_send(2);
  EXPECT_EQ(*a->word(8), 12u);
  EXPECT_THROW(b->device.allocate_device_memory(*b->pd, 1 << 20), Error);
}

TEST_P(FabricTransports, LoopbackWithinANode) {
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

TEST_P(FabricTransports, RendezvousExchangesBlobs) {
  start();
  Rendezvous& r0 = world->env(0).device().rendezvous();
  Rendezvous& r1 = world->env(1).device().rendezvous();
  r0.publish_value("a/b", 42);
  r0.publish_value("a/b", 42);
  EXPECT_EQ(r1.await_value<int>("a/b", kForever), 42);
  EXPECT_THROW(r1.publish_value("a/b", 43), Error);
  EXPECT_THROW(r1.publish_value(std::string(Rendezvous::kMaxKey + 1, 'k'), 1), Error);
  EXPECT_THROW(r1.await_value<char>("a/b", kForever), Error);
  EXPECT_TRUE(refuses([&] { r1.await("nobody", world->env(1).now() + kMillisecond); },
                      ErrorCode::kTimeout, {"nobody"}));
}

}  // namespace
}  // namespace pyrdma::fabric
