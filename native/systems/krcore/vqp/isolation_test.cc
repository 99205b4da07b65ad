// Queue pairs that share a physical one with requests to a dead node (section 4.4).
#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

using fabric::Opcode;
using fabric::Status;

constexpr NodeId kClient = 0, kDead = 1, kHealthy = 2;

/// What a thread has seen of the queue pair that it uses alone.
struct Seen {
  Status last = Status::kSuccess;
  Time longest = 0;  // of a request
  int requests = 0;
};

// 40 queue pairs read a dead node. On the same two physical ones others read and write a healthy
// node: no request of theirs fails, and none waits longer than the attempts of one request take.
TEST(KrcoreIsolationSim, ADeadNodeFailsNoOthersRequests) {
  constexpr int kToDead = 40, kToHealthy = 8;
  constexpr Time kAttempts = 8 * kMillisecond, kLook = kMillisecond;
  fabric::sim::SimCluster cluster(runtime::sim_options(3));
  std::vector<Seen> seen(kToDead + kToHealthy);
  fabric::RemoteRegion regions[3];
  bool is_over = false;
  cluster.run([&](Env& env) {
    Service service(env, one_core());
    App app(service);
    const Registration own = app.reg_mr(4096);
    regions[env.node()] = {own.addr, own.bytes, own.key, env.node()};
    runtime::node_barrier(env, "up");
    if (env.node() != kClient) {
      while (!is_over) env.sleep_until(env.now() + kMillisecond);
      return;
    }
    std::vector<Queue> queues;
    const auto carry_out = [&](int number, Opcode opcode) {
      const fabric::RemoteRegion& to = regions[number < kToDead ? kDead : kHealthy];
      const fabric::Sge sge = piece(own, static_cast<std::uint64_t>(number) * 64, 8);
      return do_one(app, queues[static_cast<std::size_t>(number)],
                    one_sided(opcode, sge, to.addr, to.rkey))
          .status;
    };
    for (int number = 0; number < kToDead + kToHealthy; ++number) {
      queues.push_back(app.create_queue());
      app.connect(queues.back(), number < kToDead ? kDead : kHealthy, 7);
      EXPECT_EQ(carry_out(number, Opcode::kRead), Status::kSuccess);
    }
    cluster.kill(kDead);
    const Time end = env.now() + 50 * kMillisecond;
    std::vector<std::unique_ptr<Thread>> threads;
    for (int number = 0; number < kToDead + kToHealthy; ++number) {
      threads.push_back(env.spawn("user", [&, number] {
        Seen& own_view = seen[static_cast<std::size_t>(number)];
        const Opcode opcode = number < kToDead || number % 2 == 0 ? Opcode::kRead : Opcode::kWrite;
        while (own_view.last == Status::kSuccess && env.now() < end) {
          const Time begin = env.now();
          own_view.last = carry_out(number, opcode);
          own_view.longest = std::max(own_view.longest, env.now() - begin);
          ++own_view.requests;
          env.sleep_until(env.now() + 20 * kMicrosecond);
        }
      }));
    }
    for (const auto& thread : threads) thread->join();
    is_over = true;
  });
  for (int number = 0; number < kToDead + kToHealthy; ++number) {
    const Seen& each = seen[static_cast<std::size_t>(number)];
    EXPECT_EQ(each.last, number < kToDead ? Status::kRetryExceeded : Status::kSuccess) << number;
    EXPECT_LT(each.longest, kAttempts + kLook) << number;
    if (number >= kToDead) {
      EXPECT_GT(each.requests, 500) << number;
    }
  }
}

}  // namespace
}  // namespace pyrdma::krcore
