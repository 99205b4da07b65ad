// The worlds in which the table is tested: storage nodes, and clients with connections to them.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error_test.h"
#include "runtime/mesh.h"
#include "runtime/node_barrier.h"
#include "runtime/worlds_test.h"
#include "systems/krcore/baselines/lite_device.h"
#include "systems/krcore/race/client.h"
#include "systems/krcore/race/fuzz/audit.h"
#include "systems/krcore/race/storage.h"
#include "systems/krcore/virtual_device.h"

namespace pyrdma::krcore::race {

inline ByteView bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }
inline std::string text_of(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// One end of the connections: of a storage node with all clients, or of a client.
struct Ends {
  explicit Ends(Env& env, std::uint32_t entries = 4096)
      : pd(env.device().create_protection_domain()),
        completions(env.device().create_completion_queue(entries)) {}
  fabric::QueuePair& add(Env& env) {
    owned.push_back(env.device().create_queue_pair(*pd, *completions, *completions));
    pairs.push_back(owned.back().get());
    return *owned.back();
  }
  std::unique_ptr<fabric::ProtectionDomain> pd;
  std::unique_ptr<fabric::CompletionQueue> completions;
  std::vector<std::unique_ptr<fabric::QueuePair>> owned;
  std::vector<fabric::QueuePair*> pairs;
};

/// A node with a client, in a test.
struct ClientNode {
  Env& env;
  Ends& ends;
  const TableAddress& table;
  const runtime::Kill& kill;
  std::uint32_t number;  // of this client, from 0

  std::unique_ptr<Client> client(ClientOptions options = {}) const {
    return std::make_unique<Client>(env, env.device(), *ends.pd, *ends.completions, ends.pairs,
                                    table, std::move(options));
  }
};

struct Shape {
  std::uint32_t storages = 1, clients = 1;
  StorageOptions storage;
  std::optional<NodeId> victim = {};  // a node that is killed: nobody waits for it at the end
};

/// A table of few places, so that it soon splits.
inline StorageOptions small_table(std::uint32_t max_depth = 8) {
  StorageOptions options;
  options.groups = 2;
  options.max_depth = max_depth;
  options.bytes = 8U << 20;
  options.max_key_bytes = 32;
  options.max_value_bytes = 256;
  return options;
}

using Regions = std::vector<const std::byte*>;

using PerClient = std::function<void(ClientNode&)>;
using AtEnd = std::function<void(const TableAddress&, const Regions&)>;

/// One node of run_table.
inline void run_table_node(Env& env, const runtime::Kill& kill, const Shape& shape,
                           Regions& regions, const PerClient& per_client, const AtEnd& at_end) {
  Ends ends(env);
  runtime::Mesh mesh(env, "race");
  std::unique_ptr<Storage> storage;
  const bool is_client = env.node() >= shape.storages;
  if (is_client) {
    for (NodeId node = 0; node < shape.storages; ++node) mesh.add(node, ends.add(env));
  } else {
    StorageOptions options = shape.storage;
    options.index = env.node();
    options.nodes = shape.storages;
    storage = std::make_unique<Storage>(env, env.device(), *ends.pd, options);
    regions[env.node()] = storage->data();
    env.device().rendezvous().publish_value("table/" + std::to_string(env.node()),
                                            storage->address());
    for (NodeId node = shape.storages; node < env.nodes(); ++node) mesh.add(node, ends.add(env));
  }
  const Time deadline = env.now() + runtime::kSetupTimeout;
  mesh.connect(deadline);
  std::vector<TableAddress> parts;
  for (NodeId node = 0; node < shape.storages; ++node)
    parts.push_back(env.device().rendezvous().await_value<TableAddress>(
        "table/" + std::to_string(node), deadline));
  const TableAddress table = join(parts);
  mesh.meet(runtime::kSetupTimeout);
  if (is_client) {
    ClientNode node{env, ends, table, kill, env.node() - shape.storages};
    per_client(node);
  }
  std::vector<NodeId> left;
  for (NodeId node = 0; node < env.nodes(); ++node) {
    if (node != shape.victim) left.push_back(node);
  }
  runtime::node_barrier(env, "race end", runtime::kSetupTimeout, left);
  env.sleep_until(env.now() + 100 * kMicrosecond);  // late placements
  if (env.node() == 0 && at_end) at_end(table, regions);
  runtime::node_barrier(env, "race left", runtime::kSetupTimeout, left);
}

/// Runs `per_client` on every client's node. The world "sim/krcore" is that of queue pairs of the
/// service, "sim/lite" that of LITE's calls. Then `at_end` looks at the memory, on the first
/// storage node. Every node is a thread of this process.
inline void run_table(const std::string& world, const Shape& shape, const PerClient& per_client,
                      const AtEnd& at_end = {}) {
  Regions regions(shape.storages);
  const std::string fabric = world.substr(0, world.find('/'));
  const std::string below = world.substr(std::min(world.size(), fabric.size() + 1));
  runtime::run_world(fabric, shape.storages + shape.clients,
                     [&](Env& env, const runtime::Kill& kill) {
                       const auto run = [&](Env& used) {
                         run_table_node(used, kill, shape, regions, per_client, at_end);
                       };
                       if (below == "krcore") {
                         Options options;
                         options.cores = 1;
                         options.arena_bytes = 32 << 20;
                         Service service(env, options);
                         VirtualEnv used(env, service);
                         run(used);
                       } else if (below == "lite") {
                         Lite lite(env, {});
                         LiteEnv used(env, lite);
                         run(used);
                       } else {
                         run(env);
                       }
                     });
}

inline void expect_whole(const Audit& found) {
  for (const std::string& problem : found.problems) ADD_FAILURE() << problem;
}

/// Waits for what a thread of another node sets. Nothing wakes this node.
inline void await(Env& env, const std::function<bool()>& is_there) {
  const Time deadline = env.now() + 60 * kSecond;
  while (!is_there() && env.now() < deadline) env.sleep_until(env.now() + 5 * kMicrosecond);
  EXPECT_TRUE(is_there());
}

inline std::string key_of(std::uint64_t number) { return "key " + std::to_string(number); }

class RaceWorlds : public testing::TestWithParam<std::string> {
 protected:
  void run(const Shape& shape, const PerClient& per_client, const AtEnd& at_end = {}) {
    if (shape.victim && GetParam() == "verbs") GTEST_SKIP() << "no way to kill a node";
    run_table(GetParam(), shape, per_client, at_end);
  }
};

inline auto race_worlds() {
#if defined(__SANITIZE_THREAD__)
  std::vector<std::string> names{"shm"};
#else
  std::vector<std::string> names{"sim", "sim_strong", "shm"};
#endif
  if (std::getenv("PYRDMA_TEST_VERBS") != nullptr) names.emplace_back("verbs");
  return testing::ValuesIn(names);
}

}  // namespace pyrdma::krcore::race
