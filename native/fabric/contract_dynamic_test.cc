// The fabric's contract: dynamically connected transport. An initiator reaches any target by number
// and key, with the semantics of RC; a bad request stops its sender only.
#include <string>
#include <vector>

#include "base/rng.h"
#include "fabric/contract_worlds_test.h"

namespace pyrdma::fabric {
namespace {

constexpr std::uint32_t kTargetKey = 73;

class FabricDynamic : public FabricContract {
 protected:
  /// A node with an initiator and a target.
  struct End : Side {
    End(World& world, NodeId node)
        : Side(world, node), shared(device.create_shared_receive_queue(*pd, 16)) {
      initiator = make({}, false);
      target = make({}, true);
    }
    std::unique_ptr<QueuePair> make(QpOptions options, bool is_target) {
      options.transport = Transport::kDc;
      options.dc_target = is_target;
      if (is_target) options.qkey = kTargetKey;
      auto made = queue_pair(options, is_target ? shared.get() : nullptr);
      made->connect({});
      return made;
    }
    bool receive(std::size_t offset, std::uint32_t bytes, std::uint64_t wr_id) {
      const Sge sge = memory->sge(offset, bytes);
      const ReceiveRequest request{wr_id, &sge, 1};
      return shared->post_receive({&request, 1}).accepted == 1;
    }
    void expect_send(std::uint64_t wr_id, Status status = Status::kSuccess) {
      const Completion completion = await_send();
      EXPECT_EQ(completion.wr_id, wr_id);
      EXPECT_STREQ(to_string(completion.status), to_string(status));
    }
    std::unique_ptr<SharedReceiveQueue> shared;
    std::unique_ptr<QueuePair> initiator, target;
  };

  /// Returns false when the device has no DC. The test is then skipped.
  bool begin(std::uint32_t nodes) {
    start(nodes);
    if (!world->env(0).device().capabilities().dc) return false;
    for (NodeId node = 0; node < nodes; ++node) ends.push_back(std::make_unique<End>(*world, node));
    return true;
  }
  /// A request of 8 bytes of node `from` at `offset`, to the same offset at node `to`.
  WorkRequest request(NodeId from, NodeId to, Opcode opcode, std::size_t offset,
                      std::uint64_t wr_id = 0) {
    sges.push_back(std::make_unique<Sge>(ends[from]->memory->sge(offset, 8)));
    handles.push_back(
        ends[from]->device.create_address_handle(*ends[from]->pd, ends[to]->target->address()));
    WorkRequest made;
    made.wr_id = wr_id;
    made.sges = sges.back().get();
    made.sge_count = 1;
    made.opcode = opcode;
    made.remote_addr = ends[to]->memory->addr() + offset;
    made.rkey = ends[to]->memory->rkey();
    made.address_handle = handles.back().get();
    made.remote_qpn = ends[to]->target->qp_num();
    made.remote_qkey = kTargetKey;
    return made;
  }
  bool post(NodeId from, const WorkRequest& one) {
    return ends[from]->initiator->post({&one, 1}).accepted == 1;
  }
  void TearDown() override {
    for (auto& end : ends) {  // an address handle goes after the requests that name it
      end->initiator.reset();
      end->target.reset();
    }
    handles.clear();
    ends.clear();
  }

