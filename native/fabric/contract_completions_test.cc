// The fabric's contract: completion queues of several queue pairs, queues that overrun, and
// receivers that are not ready.
#include <bit>
#include <map>
#include <vector>

#include "fabric/contract_requests_test.h"

namespace pyrdma::fabric {
namespace {

class FabricCompletions : public FabricRequests {
 protected:
  /// A device may hold up to twice as many entries plus one, because its rings have 2^n entries.
  static std::uint32_t enough_for(const CompletionQueue& queue) {
    return 2 * std::bit_ceil(queue.entries() + 1);
  }
  void make_sides(std::uint32_t entries_of_a, std::uint32_t entries_of_b) {
    start();
    a = std::make_unique<Side>(*world, 0, 1 << 17, entries_of_a);
    b = std::make_unique<Side>(*world, 1, 1 << 17, entries_of_b);
  }
  static void connect_pair(QueuePair& one, QueuePair& other) {
    one.connect(other.address());
    other.connect(one.address());
  }
};
INSTANTIATE_TEST_SUITE_P(Worlds, FabricCompletions, contract_worlds(),
                         [](const auto& info) { return info.param; });

TEST_P(FabricCompletions, AQueueOfManyQueuePairsKeepsTheOrderOfEach) {
  constexpr std::size_t kPairs = 4;
  constexpr std::uint64_t kEach = 20;
  make_sides(256, 256);
  std::vector<std::unique_ptr<QueuePair>> ours, theirs;
  for (std::size_t i = 0; i < kPairs; ++i) {
    ours.push_back(a->queue_pair());
    theirs.push_back(b->queue_pair());
    connect_pair(*ours[i], *theirs[i]);
    for (std::uint64_t k = 0; k < kEach; ++k)
      ASSERT_TRUE(theirs[i]->receive(b->memory->sge(0, 8), k));
  }
  for (std::uint64_t k = 0; k < kEach; ++k)
    for (auto& each : ours) ASSERT_TRUE(each->send(a->memory->sge(0, 8), k));
  for (Side* side : {a.get(), b.get()}) {
    std::map<std::uint32_t, std::uint64_t> next;  // by queue pair
    Completion some[7];
    std::uint64_t seen = 0;
    CompletionQueue& queue = side == a.get() ? *side->sends : *side->receives;
    EXPECT_TRUE(side->env.poll_until(
        [&] {
          while (const std::size_t count = queue.poll(some)) {
            for (std::size_t i = 0; i < count; ++i) {
              EXPECT_EQ(some[i].status, Status::kSuccess);
              EXPECT_EQ(some[i].wr_id, next[some[i].qp_num]++);
            }
            seen += count;
          }
          return seen == kPairs * kEach;
        },
        side->env.now() + side->timeout, &queue.watch()));
    EXPECT_EQ(next.size(), kPairs);
    EXPECT_TRUE(side->quiet(queue));
  }
}

TEST_P(FabricCompletions, AnOverrunEndsTheQueuePairsWhoseCompletionsItLost) {
  make_sides(4, 256);
  qa = a->queue_pair();
  qb = b->queue_pair();
  auto second = a->queue_pair(), peer = b->queue_pair();
  connect_pair(*qa, *qb);
  connect_pair(*second, *peer);
  for (std::uint32_t i = 0; i < enough_for(*a->sends); ++i)
    ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 0));
  EXPECT_TRUE(a->env.poll_until([&] { return a->sends->overrun(); }, a->env.now() + a->timeout));
  Completion completion;
  EXPECT_EQ(a->sends->poll({&completion, 1}), 0u);
  if (world->soft_roce()) return;  // its queue pairs go on
  EXPECT_TRUE(reaches(*a, *qa, QpState::kError));
  EXPECT_EQ(second->state(), QpState::kReadyToSend) << "it has lost none yet";
  ASSERT_TRUE(second->write(a->memory->sge(0, 8), b->memory->remote(), 0));
  EXPECT_TRUE(reaches(*a, *second, QpState::kError));
  EXPECT_EQ(a->sends->poll({&completion, 1}), 0u);
}

