// A queue pair sees what it has written, also when its physical one fails between the WRITE and
// what follows it (sections 4.4 and 4.6).
#include <cstring>

#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

using fabric::Opcode;
using fabric::Status;

constexpr NodeId kWriter = 0, kTarget = 1;
constexpr int kWriteRounds = 60;

/// Each WRITE is placed late.
fabric::sim::SimOptions placed_late(std::uint64_t seed) {
  fabric::sim::SimOptions options = runtime::sim_options(2, true, seed);
  options.memory.late_placement = 1;
  options.memory.max_delay_ns = 80 * kMicrosecond;
  return options;
}

std::uint64_t first_word_of(const Registration& region) {
  std::uint64_t word = 0;
  std::memcpy(&word, region.data, sizeof word);
  return word;
}

/// How the physical queue pair fails.
enum class Fails : std::uint8_t { kIdle, kInATransfer };

/// Returns how many requests have seen less than the WRITE before them on their queue pair.
int count_stale(Opcode opcode, Fails fails) {
  fabric::sim::SimCluster cluster(placed_late(static_cast<std::uint64_t>(opcode) + 1));
  fabric::RemoteRegion words;
  std::uint64_t written = 0;
  int taken = 0, stale = 0;
  bool is_over = false;
  cluster.run([&](Env& env) {
    Service service(env, one_core());
    App app(service);
    const Registration own = app.reg_mr(64);
    if (env.node() == kTarget) words = {own.addr, own.bytes, own.key, kTarget};
    const Queue queue = app.create_queue();
    if (env.node() == kTarget) app.bind(queue, 7);
    runtime::node_barrier(env, "up");
    const fabric::Sge sge = piece(own, 0, 8), aside = piece(own, 8, 8);
    if (env.node() == kTarget) {
      const Registration inbox = app.reg_mr(64);
      const fabric::Sge at = piece(inbox, 0, 64);
      const fabric::ReceiveRequest receive{0, &at, 1};
      Message message;
      while (!is_over) {
        app.post_receive(queue, {&receive, 1});
        while (!is_over && app.wait_messages(queue, {&message, 1}, env.now() + kMicrosecond) == 0) {
        }
        if (!is_over) stale += first_word_of(own) != written;
        ++taken;
      }
      return;
    }
    app.connect(queue, kTarget, 7);
    for (int round = 0; round < kWriteRounds; ++round) {
      written += 1000;
      std::memcpy(own.data, &written, sizeof written);
      EXPECT_EQ(do_one(app, queue, one_sided(Opcode::kWrite, sge, words.addr, words.rkey)).status,
                Status::kSuccess);
      service.break_physical(queue);
      if (fails == Fails::kInATransfer) service.start_transfer(queue, 0);  // the fake request fails
      // New ones take the pool's two in turn, so one of them shares it and finds out.
      for (int i = 0; i < 2; ++i) {
        const Queue other = app.create_queue();
        app.connect(other, kTarget, 7);
        EXPECT_EQ(
            do_one(app, other, one_sided(Opcode::kRead, aside, words.addr, words.rkey)).status,
            Status::kSuccess);
        app.destroy(other);
      }
      const int before = taken;
      fabric::WorkRequest next = one_sided(opcode, sge, words.addr, words.rkey);
      next.compare_add = 1;
      const Status status = do_one(app, queue, next).status;
      EXPECT_EQ(status, Status::kSuccess);
      if (status != Status::kSuccess) break;
      if (opcode == Opcode::kSend)
        while (taken == before) env.sleep_until(env.now() + kMicrosecond);
      else
        stale += first_word_of(own) != written;
      env.sleep_until(env.now() + kMillisecond);  // both queue pairs of the pool serve again
    }
    is_over = true;
  });
  return stale;
}

TEST(KrcorePlacementSim, AReadSeesWhatItsQueuePairHasWritten) {
  EXPECT_EQ(count_stale(Opcode::kRead, Fails::kIdle), 0);
  EXPECT_EQ(count_stale(Opcode::kRead, Fails::kInATransfer), 0);
}

TEST(KrcorePlacementSim, AnAtomicFindsWhatItsQueuePairHasWritten) {
  EXPECT_EQ(count_stale(Opcode::kFetchAdd, Fails::kIdle), 0);
  EXPECT_EQ(count_stale(Opcode::kFetchAdd, Fails::kInATransfer), 0);
}

TEST(KrcorePlacementSim, AMessageComesBehindWhatItsQueuePairHasWritten) {
  EXPECT_EQ(count_stale(Opcode::kSend, Fails::kIdle), 0);
  EXPECT_EQ(count_stale(Opcode::kSend, Fails::kInATransfer), 0);
}

}  // namespace
}  // namespace pyrdma::krcore
