// The baselines over both fabrics: each response is that of its request.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "fabric/sim/cluster.h"
#include "fabric/sim/profile_test.h"
#include "measure/interval.h"
#include "runtime/node_barrier.h"
#include "runtime/worlds_test.h"
#include "systems/erpc/baselines/farm_ring_rpc.h"
#include "systems/erpc/baselines/fasst_rpc.h"

namespace pyrdma::erpc {
namespace {

std::unique_ptr<BaselineRpc> make(const std::string& system, Env& env,
                                  const BaselineOptions& options, BaselineHandler handler) {
  if (system == "fasst") return std::make_unique<FasstRpc>(env, options, std::move(handler));
  return std::make_unique<FarmRingRpc>(env, options, std::move(handler));
}

// The response is as long as its first byte says, and its bytes follow from the request's.
std::size_t reversed(std::span<const std::byte> request, std::span<std::byte> response) {
  const std::size_t bytes = request.empty() ? 0 : static_cast<std::size_t>(request[0]);
  for (std::size_t i = 0; i < bytes; ++i)
    response[i] = request[request.size() - 1 - i % request.size()] ^ static_cast<std::byte>(i);
  return bytes;
}

std::vector<std::byte> random_request(Rng& rng, std::uint32_t max_bytes) {
  std::vector<std::byte> request(rng.below(max_bytes + 1));
  for (std::byte& byte : request) byte = static_cast<std::byte>(rng.below(256));
  if (!request.empty()) request[0] = static_cast<std::byte>(rng.below(max_bytes + 1));
  return request;
}

using Place = std::tuple<std::string, std::string>;  // system, world

class ErpcBaselines : public testing::TestWithParam<Place> {
 protected:
  const std::string& system() const { return std::get<0>(GetParam()); }
  void run(std::uint32_t nodes, const std::function<void(Env&)>& body) {
    runtime::run_world(std::get<1>(GetParam()), nodes,
                       [&](Env& env, const runtime::Kill&) { body(env); });
  }
};

constexpr std::uint32_t kInFlight = 7, kMaxBytes = 100;
constexpr std::uint64_t kRequests = 2000;  // of a thread: many rounds of a ring

// Sends random requests to random peers, and checks the responses. Serves until `is_over`.
void exchange(Env& env, BaselineRpc& rpc, std::uint32_t thread,
              const std::function<bool(std::uint64_t ended)>& is_over) {
  Rng rng = env.rng("requests " + std::to_string(thread));
  std::array<std::vector<std::byte>, kInFlight> requests;
  std::uint64_t sent = 0, ended = 0;
  const auto done = [&](std::uint32_t slot, std::span<const std::byte> response) {
    std::array<std::byte, kMaxBytes> wanted;
    const std::size_t bytes = reversed(requests[slot], wanted);
    EXPECT_TRUE(std::ranges::equal(response, std::span(wanted).first(bytes)));
    ++ended;
  };
  const auto turn = [&] {
    const bool came = rpc.poll(done);
    while (sent < kRequests) {
      const auto peer = static_cast<std::uint32_t>(rng.below(rpc.peers()));
      const std::vector<std::byte> request = random_request(rng, kMaxBytes);
      const std::uint32_t slot = rpc.send(peer, request);
      if (slot == BaselineRpc::kNoSlot) break;
      requests[slot] = request;
      ++sent;
    }
    rpc.flush();
    return came;
  };
  while (!is_over(ended)) env.poll_until(turn, env.now() + 20 * kMicrosecond);
  EXPECT_EQ(ended, kRequests);
  EXPECT_EQ(rpc.in_flight(), 0U);
  EXPECT_EQ(rpc.dropped(), 0U);
}

TEST_P(ErpcBaselines, EveryThreadGetsTheResponsesOfItsRequests) {
  constexpr std::uint32_t kThreads = 2;
  run(3, [&](Env& env) {
    std::vector<std::unique_ptr<BaselineRpc>> rpcs;
    for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
      rpcs.push_back(make(system(), env,
                          {.name = "test",
                           .threads = kThreads,
                           .thread = thread,
                           .in_flight = kInFlight,
                           .max_bytes = kMaxBytes,
                           .ring_bytes = 4096},
                          reversed));
    }
    EXPECT_EQ(rpcs[0]->peers(), 4U);
    for (const auto& rpc : rpcs) rpc->connect(env.now() + runtime::kSetupTimeout);
    runtime::node_barrier(env, "connected");
    std::atomic<std::uint32_t> ended{0};
    std::atomic<bool> all_ended{false};
    measure::on_threads(env, kThreads + 1, [&](std::uint32_t i) {
      if (i == 0) {
        while (ended < kThreads) env.sleep_until(env.now() + 20 * kMicrosecond);
        runtime::node_barrier(env, "ended");
        all_ended = true;
        return;
      }
      bool counted = false;
      exchange(env, *rpcs[i - 1], i, [&](std::uint64_t responses) {
        if (responses == kRequests && !counted) {
          counted = true;
          ++ended;
        }
        return all_ended.load();
      });
    });
    runtime::node_barrier(env, "left");
  });
}

TEST_P(ErpcBaselines, NamesABadOption) {
  run(2, [&](Env& env) {
    const auto make_with = [&](BaselineOptions options) {
      return [&, options] { make(system(), env, options, reversed); };
    };
    EXPECT_TRUE(refuses(make_with({.threads = 0}), ErrorCode::kInvalidArgument, {"threads", "0"}));
    EXPECT_TRUE(refuses(make_with({.threads = 2, .thread = 2}), ErrorCode::kInvalidArgument,
                        {"thread", "2", "1"}));
    EXPECT_TRUE(
        refuses(make_with({.in_flight = 0}), ErrorCode::kInvalidArgument, {"in_flight", "0"}));
    if (system() == "farm_ring") {
      EXPECT_TRUE(refuses(make_with({.ring_bytes = 1000}), ErrorCode::kInvalidArgument,
                          {"ring_bytes", "1000"}));
    } else {
      EXPECT_TRUE(refuses(make_with({.max_bytes = 65000}), ErrorCode::kInvalidArgument,
                          {"max_bytes", "65000"}));
    }
    const auto rpc = make(system(), env, {.name = "two", .in_flight = 1, .max_bytes = 8}, reversed);
    rpc->connect(env.now() + runtime::kSetupTimeout);
    runtime::node_barrier(env, "connected");
    const std::array<std::byte, 9> bytes{};
    EXPECT_TRUE(refuses([&] { rpc->send(0, bytes); }, ErrorCode::kInvalidArgument, {"9", "8"}));
    EXPECT_TRUE(refuses([&] { rpc->send(1, {}); }, ErrorCode::kInvalidArgument, {"1", "0"}));
    EXPECT_NE(rpc->send(0, {}), BaselineRpc::kNoSlot);
    EXPECT_EQ(rpc->send(0, {}), BaselineRpc::kNoSlot);
    runtime::node_barrier(env, "left");
  });
}

#if defined(__SANITIZE_THREAD__)
#define PYRDMA_BASELINE_WORLDS testing::Values("shm")
#else
#define PYRDMA_BASELINE_WORLDS testing::Values("sim", "sim_strong", "shm")
#endif
INSTANTIATE_TEST_SUITE_P(Systems, ErpcBaselines,
                         testing::Combine(testing::Values("fasst", "farm_ring"),
                                          PYRDMA_BASELINE_WORLDS));

// FaSST handles no loss: the slot of a lost message stays in use. Rings lie on RC, which repeats.
std::uint32_t slots_in_use_after_loss(const std::string& system) {
  fabric::sim::SimOptions options = runtime::sim_options(2);
  options.faults[fault_named("loss")].rate = 0.3;
  fabric::sim::SimCluster cluster(options);
  std::uint32_t in_use = 0;
  cluster.run([&](Env& env) {
    const auto rpc = make(system, env, {.name = "loss", .in_flight = 20}, reversed);
    rpc->connect(env.now() + runtime::kSetupTimeout);
    runtime::node_barrier(env, "connected");
    const auto turn = [&] { return rpc->poll([](std::uint32_t, std::span<const std::byte>) {}); };
    const Time end = env.now() + 200 * kMillisecond;
    if (env.node() == 0) {
      while (rpc->in_flight() < 5) ASSERT_NE(rpc->send(0, {}), BaselineRpc::kNoSlot);
      rpc->flush();
    }
    while (env.now() < end) env.poll_until(turn, end);
    if (env.node() == 0) in_use = rpc->in_flight();
    runtime::node_barrier(env, "left");
  });
  return in_use;
}

TEST(ErpcBaselinesSim, OnlyFasstLosesMessages) {
  EXPECT_GT(slots_in_use_after_loss("fasst"), 0U);
  EXPECT_EQ(slots_in_use_after_loss("farm_ring"), 0U);
}

}  // namespace
}  // namespace pyrdma::erpc
