// Completion queues of endpoints, and of the baselines, that have overrun.
#include "runtime/overrun_test.h"

#include "runtime/node_barrier.h"
#include "systems/erpc/baselines/farm_ring_rpc.h"
#include "systems/erpc/baselines/fasst_rpc.h"
#include "systems/erpc/worlds_test.h"

namespace pyrdma::erpc {
namespace {

using runtime::names_overrun;

// The server loses the request, so the client repeats it, and waits until its NIC has read all.
TEST(ErpcOverrunSim, TheEventLoopsOfBothSidesSaySo) {
  fabric::sim::SimCluster cluster(runtime::overrunning(2));
  cluster.run([&](Env& env) {
    Options options;
    options.retransmission_timeout = 20 * kMicrosecond;
    options.failure_timeout = kSecond;
    Endpoint endpoint(env, options);
    serve_sized(endpoint);
    if (env.node() == 1) {
      EXPECT_TRUE(
          names_overrun([&] { endpoint.run_for(kSecond); }, 1, "the receives of an eRPC endpoint"));
    } else {
      const SessionId session = connect_to(endpoint, {1, 0});
      cluster.begin_faults();
      TestCall call(endpoint, 16, 16);
      EXPECT_TRUE(names_overrun([&] { call.send(session).wait(kSecond); }, 0,
                                "the sends of an eRPC endpoint"));
      EXPECT_TRUE(names_overrun([&] { endpoint.close(); }, 0, "the sends of an eRPC endpoint"));
    }
    runtime::node_barrier(env, "end");
  });
}

/// Node 0 sends without end to node 1, which serves.
template <class Rpc>
void expect_baseline_says_so(const char* owner_there, const char* owner) {
  fabric::sim::SimCluster cluster(runtime::overrunning(2));
  bool is_over = false;
  cluster.run([&](Env& env) {
    const auto answer = [](std::span<const std::byte>, std::span<std::byte>) {
      return std::size_t{0};
    };
    Rpc rpc(env, {.name = "overrun", .in_flight = 4096}, answer);
    rpc.connect(env.now() + runtime::kSetupTimeout);
    runtime::node_barrier(env, "connected");
    const auto turn = [&] {
      rpc.poll([](std::uint32_t, std::span<const std::byte>) {});
      return is_over;
    };
    const auto serve = [&] { env.poll_until(turn, env.now() + kSecond); };
    if (env.node() == 0) {
      cluster.begin_faults();
      const auto send = [&] {
        rpc.send(0, {});
        rpc.flush();
        return turn();
      };
      const auto send_all = [&] {
        for (int i = 0; i < 4000; ++i) env.poll_until(send, env.now() + kMicrosecond);
      };
      EXPECT_TRUE(names_overrun(send_all, 0, owner));
      is_over = owner_there == nullptr;
    } else if (owner_there == nullptr) {
      env.poll_until([&] { return is_over; }, env.now() + kSecond);
    } else {
      EXPECT_TRUE(names_overrun(serve, 1, owner_there));
    }
    runtime::node_barrier(env, "end");
  });
}

TEST(ErpcOverrunSim, TheBaselinesSaySo) {
  // The queue pair whose sends overrun their queue ends its receives too.
  expect_baseline_says_so<FasstRpc>("the receives of FaSST-style RPCs", "FaSST-style RPCs");
  expect_baseline_says_so<FarmRingRpc>(nullptr, "RPCs over rings");
}

}  // namespace
}  // namespace pyrdma::erpc
