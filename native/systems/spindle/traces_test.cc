// Traces of the multicast as data: each line is a step of one node, and nothing else happens.
//
//   members 5                                  a group of so many nodes, with the subgroups that
//   follow subgroup members=0,1 senders=0 window=2    all members and all senders, if left out
//   nulls on                                   senders that lag send nulls (section 3.3)
//   send NODE SUBGROUP COUNT                   queues messages; prints where the ring was full
//   turn NODE times=1                          so many turns of its predicates; until nothing
//   happens,
//                                              if left out
//   table NODE SUBGROUP                        the rows as the node sees them (Spindle, table 1)
//   delivered NODE SUBGROUP                    messages since the last time, as node.number
//
// The numbers of a table are those of the paper: the last one that was received, from -1.
#include <gtest/gtest.h>

#include <map>

#include "base/scenario_test.h"
#include "systems/spindle/worlds_test.h"

namespace pyrdma::spindle {
namespace {

std::vector<NodeId> nodes_in(const std::string& text) {
  std::vector<NodeId> nodes;
  std::istringstream input(text);
  for (std::string word; std::getline(input, word, ',');)
    nodes.push_back(static_cast<NodeId>(std::stoul(word)));
  return nodes;
}

std::string last_of(std::uint64_t count) {
  return std::to_string(static_cast<std::int64_t>(count) - 1);
}

/// The steps so far. A simulation repeats them, and so it can start again for each output.
class Trace {
 public:
  std::string act(const ScenarioStep& step) {
    if (step.command == "members") {
      *this = Trace();
      nodes_ = static_cast<std::uint32_t>(step.number(0));
      return "";
    }
    if (step.command == "subgroup") {
      SubgroupSpec spec;
      spec.members = nodes_in(step.setting("members", std::string()));
      spec.senders = nodes_in(step.setting("senders", std::string()));
      spec.window = static_cast<std::uint32_t>(step.setting("window", 3));
      spec.max_message = 64;
      specs_.push_back(spec);
      return "";
    }
    if (step.command == "nulls") {
      options_.null_sends = step.word(0) == "on";
      return "";
    }
    Step next{step.command, static_cast<NodeId>(step.number(0)), 0, 0};
    if (step.command != "turn") next.subgroup = static_cast<std::uint32_t>(step.number(1));
    if (step.command == "turn")
      next.count = static_cast<std::uint32_t>(step.setting("times", kUntilQuiet));
    if (step.command == "send") next.count = static_cast<std::uint32_t>(step.number(2));
    steps_.push_back(next);
    return run();
  }

 private:
  static constexpr std::uint64_t kUntilQuiet = 1000;
  struct Step {
    std::string command;
    NodeId node;
    std::uint32_t subgroup, count;
  };

  /// Repeats all steps; returns the output of the last one.
  std::string run() {
    Options options = options_;
    options.predicate_thread = false;
    Log log(nodes_);
    std::map<std::pair<NodeId, std::uint32_t>, std::size_t> shown;
    std::atomic<std::size_t> at{0};
    std::string out;
    runtime::run_world("sim", nodes_, [&](Env& env, const runtime::Kill&) {
      TestNode node(env, "shm", options, specs_, log);  // with the patience of a real world
      node.group().found(all_nodes(nodes_));
      EXPECT_TRUE(node.wait_for([&] { return node.group().is_settled(); }));
      // All groups are at rest before the first step.
      env.sleep_until(env.now() + kMillisecond);
      while (at < steps_.size()) {
        const std::size_t now = at;
        if (steps_[now].node == env.node()) {
          out = take(steps_[now], node, log, shown[{env.node(), steps_[now].subgroup}]);
          env.sleep_until(env.now() + 20 * kMicrosecond);  // its requests arrive
          at = now + 1;
        } else {
          env.sleep_until(env.now() + kMicrosecond);
        }
      }
    });
    return out;
  }

  std::string take(const Step& step, TestNode& node, Log& log, std::size_t& shown) const {
    if (step.command == "turn") {
      for (std::uint32_t turns = 0; turns < step.count && node.group().turn(); ++turns) {
      }
      return "";
    }
    if (step.command == "send") {
      for (std::uint32_t sent = 0; sent < step.count; ++sent) {
        if (!node.try_send(step.subgroup))
          return "node " + std::to_string(step.node) + " is full after " + std::to_string(sent);
      }
      return "";
    }
    std::string out = "node " + std::to_string(step.node) + ":";
    if (step.command == "table") {
      for (const Group::TableRow& row : node.group().table(step.subgroup)) {
        out += " [" + std::to_string(row.node) + "]";
        if (row.is_sender) out += " sent " + last_of(row.sent);
        out += " r " + last_of(row.received) + " d " + last_of(row.delivered);
      }
      return out;
    }
    if (step.command != "delivered") throw std::invalid_argument("unknown step " + step.command);
    const std::vector<Delivery> all = log.of(step.node);
    for (; shown < all.size(); ++shown) {
      if (all[shown].subgroup == step.subgroup)
        out += ' ' + std::to_string(all[shown].sender) + '.' + std::to_string(all[shown].number);
    }
    return out;
  }
  std::uint32_t nodes_ = 0;
  Options options_ = Options::of(Preset::kBatching);
  std::vector<SubgroupSpec> specs_;
  std::vector<Step> steps_;
};

TEST(SpindleTracesSim, TheTableOfThePaper) {
  Trace trace;
  run_scenario("systems/spindle/traces/table1.txt",
               [&](const ScenarioStep& step) { return trace.act(step); });
}

TEST(SpindleTracesSim, ALateSenderHoldsTheOthersBack) {
  Trace trace;
  run_scenario("systems/spindle/traces/late_sender.txt",
               [&](const ScenarioStep& step) { return trace.act(step); });
}

}  // namespace
}  // namespace pyrdma::spindle
