// The fabric's contract: requests with bad keys, buffers, lengths and opcodes, and regions that go
// while requests use them.
#include "fabric/contract_requests_test.h"

#include <algorithm>
#include <array>
#include <vector>

namespace pyrdma::fabric {
namespace {

constexpr std::uint32_t kOtherKey = 0x40000000;

class FabricBadRequests : public FabricRequests {
 protected:
  bool returns(Opcode opcode) {
    return opcode == Opcode::kRead || opcode == Opcode::kFetchAdd || opcode == Opcode::kCompareSwap;
  }
  /// Posts a request of 8 bytes with bad keys, and expects its end without any effect.
  void expect_failure(Opcode opcode, bool bad_local, bool bad_remote, bool unaligned,
                      bool signaled) {
    SCOPED_TRACE(std::string(to_string(opcode)) + (bad_local ? " bad lkey" : "") +
                 (bad_remote ? " bad rkey" : "") + (unaligned ? " unaligned" : ""));
    connect();
    *a->word(0) = 7;
    *b->word(0) = 1;
    Sge sge = a->memory->sge(0, 8);
    if (bad_local) sge.lkey ^= kOtherKey;
    WorkRequest request = request_to_b(opcode, {&sge, 1});
    if (bad_remote) request.rkey ^= kOtherKey;
    if (unaligned) request.remote_addr += 4;
    if (!signaled) request.flags = 0;
    ASSERT_TRUE(qb->receive(b->memory->sge(64, 8), 5));
    const bool accepted = post(request);
    ASSERT_NE(accepted, world->soft_roce() && unaligned) << "whose library refuses the post";
    if (accepted) {
      const Completion completion = a->await_send();
      EXPECT_EQ(completion.wr_id, 1u);
      const Status status = completion.status;
      // Soft-RoCE looks at the buffer of a request that returns data when the answer comes.
      const bool late = world->soft_roce() && returns(opcode) && bad_remote;
      if (bad_local && !late) {
        EXPECT_TRUE(world->is_local_error(status)) << to_string(status);
      } else if (!unaligned) {
        EXPECT_STREQ(to_string(status), to_string(Status::kRemoteAccess));
      } else {
        EXPECT_TRUE(status == Status::kRemoteInvalidRequest || status == Status::kRemoteAccess)
            << to_string(status);
      }
      EXPECT_EQ(qa->state(), QpState::kError);
      if (!bad_local) {
        EXPECT_TRUE(reaches(*b, *qb, QpState::kError)) << "a reliable responder ends, too";
      }
    }
    EXPECT_EQ(*a->word(0), 7u);
    if (!(world->soft_roce() && bad_local)) {
      EXPECT_EQ(b->load_word(0), 1u);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Worlds, FabricBadRequests, contract_worlds(),
                         [](const auto& info) { return info.param; });

TEST_P(FabricBadRequests, AWrongLocalKeyOfEachOpcode) {
  for (const Opcode opcode : kAllRequests) expect_failure(opcode, true, false, false, true);
}

TEST_P(FabricBadRequests, AWrongRemoteKeyOfEachOpcode) {
  for (const bool signaled : {true, false})
    for (const Opcode opcode : kRemoteRequests)
      expect_failure(opcode, false, true, false, signaled);
}

TEST_P(FabricBadRequests, OfTwoWrongKeysTheLocalOneIsReported) {
  for (const Opcode opcode : kRemoteRequests) expect_failure(opcode, true, true, false, true);
}

TEST_P(FabricBadRequests, AnUnalignedAtomicWithAWrongKey) {
  for (const Opcode opcode : {Opcode::kFetchAdd, Opcode::kCompareSwap})
    for (const bool local : {true, false}) expect_failure(opcode, local, !local, true, true);
}

TEST_P(FabricBadRequests, LocalBoundsOfEachOpcode) {
  for (const Opcode opcode : kAllRequests) {
    for (int edge = 0; edge < 4; ++edge) {
      SCOPED_TRACE(std::string(to_string(opcode)) + ", edge " + std::to_string(edge));
      connect();
      Sge sge = a->memory->sge(0, 8);
      if (edge == 0) sge.addr -= 1;
      if (edge == 1) sge.addr += a->memory->size() - 7;
      if (edge == 2) sge.addr = ~0ULL - 3;  // wraps around
      if (edge == 3) sge.addr = 0;
      ASSERT_TRUE(qb->receive(b->memory->sge(64, 8)));
      ASSERT_TRUE(post(request_to_b(opcode, {&sge, 1})));
      expect_local_error(1);
    }
  }
}

TEST_P(FabricBadRequests, EachTransportTakesItsOpcodesOnly) {
  start();
  const Capabilities able = world->env(0).device().capabilities();
  const std::array<bool, 3> is_there = {able.rc, able.uc, able.ud};
  for (const Transport transport : {Transport::kRc, Transport::kUc, Transport::kUd}) {
    if (!is_there[static_cast<std::size_t>(transport)]) continue;
    QpOptions options;
    options.transport = transport;
    connect(options);
    std::unique_ptr<AddressHandle> handle;
    if (transport == Transport::kUd)
      handle = a->device.create_address_handle(*a->pd, qb->address());
    const Sge sge = a->memory->sge(0, 8);
    for (int code = 0; code < 12; ++code) {
      const auto opcode = static_cast<Opcode>(code);
      SCOPED_TRACE(std::string(to_string(transport)) + " " + to_string(opcode));
      const bool sends = opcode == Opcode::kSend || opcode == Opcode::kSendImm;
      const bool writes = opcode == Opcode::kWrite || opcode == Opcode::kWriteImm;
      const bool good = sends || (writes && transport != Transport::kUd) ||
                        (returns(opcode) && transport == Transport::kRc);
      if (transport == Transport::kRc && (sends || opcode == Opcode::kWriteImm)) {
        ASSERT_TRUE(qb->receive(b->memory->sge(64, 8)));
      }
      WorkRequest request = request_to_b(opcode, {&sge, 1}, 7);
      request.address_handle = handle.get();
      request.remote_qpn = qb->qp_num();
      request.remote_qkey = options.qkey;
      const PostResult result = qa->post({&request, 1});
      EXPECT_EQ(result.accepted, good ? 1u : 0u);
      EXPECT_EQ(result.error, good ? PostError::kNone : PostError::kInvalid);
      if (good) expect_send(7);
      request.flags |= kInline;
      if (returns(opcode)) {
        EXPECT_EQ(qa->post({&request, 1}).error, PostError::kInvalid) << "inline";
      }
    }
    EXPECT_EQ(qa->state(), QpState::kReadyToSend) << "a refused post changes nothing";
  }
}

TEST_P(FabricBadRequests, MessagesOfNoBytes) {
  connect();
  // Neither a key nor a bound matters, since no byte is touched.
  const Sge nothing{~0ULL, 0, 12345};
  for (const Opcode opcode : {Opcode::kWrite, Opcode::kRead}) {
    for (const bool piece : {false, true}) {
      WorkRequest request = request_to_b(opcode, {&nothing, piece ? 1U : 0U});
      request.remote_addr = ~0ULL - 5;
      request.rkey = 12345;
      ASSERT_TRUE(post(request));
      expect_send(1);
    }
  }
  for (const Opcode opcode : {Opcode::kSend, Opcode::kSendImm, Opcode::kWriteImm}) {
    for (const bool piece : {false, true}) {
      const ReceiveRequest receive{3, piece ? &nothing : nullptr, piece ? 1U : 0U};
      ASSERT_EQ(qb->post_receive({&receive, 1}).accepted, 1u);
      WorkRequest request = request_to_b(opcode, {&nothing, piece ? 1U : 0U});
      request.immediate = 42;
      ASSERT_TRUE(post(request));
      expect_send(1);
      const Completion completion = b->await_receive();
      EXPECT_EQ(completion.wr_id, 3u);
      EXPECT_EQ(completion.byte_count, 0u);
      EXPECT_EQ(completion.immediate, opcode == Opcode::kSend ? 0u : 42u);
    }
  }
}

TEST_P(FabricBadRequests, AtomicsInSeveralPieces) {
  struct Case {
    std::uint32_t first, second;  // bytes of the pieces
    bool good;
  };
  for (const Case& c : {Case{4, 4, true}, Case{4, 0, false}, Case{8, 8, false}, Case{0, 0, false},
                        Case{3, 5, true}}) {
    SCOPED_TRACE(std::to_string(c.first) + " + " + std::to_string(c.second));
    connect();
    *b->word(0) = 0x1122334455667788;
    const Sge pieces[] = {a->memory->sge(0, c.first), a->memory->sge(64, c.second)};
    const bool accepted = post(request_to_b(Opcode::kFetchAdd, pieces));
    if (!c.good) {
      if (accepted) expect_send(1, Status::kLocalLength);
      ASSERT_NE(accepted, world->soft_roce()) << "where only the post can refuse it";
      EXPECT_EQ(b->load_word(0), 0x1122334455667788u);
      continue;
    }
    ASSERT_TRUE(accepted);
    expect_send(1);
    EXPECT_EQ(b->load_word(0), 0x1122334455667789u);
    std::uint64_t old = 0;
    std::memcpy(&old, a->memory->data(), c.first);
    std::memcpy(reinterpret_cast<std::byte*>(&old) + c.first, a->memory->data() + 64, c.second);
    EXPECT_EQ(old, 0x1122334455667788u);
  }
}

TEST_P(FabricBadRequests, AtomicsWrapAround) {
  connect();
  *b->word(0) = ~0ULL - 1;
  for (const std::uint64_t addend : {0ULL, 5ULL, ~0ULL}) {
    const std::uint64_t before = b->load_word(0);
    ASSERT_TRUE(qa->fetch_add(a->memory->sge(0, 8), b->memory->remote(), 0, addend, 1));
    expect_send(1);
    EXPECT_EQ(*a->word(0), before);
    EXPECT_TRUE(b->await_word(0, before + addend));
  }
}

TEST_P(FabricBadRequests, AFencedRequestWaitsForEarlierAtomics) {
  connect();
  for (std::uint64_t i = 1; i <= 50; ++i) {
    const std::uint64_t at = i * 8;  // an earlier round's atomic may still be in flight
    *b->word(at) = i;
    *b->word(0) = *a->word(0) = 0;
    ASSERT_TRUE(qa->fetch_add(a->memory->sge(0, 8), b->memory->remote(), at, 1, 1, 0));
    ASSERT_TRUE(qb->receive(b->memory->sge(0, 8), i));
    ASSERT_TRUE(qa->send(a->memory->sge(0, 8), 2, kSignaled | kFence));
    expect_send(2);
    expect_receive(i);
    EXPECT_EQ(b->load_word(0), i) << "the send has the atomic's old value";
  }
}

TEST_P(FabricBadRequests, LongAndShortMessagesArrive) {
  QpOptions options;
  options.max_inline = 64;
  connect(options);
  for (const std::uint32_t bytes : {1U, 60U, 4097U, 100'000U}) {
    a->fill(0, bytes, bytes);
    ASSERT_TRUE(qb->receive(b->memory->sge(0, bytes), bytes));
    const bool is_inline = bytes <= std::min(60U, a->device.capabilities().max_inline);
    {
      const std::vector<Sge> pieces = {a->memory->sge(0, bytes)};  // gone before the completion
      WorkRequest request = request_to_b(Opcode::kSend, pieces);
      if (is_inline) request.flags |= kInline;
      ASSERT_TRUE(post(request));
    }
    if (is_inline) a->fill(0, bytes, 0);
    const Completion completion = b->await_receive();
    EXPECT_EQ(completion.wr_id, bytes);
    EXPECT_EQ(completion.byte_count, bytes);
    expect_send(1);
    EXPECT_TRUE(b->matches(0, bytes, bytes)) << bytes;
  }
}

TEST_P(FabricBadRequests, UnsignaledRequestsOfEachOpcode) {
  connect();
  const Sge sge = a->memory->sge(0, 8);
  for (const Opcode opcode : kAllRequests) {
    SCOPED_TRACE(to_string(opcode));
    const bool receives =
        opcode == Opcode::kSend || opcode == Opcode::kSendImm || opcode == Opcode::kWriteImm;
    if (receives) {
      ASSERT_TRUE(qb->receive(b->memory->sge(64, 8), 5));
    }
    WorkRequest request = request_to_b(opcode, {&sge, 1}, 1);
    request.flags = 0;
    ASSERT_TRUE(post(request));
    ASSERT_TRUE(post(request_to_b(Opcode::kWrite, {&sge, 1}, 2)));
    expect_send(2);
    if (receives) expect_receive(5);
  }
  EXPECT_TRUE(a->quiet(*a->sends));
}

// ---- regions ----

TEST_P(FabricBadRequests, ARegionOfAnotherDomain) {
  for (const bool local : {true, false}) {
    for (const Opcode opcode : kAllRequests) {
      SCOPED_TRACE(std::string(to_string(opcode)) + (local ? ", local" : ", remote"));
      connect();
      Side& side = local ? *a : *b;
      const auto domain = side.device.create_protection_domain();
      const auto foreign = side.device.allocate(*domain, 4096, kAllAccess);
      const Sge sge = local ? foreign->sge(0, 8) : a->memory->sge(0, 8);
      ASSERT_TRUE(qb->receive(local ? b->memory->sge(64, 8) : foreign->sge(0, 8), 5));
      WorkRequest request = request_to_b(opcode, {&sge, 1});
      const bool sends = opcode == Opcode::kSend || opcode == Opcode::kSendImm;
      if (!local && !sends) {
        request.remote_addr = foreign->addr();
        request.rkey = foreign->rkey();
      }
      ASSERT_TRUE(post(request));
      if (local)
        expect_local_error(1);
      else
        expect_send(1, sends ? Status::kRemoteOperation : Status::kRemoteAccess);
      for (std::size_t i = 0; i < 4096; ++i) ASSERT_EQ(foreign->data()[i], std::byte{0});
    }
  }
}

TEST_P(FabricBadRequests, ARegionWithoutTheRightOfLocalWrite) {
  for (const Opcode opcode : kAllRequests) {
    SCOPED_TRACE(to_string(opcode));
    connect();
    const auto region = a->device.allocate(*a->pd, 4096, kRemoteRead);
    const Sge sge = region->sge(0, 8);
    ASSERT_TRUE(qb->receive(b->memory->sge(64, 8), 5));
    ASSERT_TRUE(post(request_to_b(opcode, {&sge, 1})));
    if (returns(opcode))
      expect_local_error(1);
    else
      expect_send(1);
  }
  connect();
  const auto region = b->device.allocate(*b->pd, 4096, kRemoteRead);
  ASSERT_TRUE(qb->receive(region->sge(0, 8), 5));
  ASSERT_TRUE(qa->send(a->memory->sge(0, 8), 1));
  expect_send(1, Status::kRemoteOperation);
  expect_receive(5, world->soft_roce() ? Status::kLocalQpOperation : Status::kLocalProtection);
}

TEST_P(FabricBadRequests, AReceiveWithoutItsRegion) {
  for (int kind = 0; kind < 4; ++kind) {
    SCOPED_TRACE(kind);
    connect();
    auto region = b->device.allocate(*b->pd, 4096, kAllAccess);
    Sge pieces[2] = {region->sge(0, 64), b->memory->sge(0, 64)};
    if (kind == 1) pieces[0].lkey ^= kOtherKey;
    if (kind == 2) pieces[0].addr += 4096 - 4;  // the payload leaves the region
    if (kind == 3) pieces[0].addr = 8;
    const ReceiveRequest receive{3, pieces, 1};
    ASSERT_EQ(qb->post_receive({&receive, 1}).accepted, 1u);
    ASSERT_TRUE(qb->receive(b->memory->sge(0, 64), 4));
    if (kind == 0) region.reset();
    ASSERT_TRUE(qa->send(a->memory->sge(0, 8), 1));
    expect_send(1, Status::kRemoteOperation);
    expect_receive(3, world->soft_roce() ? Status::kLocalQpOperation : Status::kLocalProtection);
    expect_receive(4, Status::kFlushed);
    EXPECT_EQ(qb->state(), QpState::kError);
    EXPECT_EQ(qa->state(), QpState::kError);
  }
}

// A request whose region goes in the midst fails, or has all bytes right.
TEST_P(FabricBadRequests, ARegionThatGoesUnderARequest) {
  constexpr std::uint32_t kBytes = 100'000;
  const int rounds = kSanitized ? 10 : 60;
  for (const bool reads : {true, false}) {
    for (const bool remote : {true, false}) {
      SCOPED_TRACE(std::string(reads ? "read" : "write") + (remote ? ", remote" : ", local"));
      for (int round = 0; round < rounds; ++round) {
        connect();
        Side& owner = remote ? *b : *a;
        auto region = owner.device.allocate(*owner.pd, kBytes, kAllAccess);
        Side& source = reads ? *b : *a;
        Side& sink = reads ? *a : *b;
        source.fill(0, kBytes, 3);
        if (source.env.node() == owner.env.node())
          std::memcpy(region->data(), source.memory->data(), kBytes);
        const Sge local = remote ? a->memory->sge(0, kBytes) : region->sge(0, kBytes);
        const RemoteRegion target = remote ? region->remote() : b->memory->remote();
        ASSERT_TRUE(reads ? qa->read(local, target, 0, 1) : qa->write(local, target, 0, 1));
        a->env.sleep_until(a->env.now() + round * kMicrosecond);
        const bool sees = owner.env.node() != sink.env.node();  // else the bytes go with the region
        region.reset();
        const Completion completion = a->await_send();
        ASSERT_EQ(completion.wr_id, 1u) << "round " << round;
        if (completion.status == Status::kSuccess) {
          if (sees) {
            ASSERT_TRUE(sink.matches(0, kBytes, 3)) << "round " << round;
          }
          continue;
        }
        if (remote) {
          ASSERT_STREQ(to_string(completion.status), to_string(Status::kRemoteAccess));
          EXPECT_TRUE(reaches(*b, *qb, QpState::kError));
        } else {
          ASSERT_TRUE(world->is_local_error(completion.status)) << to_string(completion.status);
        }
      }
    }
  }
}

}  // namespace
}  // namespace pyrdma::fabric