  std::vector<std::unique_ptr<Sge>> sges;
  std::vector<std::unique_ptr<AddressHandle>> handles;
  std::vector<std::unique_ptr<End>> ends;
};
INSTANTIATE_TEST_SUITE_P(Worlds, FabricDynamic, contract_worlds(),
                         [](const auto& info) { return info.param; });

// Node 0 reaches node 1, and itself.
TEST_P(FabricDynamic, CarriesWhatRcCarries) {
  if (!begin(2)) GTEST_SKIP() << "the device has no DC";
  for (const NodeId to : {1U, 0U}) {
    End &from = *ends[0], &at = *ends[to];
    const auto word_at = [&](std::size_t offset) { return at.load_word(offset); };
    *from.word(0) = 5;
    ASSERT_TRUE(post(0, request(0, to, Opcode::kWrite, 0, 1)));
    from.expect_send(1);
    EXPECT_TRUE(at.await_word(0, 5));
    WorkRequest add = request(0, to, Opcode::kFetchAdd, 0, 2);
    const Sge old = from.memory->sge(64, 8);
    add.sges = &old;
    add.compare_add = 2;
    ASSERT_TRUE(post(0, add));
    from.expect_send(2);
    EXPECT_EQ(*from.word(64), 5u);
    WorkRequest swap = add;
    swap.wr_id = 3;
    swap.opcode = Opcode::kCompareSwap;
    swap.compare_add = 7;
    swap.swap = 11;
    ASSERT_TRUE(post(0, swap));
    from.expect_send(3);
    EXPECT_EQ(*from.word(64), 7u);
    WorkRequest read = add;
    read.wr_id = 4;
    read.opcode = Opcode::kRead;
    ASSERT_TRUE(post(0, read));
    from.expect_send(4);
    EXPECT_EQ(*from.word(64), 11u);
    *from.word(128) = 13;
    for (const Opcode opcode : {Opcode::kSend, Opcode::kSendImm, Opcode::kWriteImm}) {
      ASSERT_TRUE(at.receive(256, 64, 50));
      WorkRequest message = request(0, to, opcode, 128, 5);
      message.remote_addr += 64;
      message.immediate = 17;
      ASSERT_TRUE(post(0, message));
      from.expect_send(5);
      const Completion got = at.await_receive();
      const bool is_write = opcode == Opcode::kWriteImm;
      EXPECT_EQ(got.wr_id, 50u);
      EXPECT_EQ(got.status, Status::kSuccess);
      EXPECT_EQ(got.qp_num, at.target->qp_num());
      EXPECT_EQ(got.byte_count, 8u);
      EXPECT_EQ(got.opcode, is_write ? Opcode::kReceiveWriteImm : Opcode::kReceive);
      EXPECT_EQ(got.flags, opcode == Opcode::kSend ? 0 : kHasImmediate);
      EXPECT_EQ(got.immediate, opcode == Opcode::kSend ? 0u : 17u);
      EXPECT_EQ(word_at(is_write ? 192 : 256), 13u);
    }
  }
}

TEST_P(FabricDynamic, ATargetOnlyReceives) {
  if (!begin(2)) GTEST_SKIP() << "the device has no DC";
  const WorkRequest write = request(0, 1, Opcode::kWrite, 0);
  EXPECT_EQ(ends[0]->target->post({&write, 1}).error, PostError::kInvalid);
  const Sge sge = ends[0]->memory->sge(0, 8);
  const ReceiveRequest receive{1, &sge, 1};
  EXPECT_EQ(ends[0]->target->post_receive({&receive, 1}).error, PostError::kInvalid);
  QpOptions options;
  options.transport = Transport::kDc;
  options.dc_target = true;
  EXPECT_THROW(ends[0]->queue_pair(options), Error) << "it needs a shared receive queue";
  WorkRequest nowhere = request(0, 1, Opcode::kWrite, 0);
  nowhere.address_handle = nullptr;
  EXPECT_EQ(ends[0]->initiator->post({&nowhere, 1}).error, PostError::kInvalid);
  auto other_domain = ends[0]->device.create_protection_domain();
  auto foreign = ends[0]->device.create_address_handle(*other_domain, ends[1]->target->address());
  nowhere.address_handle = foreign.get();
  EXPECT_EQ(ends[0]->initiator->post({&nowhere, 1}).error, PostError::kInvalid);
}

// Each bad request of node 0 stops its initiator. Node 2 then reaches the target as before, and a
// reset brings the initiator back.
TEST_P(FabricDynamic, ABadRequestStopsItsSenderOnly) {
  if (!begin(3)) GTEST_SKIP() << "the device has no DC";
  End &bad = *ends[0], &at = *ends[1], &good = *ends[2];
  QpOptions options;
  options.retry_count = options.rnr_retry = 0;
  options.timeout_us = options.rnr_timer_us = 10;
  bad.initiator = bad.make(options, false);
  auto connected = at.queue_pair();
  struct Case {
    const char* what;
    Opcode opcode;
    Status status;
    void (*spoil)(WorkRequest&);
    bool takes_receive;
  };
  const auto number = connected->qp_num(), initiator = at.initiator->qp_num();
  const Case cases[] = {
      {"key", Opcode::kWrite, Status::kRetryExceeded, [](auto& r) { r.remote_qkey ^= 1; }, false},
      {"number", Opcode::kRead, Status::kRetryExceeded, [](auto& r) { r.remote_qpn ^= 0x800; },
       false},
      {"RC", Opcode::kWrite, Status::kRetryExceeded, nullptr, false},
      {"initiator", Opcode::kWrite, Status::kRetryExceeded, nullptr, false},
      {"rkey", Opcode::kRead, Status::kRemoteAccess, [](auto& r) { r.rkey ^= 0x40; }, false},
      {"bounds", Opcode::kWrite, Status::kRemoteAccess, [](auto& r) { r.remote_addr -= 1 << 20; },
       false},
      {"alignment", Opcode::kFetchAdd, Status::kRemoteInvalidRequest,
       [](auto& r) { r.remote_addr += 4; }, false},
      {"no receive", Opcode::kSend, Status::kRnrRetryExceeded, [](auto&) {}, false},
      {"short receive", Opcode::kSend, Status::kRemoteInvalidRequest, [](auto&) {}, true},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    WorkRequest both[] = {request(0, 1, c.opcode, 0, 1), request(0, 2, Opcode::kWrite, 0, 2)};
    if (c.spoil != nullptr) {
      c.spoil(both[0]);
    } else {
      both[0].remote_qpn = std::string(c.what) == "RC" ? number : initiator;
    }
    if (c.takes_receive) {
      ASSERT_TRUE(at.receive(256, 4, 60));
    }
    ASSERT_EQ(bad.initiator->post(both).accepted, 2u);
    bad.expect_send(1, c.status);
    bad.expect_send(2, Status::kFlushed);
    EXPECT_EQ(bad.initiator->state(), QpState::kError);
    EXPECT_EQ(at.target->state(), QpState::kReadyToSend);
    if (c.takes_receive) {
      const Completion failed = at.await_receive();
      EXPECT_EQ(failed.wr_id, 60u);
      EXPECT_EQ(failed.status, Status::kLocalLength);
    }
    ASSERT_TRUE(at.receive(256, 64, 61));
    ASSERT_TRUE(post(2, request(2, 1, Opcode::kSend, 0, 3)));
    good.expect_send(3);
    EXPECT_EQ(at.await_receive().wr_id, 61u);
    bad.initiator->modify(QpState::kReset);
    bad.initiator->connect({});
    ASSERT_TRUE(post(0, request(0, 1, Opcode::kWrite, 0, 4)));
    bad.expect_send(4);
  }
}

TEST_P(FabricDynamic, NothingOvertakesARequestThatWaits) {
  if (!begin(3)) GTEST_SKIP() << "the device has no DC";
  End& from = *ends[0];
  *from.word(0) = 3;
  ASSERT_TRUE(post(0, request(0, 1, Opcode::kSend, 0, 1)));  // no receive is posted
  ASSERT_TRUE(post(0, request(0, 2, Opcode::kWrite, 0, 2)));
  EXPECT_TRUE(from.quiet(*from.sends));
  EXPECT_EQ(ends[2]->load_word(0), 0u);
  ASSERT_TRUE(ends[1]->receive(64, 8, 9));
  from.expect_send(1);
  from.expect_send(2);
  EXPECT_EQ(ends[1]->await_receive().wr_id, 9u);
  EXPECT_EQ(ends[1]->load_word(64), 3u);
  EXPECT_TRUE(ends[2]->await_word(0, 3));
}

// What went to other targets before is complete; what comes after is flushed.
TEST_P(FabricDynamic, ADeadNodeStopsTheRequestsBehind) {
  if (!begin(3)) GTEST_SKIP() << "the device has no DC";
  End& from = *ends[0];
  const WorkRequest to_dead = request(0, 2, Opcode::kWrite, 0, 2);
  ASSERT_TRUE(post(0, request(0, 2, Opcode::kWrite, 0, 0)));
  from.expect_send(0);
  world->kill(2);
  for (int round = 0; round < 2; ++round) {
    const WorkRequest all[] = {request(0, 1, Opcode::kWrite, 0, 1), to_dead,
                               request(0, 1, Opcode::kWrite, 0, 3)};
    ASSERT_EQ(from.initiator->post(all).accepted, 3u);
    from.expect_send(1);
    from.expect_send(2, Status::kRetryExceeded);
    from.expect_send(3, Status::kFlushed);
    EXPECT_EQ(from.initiator->state(), QpState::kError);
    from.initiator->modify(QpState::kReset);
    from.initiator->connect({});
    ASSERT_TRUE(post(0, request(0, 1, Opcode::kRead, 0, 4)));
    from.expect_send(4);
  }
}

TEST_P(FabricDynamic, ATargetLeavesServiceAndComesBack) {
  if (!begin(3)) GTEST_SKIP() << "the device has no DC";
  End &from = *ends[0], &at = *ends[1];
  for (const QpState end : {QpState::kError, QpState::kReset}) {
    ASSERT_TRUE(at.receive(64, 8, 1));
    at.target->modify(end);
    ASSERT_TRUE(post(0, request(0, 1, Opcode::kSend, 0, 1)));
    from.expect_send(1, Status::kRetryExceeded);
    EXPECT_TRUE(at.quiet(*at.receives)) << "a shared receive is not flushed";
    if (end == QpState::kError) at.target->modify(QpState::kReset);
    at.target->connect({});
    from.initiator->modify(QpState::kReset);
    from.initiator->connect({});
    ASSERT_TRUE(post(0, request(0, 1, Opcode::kSend, 0, 2)));
    from.expect_send(2);
    EXPECT_EQ(at.await_receive().wr_id, 1u);
  }
}

// The packets of long messages from several senders come to the target in turn.
TEST_P(FabricDynamic, MessagesOfSeveralSendersStayApart) {
  if (!begin(3)) GTEST_SKIP() << "the device has no DC";
  constexpr std::uint32_t kBytes = 60'000 / 8 * 8, kSenders = 2;
  End& at = *ends[kSenders];
  for (NodeId from = 0; from < kSenders; ++from)
    for (std::uint32_t i = 0; i < kBytes; i += 8) *ends[from]->word(i) = 1 + from;
  for (int round = 0; round < 20; ++round) {
    for (std::uint32_t i = 0; i < kSenders; ++i)
      ASSERT_TRUE(at.receive(std::size_t{i} * kBytes, kBytes, i));
    std::vector<Sge> parts(kSenders);
    std::vector<std::unique_ptr<Thread>> senders;
    for (NodeId from = 0; from < kSenders; ++from) {
      parts[from] = ends[from]->memory->sge(0, kBytes - 8 * from);
      WorkRequest message = request(from, kSenders, Opcode::kSend, 0, 1);
      message.sges = &parts[from];
      senders.push_back(ends[from]->env.spawn("sender", [this, from, message] {
        EXPECT_TRUE(post(from, message));
        ends[from]->expect_send(1);
      }));
    }
    for (std::uint32_t i = 0; i < kSenders; ++i) {
      const Completion got = at.await_receive();
      ASSERT_EQ(got.status, Status::kSuccess);
      const std::size_t begin = got.wr_id * kBytes;
      const std::uint64_t sender = at.load_word(begin);
      EXPECT_EQ(got.byte_count, kBytes - 8 * (sender - 1)) << "the length of the other message";
      for (std::uint32_t word = 0; word < got.byte_count; word += 8)
        ASSERT_EQ(at.load_word(begin + word), sender) << "round " << round << " byte " << word;
    }
    for (auto& sender : senders) sender->join();
  }
}

// Node 0 writes to node 1 and to node 2 in turn while node 1 closes its target.
TEST_P(FabricDynamic, NothingFollowsTheEndOfATarget) {
  if (!begin(3)) GTEST_SKIP() << "the device has no DC";
  constexpr std::uint32_t kBytes = 64 << 10, kWords = kBytes / 8, kWrites = 8;
  constexpr std::uint32_t kEach = kBytes / kWrites;
  const int rounds = kSanitized ? 20 : 200;
  Rng rng(6);
  End &from = *ends[0], &at = *ends[1];
  for (int round = 1; round <= rounds; ++round) {
    const auto value = static_cast<std::uint64_t>(round);
    for (std::uint32_t i = 0; i < kWords; ++i) *from.word(std::size_t{i} * 8) = value;
    std::vector<Sge> parts(kWrites);
    std::vector<WorkRequest> writes;
    for (std::uint32_t i = 0; i < 2 * kWrites; ++i) {
      parts[i / 2] = from.memory->sge(i / 2 * kEach, kEach);
      writes.push_back(request(0, 1 + i % 2, Opcode::kWrite, i / 2 * kEach, i));
      writes.back().sges = &parts[i / 2];
    }
    auto writer = from.env.spawn("writer", [&] {
      for (const WorkRequest& write : writes) from.initiator->post({&write, 1});
    });
    ASSERT_TRUE(at.await_word(rng.below(kWords) * 8, value));
    at.target->modify(round % 2 == 0 ? QpState::kError : QpState::kReset);
    ASSERT_TRUE(
        at.env.poll_until([&] { return at.target->is_quiet(); }, at.env.now() + at.timeout));
    std::vector<std::uint64_t> seen(kWords);
    for (std::uint32_t i = 0; i < kWords; ++i) seen[i] = at.load_word(std::size_t{i} * 8);
    writer->join();
    at.env.sleep_until(at.env.now() + 10 * kMicrosecond);
    for (std::uint32_t i = 0; i < kWords; ++i)
      ASSERT_EQ(at.load_word(std::size_t{i} * 8), seen[i]) << "round " << round << " word " << i;
    from.initiator->modify(QpState::kError);
    for (std::uint32_t i = 0; i < writes.size(); ++i) from.await_send();
    from.initiator->modify(QpState::kReset);
    from.initiator->connect({});
    if (round % 2 == 0) at.target->modify(QpState::kReset);
    at.target->connect({});
  }
}

}  // namespace
}  // namespace pyrdma::fabric
