#include "systems/spindle/fuzz/logs_oracle.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pyrdma::spindle::scenario {

namespace {

std::string sample_text(const Message& message) {
  return {reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size()};
}

}  // namespace

void LogsOracle::expect(NodeId node, const Texts& log, const Texts& wanted, const char* check,
                        const std::string& when) {
  if (wanted.empty() || !topic_.has_subscriber(node)) return;
  ++checks_[check];
  const std::set<std::string_view> kept(log.begin(), log.end());
  for (const std::string& text : wanted) {
    if (kept.contains(text)) continue;
    return report_("durable", "node " + std::to_string(node) + " has lost " + text.substr(0, 12) +
                                  ", found " + when);
  }
  judged_ += wanted.size();
}

/// What a node knew before a view that runs is on the disks of all members. What it delivers in the
/// view may be in its log, and so known, a moment before.
void LogsOracle::agree(const Node& node, std::uint64_t view, const Texts& but) {
  std::set<std::string>& before = before_[view];
  for (const std::string& text : node.known) {
    if (std::ranges::find(but, text) == but.end() && before.insert(text).second)
      agreed_.push_back(text);
  }
}

void LogsOracle::runs(std::uint64_t view, const std::vector<NodeId>& members) {
  if (view <= ran_view_) return;
  ran_view_ = view;
  ran_ = members;
}

void LogsOracle::entered(NodeId node, std::uint64_t view) {
  const Node& own = nodes_[node];
  if (own.view != 0 && own.view < view) agree(own, view, {});
}

void LogsOracle::started(NodeId node, const Texts& log) {
  Node& own = nodes_[node];
  own.known.clear();  // the restart or the join may cut the log
  own.pending.clear();
  own.view = 0;
  expect(node, log, own.durable, "spindle/judged_start", "at its start");
}

void LogsOracle::began(NodeId node, const std::vector<NodeId>& nodes, const Texts& log) {
  const auto present = std::ranges::count_if(
      ran_, [&](NodeId each) { return std::ranges::find(nodes, each) != nodes.end(); });
  const bool is_majority = ran_.empty() || 2 * present > std::ssize(ran_);
  for (const auto& [view, texts] : delivered_before_) {
    if (!is_majority && ran_view_ == ran_before_ && view <= ran_view_)
      expect(node, log, {texts.begin(), texts.end()}, "spindle/judged_later_view",
             "after a restart without a majority of view " + std::to_string(ran_view_));
  }
  nodes_[node].known = log;
  expect(node, log, nodes_[node].durable, "spindle/judged_restart", "after the restart");
  expect(node, log, agreed_, "spindle/judged_agreed", "after the restart");
}

void LogsOracle::joined(NodeId node, std::uint64_t view, const Texts& log) {
  Node& own = nodes_[node];
  expect(node, log, agreed_, "spindle/judged_join", "after the join");
  for (const auto& [number, texts] : delivered_) {
    if (number < view)
      expect(node, log, {texts.begin(), texts.end()}, "spindle/judged_join", "after the join");
  }
  own.durable.clear();
  own.joined = own.known = log;
  own.joined_view = view;
}

// The end of a view makes its samples durable. Whoever delivers in a view knows that it runs.
void LogsOracle::delivered(NodeId node, std::uint64_t view, std::span<const Message> messages) {
  if (!topic_.has_subscriber(node)) return;
  Node& own = nodes_[node];
  std::vector<std::string> texts;
  std::ranges::transform(messages, std::back_inserter(texts), sample_text);
  if (std::exchange(own.view, view) != view) {
    std::ranges::move(own.pending, std::back_inserter(own.durable));
    own.pending.clear();
    agree(own, view, texts);
  }
  for (std::string& text : texts) {
    delivered_[view].insert(text);
    own.known.push_back(text);
    (topic_.sync_every == 1 ? own.durable : own.pending).push_back(std::move(text));
  }
}

void LogsOracle::acknowledged(NodeId node, const std::string& text) {
  ++checks_["spindle/judged_client"];
  const Node& own = nodes_[node];
  if (std::ranges::find(own.known, text) == own.known.end())
    report_("client", "node " + std::to_string(node) + " has not delivered " + text +
                          ", of which its client was told that all have");
  if (topic_.sync_every == 1) agreed_.push_back(text);
}

// More may be delivered meanwhile, and a view may end.
void LogsOracle::sync(NodeId node, const std::function<void()>& sync) {
  Node& own = nodes_[node];
  const Texts before = own.pending;
  sync();
  for (const std::string& text : before) {
    if (std::erase(own.pending, text) != 0) own.durable.push_back(text);
  }
}

void LogsOracle::damaged(const Texts& left) {
  const std::set<std::string_view> kept(left.begin(), left.end());
  const auto is_lost = [&](const std::string& text) { return !kept.contains(text); };
  for (Node& each : nodes_) {
    std::erase_if(each.durable, is_lost);
    std::erase_if(each.joined, is_lost);
  }
  std::erase_if(agreed_, is_lost);
  for (auto* by_view : {&before_, &delivered_, &delivered_before_}) {
    for (auto& [view, texts] : *by_view) std::erase_if(texts, is_lost);
  }
  if (!agreed_.empty()) ++checks_["spindle/judged_damaged"];
}

void LogsOracle::forfeit(const std::vector<NodeId>& nodes, bool value) {
  for (const NodeId node : nodes) nodes_[node].is_forfeit = value;
}

void LogsOracle::all_have_crashed() {
  ran_before_ = std::max(ran_view_, delivered_.empty() ? 0 : delivered_.rbegin()->first);
  delivered_before_ = std::exchange(delivered_, {});
  for (Node& each : nodes_) {
    // The state of a joiner is durable: what the others had before its view.
    const auto before = before_.find(each.joined_view);
    for (std::string& text : each.joined) {
      if (before != before_.end() && before->second.contains(text))
        each.durable.push_back(std::move(text));
    }
    each.joined.clear();
    if (std::exchange(each.is_forfeit, false)) each.durable.clear();
  }
}

void LogsOracle::end(const std::vector<Texts>& logs, bool has_gaps) {
  if (logs.size() != topic_.subscribers.size())
    return report_("liveness", "a node has not come to the end");
  for (const Texts& log : logs) {
    if (log != logs[0])
      return report_("logs", "two logs differ; they have " + std::to_string(log.size()) + " and " +
                                 std::to_string(logs[0].size()) + " samples");
  }
  ++checks_["spindle/judged_end"];
  expect(topic_.subscribers[0], logs[0], agreed_, "spindle/judged_agreed", "at the end");
  std::map<std::string, std::uint64_t> next;  // by publisher
  for (const std::string& text : logs[0]) {
    const std::size_t second = text.find('.', text.find('.') + 1);
    if (!published_.contains(text) || second == std::string::npos)
      return report_("logs", "the logs have a sample that nobody published");
    if (text.starts_with("client")) continue;
    const std::uint64_t number = std::stoull(text.substr(second + 1));
    std::uint64_t& expected = next[text.substr(0, second)];
    // Samples that are left out have numbers too.
    if (number < expected || (number > expected && !has_gaps))
      return report_("order", text.substr(0, 12) + " follows " + std::to_string(expected));
    expected = number + 1;
  }
}

}  // namespace pyrdma::spindle::scenario
