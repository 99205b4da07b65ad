// A client dies at each step of an insertion and of a split, or is taken for dead there and goes
// on. The others lose no key and find none twice.
#include <array>
#include <atomic>
#include <optional>
#include <tuple>

#include "systems/krcore/race/worlds_test.h"

namespace pyrdma::krcore::race {
namespace {

constexpr std::uint64_t kMine = 130, kTheirs = 250;  // keys of the victim, and of the survivor

ClientOptions patient() {
  ClientOptions options;
  options.timeout = 20 * kSecond;
  options.window = 4;
  options.split_groups = 1;
  return options;
}

/// The victim's keys, and how far it has come.
struct Progress {
  std::atomic<std::uint64_t> inserted{0};
  std::atomic<bool> has_stopped{false}, may_go_on{false};
  int passes = 0;  // of the step
};

std::string value_of_key(std::uint64_t number) { return std::string(60 + number % 90, 'v'); }

void insert_until_it_stops(Client& client, Progress& progress) {
  for (std::uint64_t i = 0; i < kMine; ++i) {
    const Outcome outcome = client.insert(bytes_of(key_of(i)), bytes_of(value_of_key(i)));
    if (progress.may_go_on) {
      // The survivor has inserted the key too, and has removed it if its number is even.
      if (i % 2 == 0) client.remove(bytes_of(key_of(i)));
      return;
    }
    EXPECT_EQ(outcome, Outcome::kOk);
    progress.inserted = i + 1;
  }
}

// The survivor needs room in every subtable.
void go_on(Client& client, std::uint64_t inserted) {
  Bytes value;
  for (std::uint64_t i = 0; i < inserted; ++i) {
    EXPECT_EQ(client.lookup(bytes_of(key_of(i)), value), Outcome::kOk) << i;
    EXPECT_EQ(text_of(value), value_of_key(i));
  }
  for (std::uint64_t i = kMine; i < kMine + kTheirs; ++i)
    EXPECT_EQ(client.insert(bytes_of(key_of(i)), bytes_of(value_of_key(i))), Outcome::kOk) << i;
  for (std::uint64_t i = 0; i < kMine + kTheirs; ++i) {
    // The victim's last insertion may have happened.
    if (i >= inserted && i < kMine) {
      const Outcome found = client.lookup(bytes_of(key_of(i)), value);
      EXPECT_TRUE(i == inserted || found == Outcome::kMissing) << i;
      EXPECT_TRUE(found == Outcome::kMissing || text_of(value) == value_of_key(i));
      EXPECT_EQ(client.insert(bytes_of(key_of(i)), bytes_of(value_of_key(i))),
                found == Outcome::kMissing ? Outcome::kOk : Outcome::kExists);
    }
    EXPECT_EQ(client.lookup(bytes_of(key_of(i)), value), Outcome::kOk) << i;
    EXPECT_EQ(text_of(value), value_of_key(i));
    EXPECT_EQ(client.update(bytes_of(key_of(i)), bytes_of("new")), Outcome::kOk) << i;
  }
  for (std::uint64_t i = 0; i < kMine + kTheirs; i += 2)
    EXPECT_EQ(client.remove(bytes_of(key_of(i))), Outcome::kOk) << i;
}

void expect_half(const TableAddress& table, const Regions& regions) {
  const Audit found = audit(table, regions);
  expect_whole(found);
  EXPECT_EQ(found.values.size(), (kMine + kTheirs) / 2);
  EXPECT_EQ(found.locked, 0U);
  EXPECT_EQ(found.frozen, 0U);
  EXPECT_GT(found.subtables, 4U);
}

const char* name_of(Step step) {
  constexpr std::array<const char*, static_cast<std::size_t>(Step::kCount)> kNames{
      "BlockWritten",  "Placed",       "LookedAgain", "Committed", "SplitLocked",
      "SplitReserved", "BatchPassed",  "AllPassed",   "Copied",    "Doubled",
      "Published",     "BatchCleaned", "AllCleaned",  "Unlocked"};
  return kNames[static_cast<std::size_t>(step)];
}

/// The world, the step, and after how many passes through it the victim stops.
using Case = std::tuple<std::string, Step, int>;

class RaceDeaths : public testing::TestWithParam<Case> {
 protected:
  /// The victim calls `stop` at its step.
  void run(std::optional<NodeId> victim, const std::function<void(ClientNode&, Progress&)>& stop) {
    const auto& [world, step, pass] = GetParam();
    Progress progress;
    Shape shape{1, 2, small_table(), victim};
    run_table(
        world, shape,
        [&, step = step, pass = pass](ClientNode& node) {
          ClientOptions options = patient();
          if (node.number == 1) {
            const auto client = node.client(options);
            await(node.env, [&] { return progress.has_stopped.load(); });
            go_on(*client, progress.inserted);
            progress.may_go_on = true;
            return;
          }
          options.at_step = [&](Step reached) {
            if (reached != step || ++progress.passes != pass) return;
            progress.has_stopped = true;
            stop(node, progress);
          };
          const auto client = node.client(options);
          insert_until_it_stops(*client, progress);
        },
        expect_half);
    EXPECT_TRUE(progress.has_stopped) << "the victim has never come to its step";
  }
};

TEST_P(RaceDeaths, TheSurvivorGoesOn) {
  run(1, [](ClientNode& node, Progress&) {
    node.kill(node.env.node());
    node.env.sleep_until(node.env.now() + kSecond);  // it ends here
    ADD_FAILURE() << "the victim lives";
  });
}

// It is slow, not dead: the survivor finishes its split, and it goes on where it was.
TEST_P(RaceDeaths, WhoWasTakenForDeadGoesOn) {
  run({}, [](ClientNode& node, Progress& progress) {
    await(node.env, [&] { return progress.may_go_on.load(); });
  });
}

std::vector<Case> death_cases() {
#if defined(__SANITIZE_THREAD__)
  const std::vector<std::string> worlds{"shm"};
#else
  const std::vector<std::string> worlds{"sim", "sim_strong", "shm"};
#endif
  std::vector<Case> cases;
  for (const std::string& world : worlds) {
    for (int step = 0; step < static_cast<int>(Step::kCount); ++step) {
      for (const int pass : {1, 2}) cases.emplace_back(world, static_cast<Step>(step), pass);
    }
  }
  return cases;
}

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  const auto& [world, step, pass] = info.param;
  return world + "_" + name_of(step) + "_" + std::to_string(pass);
}

INSTANTIATE_TEST_SUITE_P(All, RaceDeaths, testing::ValuesIn(death_cases()), name_of_case);

}  // namespace
}  // namespace pyrdma::krcore::race
