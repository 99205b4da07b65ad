// The scenarios of fabric/sim/retransmission.txt test the retransmission of a reliable connection.
#include <map>
#include <optional>
#include <string>

#include "base/scenario_test.h"
#include "fabric/sim/faulty_world_test.h"

namespace pyrdma::fabric::sim {
namespace {

/// Executes the steps of a scenario on one connection from a to b. Packets get lost while the path
/// in their direction is blocked.
class Connection {
 public:
  std::string act(const ScenarioStep& step) {
    const std::string& command = step.command;
    if (command == "connect") {
      QpOptions options;
      options.timeout_us = static_cast<std::uint32_t>(step.setting("timeout_us", 20));
      options.retry_count = static_cast<std::uint8_t>(step.setting("retries", 7));
      pair_.emplace(std::map<std::string, double>(), options);
      return "";
    }
    if (command == "block") {
      const NodeId from = step.word(0) == "a" ? 0 : 1;
      const Time duration = static_cast<Time>(step.setting("us", 1)) * kMicrosecond;
      pair_->world.cluster.block(from, 1 - from, duration);
      return "";
    }
    if (command == "wait") {
      pair_->wait(static_cast<Time>(step.setting("us", 1)) * kMicrosecond);
      return "";
    }
    Side& a = pair_->a;
    if (command == "write" || command == "fetch_add") {
      const std::uint64_t value = step.number(0);
      *a.word(0) = value;
      const RemoteRegion target = pair_->b.memory->remote();
      const bool posted = command == "write"
                              ? pair_->qa->write(a.memory->sge(0, 8), target, 0)
                              : pair_->qa->fetch_add(a.memory->sge(8, 8), target, 0, value);
      if (!posted) return "not posted";
      const std::uint64_t sent_before = pair_->world.cluster.counters(0).retransmitted;
      const Completion completion = a.await_send();
      const std::uint64_t again = pair_->world.cluster.counters(0).retransmitted - sent_before;
      return std::string(to_string(completion.status)) + ", sent again " + std::to_string(again) +
             " times" + (command == "write" ? "" : ", old value " + std::to_string(*a.word(8)));
    }
    if (command == "load") return "b holds " + std::to_string(pair_->b.load_word(0));
    if (command == "state") return to_string(pair_->qa->state());
    throw step.wrong("has an unknown command");
  }

 private:
  std::optional<Pair> pair_;
};

TEST(Retransmission, ConnectionsHideLossUntilTheRetriesAreUsedUp) {
  Connection connection;
  run_scenario("fabric/sim/retransmission.txt",
               [&](const ScenarioStep& step) { return connection.act(step); });
}

}  // namespace
}  // namespace pyrdma::fabric::sim
