// The fabric's contract: the failures, their errors, and the operations that still work afterwards.
#include <algorithm>
#include <bit>

#include "base/error_test.h"
#include "base/rng.h"
#include "fabric/contract_worlds_test.h"

namespace pyrdma::fabric {
namespace {

class FabricErrors : public FabricContract {};
INSTANTIATE_TEST_SUITE_P(Worlds, FabricErrors, contract_worlds(),
                         [](const auto& info) { return info.param; });

TEST_P(FabricErrors, BoundsOfTheRemoteRegion) {
  const std::uint64_t size = 1 << 17;
  struct Case {
    std::uint64_t offset;
    std::uint32_t length;
    bool good;
  };
  for (const Case& c : {Case{size - 8, 8, true}, Case{size - 7, 8, false}, Case{size, 8, false},
                        Case{~0ULL - 3, 8, false}, Case{0 - std::uint64_t{8}, 8, false},
                        Case{size + 100, 0, true}}) {
    for (const Opcode opcode : {Opcode::kWrite, Opcode::kRead}) {
      connect();
      const Sge sge = a->memory->sge(0, c.length);
      WorkRequest request;
      request.sges = &sge;
      request.sge_count = 1;
      request.opcode = opcode;
      request.remote_addr = b->memory->addr() + c.offset;
      request.rkey = b->memory->rkey();
      ASSERT_EQ(qa->post({&request, 1}).accepted, 1u);
      expect_send(0, c.good ? Status::kSuccess : Status::kRemoteAccess);
    }
  }
}

TEST_P(FabricErrors, AccessRightsOfRegionAndQueuePair) {
  struct Case {
    std::uint32_t region, queue_pair;
    bool write, read, atomic;
  };
  for (const Case& c : {Case{kLocalWrite | kRemoteRead, kAllAccess, false, true, false},
                        Case{kLocalWrite | kRemoteWrite, kAllAccess, true, false, false},
                        Case{kLocalWrite | kRemoteAtomic, kAllAccess, false, false, true},
                        Case{kAllAccess, kRemoteRead, false, true, false},
                        Case{kLocalWrite, kAllAccess, false, false, false}}) {
    for (int op = 0; op < 3; ++op) {
      QpOptions options;
      options.access = c.queue_pair;
      connect(options);
      auto region = b->device.allocate(*b->pd, 4096, c.region);
      const Sge sge = a->memory->sge(0, 8);
      ASSERT_TRUE(op == 0   ? qa->write(sge, region->remote(), 0)
                  : op == 1 ? qa->read(sge, region->remote(), 0)
                            : qa->fetch_add(sge, region->remote(), 0, 1));
      const bool good = op == 0 ? c.write : op == 1 ? c.read : c.atomic;
      const bool by_queue_pair = (c.queue_pair & kAllAccess) != kAllAccess;
      const Status refusal = by_queue_pair && world->soft_roce() ? Status::kRemoteInvalidRequest
                                                                 : Status::kRemoteAccess;
      expect_send(0, good ? Status::kSuccess : refusal);
    }
  }
}

TEST_P(FabricErrors, ARegionGrantsPeersNothingUnlessItIsAsked) {
  start();
  const Capabilities able = world->env(1).device().capabilities();
  alignas(8) std::uint64_t own = 5;
  const auto make = [&](Side& side, int kind) {
    if (kind == 0) return side.device.allocate(*side.pd, 8);
    if (kind == 1 && able.register_own_memory)
      return side.device.register_memory(*side.pd, &own, sizeof own);
    if (kind == 2 && able.device_memory) return side.device.allocate_device_memory(*side.pd, 8);
    return std::unique_ptr<MemoryRegion>();
  };
  for (int kind = 0; kind < 3; ++kind) {
    for (const Opcode opcode : {Opcode::kWrite, Opcode::kWriteImm, Opcode::kRead, Opcode::kFetchAdd,
                                Opcode::kCompareSwap}) {
      connect();
      const auto region = make(*b, kind);
      if (region == nullptr) continue;
      if (region->data() != nullptr) std::memset(region->data(), 5, 8);
      *a->word(0) = 7;
      const Sge sge = a->memory->sge(0, 8);
      WorkRequest request;
      request.wr_id = 1;
      request.sges = &sge;
      request.sge_count = 1;
      request.opcode = opcode;
      request.remote_addr = region->addr();
      request.rkey = region->rkey();
      request.compare_add = 0x0505050505050505;
      ASSERT_TRUE(qb->receive(b->memory->sge(0, 8)));
      ASSERT_EQ(qa->post({&request, 1}).accepted, 1u);
      SCOPED_TRACE(std::string(to_string(opcode)) + ", kind " + std::to_string(kind));
      expect_send(1, Status::kRemoteAccess);
      EXPECT_EQ(*a->word(0), 7u);
      for (std::size_t i = 0; region->data() != nullptr && i < 8; ++i)
        EXPECT_EQ(region->data()[i], std::byte{5});
    }
  }
}

TEST_P(FabricErrors, ARegionThatGrantsNothingTakesAnswersAndMessages) {
  connect();
  const auto region = a->device.allocate(*a->pd, 24);
  *b->word(0) = 7;
  ASSERT_TRUE(qa->read(region->sge(0, 8), b->memory->remote(), 0, 1));
  expect_send(1);
  ASSERT_TRUE(qa->fetch_add(region->sge(8, 8), b->memory->remote(), 0, 1, 2));
  expect_send(2);
  ASSERT_TRUE(qa->receive(region->sge(16, 8)));
  ASSERT_TRUE(qb->send(b->memory->sge(0, 8)));
  EXPECT_EQ(a->await_receive().status, Status::kSuccess);
  const auto* words = reinterpret_cast<const std::uint64_t*>(region->data());
  EXPECT_EQ(words[0], 7u);
  EXPECT_EQ(words[1], 7u);
  EXPECT_EQ(words[2], 8u);
}

TEST_P(FabricErrors, LocalKeysAndBounds) {
  for (int variant = 0; variant < 4; ++variant) {
    connect();
    auto read_only = a->device.allocate(*a->pd, 4096, kRemoteRead);
    auto other_domain = a->device.create_protection_domain();
    auto foreign = a->device.allocate(*other_domain, 4096);
    Sge sge = a->memory->sge(0, 8);
    if (variant == 0) sge.lkey ^= 0x40000000;
    if (variant == 1) sge.addr = a->memory->addr() + a->memory->size() - 4;
    if (variant == 2) sge = foreign->sge(0, 8);
    ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 0, 1));
    if (variant == 3)
      ASSERT_TRUE(qa->read(read_only->sge(0, 8), b->memory->remote(), 0, 2));
    else
      ASSERT_TRUE(qa->write(sge, b->memory->remote(), 0, 2));
    const Completion before = a->await_send();
    EXPECT_EQ(before.wr_id, 1u);
    // A request that fails at once may flush earlier requests that are not acknowledged yet.
    EXPECT_TRUE(before.status == Status::kSuccess || world->loses_local_errors());
    const Completion refused = a->await_send();
    EXPECT_EQ(refused.wr_id, 2u);
    EXPECT_TRUE(world->is_local_error(refused.status)) << to_string(refused.status);
    EXPECT_EQ(qa->state(), QpState::kError);
  }
}

