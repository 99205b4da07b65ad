// Each fault of the decorators: it fires, it has its effect, and it is counted.
#include <algorithm>
#include <set>

#include "base/error_test.h"
#include "fabric/contract_worlds_test.h"

namespace pyrdma::fabric {
namespace {

class Hooks : public testing::TestWithParam<std::string> {
 protected:
  void start(std::initializer_list<std::pair<Fault, double>> rates, Transport transport,
             std::uint32_t send_entries = 64) {
    FaultOptions faults;
    for (const auto& [fault, rate] : rates) faults[fault].rate = rate;
    start(faults, transport, send_entries);
  }
  void start(const FaultOptions& faults, Transport transport, std::uint32_t send_entries = 64) {
    world = std::make_unique<HookedWorld>(make_world(GetParam(), 2), 2, faults);
    a = std::make_unique<Side>(*world, 0);
    b = std::make_unique<Side>(*world, 1);
    QpOptions options;
    options.transport = transport;
    options.send_entries = send_entries;
    options.max_inline = 64;
    qa = a->queue_pair(options);
    qb = b->queue_pair(options);
    qa->connect(qb->address());
    qb->connect(qa->address());
    if (transport == Transport::kUd) to_b = a->device.create_address_handle(*a->pd, qb->address());
  }
  PostResult datagram(std::uint64_t number, std::uint8_t flags = kSignaled) {
    a->fill(number * 64, 64, static_cast<unsigned>(number));
    const Sge sge = a->memory->sge(number * 64, 64);
    WorkRequest request;
    request.wr_id = number;
    request.sges = &sge;
    request.sge_count = 1;
    request.opcode = Opcode::kSendImm;
    request.flags = flags;
    request.immediate = static_cast<std::uint32_t>(number);
    request.address_handle = to_b.get();
    request.remote_qpn = qb->qp_num();
    request.remote_qkey = 0x0205;
    return qa->post({&request, 1});
  }
  void receives(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i)
      ASSERT_TRUE(qb->receive(b->memory->sge(i * 128, 128), i));
  }
  /// Returns the immediates in the order of arrival, until none comes any more. Polls of the sender
  /// release late requests.
  std::vector<std::uint32_t> arrivals() {
    std::vector<std::uint32_t> seen;
    for (int idle = 0; idle < 20;) {
      EXPECT_TRUE(a->quiet(*a->sends, 200 * kMicrosecond));
      const Completion completion = b->await(*b->receives, 200 * kMicrosecond);
      if (completion.wr_id == ~0ULL) {
        ++idle;
        continue;
      }
      EXPECT_EQ(completion.source_qpn, qa->qp_num());
      seen.push_back(completion.immediate);
      if (!b->matches(completion.wr_id * 128 + kGrhBytes, 64, completion.immediate)) ++spoilt;
    }
    return seen;
  }
  std::uint64_t fired(Fault fault) const {
    return world->counters(0).fired[static_cast<std::size_t>(fault)];
  }
  std::uint64_t reached(Fault fault) const {
    return world->counters(0).reached[static_cast<std::size_t>(fault)];
  }

