// Tests of each fault of packets, ways and interfaces by itself. A fault fires, reaches its target,
// has its effect, and ends at the heal. node_fault_test.cc has the faults of nodes.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>

#include "base/error_test.h"
#include "fabric/sim/faulty_world_test.h"

namespace pyrdma::fabric::sim {
namespace {

QpOptions patient() {
  QpOptions qp;
  qp.timeout_us = 100;
  qp.retry_count = 7;
  return qp;
}

// A reliable connection hides the fault: all requests succeed once and in order.
void expect_hidden(const std::map<std::string, double>& faults, Fault fault) {
  SCOPED_TRACE(fault_info(fault).key);
  Pair pair(faults, patient());
  for (std::uint64_t i = 1; i <= 300; ++i) {
    ASSERT_EQ(pair.write(i).status, Status::kSuccess);
    ASSERT_TRUE(pair.qa->fetch_add(pair.a.memory->sge(8, 8), pair.b.memory->remote(), 64, 1));
    ASSERT_TRUE(pair.qa->read(pair.a.memory->sge(16, 8), pair.b.memory->remote(), 0));
    ASSERT_EQ(pair.a.await_send().status, Status::kSuccess);
    ASSERT_EQ(pair.a.await_send().status, Status::kSuccess);
    ASSERT_EQ(*pair.a.word(8), i - 1) << "an atomic took effect twice or never";
    ASSERT_EQ(*pair.a.word(16), i);
    ASSERT_TRUE(pair.qb->receive(pair.b.memory->sge(1024 + 8 * i, 8), i));
    *pair.a.word(24) = 1000 + i;
    ASSERT_TRUE(pair.qa->send(pair.a.memory->sge(24, 8)));
    ASSERT_EQ(pair.a.await_send().status, Status::kSuccess);
    const Completion received = pair.b.await_receive();
    ASSERT_EQ(received.wr_id, i);
    ASSERT_EQ(pair.b.load_word(1024 + 8 * i), 1000 + i);
  }
  EXPECT_TRUE(pair.b.quiet(*pair.b.receives)) << "a send arrived twice";
  EXPECT_GT(pair.world.fired(fault), 5u);
  EXPECT_GT(pair.world.reached(fault), 5u);
}

TEST(Faults, AReliableConnectionHidesLossDuplicatesReorderingAndDelay) {
  expect_hidden({{"loss", 0.05}}, Fault::loss);
  expect_hidden({{"ack_loss", 0.05}}, Fault::ack_loss);
  expect_hidden({{"duplicate", 0.2}}, Fault::duplicate);
  expect_hidden({{"reorder", 0.1}}, Fault::reorder);
  expect_hidden({{"delay", 0.05}, {"delay.max_ns", 20000}}, Fault::delay);
  expect_hidden({{"late_completion", 0.2}}, Fault::late_completion);
  expect_hidden({{"cache_miss", 0.2}}, Fault::cache_miss);
  expect_hidden({{"rnr", 0.2}}, Fault::rnr);
  expect_hidden({{"loss_burst", 20}, {"loss_burst.max_ns", 10000}}, Fault::loss_burst);
  expect_hidden({{"clog", 20}, {"clog.min_ns", 5000}, {"clog.max_ns", 20000}}, Fault::clog);
  expect_hidden({{"noisy_neighbour", 50}}, Fault::noisy_neighbour);
}

// What waits behind a late packet is let go with it. Each request is late once on each way at most,
// as long as the fault states, however many are outstanding.
TEST(Faults, ADelayHasItsBoundUnderLoad) {
  constexpr Time kBound = 20 * kMicrosecond;
  QpOptions qp = patient();
  qp.timeout_us = 10'000;
  Pair pair({{"delay", 0.2}, {"delay.min_ns", 1000}, {"delay.max_ns", kBound}}, qp);
  constexpr std::uint64_t kOutstanding = 64;
  std::deque<Time> posted;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    if (posted.size() == kOutstanding) {
      ASSERT_EQ(pair.a.await_send().status, Status::kSuccess);
      ASSERT_LT(pair.a.env.now() - posted.front(), 3 * kBound);
      posted.pop_front();
    }
    posted.push_back(pair.a.env.now());
    ASSERT_TRUE(pair.qa->write(pair.a.memory->sge(0, 8), pair.b.memory->remote(), 0));
  }
  EXPECT_GT(pair.world.fired(Fault::delay), 100u);
}

TEST(Faults, ManyPacketsOutstandingUnderAllOfThemAtOnce) {
  Pair pair({{"loss", 0.02},
             {"ack_loss", 0.02},
             {"duplicate", 0.05},
             {"reorder", 0.05},
             {"delay", 0.02},
             {"delay.max_ns", 20000},
             {"late_completion", 0.05},
             {"rnr", 0.05}},
            patient());
  std::uint64_t total = 0;
  for (std::uint64_t i = 0; i < 2000; i += 20) {
    for (std::uint64_t k = 0; k < 10; ++k) {
      ASSERT_TRUE(pair.qa->fetch_add(pair.a.memory->sge(8 * k, 8), pair.b.memory->remote(), 0, 1));
      ASSERT_TRUE(pair.qa->write(pair.a.memory->sge(512, 40000), pair.b.memory->remote(), 64));
    }
    for (std::uint64_t k = 0; k < 20; ++k) ASSERT_EQ(pair.a.await_send().status, Status::kSuccess);
    for (std::uint64_t k = 0; k < 10; ++k) ASSERT_EQ(*pair.a.word(8 * k), total++);
  }
}

struct Datagrams {
  explicit Datagrams(const std::map<std::string, double>& faults)
      : world(faults), a(world, 0), b(world, 1, 1 << 17, 2048) {
    QpOptions qp;
    qp.transport = Transport::kUd;
    qp.receive_entries = 1024;
    qa = a.queue_pair(qp);
    qb = b.queue_pair(qp);
    qa->connect({});
    qb->connect({});
    to = a.device.create_address_handle(*a.pd, qb->address());
    for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_TRUE(qb->receive(b.memory->sge(64 * i, 64), i));
    for (std::uint64_t i = 1; i <= 500; ++i) {
      *a.word(0) = i;
      const Sge sge = a.memory->sge(0, 8);
      WorkRequest request;
      request.sges = &sge;
      request.sge_count = 1;
      request.opcode = Opcode::kSend;
      request.address_handle = to.get();
      request.remote_qpn = qb->qp_num();
      request.remote_qkey = qb->address().qkey;
      EXPECT_EQ(qa->post({&request, 1}).accepted, 1u);
      EXPECT_EQ(a.await_send().status, Status::kSuccess);
    }
    for (;;) {
      const Completion received = b.await(*b.receives, kMillisecond);
      if (received.status != Status::kSuccess) break;
      values.push_back(b.load_word(received.wr_id * 64 + kGrhBytes));
    }
  }
  FaultyWorld world;
  Side a, b;
  std::unique_ptr<QueuePair> qa, qb;
  std::unique_ptr<AddressHandle> to;
  std::vector<std::uint64_t> values;
};

TEST(Faults, DatagramsAreLostDoubledReorderedAndSpoilt) {
  Datagrams lost({{"loss", 0.1}});
  EXPECT_EQ(lost.values.size(), 500 - lost.world.reached(Fault::loss));
  EXPECT_GT(lost.world.reached(Fault::loss), 20u);
  Datagrams doubled({{"duplicate", 0.1}});
  EXPECT_EQ(doubled.values.size(), 500 + doubled.world.reached(Fault::duplicate));
  Datagrams reordered({{"reorder", 0.1}});
  EXPECT_EQ(reordered.values.size(), 500u);
  EXPECT_FALSE(std::is_sorted(reordered.values.begin(), reordered.values.end()));
  Datagrams spoilt({{"corruption", 0.1}});
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < spoilt.values.size(); ++i) wrong += spoilt.values[i] != i + 1;
  EXPECT_EQ(wrong, spoilt.world.reached(Fault::corruption));
  EXPECT_GT(wrong, 20u);
}

