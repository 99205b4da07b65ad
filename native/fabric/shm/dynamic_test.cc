// Dynamically connected transport between threads and between processes: many initiators at one
// target, targets that leave service meanwhile, initiators and targets that die.
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "base/remote_word.h"
#include "fabric/shm/device.h"
#include "fabric/shm/process_test.h"

namespace pyrdma::fabric::shm {
namespace {

constexpr std::uint32_t kKey = 73;
constexpr std::uint32_t kSlots = 32;  // of 64 bytes: the receives

/// What a node tells the others.
struct Address {
  QpAddress target;
  RemoteRegion region;
};

/// A node with a target and an initiator.
struct Dynamic {
  explicit Dynamic(Env& of)
      : env(of),
        device(env.device()),
        pd(device.create_protection_domain()),
        region(device.allocate(*pd, 1 << 16, kAllAccess)),
        sends(device.create_completion_queue(1024)),
        receives(device.create_completion_queue(1024)),
        shared(device.create_shared_receive_queue(*pd, kSlots)) {
    QpOptions options;
    options.transport = Transport::kDc;
    options.timeout_us = 1'000'000;  // a target may leave service for a while
    initiator = device.create_queue_pair(*pd, *sends, *receives, options);
    initiator->connect({});
    options.dc_target = true;
    options.qkey = kKey;
    target = device.create_queue_pair(*pd, *sends, *receives, options, shared.get());
    target->connect({});
    for (std::uint64_t slot = 0; slot < kSlots; ++slot) post_receive(slot);
    deadline = env.now() + 30 * kSecond;
  }
  Address address() const { return {target->address(), region->remote()}; }
  void post_receive(std::uint64_t slot) {
    const Sge sge = region->sge(slot * 64, 64);
    const ReceiveRequest request{slot, &sge, 1};
    EXPECT_EQ(shared->post_receive({&request, 1}).accepted, 1U);
  }
  std::uint64_t* word(std::size_t offset) {
    return reinterpret_cast<std::uint64_t*>(region->data() + offset);
  }
  std::unique_ptr<AddressHandle> handle_of(const Address& to) {
    return device.create_address_handle(*pd, to.target);
  }
  /// Posts a request of 8 bytes at `offset` to `remote_offset`.
  bool post(Opcode opcode, const Address& to, const AddressHandle& handle, std::size_t offset,
            std::uint64_t remote_offset = 0, std::uint64_t wr_id = 0) {
    const Sge sge = region->sge(offset, 8);
    WorkRequest request;
    request.wr_id = wr_id;
    request.sges = &sge;
    request.sge_count = 1;
    request.opcode = opcode;
    request.remote_addr = to.region.addr + remote_offset;
    request.rkey = to.region.rkey;
    request.address_handle = &handle;
    request.remote_qpn = to.target.qp_num;
    request.remote_qkey = kKey;
    request.compare_add = 1;
    return initiator->post({&request, 1}).accepted == 1;
  }
  Completion await(CompletionQueue& queue) {
    Completion completion;
    completion.status = Status::kGeneral;
    EXPECT_TRUE(env.poll_until([&] { return queue.poll({&completion, 1}) == 1; }, deadline));
    return completion;
  }
  /// Does the same, and waits for the end of the request.
  Status carry_out(Opcode opcode, const Address& to, std::size_t offset,
                   std::uint64_t remote_offset = 0) {
    const auto handle = handle_of(to);
    EXPECT_TRUE(post(opcode, to, *handle, offset, remote_offset));
    return await(*sends).status;
  }