  std::unique_ptr<HookedWorld> world;
  std::unique_ptr<Side> a, b;
  std::unique_ptr<QueuePair> qa, qb;
  std::unique_ptr<AddressHandle> to_b;
  int spoilt = 0;
};
INSTANTIATE_TEST_SUITE_P(Worlds, Hooks, testing::Values("sim", "shm"),
                         [](const auto& info) { return info.param; });

TEST_P(Hooks, LostDatagramsCompleteAndDoNotArrive) {
  start({{Fault::loss, 0.5}}, Transport::kUd);
  receives(40);
  for (std::uint64_t i = 0; i < 40; ++i) {
    ASSERT_EQ(datagram(i).accepted, 1u);
    const Completion completion = a->await_send();
    EXPECT_EQ(completion.wr_id, i);
    EXPECT_EQ(completion.status, Status::kSuccess);
  }
  const std::vector<std::uint32_t> seen = arrivals();
  EXPECT_GT(fired(Fault::loss), 5u);
  EXPECT_EQ(reached(Fault::loss), fired(Fault::loss));
  EXPECT_EQ(seen.size(), 40 - fired(Fault::loss));
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(spoilt, 0);
}

TEST_P(Hooks, DatagramsArriveTwice) {
  start({{Fault::duplicate, 0.5}}, Transport::kUd);
  receives(64);
  for (std::uint64_t i = 0; i < 30; ++i) {
    ASSERT_EQ(datagram(i).accepted, 1u);
    EXPECT_EQ(a->await_send().wr_id, i);
  }
  const std::vector<std::uint32_t> seen = arrivals();
  EXPECT_GT(reached(Fault::duplicate), 5u);
  EXPECT_EQ(seen.size(), 30 + reached(Fault::duplicate));
  EXPECT_EQ(std::set<std::uint32_t>(seen.begin(), seen.end()).size(), 30u);
  EXPECT_EQ(spoilt, 0);
}

TEST_P(Hooks, OneBitOfADatagramFlips) {
  start({{Fault::corruption, 0.5}}, Transport::kUd);
  receives(64);
  for (std::uint64_t i = 0; i < 30; ++i) {
    ASSERT_EQ(datagram(i, static_cast<std::uint8_t>(kSignaled | (i % 2) * kInline)).accepted, 1u);
    EXPECT_EQ(a->await_send().wr_id, i);
  }
  EXPECT_EQ(arrivals().size(), 30u);
  EXPECT_GT(reached(Fault::corruption), 5u);
  EXPECT_EQ(static_cast<std::uint64_t>(spoilt), reached(Fault::corruption));
  for (std::uint64_t i = 0; i < 30; ++i)
    EXPECT_TRUE(a->matches(i * 64, 64, static_cast<unsigned>(i))) << "the sender's own buffer";
}

TEST_P(Hooks, LaterDatagramsOvertake) {
  FaultOptions faults;
  faults[Fault::reorder] = {0.3, 20 * kMicrosecond, 100 * kMicrosecond};
  start(faults, Transport::kUd);
  receives(64);
  for (std::uint64_t i = 0; i < 40; ++i) {
    ASSERT_EQ(datagram(i).accepted, 1u);
    EXPECT_EQ(a->await_send().wr_id, i);
  }
  const std::vector<std::uint32_t> seen = arrivals();
  EXPECT_EQ(seen.size(), 40u);
  EXPECT_FALSE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(std::set<std::uint32_t>(seen.begin(), seen.end()).size(), 40u);
  EXPECT_GT(reached(Fault::reorder), 0u);
  EXPECT_EQ(spoilt, 0) << "the buffer was reused, the copy was not";
}

TEST_P(Hooks, DelayedDatagramsKeepTheirOrder) {
  FaultOptions faults;
  faults[Fault::delay] = {0.2, 300 * kMicrosecond, 300 * kMicrosecond};
  start(faults, Transport::kUd);
  receives(64);
  std::uint64_t sent = 0;
  while (fired(Fault::delay) == 0) {
    ASSERT_LT(sent, 60u);
    ASSERT_EQ(datagram(sent).accepted, 1u);
    EXPECT_EQ(a->await_send().wr_id, sent++);
  }
  const Time held = a->env.now();
  ASSERT_EQ(datagram(sent).accepted, 1u);  // follows the late datagram
  EXPECT_EQ(a->await_send().wr_id, sent++);
  to_b.reset();
  for (std::uint64_t i = 0; i + 2 < sent; ++i) EXPECT_EQ(b->await_receive().immediate, i);
  const Completion early = b->await(*b->receives, 10 * kMicrosecond);
  const bool soon = a->env.now() < held + 250 * kMicrosecond;
  EXPECT_TRUE(!soon || early.wr_id == ~0ULL);
  std::vector<std::uint32_t> seen = arrivals();
  if (early.wr_id != ~0ULL) seen.insert(seen.begin(), early.immediate);  // this thread was late
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_LT(seen[0], seen[1]);
  EXPECT_GE(b->env.now(), held + 250 * kMicrosecond);
  EXPECT_EQ(reached(Fault::delay), 2u);
}

TEST_P(Hooks, APostFindsTheQueueFullWhileSomethingIsOutstanding) {
  start({{Fault::queue_full, 0.5}}, Transport::kRc);
  const Sge sge = a->memory->sge(0, 8);
  std::vector<WorkRequest> batch(4);
  for (WorkRequest& request : batch) {
    request.sges = &sge;
    request.sge_count = 1;
    request.remote_addr = b->memory->addr();
    request.rkey = b->memory->rkey();
  }
  std::uint64_t shortened = 0, accepted = 0, completed = 0;
  Completion out[64];
  for (int i = 0; i < 200; ++i) {
    const bool idle = accepted == completed;
    const PostResult result = qa->post(batch);
    accepted += result.accepted;
    if (result.error == PostError::kQueueFull) {
      EXPECT_FALSE(idle) << "no completion would ever make room";
      EXPECT_LT(result.accepted, 4u);
      ++shortened;
    }
    const std::uint64_t wanted = i % 2 == 0 ? accepted - 1 : accepted;
    a->env.poll_until(
        [&] {
          const std::size_t most = std::min<std::size_t>(64, wanted - std::min(wanted, completed));
          completed += a->sends->poll({out, most});
          return completed >= wanted;
        },
        a->env.now() + kSecond, &a->sends->watch());
    ASSERT_GE(completed, wanted);
  }
  EXPECT_GT(shortened, 20u);
  EXPECT_EQ(shortened, reached(Fault::queue_full));
}

TEST_P(Hooks, ASpoiltRequestFailsAsTheNicFailsIt) {
  start({{Fault::malformed, 1}}, Transport::kRc);
  std::set<Status> seen;
  for (int i = 0; i < 40; ++i) {
    ASSERT_EQ(qa->state(), QpState::kReadyToSend);
    ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 0, 3));
    const Completion completion = a->await_send();
    EXPECT_EQ(completion.wr_id, 3u);
    seen.insert(completion.status);
    for (QueuePair* qp : {qa.get(), qb.get()}) qp->modify(QpState::kReset);
    qa->connect(qb->address());
    qb->connect(qa->address());
  }
  EXPECT_EQ(seen, (std::set<Status>{Status::kLocalProtection, Status::kRemoteAccess}));
  EXPECT_EQ(reached(Fault::malformed), 40u);
  ASSERT_TRUE(qb->receive(b->memory->sge(0, 64), 1));
  const std::uint64_t word = 5;  // on the stack: an inline send needs no region
  ASSERT_TRUE(qa->send({reinterpret_cast<std::uint64_t>(&word), 8, 0}, 4, kSignaled | kInline));
  EXPECT_EQ(a->await_send().status, Status::kSuccess);
  EXPECT_EQ(b->await_receive().status, Status::kSuccess);
  EXPECT_EQ(reached(Fault::malformed), 40u);
}