TEST(Faults, AnUnreliableConnectionDropsMessagesWithAHole) {
  QpOptions qp;
  qp.transport = Transport::kUc;
  Pair pair({{"loss", 0.2}}, qp);
  constexpr std::uint32_t kBytes = 60000;  // a write of several chunks
  for (std::uint64_t i = 0; i < 100; ++i)
    ASSERT_TRUE(pair.qb->receive(pair.b.memory->sge(0, kBytes), i));
  int received = 0;
  for (int i = 1; i <= 100; ++i) {
    std::memset(pair.a.memory->data(), i, kBytes);
    ASSERT_TRUE(pair.qa->send(pair.a.memory->sge(0, kBytes)));
    ASSERT_EQ(pair.a.await_send().status, Status::kSuccess);
    const Completion arrived = pair.b.await(*pair.b.receives, 100 * kMicrosecond);
    if (arrived.status != Status::kSuccess) continue;
    ++received;
    for (std::uint32_t at = 0; at < kBytes; at += 1000)
      ASSERT_EQ(pair.b.memory->data()[at], static_cast<std::byte>(i));
  }
  EXPECT_GT(received, 10);
  EXPECT_LT(received, 90);
}

// The faults that end requests with errors.
TEST(Faults, ErrorsComeAsTheInterfaceHasThem) {
  Pair revoked({{"region_revoked", 1}});
  EXPECT_EQ(revoked.write(1).status, Status::kRemoteAccess);
  EXPECT_EQ(revoked.world.reached(Fault::region_revoked), 1u);
  Pair overrun({{"cq_overrun", 1}});
  ASSERT_TRUE(overrun.qa->write(overrun.a.memory->sge(0, 8), overrun.b.memory->remote(), 0));
  EXPECT_TRUE(overrun.a.quiet(*overrun.a.sends));
  EXPECT_TRUE(overrun.a.sends->overrun());
  Pair failed({{"qp_error", 0.5}});
  std::set<Status> seen;
  for (int i = 0; i < 10 && failed.qa->state() == QpState::kReadyToSend; ++i)
    seen.insert(failed.write(1).status);
  EXPECT_EQ(seen.count(Status::kFlushed), 1u);
  EXPECT_THROW(Pair({{"memory_pressure", 1}}), Error);
  Pair full({{"queue_full", 1}});
  EXPECT_EQ(full.write(1).status, Status::kSuccess) << "an empty queue is never full";
}

