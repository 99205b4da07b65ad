// Processes that are stopped, or die, within a send: they hold locks of the receiver's rings.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "fabric/shm/process_test.h"
#include "fabric/shm/ring_locks_test.h"

namespace pyrdma::fabric::shm {
namespace {

constexpr std::uint32_t kLongMessage = 1 << 20;
constexpr std::uint32_t kReceives = 64;

/// Node 0 takes long messages of node 1 without end. A pair of its own shares the completions.
struct Receiver {
  explicit Receiver(Env& env)
      : device(env.device()),
        pd(device.create_protection_domain()),
        region(device.allocate(*pd, kLongMessage, kAllAccess)),
        completions(device.create_completion_queue(1024)) {
    QpOptions options;
    options.receive_entries = 2 * kReceives;
    options.timeout_us = 5'000'000;
    qp = device.create_queue_pair(*pd, *completions, *completions, options);
    const std::string self = std::to_string(env.node()), peer = std::to_string(1 - env.node());
    const Time deadline = env.now() + 20 * kSecond;
    Rendezvous& meeting = device.rendezvous();
    meeting.publish_value("qp" + self, qp->address());
    meeting.publish_value("region" + self, region->remote());
    const auto address = meeting.await_value<QpAddress>("qp" + peer, deadline);
    remote = meeting.await_value<RemoteRegion>("region" + peer, deadline);
    qp->modify(QpState::kInit);
    for (std::uint64_t i = 0; i < kReceives; ++i) post_receive();
    qp->modify(QpState::kReadyToReceive, &address);
    qp->modify(QpState::kReadyToSend);
    meeting.publish_value("ready" + self, 1);
    meeting.await_value<int>("ready" + peer, deadline);
  }
  void post_receive() { EXPECT_TRUE(qp->receive(region->sge(0, kLongMessage), kOfReceive)); }

  static constexpr std::uint64_t kOfReceive = 1'000'000;
  Device& device;
  std::unique_ptr<ProtectionDomain> pd;
  std::unique_ptr<MemoryRegion> region;
  std::unique_ptr<CompletionQueue> completions;
  std::unique_ptr<QueuePair> qp;
  RemoteRegion remote;
};

TEST(ShmStoppedChild, DISABLED_Runs) {
  const char* role = std::getenv(kRole);
  ASSERT_NE(role, nullptr);
  std::istringstream words(role);
  std::string what, name, token;
  NodeId node = 0;
  words >> what >> name >> token >> node;
  ShmNode self(name, node, 2, token);
  Receiver sender(self.env());
  for (;;) {
    sender.qp->send(sender.region->sge(0, kLongMessage));
    Completion completion;
    while (sender.completions->poll({&completion, 1}) == 1) {
    }
  }
}

/// Takes messages until the child is stopped within one, or killed there.
class Within {
 public:
  Within()
      : session_({2, 1}),
        self_(session_.name(), 0, 2, session_.token()),
        child_(role("sender", session_, 1), "ShmStoppedChild.DISABLED_Runs"),
        env(self_.env()),
        receiver(env) {}

  /// Returns false when chance never stopped it within a message.
  bool stop() {
    for (int attempt = 0; attempt < 200; ++attempt) {
      for (int i = 0; i < 20; ++i) take(kMillisecond);
      child_.signal(SIGSTOP);
      Node& node = static_cast<ShmDevice&>(receiver.device).node();
      if (relaxed(receives_lock(node, *receiver.qp).holder) != 0) return true;
      child_.signal(SIGCONT);
    }
    return false;
  }
  void go_on() { child_.signal(SIGCONT); }
  void kill() { child_.kill(); }
  /// Returns whether a message came within `time`, and posts its receive again.
  bool take(Time time) {
    Completion completion;
    const bool got = env.poll_until(
        [&] {
          return receiver.completions->poll({&completion, 1}) == 1;
        },
        env.now() + time);
    if (got && completion.status == Status::kSuccess) receiver.post_receive();
    return got;
  }

 private:
  Session session_;
  ShmNode self_;
  Child child_;