TEST_P(FabricErrors, AtomicsMustBeAligned) {
  connect();
  const bool accepted = qa->fetch_add(a->memory->sge(0, 8), b->memory->remote(), 4, 1, 1);
  ASSERT_NE(accepted, world->soft_roce()) << "whose library refuses the post";
  if (accepted) expect_send(1, Status::kRemoteInvalidRequest);
  EXPECT_EQ(*b->word(0), 0u);
}

TEST_P(FabricErrors, LengthsThatNoMessageHas) {
  // The requests: two pieces whose lengths wrap in 32 bits to 8, and an atomic of 16 bytes.
  for (const bool atomic : {false, true}) {
    connect();
    const Sge wrapping[2] = {a->memory->sge(0, 16), a->memory->sge(0, 0xfffffff8U)};
    const Sge wide[1] = {a->memory->sge(0, 16)};
    *b->word(0) = 5;
    WorkRequest request;
    request.wr_id = 1;
    request.opcode = atomic ? Opcode::kFetchAdd : Opcode::kWrite;
    request.sges = atomic ? wide : wrapping;
    request.sge_count = atomic ? 1 : 2;
    request.remote_addr = b->memory->addr();
    request.rkey = b->memory->rkey();
    request.compare_add = 1;
    const bool accepted = qa->post({&request, 1}).accepted == 1;
    ASSERT_NE(accepted, world->soft_roce()) << "where only the post can refuse it";
    if (accepted) expect_send(1, atomic ? Status::kLocalLength : Status::kLocalProtection);
    EXPECT_EQ(b->load_word(0), 5u);
  }
}

