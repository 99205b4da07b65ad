// The coordinator's state: each command against a model, after a restart each time.
#include "systems/tailwind/coordinator/state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/error.h"
#include "base/rng.h"
#include "runtime/worlds_test.h"
#include "systems/tailwind/coordinator/state_test.h"
#include "systems/tailwind/rpc/transport.h"

namespace pyrdma::tailwind {
namespace {

using Servers = std::vector<ServerId>;

constexpr std::uint64_t kCells = 16;  // of the hashes of a table, in the model
constexpr std::uint64_t kCell = std::uint64_t{1} << 60;

HashRange cells(std::uint64_t table, std::uint64_t first, std::uint64_t last) {
  return {table, first * kCell, last * kCell + (kCell - 1)};
}

/// What the commands mean, in the simplest form: tables have an owner for each cell.
struct Model {
  struct Cell {
    ServerId owner;
    Position since;
  };
  std::map<ServerId, bool> is_up;
  std::map<NodeId, std::uint32_t> lives;
  std::map<ServerId, KnownVersions> versions;
  std::map<ServerId, LogCut> cuts;
  std::vector<std::array<Cell, kCells>> tables;  // [0] is table 1

  bool up(ServerId id) const { return is_up.contains(id) && is_up.at(id); }
  bool owns(ServerId id) const {
    return std::ranges::any_of(tables, [&](const auto& table) {
      return std::ranges::any_of(table, [&](const Cell& cell) { return cell.owner == id; });
    });
  }
  void expect_equal(const CoordinatorState& state) const {
    std::map<ServerId, bool> servers;
    for (const ListedServer& server : state.view().servers) {
      servers[server.id] = server.state == ServerState::kUp;
      const auto known = versions.find(server.id);
      EXPECT_EQ(state.versions(server.id),
                known == versions.end() ? KnownVersions() : known->second);
      const LogCut* cut = state.cut(server.id);
      ASSERT_EQ(cut != nullptr, cuts.contains(server.id));
      if (cut != nullptr) {
        EXPECT_EQ(*cut, cuts.at(server.id));
      }
    }
    EXPECT_EQ(servers, is_up);
    ASSERT_EQ(state.tables().size(), tables.size());
    for (std::uint64_t table = 1; table <= tables.size(); ++table) {
      for (std::uint64_t cell = 0; cell < kCells; ++cell) {
        for (const std::uint64_t hash : {cell * kCell, cell * kCell + (kCell - 1)}) {
          const Tablet* tablet = state.view().find(table, hash);
          ASSERT_NE(tablet, nullptr);
          EXPECT_EQ(tablet->owner, tables[table - 1][cell].owner);
          EXPECT_EQ(tablet->since, tables[table - 1][cell].since);
        }
      }
    }
  }
};

/// Random commands, for a state and a model.
class Commands {
 public:
  explicit Commands(std::uint64_t seed) : rng_(seed) {}

  /// Returns whether the view must have changed.
  bool step(CoordinatorState& state, Model& model) {
    switch (rng_.below(8)) {
      case 0: {
        const NodeId node = static_cast<NodeId>(rng_.below(4));
        const std::uint32_t newest = model.lives.contains(node) ? model.lives[node] : 0;
        const ServerId id{node, static_cast<std::uint32_t>(newest + rng_.below(3))};
        const bool is_new = !model.lives.contains(node) || id.life > newest;
        if (is_new) {
          for (auto& [other, is_up] : model.is_up) is_up = is_up && other.node != node;
          model.is_up[id] = true;
          model.lives[node] = id.life;
        }
        EXPECT_EQ(state.enlist(id), model.up(id));
        return is_new;
      }
      case 1: {
        const ServerId id = any(model);
        const bool was_up = model.up(id);
        if (was_up) model.is_up[id] = false;
        EXPECT_EQ(state.declare_dead(id), was_up);
        return was_up;
      }
      case 2: {
        const ServerId id = any(model);
        const std::uint64_t segment = rng_.below(3), version = rng_.below(4);
        EXPECT_EQ(state.raise_version(id, segment, version), model.up(id));
        if (model.up(id) && version > 0) {
          auto& known = model.versions[id][segment];
          known = std::max(known, version);
        }
        return false;
      }
      case 3:
        return create(state, model);
      case 4: {
        const ServerId id = any(model);
        const LogCut cut{{rng_.below(9), static_cast<std::uint32_t>(rng_.below(9))}, {9, 9}};
        if (!model.is_up.contains(id) || model.up(id)) {
          EXPECT_EQ(error_of([&] { state.record_cut(id, cut); }), ErrorCode::kInternal);
        } else {
          model.cuts.try_emplace(id, cut);
          EXPECT_EQ(state.record_cut(id, cut), model.cuts.at(id));
        }
        return false;
      }
      case 5: {
        const ServerId id = any(model);
        const auto forget = [&] { EXPECT_EQ(state.forget(id), model.is_up.contains(id)); };
        if (model.up(id) || model.owns(id)) {
          EXPECT_EQ(error_of(forget), ErrorCode::kInternal);
          return false;
        }
        forget();
        model.versions.erase(id);
        model.cuts.erase(id);
        return model.is_up.erase(id) != 0;
      }
      default:
        return move(state, model);
    }
  }

