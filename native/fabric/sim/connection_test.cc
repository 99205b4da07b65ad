// Tests of reliable and unreliable connections of the simulated NIC: what a user sees of losses,
// timeouts, receivers that are not ready, and memory that goes away. Nothing may depend on the
// chunks in which the simulator sends a long message.
#include <gtest/gtest.h>

#include <string>

#include "fabric/sim/faulty_world_test.h"

namespace pyrdma::fabric::sim {
namespace {
constexpr std::uint32_t kLong = 1 << 19;  // 32 chunks
constexpr std::byte kSent{0xab};

QpOptions retrying(std::uint32_t retries, std::uint32_t timeout_us = 100) {
  QpOptions options;
  options.retry_count = retries;
  options.timeout_us = timeout_us;
  return options;
}

/// Two nodes with regions of 8 MiB and one connection.
struct Link {
  explicit Link(QpOptions options = {}, const std::map<std::string, double>& faults = {},
                MemoryModel memory = MemoryModel::weak())
      : world(faults, 2, memory), a(world, 0, 8 << 20), b(world, 1, 8 << 20) {
    qa = a.queue_pair(options);
    qb = b.queue_pair(options);
    qa->connect(qb->address());
    qb->connect(qa->address());
  }
  void wait(Time ns) { a.env.sleep_until(a.env.now() + ns); }
  bool write(std::uint32_t bytes, std::uint64_t wr_id = 0, std::uint8_t flags = kSignaled) {
    return qa->write(a.memory->sge(0, bytes), b.memory->remote(), 0, wr_id, flags);
  }
  std::size_t missing(std::size_t bytes) const {
    return bytes -
           static_cast<std::size_t>(std::count(b.memory->data(), b.memory->data() + bytes, kSent));
  }
  FaultyWorld world;
  Side a, b;
  std::unique_ptr<QueuePair> qa, qb;
};

const char* name(Completion completion) {
  return completion.wr_id == ~0ULL ? "none" : to_string(completion.status);
}

// ---- success means that all bytes are there ----

TEST(Connection, AnUnreliableMessageThatFindsNoReceiveIsDroppedWhole) {
  for (const Time late : {0, 2, 10, 20, 30, 40}) {
    SCOPED_TRACE(late);
    QpOptions options;
    options.transport = Transport::kUc;
    Link link(options);
    std::memset(link.a.memory->data(), 0xab, kLong);
    ASSERT_TRUE(link.qa->send(link.a.memory->sge(0, kLong)));
    link.wait(late * kMicrosecond);
    ASSERT_TRUE(link.qb->receive(link.b.memory->sge(0, kLong), 7));
    const Completion first = link.b.await(*link.b.receives, 5 * kMillisecond);
    if (first.status == Status::kSuccess)
      EXPECT_EQ(link.missing(kLong), 0u);
    else
      EXPECT_STREQ(name(first), "none");
    // The receive is still there for the next message, and the connection goes on.
    ASSERT_TRUE(link.qb->receive(link.b.memory->sge(0, kLong), 8));
    ASSERT_TRUE(link.qa->send(link.a.memory->sge(0, kLong)));
    EXPECT_EQ(link.b.await_receive().status, Status::kSuccess);
    EXPECT_EQ(link.missing(kLong), 0u);
  }
}

// The request fails, or all bytes arrive.
void deregister_source(MemoryModel memory, bool send, std::uint32_t bytes, Time step) {
  int errors = 0, whole = 0;
  for (int i = 0; i < 40; ++i) {
    Link link({}, {}, memory);
    auto source = link.a.device.allocate(*link.a.pd, bytes, kAllAccess);
    std::memset(source->data(), 0xab, bytes);
    if (send) {
      ASSERT_TRUE(link.qb->receive(link.b.memory->sge(0, bytes), 3));
      ASSERT_TRUE(link.qa->send(source->sge(0, bytes), 1));
    } else {
      ASSERT_TRUE(link.qa->write(source->sge(0, bytes), link.b.memory->remote(), 0, 1));
    }
    link.wait(i * step);
    source.reset();
    const Completion done = link.a.await_send();
    if (done.status != Status::kSuccess) {
      EXPECT_STREQ(name(done), to_string(Status::kLocalProtection));
      if (send) {
        EXPECT_TRUE(link.b.quiet(*link.b.receives)) << "the message was not whole";
      }
      ++errors;
      continue;
    }
    if (send) {
      EXPECT_EQ(link.b.await_receive().status, Status::kSuccess);
    }
    link.wait(100 * kMicrosecond);
    EXPECT_EQ(link.missing(bytes), 0u) << "deregistered after " << i * step << " ns";
    ++whole;
  }
  EXPECT_GT(errors, 0);
  EXPECT_GT(whole, 0);
}

TEST(Connection, ASourceThatIsDeregisteredFailsTheRequest) {
  for (const MemoryModel& memory : {MemoryModel::weak(), MemoryModel::strong()}) {
    deregister_source(memory, false, 4096, 40);
    deregister_source(memory, true, 4096, 40);
    deregister_source(memory, false, kLong, 2000);
    deregister_source(memory, true, kLong, 2000);
  }
}

TEST(Connection, ARegionThatIsDeregisteredUnderAReadFailsBothSides) {
  for (const MemoryModel& memory : {MemoryModel::weak(), MemoryModel::strong()}) {
    Link link({}, {}, memory);
    auto region = link.b.device.allocate(*link.b.pd, 8 << 20, kRemoteRead);
    ASSERT_TRUE(link.qa->read(link.a.memory->sge(0, 8 << 20), region->remote(), 0, 1));
    link.wait(100 * kMicrosecond);
    region.reset();
    EXPECT_STREQ(name(link.a.await_send()), to_string(Status::kRemoteAccess));
    EXPECT_EQ(link.qa->state(), QpState::kError);
    EXPECT_EQ(link.qb->state(), QpState::kError);
  }
}

TEST(Connection, AResponderInErrorStopsALongRead) {
  Link link(retrying(1));
  ASSERT_TRUE(link.qa->read(link.a.memory->sge(0, 8 << 20), link.b.memory->remote(), 0, 1));
  link.wait(100 * kMicrosecond);
  link.qb->modify(QpState::kError);
  EXPECT_STREQ(name(link.a.await_send()), to_string(Status::kRetryExceeded));
}

// A responder keeps the answers of atomics, and needs no region to repeat one.
TEST(Connection, ARepeatedAtomicReturnsWhatItFoundWhenItsRegionIsGone) {
  Link link(retrying(7));
  auto region = link.b.device.allocate(*link.b.pd, 4096, kAllAccess);
  auto* word = reinterpret_cast<std::uint64_t*>(region->data());
  *word = 5;
  link.world.cluster.block(1, 0, 150 * kMicrosecond);
  ASSERT_TRUE(link.qa->fetch_add(link.a.memory->sge(0, 8), region->remote(), 0, 1));
  link.wait(20 * kMicrosecond);
  ASSERT_EQ(*word, 6u);
  region.reset();
  EXPECT_STREQ(name(link.a.await_send()), to_string(Status::kSuccess));
  EXPECT_EQ(*link.a.word(0), 5u);
}

// ---- every request ends ----

TEST(Connection, WithAllPacketsLostEveryRequestEndsWhenItsRetriesAreUsedUp) {
  for (const char* fault : {"loss", "ack_loss"}) {
    for (const std::uint32_t retries : {0u, 1u, 7u}) {
      for (const std::uint64_t requests : {1u, 2u, 16u, 100u}) {
        SCOPED_TRACE(std::string(fault) + ", " + std::to_string(retries) + " retries, " +
                     std::to_string(requests) + " requests");
        Link link(retrying(retries), {{fault, 1}});
        const Time start = link.a.env.now();
        for (std::uint64_t i = 0; i < requests; ++i) ASSERT_TRUE(link.write(8, i));
        EXPECT_STREQ(name(link.a.await_send()), to_string(Status::kRetryExceeded));
        const auto timeouts = static_cast<double>(link.a.env.now() - start) / 100e3;
        EXPECT_GE(timeouts, retries + 1);
        EXPECT_LE(timeouts, (retries + 1) * 1.125 + 0.1) << "a timer may take an eighth longer";
        for (std::uint64_t i = 1; i < requests; ++i)
          EXPECT_STREQ(name(link.a.await_send()), to_string(Status::kFlushed));
        EXPECT_LE(link.world.cluster.counters(0).retransmitted, retries * requests);
      }
    }
  }
}

TEST(Connection, ALongWriteAnnouncesItselfOrEndsLikeAShortOne) {
  for (const std::uint32_t bytes : {8u, 1u << 16, kLong}) {
    QpOptions options;
    options.rnr_retry = 2;
    Link link(options);
    const Sge sge = link.a.memory->sge(0, bytes);
    WorkRequest request;
    request.sges = &sge;
    request.sge_count = 1;
    request.opcode = Opcode::kWriteImm;
    request.remote_addr = link.b.memory->addr();
    request.rkey = link.b.memory->rkey();
    ASSERT_EQ(link.qa->post({&request, 1}).accepted, 1u);
    EXPECT_STREQ(name(link.a.await_send()), to_string(Status::kRnrRetryExceeded));
    EXPECT_EQ(link.world.cluster.counters(1).rnr_naks, 3u) << bytes;
  }
}

TEST(Connection, LongRequestsCompleteWhatChunksEverAreLost) {
  for (const double loss : {0.05, 0.1, 0.3}) {
    SCOPED_TRACE(loss);
    Link writes(retrying(7), {{"loss", loss}});
    std::memset(writes.a.memory->data(), 0xab, 4 << 20);
    ASSERT_TRUE(writes.write(4 << 20));
    EXPECT_STREQ(name(writes.a.await_send()), to_string(Status::kSuccess));
    writes.wait(100 * kMicrosecond);
    EXPECT_EQ(writes.missing(4 << 20), 0u);

    Link reads(retrying(7), {{"ack_loss", loss}});
    std::memset(reads.b.memory->data(), 0xab, 4 << 20);
    ASSERT_TRUE(reads.qa->read(reads.a.memory->sge(0, 4 << 20), reads.b.memory->remote(), 0));
    EXPECT_STREQ(name(reads.a.await_send()), to_string(Status::kSuccess));
    EXPECT_EQ(std::count(reads.a.memory->data(), reads.a.memory->data() + (4 << 20), kSent),
              4 << 20);
  }
}

// ---- each request gets its own error ----

TEST(Connection, ARequestInFrontOfASendWithoutAReceiveSucceeds) {
  for (const std::uint32_t bytes : {8u, 1u << 16, 4u << 20}) {
    for (const std::uint32_t retries : {0u, 2u}) {
      QpOptions options;
      options.rnr_retry = retries;
      Link link(options, {}, MemoryModel::strong());
      ASSERT_TRUE(link.qa->read(link.a.memory->sge(0, bytes), link.b.memory->remote(), 0, 1));
      ASSERT_TRUE(link.qa->send(link.a.memory->sge(0, 8), 2));
      EXPECT_STREQ(name(link.a.await_send()), to_string(Status::kSuccess)) << bytes;
      EXPECT_STREQ(name(link.a.await_send()), to_string(Status::kRnrRetryExceeded)) << bytes;
    }
  }
}

TEST(Connection, AReadIsNotSentAgainWhileASendBehindItWaitsForAReceive) {
  Time times[2];
  for (const bool behind : {false, true}) {
    Link link({}, {}, MemoryModel::strong());
    const Time start = link.a.env.now();
    ASSERT_TRUE(link.qa->read(link.a.memory->sge(0, 8 << 20), link.b.memory->remote(), 0, 1));
    if (behind) {
      ASSERT_TRUE(link.qa->send(link.a.memory->sge(0, 8), 2));
    }
    EXPECT_EQ(link.a.await_send().status, Status::kSuccess);
    times[behind] = link.a.env.now() - start;
    EXPECT_EQ(link.world.cluster.counters(0).retransmitted, 0u);
  }
  EXPECT_NEAR(static_cast<double>(times[1]), static_cast<double>(times[0]), 1000);
}

// An unsignaled write in front of a request that its own side refuses has taken effect by then.
TEST(Connection, ARequestThatIsRefusedFailsAfterTheOnesInFrontOfIt) {
  for (int i = 0; i < 20; ++i) {
    Link link(retrying(7), {{"loss", i < 10 ? 0 : 0.5}});
    *link.a.word(0) = 77;
    auto source = link.a.device.allocate(*link.a.pd, 4096, kAllAccess);
    const Sge gone = source->sge(0, 8);
    source.reset();
    ASSERT_TRUE(link.write(8, 1, 0));
    ASSERT_TRUE(link.qa->write(gone, link.b.memory->remote(), 64, 2));
    EXPECT_STREQ(name(link.a.await_send()), to_string(Status::kLocalProtection));
    EXPECT_TRUE(link.b.await_word(0, 77));
  }
}

// ---- timers ----

// The requests are only late, and the requester's timer cannot know.
TEST(Connection, AnAnswerThatIsLaterThanAllTimeoutsIsAnError) {
  Link link(retrying(1), {{"delay", 1}, {"delay.min_ns", 5e7}, {"delay.max_ns", 5.1e7}});
  ASSERT_TRUE(link.qa->fetch_add(link.a.memory->sge(0, 8), link.b.memory->remote(), 0, 1));
  EXPECT_STREQ(name(link.a.await_send()), to_string(Status::kRetryExceeded));
  EXPECT_EQ(link.b.load_word(0), 0u);
  link.wait(100 * kMillisecond);
  EXPECT_EQ(link.b.load_word(0), 1u) << "the late packets take effect, once";
}

TEST(Connection, ATimerThatEndsTooEarlyRepeatsRequestsAndNoneTakesEffectTwice) {
  Link link(retrying(7, 8), {{"delay", 0.1}, {"delay.min_ns", 5000}, {"delay.max_ns", 20000}});
  for (std::uint64_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(link.qa->fetch_add(link.a.memory->sge(0, 8), link.b.memory->remote(), 0, 1));
    ASSERT_TRUE(link.qb->receive(link.b.memory->sge(1024, 8), i));
    *link.a.word(8) = i;
    ASSERT_TRUE(link.qa->send(link.a.memory->sge(8, 8)));
    ASSERT_EQ(link.a.await_send().status, Status::kSuccess);
    ASSERT_EQ(link.a.await_send().status, Status::kSuccess);
    ASSERT_EQ(*link.a.word(0), i);
    ASSERT_EQ(link.b.await_receive().wr_id, i);
    ASSERT_EQ(link.b.load_word(1024), i);
  }
  EXPECT_GT(link.world.cluster.counters(0).retransmitted, 20u);
  EXPECT_TRUE(link.b.quiet(*link.b.receives));
}

TEST(Connection, AnIncastIsAnErrorWhenTheTimeoutIsShorterThanTheQueue) {
  for (const std::uint32_t timeout_us : {8u, 10'000u}) {
    FaultyWorld world({}, 9);
    Side target(world, 0, 1 << 20);
    std::vector<std::unique_ptr<Side>> senders;
    std::vector<std::unique_ptr<QueuePair>> ends;
    for (NodeId node = 1; node < 9; ++node) {
      senders.push_back(std::make_unique<Side>(world, node, 1 << 20));
      ends.push_back(senders.back()->queue_pair(retrying(0, timeout_us)));
      ends.push_back(target.queue_pair(retrying(0, timeout_us)));
      ends[ends.size() - 2]->connect(ends.back()->address());
      ends.back()->connect(ends[ends.size() - 2]->address());
    }
    for (std::size_t i = 0; i < 8; ++i)
      ASSERT_TRUE(
          ends[2 * i]->write(senders[i]->memory->sge(0, 1 << 20), target.memory->remote(), 0));
    int failed = 0;
    for (const auto& sender : senders) failed += sender->await_send().status != Status::kSuccess;
    EXPECT_EQ(failed > 0, timeout_us == 8) << failed;
  }
}

// ---- order ----

// A NIC that was reset expects the first packet of its peer, which has long been sent.
TEST(Connection, AConnectionOfWhichOneSideWasResetServesNoRequest) {
  for (const bool reset_a : {true, false}) {
    Link link(retrying(1));
    *link.a.word(0) = 1;
    ASSERT_TRUE(link.write(8));
    ASSERT_EQ(link.a.await_send().status, Status::kSuccess);
    QueuePair& one = reset_a ? *link.qa : *link.qb;
    const QpAddress before = one.address();
    one.modify(QpState::kReset);
    EXPECT_NE(one.address().psn, before.psn);
    one.connect((reset_a ? *link.qb : *link.qa).address());
    *link.a.word(0) = 2;
    ASSERT_TRUE(link.write(8));
    EXPECT_STREQ(name(link.a.await_send()), to_string(Status::kRetryExceeded));
    link.wait(10 * kMicrosecond);
    EXPECT_NE(link.b.load_word(0), 2u);
    link.qa->modify(QpState::kReset);
    link.qb->modify(QpState::kReset);
    link.qa->connect(link.qb->address());
    link.qb->connect(link.qa->address());
    *link.a.word(0) = 3;
    ASSERT_TRUE(link.write(8));
    EXPECT_EQ(link.a.await_send().status, Status::kSuccess);
    EXPECT_TRUE(link.b.await_word(0, 3));
  }
}

// ---- completion queues ----

// The profile says what the NIC answers.
void overrun_receiver(bool answers) {
  FaultyWorld world({}, 2, MemoryModel::weak(), {{"nic.answers_overrun", answers}});
  Side a(world, 0), b(world, 1, 1 << 17, 4);
  auto qa = a.queue_pair(retrying(1)), qb = b.queue_pair();
  qa->connect(qb->address());
  qb->connect(qa->address());
  for (std::uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(qb->receive(b.memory->sge(0, 8), i));
  for (std::uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(qa->send(a.memory->sge(0, 8), i));
  for (int i = 0; i < 4; ++i) EXPECT_STREQ(name(a.await_send()), to_string(Status::kSuccess));
  EXPECT_STREQ(name(a.await_send()),
               to_string(answers ? Status::kRemoteOperation : Status::kRetryExceeded));
  EXPECT_TRUE(b.receives->overrun());
  EXPECT_EQ(qb->state(), QpState::kError);
}

TEST(Connection, AMessageWhoseCompletionIsLostIsNotAcknowledged) {
  overrun_receiver(true);
  overrun_receiver(false);
}

TEST(Connection, AQueuePairWhoseCompletionIsLostEntersTheErrorState) {
  FaultyWorld world({});
  Side a(world, 0, 1 << 17, 4), b(world, 1);
  auto qa = a.queue_pair(), qb = b.queue_pair(), other = a.queue_pair(), peer = b.queue_pair();
  qa->connect(qb->address());
  qb->connect(qa->address());
  other->connect(peer->address());
  peer->connect(other->address());
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(qa->write(a.memory->sge(0, 8), b.memory->remote(), 0));
  a.env.sleep_until(a.env.now() + kMillisecond);
  EXPECT_TRUE(a.sends->overrun());
  EXPECT_EQ(qa->state(), QpState::kError);
  EXPECT_EQ(other->state(), QpState::kReadyToSend);
  ASSERT_TRUE(other->write(a.memory->sge(0, 8), b.memory->remote(), 0));
  a.env.sleep_until(a.env.now() + kMillisecond);
  EXPECT_EQ(other->state(), QpState::kError);
}

}  // namespace
}  // namespace pyrdma::fabric::sim