TEST(Faults, APartitionEndsInRetryExceededOnBothSides) {
  for (const char* kind :
       {"partition", "isolation", "partition_partial", "partition_one_way", "coordinator_down"}) {
    QpOptions qp;
    qp.timeout_us = 20;
    qp.retry_count = 2;
    const std::string key = kind;
    Pair pair({{key, 1000}, {key + ".min_ns", 1e9}, {key + ".max_ns", 1e9}, {"heal_at_ns", 5e6}},
              qp);
    pair.wait(kMillisecond);
    EXPECT_EQ(pair.write(1).status, Status::kRetryExceeded) << kind;
    ASSERT_TRUE(pair.qb->write(pair.b.memory->sge(8, 8), pair.a.memory->remote(), 64));
    EXPECT_EQ(pair.b.await_send().status, Status::kRetryExceeded) << kind;
    EXPECT_GT(pair.world.reached(fault_named(kind)), 0u);
    pair.wait(5 * kMillisecond);
    auto q2 = pair.a.queue_pair(), p2 = pair.b.queue_pair();
    q2->connect(p2->address());
    p2->connect(q2->address());
    ASSERT_TRUE(q2->write(pair.a.memory->sge(0, 8), pair.b.memory->remote(), 0));
    EXPECT_EQ(pair.a.await_send().status, Status::kSuccess) << kind << ": healed";
  }
}