  Env& env;
  Device& device;
  std::unique_ptr<ProtectionDomain> pd;
  std::unique_ptr<MemoryRegion> region;
  std::unique_ptr<CompletionQueue> sends, receives;
  std::unique_ptr<SharedReceiveQueue> shared;
  std::unique_ptr<QueuePair> initiator, target;
  Time deadline;
};

/// The number of the sender and of its message, at 4096 and behind it.
constexpr std::size_t kMessage = 4096, kOld = 4200;
constexpr std::uint64_t kCounter = 8192;

/// Sends numbered messages to node 0 as sender `number`, and counts each there.
void send_messages(Env& env, std::uint64_t number, std::uint64_t messages) {
  Dynamic own(env);
  const auto to = env.device().rendezvous().await_value<Address>("target", own.deadline);
  const auto handle = own.handle_of(to);
  for (std::uint64_t i = 0; i < messages; ++i) {
    *own.word(kMessage) = number << 32 | i;
    ASSERT_TRUE(own.post(Opcode::kSend, to, *handle, kMessage));
    ASSERT_TRUE(own.post(Opcode::kFetchAdd, to, *handle, kOld, kCounter));
    ASSERT_EQ(own.await(*own.sends).status, Status::kSuccess);
    ASSERT_EQ(own.await(*own.sends).status, Status::kSuccess);
  }
}

TEST(ShmDynamic, ThreadsOfManyNodesSendToOneTarget) {
  constexpr std::uint32_t kNodes = 3, kThreads = 2, kSenders = kNodes * kThreads;
  constexpr std::uint64_t kMessages = 2000;
  ShmCluster cluster({kNodes + 1, 1});
  cluster.run([&](Env& env) {
    if (env.node() != 0) {
      auto second = env.spawn(
          "second", [&] { send_messages(env, kThreads * (env.node() - 1) + 1, kMessages); });
      send_messages(env, kThreads * (env.node() - 1), kMessages);
      second->join();
      return;
    }
    Dynamic own(env);
    env.device().rendezvous().publish_value("target", own.address());
    std::vector<std::uint64_t> next(kSenders, 0);
    for (std::uint64_t i = 0; i < kSenders * kMessages; ++i) {
      const Completion got = own.await(*own.receives);
      ASSERT_EQ(got.status, Status::kSuccess);
      ASSERT_EQ(got.qp_num, own.target->qp_num());
      const std::uint64_t message = *own.word(got.wr_id * 64);
      ASSERT_LT(message >> 32, kSenders);
      ASSERT_EQ(message & 0xffffffff, next[message >> 32]++);
      own.post_receive(got.wr_id);
    }
    ASSERT_TRUE(env.poll_until(
        [&] { return load_acquire(own.word(kCounter)) == kSenders * kMessages; }, own.deadline));
  });
}

// A reset target gets no completion of a message, however many initiators are within one.
TEST(ShmDynamic, NothingArrivesAfterAReset) {
  constexpr std::uint32_t kSenders = 2;
  constexpr std::uint64_t kMessages = 3000;
  ShmCluster cluster({kSenders + 1, 1});
  cluster.run([&](Env& env) {
    if (env.node() != 0) return send_messages(env, env.node() - 1, kMessages);
    Dynamic own(env);
    env.device().rendezvous().publish_value("target", own.address());
    std::vector<Completion> batch(kSlots);
    const Sge anywhere = own.region->sge(0, 64);
    const ReceiveRequest receive{0, &anywhere, 1};
    const auto counted = [&] { return load_acquire(own.word(kCounter)); };
    int resets = 0;
    std::uint64_t lost = 0;
    while (counted() < kSenders * kMessages && env.now() < own.deadline) {
      std::uint64_t received = 0;
      for (int turn = 0; turn < 1000 && received < 100; ++turn) {
        received += own.receives->poll(batch);
        while (own.shared->post_receive({&receive, 1}).accepted == 1) {
        }
      }
      own.target->modify(QpState::kReset);
      ++resets;
      const std::uint64_t before = counted();
      for (int turn = 0; turn < 100; ++turn) ASSERT_EQ(own.receives->poll(batch), 0U);
      ASSERT_TRUE(env.poll_until([&] { return own.target->is_quiet(); }, own.deadline));
      const std::uint64_t quiet = counted();
      ASSERT_EQ(own.receives->poll(batch), 0U);
      ASSERT_EQ(counted(), quiet) << "nothing executes at a quiet target";
      lost += quiet - before;
      own.target->connect({});
    }
    EXPECT_EQ(counted(), kSenders * kMessages);
    EXPECT_GT(resets, 5);
    RecordProperty("after_reset", std::to_string(lost));  // atomics that a reset met
  });
}

/// Node 1 of two: answers each message of node 0 by a message, and adds one to its first word.
void answer(Env& env) {
  Dynamic own(env);
  const std::string self = std::to_string(env.incarnation());
  const auto to = env.device().rendezvous().await_value<Address>("asker", own.deadline);
  env.device().rendezvous().publish_value("answerer" + self, own.address());
  const auto handle = own.handle_of(to);
  for (;;) {
    own.deadline = env.now() + 30 * kSecond;
    const Completion got = own.await(*own.receives);
    ASSERT_EQ(got.status, Status::kSuccess);
    *own.word(kMessage) = *own.word(got.wr_id * 64) + 1;
    own.post_receive(got.wr_id);
    ASSERT_TRUE(own.post(Opcode::kSend, to, *handle, kMessage));
    ASSERT_EQ(own.await(*own.sends).status, Status::kSuccess);
  }
}

TEST(ShmDynamicChild, DISABLED_Runs) {
  const char* role = std::getenv(kRole);
  ASSERT_NE(role, nullptr);
  std::istringstream words(role);
  std::string what, name, token;
  NodeId node = 0;
  words >> what >> name >> token >> node;
  ShmNode self(name, node, 2, token);
  answer(self.env());
}

// The initiator of node 0 outlives the process that it talks to: its requests to itself succeed,
// and it reaches the process's successor.
TEST(ShmDynamic, AProcessAnswersDiesAndIsReplaced) {
  Session session({2, 1});
  ShmNode self(session.name(), 0, 2, session.token());
  Env& env = self.env();
  Dynamic own(env);
  const Address here = own.address();
  env.device().rendezvous().publish_value("asker", here);
  for (std::uint32_t incarnation = 0; incarnation < 3; ++incarnation) {
    Child child(role("answerer", session, 1), "ShmDynamicChild.DISABLED_Runs");
    ASSERT_TRUE(env.poll_until(
        [&] { return session.incarnation(1) == incarnation && session.all_attached(); },
        env.now() + 20 * kSecond));
    own.deadline = env.now() + 30 * kSecond;
    const auto there = env.device().rendezvous().await_value<Address>(
        "answerer" + std::to_string(incarnation), own.deadline);
    for (std::uint64_t round = 0; round < 300; ++round) {
      *own.word(kMessage) = round;
      ASSERT_EQ(own.carry_out(Opcode::kSend, there, kMessage), Status::kSuccess);
      ASSERT_EQ(own.carry_out(Opcode::kFetchAdd, there, kOld, kCounter), Status::kSuccess);
      ASSERT_EQ(*own.word(kOld), round);
      const Completion got = own.await(*own.receives);
      ASSERT_EQ(*own.word(got.wr_id * 64), round + 1);
      own.post_receive(got.wr_id);
    }
    child.kill();
    const Time killed = env.now();
    if (incarnation == 1) session.end(1);  // the monitor must notice the other ends
    Status status = Status::kSuccess;
    while (status == Status::kSuccess && env.now() < killed + kSecond)
      status = own.carry_out(Opcode::kWrite, there, kMessage, kCounter);
    EXPECT_EQ(status, Status::kRetryExceeded);
    EXPECT_LT(env.now(), killed + kSecond);
    EXPECT_EQ(own.carry_out(Opcode::kWrite, here, kMessage, kCounter), Status::kFlushed);
    EXPECT_EQ(own.initiator->state(), QpState::kError);
    own.initiator->modify(QpState::kReset);
    own.initiator->connect({});
    EXPECT_EQ(own.carry_out(Opcode::kWrite, here, kMessage, kCounter), Status::kSuccess);
    ASSERT_TRUE(env.poll_until([&] { return !session.dead_nodes().empty(); }, own.deadline));
    own.target->modify(QpState::kReset);  // also looks for initiators of the dead process
    EXPECT_TRUE(own.target->is_quiet());
    own.target->connect({});
  }
}

// An initiator within a request keeps the target from being quiet as long as its process lives.
TEST(ShmDynamic, AnInitiatorAtWorkCountsWhileItsProcessLives) {
  Session session({2, 1});
  ShmNode self(session.name(), 0, 2, session.token());
  ShmNode peer(session.name(), 1, 2, session.token());
  Dynamic own(self.env()), other(peer.env());
  Control& control = static_cast<ShmDevice&>(other.device).node().control();
  QpEntry& entry = control.queue_pairs[qp_slot(other.initiator->qp_num())];
  EXPECT_TRUE(own.target->is_quiet());
  entry.at_work.store(target_word(0, own.target->qp_num()));
  EXPECT_FALSE(own.target->is_quiet());
  EXPECT_TRUE(own.initiator->is_quiet()) << "peers reach the target only";
  entry.at_work.store(target_word(1, own.target->qp_num()));
  EXPECT_TRUE(own.target->is_quiet()) << "it works for a target of another node";
  entry.at_work.store(target_word(0, own.target->qp_num()));
  control.header.initiators_end.store(~0U);  // a hostile peer's word
  EXPECT_FALSE(own.target->is_quiet());
  session.end(1);
  EXPECT_TRUE(own.target->is_quiet());
  entry.at_work.store(0);
}

}  // namespace
}  // namespace pyrdma::fabric::shm