TEST_P(FabricCompletions, AMessageWhoseCompletionIsLostHasNoSuccess) {
  make_sides(256, 4);
  qa = a->queue_pair(impatient());
  qb = b->queue_pair();
  connect_pair(*qa, *qb);
  const std::uint32_t count = enough_for(*b->receives);
  for (std::uint64_t i = 0; i < count; ++i) ASSERT_TRUE(qb->receive(b->memory->sge(0, 8), i));
  for (std::uint64_t i = 0; i < count; ++i) ASSERT_TRUE(qa->send(a->memory->sge(0, 8), i));
  std::uint32_t good = 0;
  Status first_error = Status::kSuccess;
  for (std::uint64_t i = 0; i < count; ++i) {
    const Completion completion = a->await_send();
    ASSERT_EQ(completion.wr_id, i);
    if (completion.status == Status::kSuccess)
      ++good;
    else if (first_error == Status::kSuccess)
      first_error = completion.status;
    else
      EXPECT_EQ(completion.status, Status::kFlushed);
  }
  EXPECT_GE(good, 4u);
  EXPECT_LT(good, count) << "the queue has fewer entries";
  EXPECT_STREQ(to_string(first_error),
               to_string(world->soft_roce() ? Status::kRetryExceeded : Status::kRemoteOperation));
  EXPECT_TRUE(b->env.poll_until([&] { return b->receives->overrun(); }, b->env.now() + b->timeout));
  EXPECT_TRUE(reaches(*b, *qb, QpState::kError));
}

// ---- receivers that are not ready ----

TEST_P(FabricCompletions, NoRetryMeansOneAttempt) {
  for (const Opcode opcode : {Opcode::kSend, Opcode::kWriteImm}) {
    SCOPED_TRACE(to_string(opcode));
    QpOptions options;
    options.rnr_retry = 0;
    options.rnr_timer_us = 20000;
    connect(options);
    const Sge sge = a->memory->sge(0, 8);
    const Time began = a->env.now();
    ASSERT_TRUE(post(request_to_b(opcode, {&sge, 1})));
    a->env.sleep_until(began + kMillisecond);
    ASSERT_TRUE(qb->receive(b->memory->sge(0, 8), 2));
    expect_send(1, Status::kRnrRetryExceeded);
    if (!world->soft_roce()) {
      EXPECT_LT(a->env.now() - began, 15 * kMillisecond) << "it has waited for no second attempt";
    }
    EXPECT_EQ(qb->state(), QpState::kReadyToSend) << "the responder is not to blame";
  }
}

TEST_P(FabricCompletions, SeveralRetriesFollowTheFirstAttempt) {
  for (const Opcode opcode : {Opcode::kSend, Opcode::kWriteImm}) {
    for (const bool in_time : {false, true}) {
      SCOPED_TRACE(std::string(to_string(opcode)) + (in_time ? " in time" : ""));
      QpOptions options;
      options.rnr_retry = 3;
      options.rnr_timer_us = 163840;  // a value that verbs has
      connect(options);
      const Sge sge = a->memory->sge(0, 8);
      const Time began = a->env.now();
      ASSERT_TRUE(post(request_to_b(opcode, {&sge, 1})));
      if (in_time) {
        a->env.sleep_until(began + 350 * kMillisecond);
        ASSERT_TRUE(qb->receive(b->memory->sge(0, 8), 2));
      }
      expect_send(1, in_time ? Status::kSuccess : Status::kRnrRetryExceeded);
      // On a busy machine the device may learn of its time late, never early.
      EXPECT_GE(a->env.now() - began, (in_time ? 400 : 480) * kMillisecond);
      if (in_time) expect_receive(2);
    }
  }
}

TEST_P(FabricCompletions, AMessageOfTheMostPieces) {
  start();
  QpOptions options;
  options.max_sges = std::min(world->env(0).device().capabilities().max_sges, 64U);
  connect(options);
  std::vector<Sge> from, into;
  for (std::uint32_t i = 0; i < options.max_sges; ++i) {
    from.push_back(a->memory->sge(i * 16, 3));
    into.push_back(b->memory->sge(i * 16, 3));
    for (std::uint32_t k = 0; k < 3; ++k) a->memory->data()[i * 16 + k] = std::byte(i * 3 + k);
  }
  const ReceiveRequest receive{3, into.data(), options.max_sges};
  ASSERT_EQ(qb->post_receive({&receive, 1}).accepted, 1u);
  ASSERT_TRUE(post(request_to_b(Opcode::kSend, from)));
  expect_send(1);
  expect_receive(3);
  for (std::uint32_t i = 0; i < options.max_sges; ++i)
    EXPECT_EQ(std::memcmp(b->memory->data() + i * 16, a->memory->data() + i * 16, 3), 0) << i;
  std::vector<std::byte> sent(a->memory->data(), a->memory->data() + options.max_sges * 3);
  std::memcpy(b->memory->data(), sent.data(), sent.size());
  ASSERT_TRUE(post(request_to_b(Opcode::kRead, from)));
  expect_send(1);
  for (std::uint32_t i = 0; i < options.max_sges; ++i)
    EXPECT_EQ(std::memcmp(a->memory->data() + i * 16, sent.data() + i * 3, 3), 0) << i;
}

}  // namespace
}  // namespace pyrdma::fabric
