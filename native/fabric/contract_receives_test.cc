// The fabric's contract: queues of receives that are full, empty or bad, of one queue pair or
// shared, and the fate of receives when a queue pair ends.
#include "base/error_test.h"
#include "fabric/contract_worlds_test.h"

namespace pyrdma::fabric {
namespace {

constexpr std::uint32_t kEntries = 5;  // no power of two, unlike the sizes of rings

class FabricReceives : public FabricContract {
 protected:
  /// Node 0 (a) sends to node 1 (b), which receives from `shared`. Returns false if the
  /// device has no shared queues.
  bool connect_shared() {
    TearDown();
    start();
    a = std::make_unique<Side>(*world, 0);
    b = std::make_unique<Side>(*world, 1);
    if (!b->device.capabilities().srq) return false;
    shared = b->device.create_shared_receive_queue(*b->pd, kEntries, 2);
    renew();
    return true;
  }
  void renew() {
    qa = a->queue_pair(options);
    qb = b->queue_pair(options, shared.get());
    qa->connect(qb->address());
    qb->connect(qa->address());
  }
  /// Posts one receive with one buffer.
  PostResult post(const Sge& sge, std::uint64_t wr_id = 0) {
    const ReceiveRequest request{wr_id, &sge, 1};
    return shared->post_receive({&request, 1});
  }
  /// Posts more receives than fit; returns the number of accepted ones.
  std::uint32_t fill() {
    const Sge sge = b->memory->sge(0, 64);
    const std::vector<ReceiveRequest> requests(kEntries + 2, ReceiveRequest{next_id_, &sge, 1});
    const PostResult result = shared->post_receive(requests);
    EXPECT_EQ(result.error, PostError::kQueueFull);
    return result.accepted;
  }
  void TearDown() override {
    qa.reset();
    qb.reset();
    shared.reset();
  }

