// Every order of few datagrams and few mishaps, between two endpoints: the handshake of sessions,
// and the numbers of packets. What the scenario `erpc` draws at random is here complete, for small
// numbers.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/small_test.h"
#include "systems/erpc/explore_world_test.h"

namespace pyrdma::erpc {
namespace {

check::Explored explore(const Plan& plan, Bugs bugs = {}) {
  return check::Explorer([&] { return std::make_unique<RpcWorld>(plan, bugs); }).run();
}

/// A session that is connected, whose numbers pass the last one. Nobody is tested for life.
Plan numbers(const Mishaps& mishaps, std::uint32_t request = 32, std::uint32_t response = 32) {
  Plan plan;
  plan.mishaps = mishaps;
  plan.request = request;
  plan.response = response;
  plan.begins_connected = true;
  plan.options.failure_timeout = 10 * kMillisecond;
  plan.options.first_request = PacketHeader::kMaxRequest - plan.options.slots + 1;
  return plan;
}
Plan answers_later(Plan plan) {
  plan.answers_later = true;
  return plan;
}

/// Sessions from their begin on.
Plan sessions(const Mishaps& mishaps) {
  Plan plan;
  plan.mishaps = mishaps;
  return plan;
}
/// The server has room for one session.
Plan no_room(Plan plan) {
  plan.server_receives = plan.options.credits;
  return plan;
}

struct Case {
  std::string name;
  Plan plan;
  std::uint64_t least = 0;  // states
};

void expect_nothing_wrong(const Case& each) {
  if (fuzz::kSlowed && each.least > 4'000) return;
  const check::Explored explored = explore(each.plan);
  EXPECT_EQ(explored.wrong, "") << each.name << ": " << explored.text();
  EXPECT_GE(explored.states, each.least) << each.name << ": " << explored.text();
  EXPECT_FALSE(explored.is_cut) << each.name;
}

TEST(ErpcExploreSim, EveryOrderOfFewPackets) {
  std::vector<Case> all{
      {"short requests", numbers({.asks = 4, .ticks = 1, .copies = 1}), 12'000},
      {"two rollbacks", numbers({.asks = 3, .ticks = 2}), 3'500},
      {"a long request", numbers({.asks = 1, .ticks = 2}, 200), 3'000},
      {"a long response", numbers({.asks = 1, .ticks = 2, .copies = 1}, 32, 200), 3'500},
      {"a loss", numbers({.asks = 3, .ticks = 1, .losses = 1}), 1'400},
      {"a loss of a long RPC", numbers({.asks = 1, .ticks = 1, .losses = 1}, 120, 120), 280},
      {"late answers", answers_later(numbers({.asks = 3, .ticks = 1, .copies = 1})), 6'000},
  };
  if (fuzz::search_factor() > 1) {
    all.push_back(
        {"two long RPCs", numbers({.asks = 2, .ticks = 1, .copies = 1}, 120, 120), 10'000});
    all.push_back({"much is lost",
                   numbers({.asks = 1, .ticks = 2, .copies = 1, .losses = 1}, 200, 120), 20'000});
  }
  for (const Case& each : all) expect_nothing_wrong(each);
}

TEST(ErpcExploreSim, EveryOrderOfFewSessions) {
  std::vector<Case> all{
      {"a timeout", sessions({.asks = 1, .opens = 2, .ticks = 1}), 2'500},
      {"the client comes again", sessions({.asks = 2, .opens = 2, .client_restarts = 1}), 1'900},
      {"the server comes again", sessions({.asks = 2, .opens = 2, .server_restarts = 1}), 2'100},
      {"silence", sessions({.asks = 2, .opens = 2, .silences = 1}), 2'500},
      {"the server is deaf", sessions({.asks = 2, .opens = 2, .deafnesses = 1}), 2'500},
      {"a client comes again and is silent",
       sessions({.asks = 1, .opens = 2, .client_restarts = 1, .silences = 1}), 3'000},
      {"no room", no_room(sessions({.asks = 1, .opens = 2, .ticks = 1, .losses = 1})), 200},
  };
  if (fuzz::search_factor() > 1) {
    all.push_back({"a late client comes again",
                   sessions({.asks = 1, .opens = 2, .ticks = 1, .client_restarts = 1}), 10'000});
    all.push_back({"a late server comes again",
                   sessions({.asks = 1, .opens = 2, .ticks = 1, .server_restarts = 1}), 10'000});
    all.push_back({"both come again",
                   sessions({.asks = 1, .opens = 3, .client_restarts = 1, .server_restarts = 1}),
                   100'000});
  }
  for (const Case& each : all) expect_nothing_wrong(each);
}

/// A bug, and the fewest choices that show it.
struct Known {
  Bug bug = Bug::kNone;
  Plan plan;
  std::size_t choices = 0;
};

class ErpcExploreBugs : public testing::TestWithParam<Known> {};

TEST_P(ErpcExploreBugs, AreFound) {
  const Known& known = GetParam();
  const check::Explored explored = explore(known.plan, known.bug);
  EXPECT_NE(explored.wrong, "") << explored.text();
  EXPECT_EQ(explored.trace.size(), known.choices) << explored.text();
}

INSTANTIATE_TEST_SUITE_P(
    All, ErpcExploreBugs,
    testing::Values(
        Known{Bug::kExecutesAgain, numbers({.asks = 1, .copies = 1}), 2},
        Known{Bug::kPieceByResponseSize, numbers({.asks = 1}, 32, 200), 0},
        Known{Bug::kCreditsLost, numbers({.asks = 1, .ticks = 1}), 2},
        Known{Bug::kCreditsDoubled, numbers({.asks = 1, .ticks = 1}), 2},
        Known{Bug::kOrderIgnored, numbers({.asks = 1}, 200), 2},
        Known{Bug::kOlderResponseTaken, numbers({.asks = 2, .copies = 1}), 4},
        Known{Bug::kOlderRequestTaken, numbers({.asks = 2, .copies = 1}), 5},
        Known{Bug::kCreditNotReturned, numbers({.asks = 1}, 32, 200), 0},
        Known{Bug::kNumbersRunOut, numbers({.asks = 1}), 0},
        Known{Bug::kGenerationIgnored, sessions({.asks = 1, .opens = 2, .ticks = 1, .copies = 1}),
              9},
        Known{Bug::kDeathIgnored, sessions({.asks = 1, .opens = 1, .silences = 1}), 4},
        Known{Bug::kLostInBacklog, sessions({.asks = 3, .opens = 1, .silences = 1}), 6},
        Known{Bug::kDeadClientKept, sessions({.asks = 1, .opens = 1}), 0},
        Known{Bug::kAnyPingAnswered, sessions({.asks = 1, .opens = 1, .deafnesses = 1}), 3},
        Known{Bug::kNotSentClaimed, sessions({.asks = 1, .opens = 1, .silences = 1}), 6},
        Known{Bug::kOlderSessionsKept, sessions({.opens = 2, .client_restarts = 1}), 5},
        Known{Bug::kLateConnectTaken, sessions({.opens = 2, .client_restarts = 1}), 4},
        Known{Bug::kRefusalIsFinal, no_room(sessions({.opens = 2})), 3}),
    [](const auto& each) {
      return std::string(kBugNames[static_cast<std::size_t>(each.param.bug) - 1]);
    });

}  // namespace
}  // namespace pyrdma::erpc