TEST_P(FabricErrors, AReceiveThatIsTooShort) {
  connect();
  ASSERT_TRUE(qb->receive(b->memory->sge(0, 8), 7));
  ASSERT_TRUE(qa->send(a->memory->sge(0, 9), 1));
  const bool soft = world->soft_roce();
  expect_send(1, soft ? Status::kRemoteOperation : Status::kRemoteInvalidRequest);
  const Completion completion = b->await_receive();
  EXPECT_EQ(completion.wr_id, 7u);
  EXPECT_EQ(completion.status, soft ? Status::kLocalQpOperation : Status::kLocalLength);
}

TEST_P(FabricErrors, AKilledPeerExceedsTheRetries) {
  connect();
  ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 0, 1));
  expect_send(1);
  world->kill(1);
  const Time start = a->env.now();
  ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 0, 2));
  ASSERT_TRUE(qa->read(a->memory->sge(0, 8), b->memory->remote(), 0, 3));
  expect_send(2, Status::kRetryExceeded);
  expect_send(3, Status::kFlushed);
  // The provider gives a peer on Soft-RoCE two seconds, for any requested timeout.
  EXPECT_LT(a->env.now() - start, world->soft_roce() ? 10 * kSecond : kSecond);
}

TEST_P(FabricErrors, RequestsThatCannotBePosted) {
  QpOptions options;
  options.max_sges = 2;
  options.max_inline = 16;
  connect(options);
  const Sge sges[3] = {a->memory->sge(0, 8), a->memory->sge(8, 8), a->memory->sge(16, 8)};
  std::vector<WorkRequest> requests(3);
  for (auto& request : requests) {
    request.sges = sges;
    request.sge_count = 1;
    request.remote_addr = b->memory->addr();
    request.rkey = b->memory->rkey();
  }
  requests[1].sge_count = 3;
  PostResult result = qa->post(requests);
  EXPECT_EQ(result.accepted, 1u);
  EXPECT_EQ(result.error, PostError::kInvalid);
  expect_send(0);
  const Sge big = a->memory->sge(0, 17);
  requests[0].sges = &big;
  requests[0].flags = kSignaled | kInline;
  EXPECT_EQ(qa->post({requests.data(), 1}).error, PostError::kInvalid) << "longer than max_inline";
  requests[0].flags = kSignaled;
  requests[0].opcode = Opcode::kReceive;
  EXPECT_EQ(qa->post({requests.data(), 1}).error, PostError::kInvalid);
  QpOptions datagram;
  datagram.transport = Transport::kUd;
  auto ud = a->queue_pair(datagram);
  ud->connect({});
  requests[0].opcode = Opcode::kWrite;
  EXPECT_EQ(ud->post({requests.data(), 1}).error, PostError::kInvalid) << "UD only sends";
  requests[0].opcode = Opcode::kSend;
  EXPECT_EQ(ud->post({requests.data(), 1}).error, PostError::kInvalid) << "no address handle";
}

