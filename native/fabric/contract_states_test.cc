// The fabric's contract: what a queue pair does in each of its states, and what a reset changes.
#include <atomic>
#include <vector>

#include "fabric/contract_requests_test.h"

namespace pyrdma::fabric {
namespace {

class FabricStates : public FabricRequests {};
INSTANTIATE_TEST_SUITE_P(Worlds, FabricStates, contract_worlds(),
                         [](const auto& info) { return info.param; });

TEST_P(FabricStates, EachStateTakesItsPosts) {
  connect();
  qa->modify(QpState::kReset);
  const QpAddress peer = qb->address();
  const Sge sge = a->memory->sge(0, 8);
  const ReceiveRequest receive{7, &sge, 1};
  const WorkRequest write = request_to_b(Opcode::kWrite, {&sge, 1});
  const WorkRequest send = request_to_b(Opcode::kSend, {&sge, 1});
  for (const QpState state : {QpState::kReset, QpState::kInit, QpState::kReadyToReceive}) {
    if (state != QpState::kReset) qa->modify(state, &peer);
    SCOPED_TRACE(to_string(state));
    for (const WorkRequest& request : {write, send}) {
      const PostResult result = qa->post({&request, 1});
      EXPECT_EQ(result.accepted, 0u);
      EXPECT_EQ(result.error, PostError::kInvalidState);
    }
    EXPECT_EQ(qa->post_receive({&receive, 1}).accepted, state == QpState::kReset ? 0u : 1u);
  }
  qa->modify(QpState::kReadyToSend);
  qa->modify(QpState::kError);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(a->await_receive().status, Status::kFlushed) << i;
  ASSERT_TRUE(post(write));
  ASSERT_TRUE(post(send));
  expect_send(1, Status::kFlushed);
  expect_send(1, Status::kFlushed);
  EXPECT_EQ(qa->post_receive({&receive, 1}).accepted, 1u);
  if (world->soft_roce()) return;  // where the receive stays until a reset
  EXPECT_EQ(a->await_receive().status, Status::kFlushed);
}

TEST_P(FabricStates, AnErrorFlushesInOrder) {
  for (const bool from_init : {false, true}) {
    connect();
    if (from_init) {
      qa->modify(QpState::kReset);
      qa->modify(QpState::kInit);
    }
    for (std::uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(qa->receive(a->memory->sge(0, 8), i));
    if (from_init) {
      qa->modify(QpState::kError);
    } else {
      const Sge sge = a->memory->sge(0, 8);
      for (std::uint64_t i = 10; i < 20; ++i) {
        WorkRequest request = request_to_b(Opcode::kWrite, {&sge, 1}, i);
        if (i == 12) request.rkey ^= 0x40000000;
        if (i == 15) request.flags = 0;  // flushed requests complete, signaled or not
        ASSERT_TRUE(post(request));
      }
      for (std::uint64_t i = 10; i < 20; ++i)
        expect_send(i, i < 12    ? Status::kSuccess
                       : i == 12 ? Status::kRemoteAccess
                                 : Status::kFlushed);
    }
    for (std::uint64_t i = 0; i < 5; ++i) {
      const Completion completion = a->await_receive();
      EXPECT_EQ(completion.wr_id, i);
      EXPECT_EQ(completion.status, Status::kFlushed);
    }
    EXPECT_TRUE(a->quiet(*a->sends));
    EXPECT_TRUE(a->quiet(*a->receives));
  }
}

TEST_P(FabricStates, ErrorsOfUnsignaledRequestsComplete) {
  for (int kind = 0; kind < 3; ++kind) {
    QpOptions options;
    options.rnr_retry = 0;
    connect(options);
    const Sge good = a->memory->sge(0, 8), bad{good.addr, 8, good.lkey ^ 0x40000000};
    WorkRequest first = request_to_b(Opcode::kWrite, {&good, 1}, 1);
    first.flags = 0;
    ASSERT_TRUE(post(first));
    WorkRequest request = kind == 0   ? request_to_b(Opcode::kSend, {&good, 1}, 2)
                          : kind == 1 ? request_to_b(Opcode::kRead, {&good, 1}, 2)
                                      : request_to_b(Opcode::kWrite, {&bad, 1}, 2);
    if (kind == 1) request.rkey ^= 0x40000000;
    request.flags = 0;
    ASSERT_TRUE(post(request));
    if (kind == 2 && world->loses_local_errors()) continue;  // the first may be flushed, too
    if (kind == 2)
      expect_local_error(2);
    else
      expect_send(2, kind == 0 ? Status::kRnrRetryExceeded : Status::kRemoteAccess);
    EXPECT_TRUE(a->quiet(*a->sends)) << "the write was not signaled";
  }
}

TEST_P(FabricStates, AResponderThatGetsReadyLateAnswers) {
  start();
  a = std::make_unique<Side>(*world, 0);
  b = std::make_unique<Side>(*world, 1);
  QpOptions options;
  options.timeout_us = 20000;
  qa = a->queue_pair(options);
  qb = b->queue_pair(options);
  const QpAddress from = qa->address();
  qa->connect(qb->address());
  *a->word(0) = 5;
  ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 0, 1));
  EXPECT_TRUE(a->quiet(*a->sends));
  qb->modify(QpState::kInit);
  EXPECT_TRUE(a->quiet(*a->sends));
  EXPECT_EQ(b->load_word(0), 0u);
  qb->modify(QpState::kReadyToReceive, &from);
  expect_send(1);
  EXPECT_EQ(b->load_word(0), 5u);
  // It answers and receives in RTR, though it cannot send yet.
  ASSERT_TRUE(qb->receive(b->memory->sge(64, 8), 3));
  ASSERT_TRUE(qa->send(a->memory->sge(0, 8), 2));
  expect_send(2);
  expect_receive(3);
  *b->word(0) = 6;
  ASSERT_TRUE(qa->read(a->memory->sge(8, 8), b->memory->remote(), 0, 4));
  expect_send(4);
  EXPECT_EQ(*a->word(8), 6u);
}

TEST_P(FabricStates, AResponderThatIsNotReadyExceedsTheRetries) {
  for (const QpState state : {QpState::kReset, QpState::kInit, QpState::kError}) {
    SCOPED_TRACE(to_string(state));
    connect(impatient());
    if (state != QpState::kError) qb->modify(QpState::kReset);
    if (state != QpState::kReset) qb->modify(state);
    ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 0, 1));
    expect_send(1, Status::kRetryExceeded);
    EXPECT_EQ(qa->state(), QpState::kError);
  }
}

