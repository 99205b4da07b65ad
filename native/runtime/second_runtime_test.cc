// Two runtimes of one name in one run.
#include "runtime/worlds_test.h"

namespace pyrdma::runtime {
namespace {

class SecondRuntime : public RuntimeWorlds {};
INSTANTIATE_TEST_SUITE_P(Worlds, SecondRuntime, testing::ValuesIn(world_names()),
                         [](const auto& param) { return param.param; });

TEST_P(SecondRuntime, OfOneNameIsRefusedAndOfAnotherNameWorks) {
  run(2, [&](Env& env, const Kill&) {
    Options named = options();
    named.name = "the name";
    const auto refused = [&] {
      Runtime second(env, named);
      return refuses([&] { second.connect(); }, ErrorCode::kInvalidArgument,
                     {"the name", std::to_string(env.node())});
    };
    {
      Runtime first(env, named);
      first.connect();
      EXPECT_TRUE(refused());
      first.leave();
    }
    EXPECT_TRUE(refused());
    named.name = "another name";
    Runtime third(env, named);
    third.connect();
    third.leave();
  });
}

}  // namespace
}  // namespace pyrdma::runtime