TEST_P(FabricErrors, AnOverrunKillsTheCompletionQueue) {
  start();
  Side x(*world, 0, 4096, 4), y(*world, 1);
  auto q = x.queue_pair(), p = y.queue_pair();
  q->connect(p->address());
  p->connect(q->address());
  // A device may hold up to twice as many entries plus one, because its rings have 2^n entries.
  const std::uint32_t enough = 2 * std::bit_ceil(x.sends->entries() + 1);
  for (std::uint32_t i = 0; i < enough; ++i)
    ASSERT_TRUE(q->write(x.memory->sge(0, 8), y.memory->remote(), 0));
  EXPECT_TRUE(x.env.poll_until([&] { return x.sends->overrun(); }, x.env.now() + x.timeout));
  Completion completion;
  EXPECT_EQ(x.sends->poll({&completion, 1}), 0u);
}

TEST_P(FabricErrors, SetUpChecksItsArguments) {
  start();
  Side x(*world, 0);
  EXPECT_THROW(x.device.create_completion_queue(0), Error);
  EXPECT_THROW(x.device.create_completion_queue(x.device.capabilities().max_completions + 1),
               Error);
  QpOptions options;
  options.max_sges = x.device.capabilities().max_sges + 1;
  EXPECT_THROW(x.queue_pair(options), Error);
  options = {};
  options.max_inline = x.device.capabilities().max_inline + 1;
  EXPECT_THROW(x.queue_pair(options), Error);
  QpAddress nowhere;
  nowhere.node = 99;
  EXPECT_THROW(x.queue_pair()->connect(nowhere), Error);
  EXPECT_THROW(x.device.create_address_handle(*x.pd, nowhere), Error);
}

TEST_P(FabricErrors, APeerThatServesNoReadsIsRefused) {
  start();
  Side x(*world, 0), y(*world, 1);
  for (const Transport transport : {Transport::kRc, Transport::kUc}) {
    if (transport == Transport::kUc && !x.device.capabilities().uc) continue;
    QpOptions options;
    options.transport = transport;
    auto q = x.queue_pair(options), p = y.queue_pair(options);
    QpAddress peer = p->address();
    peer.reads = 0;
    if (transport == Transport::kUc) {
      EXPECT_NO_THROW(q->connect(peer)) << "UC has no reads";
      continue;
    }
    EXPECT_TRUE(refuses([&] { q->connect(peer); }, ErrorCode::kInvalidArgument,
                        {"reads", "0", "max_outstanding_reads", "1"}));
    EXPECT_EQ(q->state(), QpState::kInit);
    peer.reads = 0xffff;  // more than any device has
    EXPECT_NO_THROW(q->modify(QpState::kReadyToReceive, &peer));
  }
}

TEST_P(FabricErrors, PathsThatTheFabricLacksAreRefused) {
  start();
  Side x(*world, 0);
  const bool real = GetParam() == "verbs";
  QpOptions partition, level, traffic;
  partition.pkey_index = real ? 1U << 16 : 1;
  level.path.service_level = real ? 16 : 1;
  traffic.path.traffic_class = real ? 256 : 1;
  const auto refused = [&](const QpOptions& options, const char* name, const char* value) {
    EXPECT_TRUE(refuses([&] { x.queue_pair(options); }, ErrorCode::kInvalidArgument,
                        {name, value, real ? "0" : "verbs"}));
  };
  refused(partition, "pkey_index", real ? "65536" : "1");
  refused(level, "service_level", real ? "16" : "1");
  refused(traffic, "traffic_class", real ? "256" : "1");
  const QpAddress own = x.queue_pair()->address();
  for (const QpOptions& options : {level, traffic})
    EXPECT_TRUE(refuses([&] { x.device.create_address_handle(*x.pd, own, options.path); },
                        ErrorCode::kInvalidArgument, {}));
}