 private:
  ServerId any(const Model& model) {
    if (model.is_up.empty() || rng_.below(10) == 0) return {9, 9};
    return std::next(model.is_up.begin(),
                     static_cast<std::ptrdiff_t>(rng_.below(model.is_up.size())))
        ->first;
  }
  bool create(CoordinatorState& state, Model& model) {
    const std::string name = "table " + std::to_string(rng_.below(6));
    const auto known = state.tables().find(name);
    if (known != state.tables().end()) {
      EXPECT_EQ(state.create_table(name, {}), known->second);
      return false;
    }
    Servers owners;
    bool all_up = true;
    for (std::uint64_t left = std::uint64_t{1} << rng_.below(4); left != 0; --left) {
      owners.push_back(any(model));
      all_up = all_up && model.up(owners.back());
    }
    if (!all_up) {
      EXPECT_EQ(error_of([&] { state.create_table(name, owners); }), ErrorCode::kInvalidArgument);
      return false;
    }
    auto& table = model.tables.emplace_back();
    for (std::size_t cell = 0; cell < kCells; ++cell)
      table[cell] = {owners[cell * owners.size() / kCells], {}};
    EXPECT_EQ(state.create_table(name, owners), model.tables.size());
    return true;
  }
  bool move(CoordinatorState& state, Model& model) {
    const ServerId dead = any(model), owner = any(model);
    const Position since{rng_.below(5), static_cast<std::uint32_t>(rng_.below(5))};
    std::vector<HashRange> ranges;
    bool moves = false;
    const bool is_possible = !model.up(dead) && model.up(owner);
    for (std::uint64_t left = 1 + rng_.below(3); left != 0; --left) {
      const std::uint64_t table = 1 + rng_.below(model.tables.size() + 1);
      const std::uint64_t first = rng_.below(kCells);
      const std::uint64_t last = first + rng_.below(kCells - first);
      ranges.push_back(cells(table, first, last));
      if (!is_possible || table > model.tables.size()) continue;
      for (std::uint64_t cell = first; cell <= last; ++cell) {
        Model::Cell& moved_cell = model.tables[table - 1][cell];
        if (moved_cell.owner != dead) continue;
        moved_cell = {owner, since};
        moves = true;
      }
    }
    const auto move = [&] { EXPECT_EQ(state.move_tablets(dead, ranges, owner, since), moves); };
    EXPECT_EQ(error_of(move).has_value(), model.up(dead));
    return moves;
  }
  Rng rng_;
};

TEST(TailwindCoordinatorState, IsThatOfTheModelAfterEachRestart) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    FakeDisk disk;
    Rng rng(seed);
    Model model;
    Commands commands(seed);
    std::uint64_t epoch = 0;
    std::set<std::uint64_t> clients;
    for (std::uint64_t step = 0; step < 300; ++step) {
      CoordinatorState state(disk, kFile);
      ASSERT_EQ(state.view().epoch, epoch);
      // Now and then several commands stand between two restarts.
      for (std::uint64_t left = step % 4 == 0 ? 10 : 1; left != 0; --left) {
        const bool has_changed = commands.step(state, model);
        EXPECT_EQ(state.view().epoch > epoch, has_changed);
        epoch = state.view().epoch;
        EXPECT_TRUE(clients.insert(state.new_client()).second);
      }
      model.expect_equal(state);
      disk.crash(FakeDisk::Crash::kLosesUnsynced, rng);
      model.expect_equal(CoordinatorState(disk, kFile));
      ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", step " << step;
    }
    EXPECT_FALSE(clients.contains(0));
  }
}

TEST(TailwindCoordinatorState, TabletsSplitTheHashesEvenly) {
  FakeDisk disk;
  CoordinatorState state(disk, kFile);
  state.enlist({0, 0});
  state.enlist({1, 0});
  const std::uint64_t third = kLastHash / 3;  // 2^64 - 1 is a multiple of 3
  EXPECT_EQ(state.create_table("three", {{0, 0}, {1, 0}, {0, 0}}), 1U);
  EXPECT_EQ(state.view().tablets, (std::vector<Tablet>{{{1, 0, third - 1}, {0, 0}, {}},
                                                       {{1, third, 2 * third - 1}, {1, 0}, {}},
                                                       {{1, 2 * third, kLastHash}, {0, 0}, {}}}));
  EXPECT_EQ(state.create_table("one", {{1, 0}}), 2U);
  EXPECT_EQ(state.view().tablets.back(), (Tablet{{2, 0, kLastHash}, {1, 0}, {}}));
  EXPECT_EQ(state.create_table("many", Servers(CoordinatorState::kMostTablets, {0, 0})), 3U);
  EXPECT_EQ(state.view().tablets.size(), 4 + CoordinatorState::kMostTablets);
}