TEST(Faults, AFlappingLinkAndAPauseStormOnlyDelay) {
  QpOptions qp = patient();
  Pair flapping({{"partition_flapping", 1000}, {"partition_flapping.max_ns", 1e6}}, qp);
  flapping.wait(200 * kMicrosecond);
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(flapping.write(i).status, Status::kSuccess);
  EXPECT_GT(flapping.world.reached(Fault::partition_flapping), 0u);
  Pair storm({{"pause_storm", 1000}, {"heal_at_ns", 5e6}}, qp);
  storm.wait(kMillisecond);
  const Time start = storm.a.env.now();
  EXPECT_EQ(storm.write(1).status, Status::kSuccess);
  EXPECT_GT(storm.a.env.now() - start, 10 * kMicrosecond);
  EXPECT_GT(storm.world.reached(Fault::pause_storm), 0u);
}

// Writes a value and then a flag on one queue pair. Counts the flags that are visible before their
// values.
std::uint64_t flags_before_values(const std::map<std::string, double>& faults,
                                  std::uint64_t* reached) {
  Pair pair(faults);
  std::uint64_t early = 0;
  for (std::uint64_t i = 1; i <= 300; ++i) {
    *pair.a.word(0) = i;
    EXPECT_TRUE(pair.qa->write(pair.a.memory->sge(0, 8), pair.b.memory->remote(), 0, 0, 0));
    EXPECT_TRUE(pair.qa->write(pair.a.memory->sge(0, 8), pair.b.memory->remote(), 8));
    EXPECT_TRUE(pair.b.await_word(8, i));
    early += pair.b.load_word(0) != i;
    EXPECT_EQ(pair.a.await_send().status, Status::kSuccess);
    EXPECT_TRUE(pair.b.await_word(0, i));
  }
  *reached = pair.world.reached(Fault::placement_reorder);
  return early;
}

TEST(Faults, WritesOfOneConnectionArePlacedInAnyOrder) {
  std::uint64_t reached = 0;
  EXPECT_EQ(flags_before_values({}, &reached), 0u);
  EXPECT_EQ(reached, 0u);
  EXPECT_GT(flags_before_values({{"placement_reorder", 1}}, &reached), 5u);
  EXPECT_GT(reached, 5u);
}

// Measures the time of two reads of one target. The second read needs no new connection.
Time dynamic_reads(const std::map<std::string, double>& faults, std::uint64_t* reached) {
  FaultyWorld world(faults);
  Side a(world, 0), b(world, 1);
  QpOptions options;
  options.transport = Transport::kDc;
  auto initiator = a.queue_pair(options);
  initiator->connect({});
  options.dc_target = true;
  options.qkey = 73;
  auto shared = b.device.create_shared_receive_queue(*b.pd, 16);
  auto target = b.queue_pair(options, shared.get());
  target->connect({});
  auto handle = a.device.create_address_handle(*a.pd, target->address());
  a.env.sleep_until(a.env.now() + 100 * kMicrosecond);  // the faults' windows open
  const Sge sge = a.memory->sge(0, 8);
  WorkRequest request;
  request.sges = &sge;
  request.sge_count = 1;
  request.opcode = Opcode::kRead;
  request.remote_addr = b.memory->addr();
  request.rkey = b.memory->rkey();
  request.address_handle = handle.get();
  request.remote_qpn = target->qp_num();
  request.remote_qkey = options.qkey;
  const Time start = a.env.now();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(initiator->post({&request, 1}).accepted, 1u);
    EXPECT_EQ(a.await_send().status, Status::kSuccess);
  }
  *reached = world.reached(Fault::dc_storm);
  return a.env.now() - start;
}