TEST_P(FabricErrors, KeysAreSparse) {
  start();
  Side x(*world, 0);
  std::vector<std::unique_ptr<MemoryRegion>> regions;
  std::vector<std::uint32_t> keys;
  for (int i = 0; i < 100; ++i) {
    // A device may give no key to a region that peers may not access.
    regions.push_back(x.device.allocate(*x.pd, 64, kRemoteRead));
    keys.push_back(regions.back()->rkey());
  }
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::adjacent_find(keys.begin(), keys.end()), keys.end());
  int neighbours = 0;
  for (std::size_t i = 1; i < keys.size(); ++i) neighbours += keys[i] - keys[i - 1] < 16;
  EXPECT_LT(neighbours, 5);
}

// Each of 10^5 requests of arbitrary bytes completes, with success or an error, and has no other
// effect.
TEST_P(FabricErrors, RandomRequestsCrashNothing) {
  start();
  Side x(*world, 0), y(*world, 1);
  auto healthy_x = x.queue_pair(), healthy_y = y.queue_pair();
  healthy_x->connect(healthy_y->address());
  healthy_y->connect(healthy_x->address());
  Rng rng(7);
  std::uint64_t accepted = 0, errors = 0;
  auto q = x.queue_pair(), p = y.queue_pair();
  auto fresh = [&] {
    for (auto* queue_pair : {q.get(), p.get()}) {
      queue_pair->fail();
      queue_pair->modify(QpState::kReset);
    }
    q->connect(p->address());
    p->connect(q->address());
  };
  fresh();
  std::vector<Completion> drained(64);
  // Each request costs some milliseconds under emulation.
  const int requests = world->soft_roce() ? 3000 : 100000;
  for (int i = 0; i < requests; ++i) {
    auto pick = [&](std::initializer_list<std::uint64_t> values) {
      return values.begin()[rng.below(values.size())];
    };
    Sge sges[4];
    for (Sge& sge : sges)
      sge = {pick({x.memory->addr(), x.memory->addr() + 8, rng(), 0}),
             static_cast<std::uint32_t>(pick({0, 8, 64, rng.below(1 << 18)})),
             static_cast<std::uint32_t>(pick({x.memory->lkey(), x.memory->lkey(), rng()}))};
    WorkRequest request;
    request.wr_id = static_cast<std::uint64_t>(i);
    request.sges = sges;
    request.sge_count = static_cast<std::uint32_t>(pick({0, 1, 1, 2, 5}));
    request.opcode = static_cast<Opcode>(rng.below(9));
    request.flags = static_cast<std::uint8_t>(kSignaled | (rng.below(4) == 0 ? kFence : 0));
    request.remote_addr = pick(
        {y.memory->addr(), y.memory->addr() + 4, y.memory->addr() + y.memory->size() - 8, rng()});
    request.rkey = static_cast<std::uint32_t>(pick({y.memory->rkey(), y.memory->rkey(), rng()}));
    if (request.opcode == Opcode::kSend || request.opcode == Opcode::kSendImm ||
        request.opcode == Opcode::kWriteImm)
      p->receive(y.memory->sge(0, 128), 1);
    if (q->post({&request, 1}).accepted == 0) continue;
    ++accepted;
    const Completion completion = x.await_send();
    ASSERT_EQ(completion.wr_id, request.wr_id)
        << to_string(request.opcode) << ", " << request.sge_count << " pieces, " << sges[0].length
        << " bytes";
    if (completion.status != Status::kSuccess) {
      ++errors;
      fresh();
    }
    while (y.receives->poll(drained) > 0) {
    }
  }
  const std::uint64_t part = world->soft_roce() ? 3 : 2;  // Soft-RoCE refuses more at once
  EXPECT_GT(accepted, static_cast<std::uint64_t>(requests) / part);
  EXPECT_GT(errors, static_cast<std::uint64_t>(requests) / 10);
  ASSERT_TRUE(healthy_x->write(x.memory->sge(0, 8), y.memory->remote(), 0, 1));
  EXPECT_EQ(x.await_send().status, Status::kSuccess) << "a neighbour is unharmed";
}

}  // namespace
}  // namespace pyrdma::fabric