TEST(TailwindCoordinatorState, TablesHaveLimits) {
  FakeDisk disk;
  CoordinatorState state(disk, kFile);
  state.enlist({0, 0});
  const auto create = [&](std::size_t name_bytes, std::size_t tablets) {
    return error_of([&] {
      state.create_table(std::string(name_bytes, 'n'), Servers(tablets, {0, 0}));
    });
  };
  EXPECT_EQ(create(0, 1), ErrorCode::kInvalidArgument);
  EXPECT_EQ(create(CoordinatorState::kMostTableName + 1, 1), ErrorCode::kInvalidArgument);
  EXPECT_EQ(create(1, 0), ErrorCode::kInvalidArgument);
  EXPECT_EQ(create(1, CoordinatorState::kMostTablets + 1), ErrorCode::kInvalidArgument);
  EXPECT_EQ(create(CoordinatorState::kMostTableName, 1), std::nullopt);
}

// A message takes the view of all tables, also when recoveries have split each tablet in two.
TEST(TailwindCoordinatorState, TheLastEpochStays) {
  FakeDisk disk;
  {
    CoordinatorState state(disk, kFile, ClusterView::kEpochs - 2);
    EXPECT_TRUE(state.enlist({0, 0}));
    EXPECT_EQ(state.view().epoch, ClusterView::kEpochs - 1);
    try {
      state.enlist({1, 0});
      FAIL() << "no epoch is left";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kExhausted);
    }
  }
  const CoordinatorState again(disk, kFile);
  EXPECT_EQ(again.view().epoch, ClusterView::kEpochs - 1);
  EXPECT_EQ(again.view().servers.size(), 1U);
}

TEST(TailwindCoordinatorState, AllTablesTogetherHaveALimit) {
  constexpr std::size_t kMost = CoordinatorState::kMostOfAllTables;
  const Servers owners(CoordinatorState::kMostTablets, {0, 0});
  FakeDisk disk;
  {
    CoordinatorState state(disk, kFile);
    state.enlist({0, 0});
    for (std::size_t table = 0; table < kMost / owners.size(); ++table)
      state.create_table(std::to_string(table), owners);
    EXPECT_EQ(error_of([&] {
                state.create_table("another", {{0, 0}});
              }),
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(state.create_table("0", owners), 1U) << "it is there";
  }
  const CoordinatorState state(disk, kFile);
  EXPECT_EQ(state.view().tablets.size(), kMost);
  EXPECT_LT(2 * encoded_bytes(state.view()).size(), Transport::kMostMessage);
}

TEST(TailwindCoordinatorState, AForgottenLifeStaysRefused) {
  FakeDisk disk;
  {
    CoordinatorState state(disk, kFile);
    EXPECT_TRUE(state.enlist({0, 7}));
    EXPECT_TRUE(state.enlist({0, 7})) << "the request came again";
    EXPECT_EQ(state.view().epoch, 1U);
    state.declare_dead({0, 7});
    EXPECT_FALSE(state.enlist({0, 7}));
    EXPECT_TRUE(state.forget({0, 7}));
  }
  CoordinatorState state(disk, kFile);
  EXPECT_TRUE(state.view().servers.empty());
  EXPECT_FALSE(state.enlist({0, 6}));
  EXPECT_FALSE(state.enlist({0, 7}));
  EXPECT_TRUE(state.enlist({0, 8}));
}

TEST(TailwindCoordinatorState, AnEmptyRangeMovesNothing) {
  FakeDisk disk;
  CoordinatorState state(disk, kFile);
  state.enlist({0, 0});
  state.enlist({1, 0});
  state.create_table("t", {{0, 0}});
  state.declare_dead({0, 0});
  EXPECT_FALSE(state.move_tablets({0, 0}, {{1, 10, 5}}, {1, 0}, {}));
  EXPECT_TRUE(state.move_tablets({0, 0}, {{1, 10, 5}, {1, 20, kLastHash}}, {1, 0}, {}));
  EXPECT_EQ(state.view().tablets,
            (std::vector<Tablet>{{{1, 0, 19}, {0, 0}, {}}, {{1, 20, kLastHash}, {1, 0}, {}}}));
}

TEST(TailwindCoordinatorState, WorksOnTheDiskOfASimulatedNode) {
  runtime::run_world("sim", 2, [](Env& env, const runtime::Kill&) {
    if (env.node() != 0) return;
    std::string expected;
    {
      CoordinatorState state(env.storage(), kFile);
      for (const auto& command : script()) command(state);
      expected = all_of(state);
    }
    CoordinatorState state(env.storage(), kFile);
    EXPECT_EQ(all_of(state), expected);
    EXPECT_FALSE(env.storage().exists(std::string(kFile) + ".new"));
  });
}

}  // namespace
}  // namespace pyrdma::tailwind