// A thread posts until the queue pair has failed; each accepted request completes once.
TEST_P(FabricStates, PostsBesideTheChangeToErrorComplete) {
  const int rounds = kSanitized ? 5 : 30;
  for (int round = 0; round < rounds; ++round) {
    connect();
    std::atomic<std::uint64_t> posted{0};
    std::atomic<bool> over{false};
    const auto thread = a->env.spawn("poster", [&] {
      while (!over.load()) {
        if (qa->write(a->memory->sge(0, 8), b->memory->remote(), 0, posted.load()))
          posted.fetch_add(1);
        else
          a->env.sleep_until(a->env.now() + kMicrosecond);
      }
    });
    std::uint64_t seen = 0, flushed = 0;
    const auto take_until = [&](auto is_over) {
      const auto take = [&] {
        Completion completion;
        while (a->sends->poll({&completion, 1}) == 1) {
          EXPECT_EQ(completion.wr_id, seen++);
          EXPECT_TRUE(completion.status == Status::kFlushed ||
                      (completion.status == Status::kSuccess && flushed == 0));
          flushed += completion.status == Status::kFlushed;
        }
        return is_over();
      };
      EXPECT_TRUE(a->env.poll_until(take, a->env.now() + a->timeout, &a->sends->watch()));
    };
    take_until([&] { return seen > 20; });
    qa->modify(QpState::kError);
    take_until([&] { return flushed > 50; });
    over.store(true);
    thread->join();
    take_until([&] { return seen == posted.load(); });
    EXPECT_TRUE(a->quiet(*a->sends));
    EXPECT_GT(flushed, 0u);
  }
}

