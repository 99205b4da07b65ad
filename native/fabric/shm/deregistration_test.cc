// Regions that are deregistered under requests, and what is left of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include "fabric/contract_worlds_test.h"
#include "fabric/shm/pair_test.h"
#include "fabric/shm/process_test.h"

namespace pyrdma::fabric::shm {
namespace {

constexpr std::size_t kLong = 8 << 20;
constexpr std::byte kFill{0xab};

bool is_filled(const std::byte* data) {
  for (std::size_t at = 0; at < kLong; at += 512)
    if (data[at] != kFill) return false;
  return true;
}

/// One request, during which a thread of the region's node deregisters it.
class Race {
 public:
  Race() : mine_(allocate(pair_.a)), theirs_(allocate(pair_.b)) {}

  Status run(Opcode opcode, bool local, int round) {
    if (pair_.a.qp->state() != QpState::kReadyToSend ||
        pair_.b.qp->state() != QpState::kReadyToSend) {
      pair_.reconnect();
      take(pair_.b);
    }
    auto& dying = local ? mine_ : theirs_;
    dying = allocate(local ? pair_.a : pair_.b);
    const bool reads = opcode == Opcode::kRead;
    std::memset((reads ? theirs_ : mine_)->data(), static_cast<int>(kFill), kLong);
    std::memset((reads ? mine_ : theirs_)->data(), 0, kLong);
    const Sge sge = mine_->sge(0, kLong), into = theirs_->sge(0, kLong);
    const RemoteRegion there = theirs_->remote();
    if (opcode == Opcode::kSend) {
      EXPECT_TRUE(pair_.b.receive(into));
    }
    std::atomic<bool> begun{false};
    std::thread owner([&] {
      while (!begun.load()) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::microseconds(100 * (round % 16)));
      dying.reset();
    });
    WorkRequest request;
    request.sges = &sge;
    request.sge_count = 1;
    request.opcode = opcode;
    request.remote_addr = there.addr;
    request.rkey = there.rkey;
    begun.store(true);
    EXPECT_EQ(pair_.a.qp->post({&request, 1}).accepted, 1U);
    const auto got = pair_.a.wait(1);
    owner.join();
    if (got.size() != 1) return Status::kGeneral;
    const auto& left = local ? theirs_ : mine_;
    if (got[0].status == Status::kSuccess && local != reads) {
      EXPECT_TRUE(is_filled(left->data())) << "round " << round;
    }
    if (opcode == Opcode::kSend) {
      const auto received = take(pair_.b);
      const bool delivered = !received.empty() && received[0].status == Status::kSuccess;
      EXPECT_EQ(delivered, got[0].status == Status::kSuccess);
    }
    return got[0].status;
  }

 private:
  static std::unique_ptr<MemoryRegion> allocate(End& end) {
    return end.device().allocate(*end.pd, kLong, kAllAccess);
  }
  static std::vector<Completion> take(End& end) {
    std::vector<Completion> got(16);
    got.resize(end.completions->poll(got));
    return got;
  }

  Pair pair_;
  std::unique_ptr<MemoryRegion> mine_, theirs_;
};

struct Case {
  Opcode opcode;
  bool local;
  Status fault;
};

class ShmDeregistration : public testing::TestWithParam<Case> {};

TEST_P(ShmDeregistration, EndsARequestUnderWayOrFindsItWhole) {
  const Case& test = GetParam();
  Race race;
  for (int round = 0; round < (kSanitized ? 16 : 48); ++round) {
    const Status status = race.run(test.opcode, test.local, round);
    EXPECT_TRUE(status == Status::kSuccess || status == test.fault) << to_string(status);
  }
}

INSTANTIATE_TEST_SUITE_P(Opcodes, ShmDeregistration,
                         testing::Values(Case{Opcode::kRead, false, Status::kRemoteAccess},
                                         Case{Opcode::kRead, true, Status::kLocalProtection},
                                         Case{Opcode::kWrite, false, Status::kRemoteAccess},
                                         Case{Opcode::kWrite, true, Status::kLocalProtection},
                                         Case{Opcode::kSend, false, Status::kRemoteOperation},
                                         Case{Opcode::kSend, true, Status::kLocalProtection}),
                         [](const auto& param) {
                           return std::string(to_string(param.param.opcode)) +
                                  (param.param.local ? "_local" : "_remote");
                         });

class ShmKill : public testing::TestWithParam<Opcode> {};

// The regions of a killed node go with it, and it says nothing about that.
TEST_P(ShmKill, NeverAnswersARequest) {
  const int rounds = kSanitized ? 8 : 24;
  int late = 0;
  for (int round = 0; round < rounds || (late == 0 && round < 10 * rounds); ++round) {
    Pair pair;
    auto dying = pair.b.device().allocate(*pair.b.pd, kLong, kAllAccess);
    const auto mine = pair.a.device().allocate(*pair.a.pd, kLong, kAllAccess);
    const Sge sge = mine->sge(0, kLong), into = dying->sge(0, kLong);
    if (GetParam() == Opcode::kSend) {
      ASSERT_TRUE(pair.b.receive(into));
    }
    WorkRequest request;
    request.sges = &sge;
    request.sge_count = 1;
    request.opcode = GetParam();
    request.remote_addr = dying->addr();
    request.rkey = dying->rkey();
    std::atomic<bool> begun{false};
    std::thread killer([&] {
      while (!begun.load()) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::microseconds(100 * (round % 16)));
      pair.cluster.kill(1);
      dying.reset();
    });
    begun.store(true);
    EXPECT_EQ(pair.a.qp->post({&request, 1}).accepted, 1U);
    const auto got = pair.a.wait(1);
    killer.join();
    ASSERT_EQ(got.size(), 1U);
    if (got[0].status == Status::kSuccess) continue;
    EXPECT_EQ(got[0].status, Status::kRetryExceeded) << "round " << round;
    ++late;
  }
  EXPECT_GT(late, 0);
}

