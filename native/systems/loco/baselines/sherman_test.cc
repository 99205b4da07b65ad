// The model of Sherman: all nodes see updates of all nodes.
#include "systems/loco/baselines/sherman.h"

#include "base/error.h"
#include "systems/loco/barrier.h"
#include "systems/loco/worlds_test.h"

namespace pyrdma::loco {
namespace {

void read_and_update(const std::string& world, const ShermanOptions& tree_options) {
  ManagerOptions options;
  options.block_bytes = Sherman::kLeafBytes;
  run_nodes(world, 3, options, [&](Manager& manager) {
    Sherman tree(manager, "tree", tree_options);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    tree.load();
    Caller& me = manager.caller(0);
    barrier.wait(me);
    ShermanOperation operation(tree, me);
    const auto run = [&] {
      me.wait_until([&] { return operation.poll(); }, "an operation");
      return operation.outcome();
    };
    for (Key key = 0; key < 1000; key += 7) {
      operation.lookup(key);
      EXPECT_EQ(run(), Outcome::kOk);
      EXPECT_EQ(operation.value(), key);
    }
    barrier.wait(me);
    for (Key key = manager.self(); key < 100; key += 3) {
      operation.update(key, key + 5000);
      EXPECT_EQ(run(), Outcome::kOk);
    }
    barrier.wait(me);
    for (Key key = 0; key < 200; ++key) {
      operation.lookup(key);
      EXPECT_EQ(run(), Outcome::kOk);
      EXPECT_EQ(operation.value(), key < 100 ? key + 5000 : key);
    }
    barrier.wait(me);
  });
}

TEST_P(LocoWorlds, ATreeOfLeavesIsReadAndUpdated) {
  const ShermanOptions usual{.keys = 1000, .locks = 2};
  read_and_update(GetParam(), usual);
  ShermanOptions without = usual;
  without.local_queues = false;
  read_and_update(GetParam(), without);
  without = usual;
  without.whole_leaf = false;
  read_and_update(GetParam(), without);
  without.combined_unlock = false;
  without.grant = Grant::kTicket;
  read_and_update(GetParam(), without);
  run(1, [](Manager& manager) { EXPECT_THROW(Sherman(manager, "tree", {}), Error); });
}

}  // namespace
}  // namespace pyrdma::loco