  std::unique_ptr<SharedReceiveQueue> shared;
  QpOptions options;
  std::uint64_t next_id_ = 7;
};
INSTANTIATE_TEST_SUITE_P(Worlds, FabricReceives, contract_worlds(),
                         [](const auto& info) { return info.param; });

TEST_P(FabricReceives, AFullReceiveQueueIsBackPressure) {
  for (const bool is_shared : {false, true}) {
    if (is_shared) {
      if (!connect_shared()) GTEST_SKIP() << "the device has no shared receive queues";
    } else {
      QpOptions few;
      few.receive_entries = kEntries;
      connect(few);
    }
    const auto post_all = [&](std::span<const ReceiveRequest> requests) {
      return is_shared ? shared->post_receive(requests) : qb->post_receive(requests);
    };
    const Sge sge = b->memory->sge(0, 64);
    std::vector<ReceiveRequest> requests;
    for (std::uint64_t i = 0; i < 20; ++i) requests.push_back({i, &sge, 1});
    const std::span<const ReceiveRequest> all(requests);
    PostResult result = post_all(all.first(kEntries + 3));
    EXPECT_EQ(result.accepted, kEntries);
    EXPECT_EQ(result.error, PostError::kQueueFull);
    EXPECT_EQ(post_all(all.subspan(kEntries, 1)).accepted, 0u);
    for (std::uint64_t i = 0; i < 3 * kEntries; ++i) {
      ASSERT_TRUE(qa->send(a->memory->sge(0, 8), i));
      expect_send(i);
      const Completion completion = b->await_receive();
      ASSERT_EQ(completion.status, Status::kSuccess);
      EXPECT_EQ(completion.wr_id, i) << "accepted receives stay, in order";
      result = post_all(all.subspan(kEntries + i % kEntries, 2));  // room for exactly one
      EXPECT_EQ(result.accepted, 1u);
      EXPECT_EQ(result.error, PostError::kQueueFull);
      requests[kEntries + (i + 1) % kEntries].wr_id = kEntries + i + 1;
    }
  }
}

TEST_P(FabricReceives, SharedReceivesThatAreBad) {
  for (const bool is_short : {false, true}) {
    if (!connect_shared()) GTEST_SKIP() << "the device has no shared receive queues";
    const Sge pieces[3] = {b->memory->sge(0, 8), b->memory->sge(8, 8), b->memory->sge(16, 8)};
    const ReceiveRequest requests[2] = {{1, pieces, 2}, {2, pieces, 3}};
    const PostResult result = shared->post_receive(requests);
    EXPECT_EQ(result.accepted, 1u);
    EXPECT_EQ(result.error, PostError::kInvalid) << "more pieces than the queue takes";
    ASSERT_TRUE(qa->send(a->memory->sge(0, 16), 1));
    expect_send(1);
    EXPECT_EQ(b->await_receive().wr_id, 1u);

    Sge bad = b->memory->sge(0, is_short ? 7 : 64);
    if (!is_short) bad.lkey ^= 0x40000000;
    ASSERT_EQ(post(bad, 3).accepted, 1u);
    ASSERT_EQ(post(b->memory->sge(0, 64), 4).accepted, 1u);
    ASSERT_TRUE(qa->send(a->memory->sge(0, 8), 2));
    const bool soft = world->soft_roce();
    expect_send(2, is_short && !soft ? Status::kRemoteInvalidRequest : Status::kRemoteOperation);
    const Completion completion = b->await_receive();
    EXPECT_EQ(completion.wr_id, 3u);
    EXPECT_STREQ(to_string(completion.status), to_string(soft       ? Status::kLocalQpOperation
                                                         : is_short ? Status::kLocalLength
                                                                    : Status::kLocalProtection));
    EXPECT_EQ(qb->state(), QpState::kError);
    EXPECT_TRUE(b->quiet(*b->receives)) << "a shared queue is not flushed";
    renew();  // the shared queue serves the next queue pair
    ASSERT_TRUE(qa->send(a->memory->sge(0, 8), 5));
    expect_send(5);
    EXPECT_EQ(b->await_receive().wr_id, 4u);
  }
}

TEST_P(FabricReceives, AnEmptySharedQueueIsNotReady) {
  if (!connect_shared()) GTEST_SKIP() << "the device has no shared receive queues";
  ASSERT_TRUE(qa->send(a->memory->sge(0, 8), 1));
  EXPECT_TRUE(a->quiet(*a->sends));
  ASSERT_EQ(post(b->memory->sge(0, 8), 2).accepted, 1u);
  expect_send(1);
  EXPECT_EQ(b->await_receive().wr_id, 2u);
  options.rnr_retry = 1;
  renew();
  ASSERT_TRUE(qa->send(a->memory->sge(0, 8), 3));
  expect_send(3, Status::kRnrRetryExceeded);
  ASSERT_EQ(post(b->memory->sge(0, 8), 4).accepted, 1u);
  renew();
  ASSERT_TRUE(qa->send(a->memory->sge(0, 8), 5));
  expect_send(5);
  EXPECT_EQ(b->await_receive().wr_id, 4u) << "the send that gave up has taken none";
}

// A queue pair ends while completions of its messages wait unpolled. The completions go with it,
// and the queue loses no receive.
TEST_P(FabricReceives, ASharedQueueOutlivesItsQueuePairs) {
  if (!connect_shared()) GTEST_SKIP() << "the device has no shared receive queues";
  auto other_a = a->queue_pair(), other_b = b->queue_pair({}, shared.get());
  other_a->connect(other_b->address());
  other_b->connect(other_a->address());
  EXPECT_EQ(fill(), kEntries);
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(round);
    for (std::uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(qa->send(a->memory->sge(0, 8), i));
    for (std::uint64_t i = 0; i < 3; ++i) expect_send(i);
    ++next_id_;
    if (round % 2 == 0) {
      qb.reset();
      renew();
    } else {
      qb->modify(QpState::kReset);
      qa->modify(QpState::kReset);
      qa->connect(qb->address());
      qb->connect(qa->address());
    }
    ASSERT_TRUE(b->quiet(*b->receives, round % 10 < 2 ? kMillisecond : 0));
    ASSERT_TRUE(other_a->send(a->memory->sge(0, 8), 9));
    EXPECT_EQ(a->await_send().status, Status::kSuccess);
    const Completion completion = b->await_receive();
    EXPECT_EQ(completion.status, Status::kSuccess);
    EXPECT_EQ(completion.qp_num, other_b->qp_num());
    ASSERT_EQ(fill(), 4u) << "three that are gone and one that was polled";
  }
}

TEST_P(FabricReceives, ASharedQueueHasADomainOfItsOwn) {
  if (!connect_shared()) GTEST_SKIP() << "the device has no shared receive queues";
  if (world->soft_roce()) GTEST_SKIP() << "Soft-RoCE looks at the queue pair's domain";
  const auto domain = b->device.create_protection_domain();
  const auto region = b->device.allocate(*domain, 4096);
  qa.reset();
  qb.reset();
  shared = b->device.create_shared_receive_queue(*domain, kEntries);
  renew();
  ASSERT_EQ(post(region->sge(0, 64), 1).accepted, 1u);
  ASSERT_EQ(post(b->memory->sge(0, 64), 2).accepted, 1u);
  ASSERT_TRUE(qa->send(a->memory->sge(0, 8), 3));
  expect_send(3);
  EXPECT_EQ(b->await_receive().wr_id, 1u);
  // A write with immediate takes a receive and none of its buffers.
  const Sge sge = a->memory->sge(0, 8);
  WorkRequest write;
  write.wr_id = 5;
  write.sges = &sge;
  write.sge_count = 1;
  write.opcode = Opcode::kWriteImm;
  write.remote_addr = b->memory->addr();
  write.rkey = b->memory->rkey();
  ASSERT_EQ(qa->post({&write, 1}).accepted, 1u);
  expect_send(5);
  EXPECT_EQ(b->await_receive().wr_id, 2u);
  ASSERT_EQ(post(b->memory->sge(0, 64), 3).accepted, 1u);
  ASSERT_TRUE(qa->send(a->memory->sge(0, 8), 4));
  expect_send(4, Status::kRemoteOperation);
  EXPECT_EQ(b->await_receive().status, Status::kLocalProtection);
}

/// Datagrams from node 0 (a) to node 1 (b), whose receives take kStrides datagrams each.
class FabricStrides : public FabricReceives {
 protected:
  static constexpr std::uint32_t kStrides = 4, kRoom = 128;  // kRoom: bytes of a stride
  bool connect_strides() {
    TearDown();
    start();
    a = std::make_unique<Side>(*world, 0);
    b = std::make_unique<Side>(*world, 1);
    if (b->device.capabilities().max_receive_strides < kStrides) return false;
    options.transport = Transport::kUd;
    qa = a->queue_pair(options);
    options.receive_strides = kStrides;
    options.receive_entries = 2;
    qb = b->queue_pair(options);
    qa->connect({});
    qb->connect({});
    handle = a->device.create_address_handle(*a->pd, qb->address());
    return true;
  }
  /// Posts the buffer of kStrides strides that begins `at` bytes into the memory.
  PostResult post_buffer(std::size_t at, std::uint64_t wr_id, std::uint32_t bytes = 4 * kRoom) {
    const Sge sge = b->memory->sge(at, bytes);
    const ReceiveRequest request{wr_id, &sge, 1};
    return qb->post_receive({&request, 1});
  }
  void send(std::uint32_t bytes, unsigned seed) {
    a->fill(0, bytes, seed);
    const Sge sge = a->memory->sge(0, bytes);
    WorkRequest request;
    request.wr_id = seed;
    request.sges = &sge;
    request.sge_count = 1;
    request.opcode = Opcode::kSend;
    request.address_handle = handle.get();
    request.remote_qpn = qb->qp_num();
    request.remote_qkey = options.qkey;
    ASSERT_EQ(qa->post({&request, 1}).accepted, 1u);
    expect_send(seed);
  }
  void TearDown() override {
    handle.reset();
    FabricReceives::TearDown();
  }
  std::unique_ptr<AddressHandle> handle;
};
INSTANTIATE_TEST_SUITE_P(Worlds, FabricStrides, contract_worlds(),
                         [](const auto& info) { return info.param; });

TEST_P(FabricStrides, AReceiveTakesOneDatagramPerStride) {
  if (!connect_strides()) GTEST_SKIP() << "the device has no strides";
  ASSERT_EQ(post_buffer(0, 100).accepted, 1u);
  ASSERT_EQ(post_buffer(1024, 101).accepted, 1u);
  EXPECT_EQ(post_buffer(2048, 102).error, PostError::kQueueFull);
  for (std::uint32_t i = 0; i < 3 * kStrides; ++i) {
    SCOPED_TRACE(i);
    send(8 + i, i);
    const Completion completion = b->await_receive();
    ASSERT_EQ(completion.status, Status::kSuccess);
    EXPECT_EQ(completion.wr_id, 100 + i / kStrides);
    EXPECT_EQ(completion.stride, i % kStrides);
    EXPECT_EQ(completion.byte_count, 8 + i + kGrhBytes);
    const std::size_t buffer = i / kStrides % 2 * 1024;
    EXPECT_TRUE(b->matches(buffer + completion.stride * kRoom + kGrhBytes, 8 + i, i));
    if (i == kStrides - 2) {
      EXPECT_EQ(post_buffer(0, 102).error, PostError::kQueueFull) << "a stride is left";
    }
    if (i == kStrides - 1) {
      EXPECT_EQ(post_buffer(0, 102).accepted, 1u) << "its last stride frees the receive";
    }
  }
  send(8, 77);
  EXPECT_TRUE(b->quiet(*b->receives)) << "no receive is left, so the datagram is lost";
}

TEST_P(FabricStrides, AnEndTakesAWholeReceive) {
  for (const bool by_error : {false, true}) {
    if (!connect_strides()) GTEST_SKIP() << "the device has no strides";
    ASSERT_EQ(post_buffer(0, 100).accepted, 1u);
    ASSERT_EQ(post_buffer(1024, 101).accepted, 1u);
    send(8, 1);
    EXPECT_EQ(b->await_receive().stride, 0u);
    if (by_error)
      send(kRoom - kGrhBytes + 1, 2);  // a byte too long for a stride
    else
      qb->modify(QpState::kError);
    const Completion first = b->await_receive();
    EXPECT_EQ(first.wr_id, 100u);
    EXPECT_EQ(first.status, by_error ? Status::kLocalLength : Status::kFlushed);
    const Completion second = b->await_receive();
    EXPECT_EQ(second.wr_id, 101u);
    EXPECT_EQ(second.status, Status::kFlushed);
    EXPECT_TRUE(b->quiet(*b->receives)) << "each receive ends once";
    qb->modify(QpState::kReset);
    qb->connect({});
    ASSERT_EQ(post_buffer(0, 102).accepted, 1u);
    send(8, 3);
    const Completion fresh = b->await_receive();
    EXPECT_EQ(fresh.wr_id, 102u);
    EXPECT_EQ(fresh.stride, 0u);
  }
}

TEST_P(FabricStrides, BuffersAndOptionsWithoutEqualStridesAreRefused) {
  const bool has_strides = connect_strides();
  const std::uint32_t most = b->device.capabilities().max_receive_strides;
  const auto refused = [&](std::uint32_t strides, Transport transport, ErrorCode code,
                           std::initializer_list<std::string_view> words, bool is_shared = false) {
    QpOptions wrong;
    wrong.transport = transport;
    wrong.receive_strides = strides;
    if (is_shared) shared = b->device.create_shared_receive_queue(*b->pd, 4);
    EXPECT_TRUE(refuses([&] { b->queue_pair(wrong, is_shared ? shared.get() : nullptr); }, code,
                        std::vector<std::string_view>(words)));
  };
  if (!has_strides) {
    refused(4, Transport::kUd, ErrorCode::kUnavailable, {"4", "1", "sim"});
    return;
  }
  refused(3, Transport::kUd, ErrorCode::kInvalidArgument, {"3", std::to_string(most)});
  refused(2 * most, Transport::kUd, ErrorCode::kInvalidArgument, {"power of two"});
  refused(4, Transport::kRc, ErrorCode::kInvalidArgument, {"RC", "UD"});
  refused(4, Transport::kUd, ErrorCode::kInvalidArgument, {"shared"}, true);
  EXPECT_EQ(post_buffer(0, 1, 4 * kRoom - 1).error, PostError::kInvalid);
  const Sge two[2] = {b->memory->sge(0, 256), b->memory->sge(256, 256)};
  const ReceiveRequest request{1, two, 2};
  EXPECT_EQ(qb->post_receive({&request, 1}).error, PostError::kInvalid);
}

}  // namespace
}  // namespace pyrdma::fabric
