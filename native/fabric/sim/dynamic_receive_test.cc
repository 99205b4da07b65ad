// The receives that long messages to a dynamic target hold, when a side fails or goes.
#include <map>
#include <memory>
#include <string>

#include "fabric/sim/faulty_world_test.h"

namespace pyrdma::fabric::sim {
namespace {

/// A target of node 1, and two initiators of node 0.
struct DynamicTarget {
  explicit DynamicTarget(const std::map<std::string, double>& faults = {})
      : world(faults, 2, MemoryModel::strong()) {
    options.transport = Transport::kDc;
    for (auto* initiator : {&first, &second}) {
      *initiator = a.queue_pair(options);
      (*initiator)->connect({});
    }
    options.dc_target = true;
    options.qkey = 73;
    shared = b.device.create_shared_receive_queue(*b.pd, 64);
    target = b.queue_pair(options, shared.get());
    target->connect({});
    handle = a.device.create_address_handle(*a.pd, target->address());
  }
  ~DynamicTarget() {
    first.reset();
    second.reset();
    target.reset();
  }
  void receive(std::uint64_t count) {
    const Sge sge = b.memory->sge(0, kLong);
    for (std::uint64_t id = 0; id < count; ++id) {
      const ReceiveRequest request{id, &sge, 1};
      ASSERT_EQ(shared->post_receive({&request, 1}).accepted, 1U);
    }
  }
  void send(QueuePair& initiator, std::uint32_t bytes) {
    const Sge sge = a.memory->sge(0, bytes);
    WorkRequest request;
    request.sges = &sge;
    request.sge_count = 1;
    request.opcode = Opcode::kSend;
    request.address_handle = handle.get();
    request.remote_qpn = target->qp_num();
    request.remote_qkey = options.qkey;
    ASSERT_EQ(initiator.post({&request, 1}).accepted, 1U);
  }
  /// The first initiator is in the middle of a message of 512 KiB, which holds receive 0.
  void begin_long() {
    receive(2);
    send(*first, kLong);
    a.env.sleep_until(a.env.now() + 20 * kMicrosecond);  // it takes twice as long
  }
  void expect(Status status, std::uint64_t wr_id) {
    const Completion got = b.await_receive();
    EXPECT_STREQ(to_string(got.status), to_string(status));
    EXPECT_EQ(got.wr_id, wr_id);
  }

  static constexpr std::uint32_t kLong = 512 << 10;
  FaultyWorld world;
  Side a{world, 0, 1 << 20}, b{world, 1, 1 << 20};
  QpOptions options;
  std::unique_ptr<SharedReceiveQueue> shared;
  std::unique_ptr<AddressHandle> handle;
  std::unique_ptr<QueuePair> first, second, target;
};

TEST(DynamicReceives, AMessageThatItsSenderGivesUpFlushesItsReceive) {
  DynamicTarget at;
  at.begin_long();
  at.first->modify(QpState::kError);
  EXPECT_EQ(at.a.await_send().status, Status::kFlushed);
  at.send(*at.second, 8);
  EXPECT_EQ(at.a.await_send().status, Status::kSuccess);
  at.expect(Status::kSuccess, 1);  // receive 0 holds a part of the other message
  at.first->modify(QpState::kReset);
  at.expect(Status::kFlushed, 0);
  EXPECT_EQ(at.target->state(), QpState::kReadyToSend) << "it serves others";
}

// Packets are under way when the queue pair goes.
TEST(DynamicReceives, ASenderThatGoesFlushesItsReceive) {
  for (int wait = 0; wait < 30; wait += 3) {
    DynamicTarget at;
    at.begin_long();
    at.a.env.sleep_until(at.a.env.now() + wait * kMicrosecond);
    at.first.reset();
    EXPECT_EQ(at.b.await_receive().wr_id, 0U);  // flushed, or whole if the message has come
    at.a.env.sleep_until(at.a.env.now() + 100 * kMicrosecond);
    at.send(*at.second, 8);
    at.expect(Status::kSuccess, 1);
  }
}

TEST(DynamicReceives, ASenderThatGoesAtOnceKeepsNoReceive) {
  for (int wait = 0; wait < 8000; wait += 250) {
    DynamicTarget at;
    at.receive(1);
    at.send(*at.first, DynamicTarget::kLong);
    at.a.env.sleep_until(at.a.env.now() + wait);
    at.first.reset();
    at.a.env.sleep_until(at.a.env.now() + 100 * kMicrosecond);
    const Completion flushed = at.b.await(*at.b.receives, 1);
    if (flushed.wr_id == 0) {
      EXPECT_EQ(flushed.status, Status::kFlushed) << wait;
    } else {  // no packet has come: the receive is there for others
      at.send(*at.second, 8);
      EXPECT_EQ(at.a.await_send().status, Status::kSuccess) << wait;
      at.expect(Status::kSuccess, 0);
    }
  }
}

TEST(DynamicReceives, AnErrorOfTheTargetFlushesThem) {
  DynamicTarget at;
  at.begin_long();
  at.target->modify(QpState::kError);
  at.expect(Status::kFlushed, 0);
  at.target->modify(QpState::kReset);
  at.target->connect({});
  at.expect(Status::kSuccess, 1);  // the message from its beginning
}

TEST(DynamicReceives, ARepetitionInAStormFlushesNone) {
  DynamicTarget at({{"dc_storm", 20}, {"loss", 0.02}});
  for (int round = 0; round < 100; ++round) {
    at.receive(1);
    at.send(*at.first, 256 << 10);
    EXPECT_EQ(at.a.await_send().status, Status::kSuccess);
    at.expect(Status::kSuccess, 0);
  }
  EXPECT_GT(at.world.reached(Fault::dc_storm), 0U);
}

}  // namespace
}  // namespace pyrdma::fabric::sim