INSTANTIATE_TEST_SUITE_P(Opcodes, ShmKill,
                         testing::Values(Opcode::kRead, Opcode::kWrite, Opcode::kSend),
                         [](const auto& param) { return std::string(to_string(param.param)); });

// An atomic that finds the page given back would return zero.
TEST(ShmRegion, AnAtomicNeverCountsInMemoryWithoutAnOwner) {
  Pair pair;
  int failed = 0;
  for (int round = 0; round < 200; ++round) {
    if (pair.a.qp->state() != QpState::kReadyToSend) pair.reconnect();
    auto region = pair.b.device().allocate(*pair.b.pd, 4096, kAllAccess);
    const RemoteRegion there = region->remote();
    *reinterpret_cast<std::uint64_t*>(region->data()) = 1000;
    std::atomic<bool> begun{false};
    std::thread owner([&] {
      while (!begun.load()) std::this_thread::yield();
      region.reset();
    });
    Status status = Status::kSuccess;
    for (std::uint64_t value = 1000; status == Status::kSuccess; ++value) {
      EXPECT_TRUE(pair.a.qp->fetch_add(pair.a.region->sge(0, 8), there, 0, 1));
      if (value == 1010) begun.store(true);
      const auto got = pair.a.wait(1);
      status = got.size() == 1 ? got[0].status : Status::kGeneral;
      if (status == Status::kSuccess &&
          *reinterpret_cast<std::uint64_t*>(pair.a.region->data()) != value) {
        ADD_FAILURE() << "the old value is not " << value;
        break;
      }
    }
    begun.store(true);
    EXPECT_EQ(status, Status::kRemoteAccess);
    owner.join();
    ++failed;
  }
  EXPECT_EQ(failed, 200);
}

// A change that is none of the request's own does not fail it, nor execute it again.
TEST(ShmRegion, OtherChangesOfANodeFailNoRequest) {
  Pair pair;
  std::atomic<bool> done{false};
  std::thread owner([&] {
    while (!done.load()) pair.b.device().allocate(*pair.b.pd, 64, kAllAccess);
  });
  constexpr std::uint64_t kAdds = 20000;
  for (std::uint64_t value = 0; value < kAdds; ++value) {
    EXPECT_TRUE(pair.a.qp->fetch_add(pair.a.region->sge(0, 8), pair.b.region->remote(), 0, 1));
    const auto got = pair.a.wait(1);
    if (got.size() != 1 || got[0].status != Status::kSuccess ||
        *reinterpret_cast<std::uint64_t*>(pair.a.region->data()) != value) {
      ADD_FAILURE() << "addition " << value;
      break;
    }
  }
  done.store(true);
  owner.join();
}

TEST(ShmRegion, OnesThatAPeerTouchedLeaveNothing) {
  Pair pair;
  const auto round = [&](std::size_t bytes, std::uint32_t access) {
    auto region = pair.b.device().allocate(*pair.b.pd, bytes, access);
    ASSERT_TRUE(pair.a.qp->write(pair.a.region->sge(0, 8), region->remote(), 0));
    ASSERT_EQ(pair.a.wait(1).at(0).status, Status::kSuccess);
    // Its owner sends from it, too.
    ASSERT_TRUE(pair.b.qp->write(region->sge(0, 8), pair.a.region->remote(), 0));
    ASSERT_EQ(pair.b.wait(1).at(0).status, Status::kSuccess);
  };
  round(17 << 20, kAllAccess);
  const std::size_t before = mapped_segments();
  for (int i = 0; i < (kSanitized ? 200 : 5000); ++i) round(17 << 20, kAllAccess);
  for (int i = 0; i < 200; ++i) round(4096, kAllAccess | kOwnFile);
  // Many at a time go with the peer's next request.
  std::vector<std::unique_ptr<MemoryRegion>> many;
  for (int i = 0; i < 20; ++i) {
    many.push_back(pair.b.device().allocate(*pair.b.pd, 17 << 20, kAllAccess));
    ASSERT_TRUE(pair.a.qp->write(pair.a.region->sge(0, 8), many.back()->remote(), 0));
    ASSERT_EQ(pair.a.wait(1).at(0).status, Status::kSuccess);
  }
  EXPECT_GE(mapped_segments(), before + 19);
  many.clear();
  ASSERT_TRUE(pair.a.qp->write(pair.a.region->sge(0, 8), pair.b.region->remote(), 0));
  EXPECT_LE(mapped_segments(), before + 1);
}

TEST(ShmRegion, ManySmallOnesLeaveRoomForMore) {
  Pair pair;
  const std::size_t before = mapped_segments();
  // Each file has 16 of them, and a node has at most 4096 files.
  for (int i = 0; i < 70000; ++i) pair.b.device().allocate(*pair.b.pd, 16 << 20, kAllAccess);
  EXPECT_LE(mapped_segments(), before + 2);
}

}  // namespace
}  // namespace pyrdma::fabric::shm