TEST_P(FabricStates, AResetDrawsANewNumberForItsPackets) {
  start();
  for (const Transport transport : {Transport::kRc, Transport::kUc}) {
    a = std::make_unique<Side>(*world, 0);
    if (transport == Transport::kUc && !a->device.capabilities().uc) continue;
    QpOptions options;
    options.transport = transport;
    qa = a->queue_pair(options);
    const QpAddress before = qa->address();
    EXPECT_EQ(qa->address().psn, before.psn) << "only a reset changes it";
    qa->modify(QpState::kReset);
    const QpAddress after = qa->address();
    EXPECT_EQ(after.qp_num, before.qp_num);
    EXPECT_NE(after.psn, before.psn);
    qa.reset();
  }
}

TEST_P(FabricStates, AfterAResetOfBothTheyConnectAgain) {
  connect();
  for (std::uint64_t round = 1; round <= 20; ++round) {
    *a->word(0) = round;
    for (std::uint64_t i = 0; i < round; ++i)
      ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 0, i));
    for (std::uint64_t i = 0; i < round; ++i) expect_send(i);
    ASSERT_TRUE(qa->fetch_add(a->memory->sge(8, 8), b->memory->remote(), 0, 1, 99));
    expect_send(99);
    EXPECT_TRUE(b->await_word(0, round + 1));
    for (QueuePair* each : {qa.get(), qb.get()}) each->modify(QpState::kReset);
    join();
  }
}

TEST_P(FabricStates, AOneSidedResetReachesNobody) {
  for (const bool own : {true, false}) {  // the side that sends first afterwards
    connect(impatient());
    // Without these, a NIC takes the requests of the side that was not reset: their numbers are
    // still those of its address.
    for (std::uint64_t i = 0; i < 5; ++i) {
      ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 8, i));
      expect_send(i);
      ASSERT_TRUE(qb->write(b->memory->sge(0, 8), a->memory->remote(), 8, i));
      EXPECT_EQ(b->await_send().wr_id, i);
    }
    *a->word(0) = *b->word(0) = 77;
    qa->modify(QpState::kReset);
    qa->connect(qb->address());
    Side& side = own ? *a : *b;
    QueuePair& sender = own ? *qa : *qb;
    const RemoteRegion target = (own ? b : a)->memory->remote();
    ASSERT_TRUE(sender.write(side.memory->sge(0, 8), target, 128, 10));
    const Status status = side.await_send().status;
    // Soft-RoCE may take the acknowledgement of what the peer holds for a duplicate for its own.
    if (!world->soft_roce() || status != Status::kSuccess) {
      EXPECT_STREQ(to_string(status), to_string(Status::kRetryExceeded));
    }
    EXPECT_EQ((own ? b : a)->load_word(128), 0u) << "no effect in any case";
  }
}

TEST_P(FabricStates, AnUnreliableConnectionGoesOnAfterAOneSidedReset) {
  start();
  if (!world->env(0).device().capabilities().uc) GTEST_SKIP() << "the device has no UC";
  QpOptions options;
  options.transport = Transport::kUc;
  connect(options);
  for (std::uint64_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 8, i));
    expect_send(i);
  }
  qa->modify(QpState::kReset);
  qa->connect(qb->address());
  *a->word(0) = 77;
  for (std::uint64_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 16 + 8 * i, 10 + i));
    expect_send(10 + i);
  }
  EXPECT_TRUE(b->await_word(24, 77));
}

// The number of a destroyed queue pair may come back. What was connected to the first owner does
// not reach the second.
TEST_P(FabricStates, ALaterOwnerOfANumberHearsNothing) {
  connect(impatient());
  ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 8, 1));
  expect_send(1);
  const std::uint32_t number = qb->qp_num();
  qb.reset();
  std::vector<std::unique_ptr<QueuePair>> others;
  for (int i = 0; i < 300 && (others.empty() || others.back()->qp_num() != number); ++i)
    others.push_back(b->queue_pair());
  auto friendly = a->queue_pair();
  friendly->connect(others.back()->address());
  others.back()->connect(friendly->address());
  *a->word(0) = 77;
  ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 0, 2));
  expect_send(2, Status::kRetryExceeded);
  EXPECT_EQ(b->load_word(0), 0u);
  ASSERT_TRUE(friendly->write(a->memory->sge(0, 8), b->memory->remote(), 0, 3));
  EXPECT_EQ(a->await_send().wr_id, 3u);
  EXPECT_TRUE(b->await_word(0, 77));
}

}  // namespace
}  // namespace pyrdma::fabric