 public:
  Env& env;
  Receiver receiver;
};

TEST(ShmStopped, AProcessWithinASendHoldsUpNothingElse) {
  Within test;
  if (!test.stop()) GTEST_SKIP() << "the peer never stopped within a message";
  while (test.take(0)) {
  }
  Receiver& node = test.receiver;
  const Time begin = test.env.now();
  for (std::uint64_t i = 0; i < 3; ++i)
    ASSERT_TRUE(node.qp->write(node.region->sge(0, 8), node.remote, 0, i));
  // Queue pairs within the node that share its completions.
  auto from = node.device.create_queue_pair(*node.pd, *node.completions, *node.completions);
  auto to = node.device.create_queue_pair(*node.pd, *node.completions, *node.completions);
  from->connect(to->address());
  to->connect(from->address());
  ASSERT_TRUE(to->receive(node.region->sge(0, 64), 4));
  ASSERT_TRUE(from->send(node.region->sge(0, 8), 3));
  std::uint64_t seen = 0;
  EXPECT_TRUE(test.env.poll_until(
      [&] {
        Completion completion;
        if (node.completions->poll({&completion, 1}) == 1) {
          EXPECT_EQ(completion.status, Status::kSuccess);
          seen |= std::uint64_t{1} << completion.wr_id;
        }
        return seen == 0x1f;
      },
      begin + 2 * kSecond));
  EXPECT_LT(test.env.now() - begin, kSoon);
  EXPECT_FALSE(node.qp->is_quiet());
  test.go_on();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(test.take(10 * kSecond));
}

TEST(ShmStopped, AQueuePairLeavesAProcessWithinASend) {
  Within test;
  if (!test.stop()) GTEST_SKIP() << "the peer never stopped within a message";
  while (test.take(0)) {
  }
  const Time begin = test.env.now();
  test.receiver.qp->modify(QpState::kError);
  EXPECT_LT(test.env.now() - begin, kSoon);
  EXPECT_FALSE(test.receiver.qp->is_quiet());
  EXPECT_FALSE(test.take(20 * kMillisecond));
  test.go_on();
  // Each receive ends once, the one under way, too.
  for (std::uint32_t i = 0; i < kReceives; ++i) {
    Completion completion;
    ASSERT_TRUE(test.env.poll_until(
        [&] {
          return test.receiver.completions->poll({&completion, 1}) == 1;
        },
        test.env.now() + 10 * kSecond));
    EXPECT_EQ(completion.status, Status::kFlushed);
  }
  EXPECT_TRUE(
      test.env.poll_until([&] { return test.receiver.qp->is_quiet(); }, begin + 10 * kSecond));
  EXPECT_FALSE(test.take(10 * kMillisecond));
}

TEST(ShmStopped, AProcessThatDiesWithinASendLeavesItsReceive) {
  Within test;
  if (!test.stop()) GTEST_SKIP() << "the peer never stopped within a message";
  while (test.take(0)) {
  }
  test.kill();
  const Time begin = test.env.now();
  ASSERT_TRUE(test.receiver.qp->write(test.receiver.region->sge(0, 8), test.receiver.remote, 0, 1));
  std::uint32_t flushed = 0;
  bool written = false;
  EXPECT_TRUE(test.env.poll_until(
      [&] {
        Completion completion;
        if (test.receiver.completions->poll({&completion, 1}) == 1) {
          if (completion.wr_id != Receiver::kOfReceive)
            written = true;
          else
            flushed += completion.status == Status::kFlushed ? 1 : 0;
        }
        // A write may still have found the memory of the dead process.
        if (test.receiver.qp->state() == QpState::kReadyToSend && written) {
          written = false;
          test.receiver.qp->write(test.receiver.region->sge(0, 8), test.receiver.remote, 0, 1);
        }
        return flushed == kReceives;
      },
      begin + 2 * kSecond));
  EXPECT_EQ(test.receiver.qp->state(), QpState::kError);
  EXPECT_TRUE(test.receiver.qp->is_quiet());
}

}  // namespace
}  // namespace pyrdma::fabric::shm
