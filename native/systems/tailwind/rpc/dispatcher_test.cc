#include "systems/tailwind/rpc/dispatcher.h"

#include <gtest/gtest.h>

#include "runtime/worlds_test.h"

namespace pyrdma::tailwind {
namespace {

class TailwindDispatcher : public testing::TestWithParam<std::string> {};

// A request waits for what will not come any more; another one fails.
TEST_P(TailwindDispatcher, AnErrorEndsTheServer) {
  const Options options;
  std::atomic<bool> is_over{false};
  runtime::run_world(GetParam(), 2, [&](Env& env, const runtime::Kill&) {
    Transport transport(env, options, {env.node(), 0}, 64);
    if (env.node() == 1) {
      const auto call = [&](Opcode opcode) {
        transport.call({0, 0}, opcode, {}, kForever, [](CallEnd, ByteView) {});
      };
      call(Opcode::kRead);
      call(Opcode::kWrite);
      std::vector<std::unique_ptr<Incoming>> requests;
      while (!is_over.load()) {
        transport.keep_time();
        env.poll_until([&] { return transport.poll(requests) || is_over.load(); },
                       env.now() + kMillisecond);
      }
      return;
    }
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

INSTANTIATE_TEST_SUITE_P(Worlds, TailwindDispatcher, testing::Values("sim", "shm"),
                         [](const auto& param_info) { return param_info.param; });

}  // namespace
}  // namespace pyrdma::tailwind