TEST(Faults, EveryDynamicallyConnectedRequestReconnectsInAStorm) {
  std::uint64_t reached = 0;
  const Time calm = dynamic_reads({}, &reached);
  EXPECT_EQ(reached, 0u);
  const Time storm = dynamic_reads(
      {{"dc_storm", 1000}, {"dc_storm.min_ns", 1e6}, {"dc_storm.max_ns", 1e6}}, &reached);
  EXPECT_EQ(reached, 2u);
  EXPECT_NEAR(static_cast<double>(storm - calm), test_profile().nic_dc_reconnect_ns, 50);
}

// A window opens at each of the two nodes every two microseconds on average and lasts up to 50. A
// later window that ends earlier must not end the open windows.
TEST(Faults, OverlappingWindowsLastAsLongAsTheLastOfThem) {
  const Datagrams sent(
      {{"loss_burst", 1000}, {"loss_burst.min_ns", 500}, {"loss_burst.max_ns", 50000}});
  EXPECT_EQ(sent.values.size(), 0u);
  Datagrams healed({{"loss_burst", 1000}, {"heal_at_ns", 1000}});
  EXPECT_EQ(healed.values.size(), 500u);
}

TEST(Faults, AFullBufferDropsWhatWouldHaveToWait) {
  FaultyWorld world({{"buffer_overflow", 1000}, {"buffer_overflow.max_ns", 1e6}}, 4);
  Side target(world, 0, 1 << 20);
  std::vector<std::unique_ptr<Side>> senders;
  std::vector<std::unique_ptr<QueuePair>> ends;
  for (NodeId node = 1; node < 4; ++node) {
    senders.push_back(std::make_unique<Side>(world, node, 1 << 20));
    ends.push_back(senders.back()->queue_pair(patient()));
    ends.push_back(target.queue_pair(patient()));
    ends[ends.size() - 2]->connect(ends.back()->address());
    ends.back()->connect(ends[ends.size() - 2]->address());
  }
  target.env.sleep_until(target.env.now() + 100 * kMicrosecond);
  for (std::size_t i = 0; i < 3; ++i)
    for (int k = 0; k < 10; ++k)
      ASSERT_TRUE(
          ends[2 * i]->write(senders[i]->memory->sge(0, 16000), target.memory->remote(), 0));
  for (std::size_t i = 0; i < 3; ++i)
    for (int k = 0; k < 10; ++k) EXPECT_EQ(senders[i]->await_send().status, Status::kSuccess);
  EXPECT_GT(world.reached(Fault::buffer_overflow), 0u);
}

TEST(Faults, TheRandomSubsetOfASeedIsItsOwnAndOthersDoNotChangeIt) {
  std::set<std::string> on;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const FaultOptions drawn = FaultOptions::draw(seed);
    EXPECT_EQ(drawn[Fault::loss].rate, FaultOptions::draw(seed)[Fault::loss].rate);
    for (std::size_t i = 0; i < kFaults; ++i)
      if (drawn.settings[i].rate > 0) on.insert(std::string(fault_info(static_cast<Fault>(i)).key));
  }
  EXPECT_EQ(on.size(), kFaults - 3) << "all faults but the three of the memory model";
}

TEST(Faults, OptionsAreChecked) {
  const auto refused = [](const char* key, double value,
                          const std::vector<std::string_view>& named) {
    return refuses(
        [&] {
          FaultOptions::from_values({{key, value}});
        },
        ErrorCode::kInvalidArgument, named);
  };
  EXPECT_TRUE(refused("los", 0.1, {"los", "loss"}));
  EXPECT_TRUE(refused("loss", 2, {"loss", "2", "0", "1"}));
  EXPECT_TRUE(refused("pause.rate", -1, {"pause", "-1", "0", "1000"}));
  EXPECT_TRUE(refused("loss.max_ns", 5, {"loss"}));
  EXPECT_TRUE(refused("delay.min_ns", 1e6, {"delay", "min_ns", "max_ns"}));
  EXPECT_TRUE(refused("late_placement", 0.5, {"late_placement", "weak"}));
  EXPECT_TRUE(refused("delay.colour", 1, {"delay.colour", "delay.rate"}));
}

}  // namespace
}  // namespace pyrdma::fabric::sim
