#include "check/invariants/multicast.h"

#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/error.h"

namespace pyrdma::check {

namespace {

using NodeIndex = std::int32_t;

std::string event(std::uint32_t index) { return "event " + std::to_string(index); }

class Group {
 public:
  explicit Group(const History& history) : history_(history) {}

  void sent(const Operation& op) {
    sends_.emplace(op.input, op.call);
    by_sender_[op.input.a].insert(op.input.b);
  }

  MaybeViolation delivered(std::uint32_t at) {
    const Event& e = history_.events()[at];
    const auto first = seen_.try_emplace({e.node, e.value.a, e.value.b}, at);
    if (!first.second)
      return violation_at(node(e) + " delivered " + show(e) +
                              " twice: " + event(first.first->second) + " and " + event(at),
                          {first.first->second, at});
    const auto send = sends_.find(e.value);
    if (!sends_.empty() && (send == sends_.end() || send->second > at))
      return violation_at(
          node(e) + " delivered " + show(e) + ", which no node had sent: " + event(at), {at});
    const auto last = last_.find({e.node, e.value.a});
    if (last != last_.end())
      if (auto found = out_of_order(last->second, at)) return found;
    last_[{e.node, e.value.a}] = at;
    return agrees_with_others(at);
  }

  MaybeViolation entered(std::uint32_t at) {
    const Event& e = history_.events()[at];
    const auto first = views_.try_emplace(e.epoch, at);
    const Event& other = history_.events()[first.first->second];
    if (!first.second && other.value != e.value)
      return violation_at("view " + std::to_string(e.epoch) + " has the members " +
                              history_.show(other.value) + " at " + node(other) + " (" +
                              event(first.first->second) + ") and " + show(e) + " at " + node(e) +
                              " (" + event(at) + ")",
                          {first.first->second, at});
    const auto before = in_view_.find(e.node);
    if (before == in_view_.end()) {
      in_view_[e.node] = {e.epoch, at};
      return std::nullopt;
    }
    const auto [old_view, old_at] = before->second;
    before->second = {e.epoch, at};
    if (e.epoch <= old_view)
      return violation_at(node(e) + " entered view " + std::to_string(e.epoch) + " (" + event(at) +
                              ") after view " + std::to_string(old_view) + " (" + event(old_at) +
                              ')',
                          {old_at, at});
    return left_together(old_view, e, at);
  }

 private:
  struct Place {
    std::int64_t view;
    std::uint32_t at;
  };
  struct Leaver {
    std::size_t delivered;
    std::uint32_t at;
  };

  std::string show(const Event& e) const { return history_.show(e.value); }
  static std::string node(const Event& e) { return "node " + std::to_string(e.node); }

  MaybeViolation out_of_order(std::uint32_t before, std::uint32_t at) const {
    const Event& e = history_.events()[at];
    const Event& last = history_.events()[before];
    if (e.value.b <= last.value.b)
      return violation_at(node(e) + " delivered " + show(e) + " (" + event(at) + ") after " +
                              show(last) + " (" + event(before) + ')',
                          {before, at});
    const auto sent = by_sender_.find(e.value.a);
    if (sent == by_sender_.end() || last.epoch != e.epoch) return std::nullopt;
    const auto skipped = sent->second.upper_bound(last.value.b);
    if (skipped == sent->second.end() || *skipped >= e.value.b) return std::nullopt;
    return violation_at(node(e) + " delivered " + show(last) + " and then " + show(e) +
                            " (events " + std::to_string(before) + " and " + std::to_string(at) +
                            ") and left out [" + std::to_string(e.value.a) + ' ' +
                            std::to_string(*skipped) + ']',
                        {before, at});
  }

  /// Checks that each sequence of one view is a prefix of the longest one, which this function
  /// builds.
  MaybeViolation agrees_with_others(std::uint32_t at) {
    const Event& e = history_.events()[at];
    std::vector<std::uint32_t>& longest = sequences_[e.epoch];
    std::size_t& place = places_[{e.epoch, e.node}];
    if (place < longest.size()) {
      const Event& other = history_.events()[longest[place]];
      if (other.value != e.value)
        return violation_at("message " + std::to_string(place) + " of view " +
                                std::to_string(e.epoch) + " is " + show(other) + " at " +
                                node(other) + " (" + event(longest[place]) + ") and " + show(e) +
                                " at " + node(e) + " (" + event(at) + ')',
                            {longest[place], at});
    } else {
      longest.push_back(at);
    }
    ++place;
    return std::nullopt;
  }

  MaybeViolation left_together(std::int64_t old_view, const Event& e, std::uint32_t at) {
    const std::size_t count = places_[{old_view, e.node}];
    const auto first = leavers_.try_emplace({old_view, e.epoch}, Leaver{count, at});
    const Leaver& other = first.first->second;
    if (first.second || other.delivered == count) return std::nullopt;
    const Event& them = history_.events()[other.at];
    return violation_at(node(them) + " and " + node(e) + " went from view " +
                            std::to_string(old_view) + " to " + std::to_string(e.epoch) +
                            " (events " + std::to_string(other.at) + " and " + std::to_string(at) +
                            ") after " + std::to_string(other.delivered) + " and " +
                            std::to_string(count) + " messages",
                        {other.at, at});
  }

  const History& history_;
  std::unordered_map<Value, std::uint32_t, ValueHash> sends_;
  std::map<std::int64_t, std::set<std::int64_t>> by_sender_;
  std::map<std::tuple<NodeIndex, std::int64_t, std::int64_t>, std::uint32_t> seen_;
  std::map<std::pair<NodeIndex, std::int64_t>, std::uint32_t> last_;  // by node and sender
  std::map<std::int64_t, std::uint32_t> views_;
  std::map<NodeIndex, Place> in_view_;
  std::map<std::int64_t, std::vector<std::uint32_t>> sequences_;
  std::map<std::pair<std::int64_t, NodeIndex>, std::size_t> places_;
  std::map<std::pair<std::int64_t, std::int64_t>, Leaver> leavers_;
};

void need_pair(const History& history, std::uint32_t at, const Value& value) {
  if (value.kind != Value::Kind::kPair)
    throw Error(ErrorCode::kInvalidArgument, event(at) + ": the value is " + history.show(value) +
                                                 "; it must be [sender, number]");
}

}  // namespace

MaybeViolation check_multicast(const History& history, const Operations& operations) {
  std::unordered_map<Value, Group, ValueHash> groups;
  const auto group = [&](const Value& key) -> Group& {
    return groups.try_emplace(key, history).first->second;
  };
  for (const Operation& op : operations.all) {
    if (op.f != Function::kBcast) continue;
    need_pair(history, op.call, op.input);
    group(op.key).sent(op);
  }
  for (const std::uint32_t at : operations.points) {
    history.poll();
    const Event& e = history.events()[at];
    MaybeViolation found;
    if (e.f == Function::kView) {
      found = group(e.key).entered(at);
    } else if (e.f == Function::kDeliver) {
      need_pair(history, at, e.value);
      found = group(e.key).delivered(at);
    }
    if (found) return found;
  }
  return std::nullopt;
}

}  // namespace pyrdma::check
