// Malicious peers post random requests and write random words into the shared segments. For any
// words, requests end with a status, and no node touches memory outside regions (the address
// sanitizer watches).
#include <gtest/gtest.h>

#include <random>

#include "fabric/shm/pair_test.h"

namespace pyrdma::fabric::shm {
namespace {

class Malformed {
 public:
  Malformed(Pair& pair, std::uint64_t seed) : pair_(pair), random_(seed) {}

  std::uint64_t pick(std::uint64_t bound) { return random_() % bound; }
  WorkRequest request(Transport transport, const AddressHandle* handle) {
    WorkRequest request;
    request.wr_id = random_();
    request.sge_count = static_cast<std::uint32_t>(pick(7));
    for (Sge& sge : sges_) {
      sge.addr = pick(4) == 0 ? random_() : pair_.a.region->addr() + pick(1 << 17);
      sge.length = static_cast<std::uint32_t>(pick(3) == 0 ? random_() : pick(5000));
      sge.lkey = pick(4) == 0 ? static_cast<std::uint32_t>(random_()) : pair_.a.region->lkey();
    }
    request.sges = pick(50) == 0 ? nullptr : sges_;
    request.opcode = static_cast<Opcode>(pick(12));
    request.flags = static_cast<std::uint8_t>(random_() & ~std::uint64_t{kInline});
    if (pick(8) == 0) {  // inline buffers are the caller's own and must exist, for any length
      request.flags |= kInline;
      for (Sge& sge : sges_)
        sge = {reinterpret_cast<std::uint64_t>(sges_), static_cast<std::uint32_t>(pick(33)), 0};
    }
    request.remote_addr = pick(4) == 0 ? random_() : pair_.b.region->addr() + pick(1 << 17);
    request.rkey = pick(4) == 0 ? static_cast<std::uint32_t>(random_()) : pair_.b.region->rkey();
    request.remote_qkey = pick(2) == 0 ? 0x0205 : static_cast<std::uint32_t>(random_());
    request.remote_qpn =
        pick(2) == 0 ? pair_.b.qp->qp_num() : static_cast<std::uint32_t>(random_());
    if (is_addressed(transport) && pick(8) != 0) request.address_handle = handle;
    return request;
  }
  void receive() {
    for (Sge& sge : sges_) {
      sge.addr = pick(3) == 0 ? random_() : pair_.b.region->addr() + pick(1 << 17);
      sge.length = static_cast<std::uint32_t>(pick(3) == 0 ? random_() : pick(5000));
      sge.lkey = pick(3) == 0 ? static_cast<std::uint32_t>(random_()) : pair_.b.region->lkey();
    }
    const ReceiveRequest request{random_(), sges_, static_cast<std::uint32_t>(pick(7))};
    pair_.b.receive(request);
  }

 private:
  Pair& pair_;
  std::mt19937_64 random_;
  Sge sges_[8];
};

std::size_t drain(End& end) {
  Completion batch[16];
  std::size_t all = 0;
  while (const std::size_t n = end.completions->poll(batch)) {
    for (std::size_t i = 0; i < n; ++i) EXPECT_LE(batch[i].status, Status::kGeneral);
    all += n;
  }
  return all;
}

class ShmMalformed : public testing::TestWithParam<Transport> {};

TEST_P(ShmMalformed, HundredThousandRequestsCrashNothing) {
  QpOptions options;
  options.transport = GetParam();
  options.max_inline = 128;
  options.rnr_retry = 0;
  options.retry_count = 0;
  options.timeout_us = 1;
  Pair pair(options);
  Malformed malformed(pair, 7);
  std::size_t accepted = 0;
  std::size_t completed = 0;
  for (int i = 0; i < 100000; ++i) {
    if (malformed.pick(2) == 0) malformed.receive();
    const WorkRequest request = malformed.request(GetParam(), pair.handle.get());
    accepted += pair.a.qp->post({&request, 1}).accepted;
    if (pair.a.qp->state() != QpState::kReadyToSend ||
        pair.b.qp->state() != QpState::kReadyToSend || i % 64 == 0) {
      completed += drain(pair.a);
      drain(pair.b);
      pair.reconnect();
    }
  }
  EXPECT_GT(accepted, 10000U);
  EXPECT_GT(completed, 1000U);
  EXPECT_FALSE(pair.a.completions->overrun());
  // The nodes still work.
  pair.reconnect();
  drain(pair.a);
  drain(pair.b);
  if (is_reliable(GetParam())) {
    ASSERT_TRUE(pair.post(Opcode::kWrite, pair.a.region->sge(0, 64)));
    EXPECT_EQ(pair.a.wait(1).at(0).status, Status::kSuccess);
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, ShmMalformed,
                         testing::Values(Transport::kRc, Transport::kUc, Transport::kUd,
                                         Transport::kDc),
                         [](const auto& param) { return std::string(to_string(param.param)); });

// Writes random 32-bit words to the parts of node 1's control segment that node 0 reads.
TEST(ShmHostile, RandomWordsInThePeersSegmentCrashNothing) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 400; ++round) {
    QpOptions options;
    options.transport = round % 2 == 0 ? Transport::kRc : Transport::kDc;
    options.retry_count = 0;
    options.timeout_us = 1;
    options.rnr_retry = 0;
    Pair pair(options);
    Node& victim = pair.b.node();
    const Sge into = pair.b.region->sge(0, 64);
    for (int i = 0; i < 8; ++i) pair.b.receive(into);
    auto* base = reinterpret_cast<std::byte*>(&victim.control());
    const auto scribble = [&](std::byte* at, std::size_t bytes) {
      for (int i = 0; i < 6; ++i) {
        auto* word = reinterpret_cast<std::uint32_t*>(at + random() % (bytes / 4) * 4);
        __atomic_store_n(word, static_cast<std::uint32_t>(random()), __ATOMIC_RELAXED);
      }
    };
    QpEntry& entry = victim.control().queue_pairs[qp_slot(pair.b.qp->qp_num())];
    const std::uint64_t receives = relaxed(entry.receives);
    const std::uint64_t completions = relaxed(entry.completions);
    // The test spares locks: a lock that a living node never releases costs each waiter
    // kLockTimeout.
    switch (round % 5) {
      case 0:
        scribble(reinterpret_cast<std::byte*>(&entry) + 4, sizeof entry - 4);
        break;
      case 1:
        scribble(base + receives + 8, sizeof(ReceiveRing) - 8);
        break;
      case 2:
        scribble(base + completions + 8, sizeof(CompletionRing) - 8);
        break;
      case 3: {
        for (RegionEntry& region : victim.control().regions) {
          if (relaxed(region.key) == pair.b.region->rkey())
            scribble(reinterpret_cast<std::byte*>(&region) + 4, 60);
        }
        break;
      }
      default:
        scribble(reinterpret_cast<std::byte*>(&victim.control().segments[0]), sizeof(SegmentEntry));
        break;
    }
    victim.change_epoch();
    for (int i = 0; i < 4; ++i) {
      pair.post(Opcode::kSend, pair.a.region->sge(0, 32));
      pair.post(Opcode::kWrite, pair.a.region->sge(0, 64));
      pair.post(Opcode::kRead, pair.a.region->sge(64, 64));
    }
    pair.a.env->poll_until([&] { return drain(pair.a) == 0 && pair.a.node().waiting().empty(); },
                           pair.a.env->now() + kSecond);
    drain(pair.b);
    EXPECT_TRUE(pair.a.node().waiting().empty());
  }
}

}  // namespace
}  // namespace pyrdma::fabric::shm
