// The fabric's contract: datagrams at the limits of their length, between transports, and shared
// receive queues under several senders.
#include <array>
#include <set>
#include <vector>

#include "fabric/contract_requests_test.h"

namespace pyrdma::fabric {
namespace {

class FabricDatagrams : public FabricRequests {
 protected:
  bool connect_datagrams() {
    handle.reset();
    start();
    a = std::make_unique<Side>(*world, 0);
    b = std::make_unique<Side>(*world, 1);
    if (!a->device.capabilities().ud) return false;
    options.transport = Transport::kUd;
    qa = a->queue_pair(options);
    qb = b->queue_pair(options);
    qa->connect({});
    qb->connect({});
    handle = a->device.create_address_handle(*a->pd, qb->address());
    return true;
  }
  /// Returns whether the post was accepted.
  bool send_bytes(std::uint32_t bytes, std::uint64_t wr_id, std::uint32_t number = 0) {
    const Sge sge = a->memory->sge(0, bytes);
    WorkRequest request = request_to_b(Opcode::kSend, {&sge, 1}, wr_id);
    request.address_handle = handle.get();
    request.remote_qpn = number == 0 ? qb->qp_num() : number;
    request.remote_qkey = options.qkey;
    return post(request);
  }
  void TearDown() override { handle.reset(); }
  QpOptions options;
  std::unique_ptr<AddressHandle> handle;
};
INSTANTIATE_TEST_SUITE_P(Worlds, FabricDatagrams, contract_worlds(),
                         [](const auto& info) { return info.param; });

TEST_P(FabricDatagrams, TheLongestDatagramArrives) {
  if (!connect_datagrams()) GTEST_SKIP() << "the device has no UD";
  const std::uint32_t most = a->device.capabilities().max_datagram;
  for (const std::uint32_t bytes : {0U, 1U, most - 1, most}) {
    SCOPED_TRACE(bytes);
    a->fill(0, bytes, bytes);
    ASSERT_TRUE(qb->receive(b->memory->sge(0, bytes + kGrhBytes), bytes));
    ASSERT_TRUE(send_bytes(bytes, 1));
    expect_send(1);
    const Completion completion = b->await_receive();
    EXPECT_EQ(completion.status, Status::kSuccess);
    EXPECT_EQ(completion.wr_id, bytes);
    EXPECT_EQ(completion.byte_count, bytes + kGrhBytes);
    EXPECT_TRUE(b->matches(kGrhBytes, bytes, bytes));
  }
}

TEST_P(FabricDatagrams, ALongerDatagramIsAnErrorOfItsSender) {
  if (!connect_datagrams()) GTEST_SKIP() << "the device has no UD";
  const std::uint32_t most = a->device.capabilities().max_datagram;
  ASSERT_TRUE(qb->receive(b->memory->sge(0, most + 1 + kGrhBytes), 2));
  const bool accepted = send_bytes(most + 1, 1);
  ASSERT_NE(accepted, world->soft_roce()) << "where only the post can refuse it";
  if (accepted) {
    expect_send(1, Status::kLocalLength);
    EXPECT_EQ(qa->state(), QpState::kSendQueueError);
    ASSERT_TRUE(send_bytes(8, 3));
    expect_send(3, Status::kFlushed);
    qa->modify(QpState::kReadyToSend);
  }
  EXPECT_TRUE(b->quiet(*b->receives));
  ASSERT_TRUE(send_bytes(8, 4));
  expect_send(4);
  expect_receive(2);
}

TEST_P(FabricDatagrams, AReceiveThatIsTooShortForADatagram) {
  for (const std::uint32_t room : {kGrhBytes + 7, kGrhBytes, kGrhBytes - 1}) {
    SCOPED_TRACE(room);
    if (!connect_datagrams()) GTEST_SKIP() << "the device has no UD";
    ASSERT_TRUE(qb->receive(b->memory->sge(0, room), 2));
    ASSERT_TRUE(send_bytes(8, 1));
    expect_send(1);
    if (world->soft_roce()) {  // 6.1 has a local error, and later kernels drop the datagram
      qb->modify(QpState::kError);
      EXPECT_NE(b->await_receive().status, Status::kSuccess);
      continue;
    }
    expect_receive(2, Status::kLocalLength);
    EXPECT_EQ(qb->state(), QpState::kError);
  }
}

TEST_P(FabricDatagrams, OtherTransportsTakeNoDatagrams) {
  if (!connect_datagrams()) GTEST_SKIP() << "the device has no UD";
  auto reliable = b->queue_pair(), peer = a->queue_pair();
  reliable->connect(peer->address());
  peer->connect(reliable->address());
  ASSERT_TRUE(reliable->receive(b->memory->sge(0, 128), 2));
  ASSERT_TRUE(send_bytes(8, 1, reliable->qp_num()));
  expect_send(1);
  EXPECT_TRUE(b->quiet(*b->receives));
  ASSERT_TRUE(peer->send(a->memory->sge(0, 8), 3));
  EXPECT_EQ(a->await_send().status, Status::kSuccess) << "the connection is as before";
  expect_receive(2);
}

TEST_P(FabricDatagrams, ADatagramQueuePairTakesNoConnection) {
  if (!connect_datagrams()) GTEST_SKIP() << "the device has no UD";
  ASSERT_TRUE(qb->receive(b->memory->sge(0, 128), 2));
  auto reliable = a->queue_pair(impatient());
  reliable->connect(qb->address());
  ASSERT_TRUE(reliable->send(a->memory->sge(0, 8), 1));
  EXPECT_EQ(a->await_send().status, Status::kRetryExceeded);
  EXPECT_TRUE(b->quiet(*b->receives));
  ASSERT_TRUE(send_bytes(8, 4));
  expect_send(4);
  expect_receive(2);
}

TEST_P(FabricDatagrams, WithoutAReceiveADatagramIsLost) {
  if (!connect_datagrams()) GTEST_SKIP() << "the device has no UD";
  for (std::uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(send_bytes(8, i));
  for (std::uint64_t i = 0; i < 10; ++i) expect_send(i);
  EXPECT_TRUE(b->quiet(*b->receives)) << "meanwhile the last has arrived";
  ASSERT_TRUE(qb->receive(b->memory->sge(0, 128), 2));
  EXPECT_TRUE(b->quiet(*b->receives));
  ASSERT_TRUE(send_bytes(8, 20));
  expect_send(20);
  expect_receive(2);
}

// ---- shared receive queues ----

class FabricSharedReceives : public FabricRequests {
 protected:
  /// Pairs of queue pairs, those of b with `shared`. Returns false without shared queues.
  bool connect_pairs(std::size_t count, std::uint32_t entries, const QpOptions& options = {}) {
    TearDown();
    start();
    a = std::make_unique<Side>(*world, 0, 1 << 17, 1024);
    b = std::make_unique<Side>(*world, 1, 1 << 17, 1024);
    if (!b->device.capabilities().srq) return false;
    shared = b->device.create_shared_receive_queue(*b->pd, entries, 1);
    for (std::size_t i = 0; i < count; ++i) {
      ours.push_back(a->queue_pair(options));
      theirs.push_back(b->queue_pair(options, shared.get()));
      ours[i]->connect(theirs[i]->address());
      theirs[i]->connect(ours[i]->address());
    }
    return true;
  }
  bool receive(std::uint64_t wr_id) {
    const Sge sge = b->memory->sge(wr_id * 64, 64);
    const ReceiveRequest request{wr_id, &sge, 1};
    return shared->post_receive({&request, 1}).accepted == 1;
  }
  void TearDown() override {
    ours.clear();
    theirs.clear();
    shared.reset();
  }
  std::unique_ptr<SharedReceiveQueue> shared;
  std::vector<std::unique_ptr<QueuePair>> ours, theirs;
};
INSTANTIATE_TEST_SUITE_P(Worlds, FabricSharedReceives, contract_worlds(),
                         [](const auto& info) { return info.param; });

TEST_P(FabricSharedReceives, MessagesOfManyQueuePairsTakeEachReceiveOnce) {
  constexpr std::uint64_t kPairs = 4, kEach = 8;
  for (const Opcode opcode : {Opcode::kSendImm, Opcode::kWriteImm}) {
    SCOPED_TRACE(to_string(opcode));
    if (!connect_pairs(kPairs, kPairs * kEach)) GTEST_SKIP() << "the device has no shared queues";
    for (std::uint64_t i = 0; i < kPairs * kEach; ++i) ASSERT_TRUE(receive(i));
    EXPECT_FALSE(receive(0)) << "it is full";
    const Sge sge = a->memory->sge(0, 8);
    for (std::uint64_t k = 0; k < kEach; ++k) {
      for (std::uint64_t i = 0; i < kPairs; ++i) {
        WorkRequest request = request_to_b(opcode, {&sge, 1}, k);
        request.remote_addr += 65536;
        request.immediate = static_cast<std::uint32_t>(i * 100 + k);
        ASSERT_EQ(ours[i]->post({&request, 1}).accepted, 1u);
      }
    }
    std::set<std::uint64_t> used;
    std::array<std::uint32_t, kPairs> next{};
    for (std::uint64_t n = 0; n < kPairs * kEach; ++n) {
      const Completion completion = b->await_receive();
      ASSERT_EQ(completion.status, Status::kSuccess);
      EXPECT_TRUE(used.insert(completion.wr_id).second) << completion.wr_id;
      const std::uint32_t pair = completion.immediate / 100;
      ASSERT_LT(pair, kPairs);
      EXPECT_EQ(completion.qp_num, theirs[pair]->qp_num());
      EXPECT_EQ(completion.immediate % 100, next[pair]++) << "of one queue pair, in order";
      EXPECT_EQ(completion.opcode,
                opcode == Opcode::kSendImm ? Opcode::kReceive : Opcode::kReceiveWriteImm);
      EXPECT_EQ(a->await_send().status, Status::kSuccess);
    }
    EXPECT_TRUE(receive(0)) << "there is room again";
  }
}

TEST_P(FabricSharedReceives, AnErrorOfOneQueuePairLeavesTheReceivesToTheOthers) {
  if (!connect_pairs(2, 8)) GTEST_SKIP() << "the device has no shared queues";
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(receive(i));
  theirs[0]->modify(QpState::kError);
  EXPECT_TRUE(b->quiet(*b->receives)) << "a shared queue is not flushed";
  for (std::uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(ours[1]->send(a->memory->sge(0, 8), i));
    EXPECT_EQ(a->await_send().status, Status::kSuccess);
    expect_receive(i);
  }
}

// Threads of node 0 send through a queue pair each; node 1 posts each receive again.
TEST_P(FabricSharedReceives, SeveralThreadsSendToOneQueue) {
  constexpr std::uint64_t kPairs = 4, kEach = 50, kEntries = 16;
  if (!connect_pairs(kPairs, kEntries)) GTEST_SKIP() << "the device has no shared queues";
  for (std::uint64_t i = 0; i < kEntries; ++i) ASSERT_TRUE(receive(i));
  std::vector<std::unique_ptr<Thread>> threads;
  for (std::uint64_t i = 0; i < kPairs; ++i) {
    threads.push_back(a->env.spawn("sender", [&, i] {
      for (std::uint64_t k = 0; k < kEach; ++k) {
        const Sge sge = a->memory->sge(i * 64, 8);
        WorkRequest request = request_to_b(Opcode::kSendImm, {&sge, 1}, k);
        request.immediate = static_cast<std::uint32_t>(i);
        EXPECT_EQ(ours[i]->post({&request, 1}).accepted, 1u);
      }
    }));
  }
  std::array<std::uint64_t, kPairs> seen{};
  for (std::uint64_t n = 0; n < kPairs * kEach; ++n) {
    const Completion completion = b->await_receive();
    ASSERT_EQ(completion.status, Status::kSuccess) << n;
    ++seen.at(completion.immediate);
    ASSERT_TRUE(receive(completion.wr_id));
  }
  for (auto& thread : threads) thread->join();
  for (std::uint64_t n = 0; n < kPairs * kEach; ++n)
    EXPECT_EQ(a->await_send().status, Status::kSuccess);
  for (const std::uint64_t each : seen) EXPECT_EQ(each, kEach);
}

// Threads make and destroy objects of each kind, beside a connection that works.
TEST_P(FabricSharedReceives, ThreadsMakeAndDestroyObjects) {
  if (!connect_pairs(1, 8)) GTEST_SKIP() << "the device has no shared queues";
  std::vector<std::unique_ptr<Thread>> threads;
  for (int i = 0; i < 4; ++i) {
    threads.push_back(a->env.spawn("maker", [&] {
      for (int round = 0; round < 20; ++round) {
        Device& device = a->device;
        const auto domain = device.create_protection_domain();
        const auto region = device.allocate(*domain, 4096, kAllAccess);
        const auto queue = device.create_completion_queue(16);
        const auto receives = device.create_shared_receive_queue(*domain, 8);
        const auto one = device.create_queue_pair(*domain, *queue, *queue, {}, receives.get());
        const auto other = device.create_queue_pair(*domain, *queue, *queue);
        const auto handle = device.create_address_handle(*domain, theirs[0]->address());
        one->connect(other->address());
        other->connect(one->address());
        EXPECT_TRUE(one->write(region->sge(0, 8), region->remote(), 64, 5));
        EXPECT_EQ(a->await(*queue).wr_id, 5u);
      }
    }));
  }
  for (std::uint64_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(ours[0]->write(a->memory->sge(0, 8), b->memory->remote(), 0, i));
    EXPECT_EQ(a->await_send().wr_id, i);
  }
  for (auto& thread : threads) thread->join();
}

}  // namespace
}  // namespace pyrdma::fabric