TEST_P(Hooks, AQueuePairGoesToErrorAndFlushes) {
  start({{Fault::qp_error, 1}}, Transport::kRc);
  ASSERT_TRUE(qa->receive(a->memory->sge(0, 8), 9));
  ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 0, 1));
  EXPECT_EQ(qa->state(), QpState::kError);
  const Completion completion = a->await_send();
  EXPECT_EQ(completion.wr_id, 1u);
  EXPECT_EQ(completion.status, Status::kFlushed);
  EXPECT_EQ(a->await_receive().status, Status::kFlushed);
  EXPECT_EQ(reached(Fault::qp_error), 1u);
}

TEST_P(Hooks, SetUpFindsNoMemory) {
  FaultOptions faults;
  faults[Fault::memory_pressure].rate = 1;
  world = std::make_unique<HookedWorld>(make_world(GetParam(), 1), 1, faults);
  Device& device = world->env(0).device();
  const auto refused = [](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kExhausted);
      EXPECT_TRUE(error.definite());
      EXPECT_TRUE(names(error.what(), {"memory_pressure"}));
      return true;
    }
    return false;
  };
  EXPECT_TRUE(refused([&] { device.create_protection_domain(); }));
  EXPECT_TRUE(refused([&] { device.create_completion_queue(4); }));
  EXPECT_EQ(reached(Fault::memory_pressure), 2u);
}

TEST_P(Hooks, ALongRunOfAllDatagramFaultsLeaksNoRoom) {
  FaultOptions faults;
  for (const Fault fault :
       {Fault::loss, Fault::duplicate, Fault::reorder, Fault::delay, Fault::corruption})
    faults[fault] = {0.1, kMicrosecond, 5 * kMicrosecond};
  // The delay is long enough for a later post to overtake on a slow machine.
  faults[Fault::reorder] = {0.1, 50 * kMicrosecond, 200 * kMicrosecond};
  start(faults, Transport::kUd);
  std::uint64_t posted = 0;
  Completion out[64];
  for (std::uint64_t i = 0; i < 20000; ++i) {
    ASSERT_EQ(datagram(i % 64, i % 8 == 7 ? std::uint8_t{kSignaled} : std::uint8_t{0}).accepted, 1u)
        << i;
    if (i % 8 == 7) {
      EXPECT_EQ(a->await_send().wr_id, i % 64);
      ++posted;
    }
    if (i % 16 == 0) {
      const Sge sge = b->memory->sge(0, 128);
      const ReceiveRequest request{1, &sge, 1};
      qb->post_receive({&request, 1});
      b->receives->poll(out);
    }
  }
  EXPECT_GT(reached(Fault::duplicate), 300u);
  EXPECT_GT(reached(Fault::corruption), 300u);
  EXPECT_GT(reached(Fault::loss), 300u);
  EXPECT_GT(reached(Fault::delay), 300u);
  EXPECT_GT(reached(Fault::reorder), 100u);
}

}  // namespace
}  // namespace pyrdma::fabric
