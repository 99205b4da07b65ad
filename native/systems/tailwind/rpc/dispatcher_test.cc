#include "systems/tailwind/rpc/dispatcher.h"

#include <gtest/gtest.h>

#include "runtime/worlds_test.h"

namespace pyrdma::tailwind {
namespace {

class TailwindDispatcher : public testing::TestWithParam<std::string> {};

/// Sends requests to node 0 until `is_over`.
void send_until(Env& env, Transport& transport, const std::vector<Opcode>& opcodes,
                const std::atomic<bool>& is_over) {
  for (const Opcode opcode : opcodes)
    transport.call({0, 0}, opcode, {}, kForever, [](CallEnd, ByteView) {});
  std::vector<std::unique_ptr<Incoming>> requests;
  while (!is_over.load()) {
    transport.keep_time();
    env.poll_until([&] { return transport.poll(requests) || is_over.load(); },
                   env.now() + kMillisecond);
  }
}

// A request waits for what will not come any more; another one fails.
TEST_P(TailwindDispatcher, AnErrorEndsTheServer) {
  const Options options;
  std::atomic<bool> is_over{false};
  runtime::run_world(GetParam(), 2, [&](Env& env, const runtime::Kill&) {
    Transport transport(env, options, {env.node(), 0}, 64);
    if (env.node() == 1)
      return send_until(env, transport, {Opcode::kRead, Opcode::kWrite}, is_over);
    std::atomic<bool> gives_up{false};
    Dispatcher dispatcher(transport, 2, [&](Worker& worker, const Incoming& request, Bytes&) {
      if (request.opcode == Opcode::kWrite) throw Error(ErrorCode::kExhausted, "no more of it");
      worker.wait([&] { return gives_up.load(); }, kForever);
    });
    const auto ends = [&] {
      if (dispatcher.has_failed()) gives_up.store(true);
      return false;
    };
    EXPECT_TRUE(refuses([&] { dispatcher.run(ends); }, ErrorCode::kExhausted, {"no more of it"}));
    EXPECT_TRUE(dispatcher.has_failed());
    is_over.store(true);
  });
}

TEST_P(TailwindDispatcher, OneRecoveryRunsAtATime) {
  const Options options;
  std::atomic<bool> is_over{false};
  std::atomic<int> recoveries{0}, most_recoveries{0}, reads{0}, ended{0};
  runtime::run_world(GetParam(), 2, [&](Env& env, const runtime::Kill&) {
    Transport transport(env, options, {env.node(), 0}, 64);
    if (env.node() == 1) {
      return send_until(env, transport,
                        {Opcode::kRecover, Opcode::kRecover, Opcode::kRead, Opcode::kRecover},
                        is_over);
    }
    Dispatcher dispatcher(transport, 4, [&](Worker& worker, const Incoming& request, Bytes&) {
      if (request.opcode == Opcode::kRead) {
        ++reads;
      } else {
        most_recoveries = std::max(most_recoveries.load(), ++recoveries);
        const Time end = env.now() + kMillisecond;
        worker.wait([&] { return env.now() >= end; }, end);
        --recoveries;
      }
      ++ended;
    });
    dispatcher.run([&] { return ended.load() == 4; });
    is_over.store(true);
  });
  EXPECT_EQ(most_recoveries.load(), 1);
  EXPECT_EQ(reads.load(), 1);
}

TEST_P(TailwindDispatcher, WithoutMemoryItEndsWithAMessage) {
  const Options options;
  for (const std::uint32_t workers : {0U, 1U}) {
    std::atomic<bool> is_over{false};
    runtime::run_world(GetParam(), 2, [&](Env& env, const runtime::Kill&) {
      Transport transport(env, options, {env.node(), 0}, 64);
      if (env.node() == 1) return send_until(env, transport, {Opcode::kRead}, is_over);
      Dispatcher dispatcher(transport, workers,
                            [](Worker&, const Incoming&, Bytes&) { throw std::bad_alloc(); });
      EXPECT_TRUE(refuses([&] { dispatcher.run([] { return false; }); }, ErrorCode::kExhausted,
                          {"no memory left"}));
      is_over.store(true);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, TailwindDispatcher, testing::Values("sim", "shm"),
                         [](const auto& param_info) { return param_info.param; });

}  // namespace
}  // namespace pyrdma::tailwind
