#include "check/invariants/raft.h"

#include <algorithm>

#include "base/error.h"

namespace pyrdma::check {

namespace {

std::string node_name(std::int32_t node) { return "node " + std::to_string(node); }
std::string at_event(std::uint32_t at) { return " (event " + std::to_string(at) + ')'; }
std::string entry_name(std::int64_t index, std::int64_t term) {
  return "entry " + std::to_string(index) + " of term " + std::to_string(term);
}

}  // namespace

bool RaftInvariants::has(const Node& node, std::int64_t index) const {
  if (index <= node.base) return true;  // the check compared the snapshot when it came
  return index <= node.last() &&
         node.digest(index) == committed_[static_cast<std::size_t>(index - 1)].digest;
}

MaybeViolation RaftInvariants::leader(std::uint32_t at, std::int32_t node, std::int64_t term) {
  const auto [first, fresh] = leader_of_.try_emplace(term, node, at);
  if (!fresh && first->second.first != node)
    return violation_at("Election Safety: term " + std::to_string(term) + " has two leaders, " +
                            node_name(first->second.first) + at_event(first->second.second) +
                            " and " + node_name(node) + at_event(at),
                        {first->second.second, at});
  Node& self = nodes_[node];
  self.leads = term;
  // The log must hold all entries committed before its term. Digests grow with the index, so the
  // last decides.
  const auto last = std::find_if(committed_.rbegin(), committed_.rend(),
                                 [&](const Committed& c) { return c.term < term; });
  const std::int64_t index = committed_.rend() - last;
  if (index == 0 || has(self, index)) return std::nullopt;
  return violation_at("Leader Completeness: " + node_name(node) + " leads term " +
                          std::to_string(term) + at_event(at) + ", and its log (up to " +
                          std::to_string(self.last()) + ") lacks entries committed up to " +
                          std::to_string(index) + at_event(last->at),
                      {last->at, at});
}

MaybeViolation RaftInvariants::append(std::uint32_t at, std::int32_t node, std::int64_t index,
                                      std::int64_t term, std::uint64_t command) {
  Node& self = nodes_[node];
  if (index != self.last() + 1)
    return violation_at("Log Matching: " + node_name(node) + " appends " + entry_name(index, term) +
                            at_event(at) + ", but its log ends with " + std::to_string(self.last()),
                        {at});
  const std::uint64_t before = self.digest(index - 1);
  const Entry entry{term, mix64(before ^ mix64(command ^ mix64(static_cast<std::uint64_t>(term)))),
                    at};
  self.log.push_back(entry);
  const auto [first, fresh] = entries_.try_emplace({index, term}, entry);
  if (fresh || first->second.digest == entry.digest) return std::nullopt;
  return violation_at("Log Matching: " + entry_name(index, term) + " differs, or follows " +
                          "another log, at " + node_name(node) + at_event(at) + " and before" +
                          at_event(first->second.at),
                      {first->second.at, at});
}

MaybeViolation RaftInvariants::truncate(std::uint32_t at, std::int32_t node, std::int64_t last) {
  Node& self = nodes_[node];
  if (last >= self.last()) return std::nullopt;
  if (self.leads != 0)
    return violation_at("Leader Append-Only: " + node_name(node) + ", leader of term " +
                            std::to_string(self.leads) + ", truncates its log from " +
                            std::to_string(self.last()) + " to " + std::to_string(last) +
                            at_event(at),
                        {at});
  if (last < self.base)
    return violation_at("State Machine Safety: " + node_name(node) + " truncates its log to " +
                            std::to_string(last) + at_event(at) + ", within its snapshot up to " +
                            std::to_string(self.base),
                        {at});
  self.log.resize(static_cast<std::size_t>(last - self.base));
  return std::nullopt;
}

MaybeViolation RaftInvariants::commit(std::uint32_t at, std::int32_t node, std::int64_t index,
                                      std::int64_t term) {
  const Node& self = nodes_[node];
  if (index > self.last())
    return violation_at("State Machine Safety: " + node_name(node) + " commits up to " +
                            std::to_string(index) + at_event(at) + ", but its log ends with " +
                            std::to_string(self.last()),
                        {at});
  const std::int64_t known = std::min(index, committed());
  if (known > 0 && !has(self, known)) {
    const Committed& other = committed_[static_cast<std::size_t>(known - 1)];
    return violation_at("State Machine Safety: " + node_name(node) + " commits up to " +
                            std::to_string(index) + at_event(at) +
                            ", and its log differs from the entries committed up to " +
                            std::to_string(known) + at_event(other.at),
                        {other.at, at});
  }
  for (std::int64_t i = committed() + 1; i <= index; ++i)
    committed_.push_back({self.digest(i), term, at});
  // Leaders that were elected before this commit was known must hold the entry too.
  for (const auto& [other, theirs] : nodes_) {
    if (theirs.leads <= term || has(theirs, index)) continue;
    return violation_at("Leader Completeness: " + node_name(other) + " leads term " +
                            std::to_string(theirs.leads) + " and lacks the entries that " +
                            node_name(node) + " commits up to " + std::to_string(index) +
                            " in term " + std::to_string(term) + at_event(at),
                        {at, leader_of_.at(theirs.leads).second});
  }
  return std::nullopt;
}

MaybeViolation RaftInvariants::apply(std::uint32_t at, std::int32_t node, std::int64_t index,
                                     std::uint64_t command) {
  Node& self = nodes_[node];
  if (index != self.applied + 1)
    return violation_at("State Machine Safety: " + node_name(node) + " applies entry " +
                            std::to_string(index) + " after " + std::to_string(self.applied) +
                            at_event(at),
                        {at});
  self.applied = index;
  const auto [first, fresh] = applied_.try_emplace(index, Applied{command, node, at});
  const Applied& other = first->second;
  if (fresh || other.command == command) return std::nullopt;
  return violation_at("State Machine Safety: as entry " + std::to_string(index) + ", " +
                          node_name(other.node) + at_event(other.at) + " and " + node_name(node) +
                          at_event(at) + " applied different commands",
                      {other.at, at});
}

MaybeViolation RaftInvariants::snapshot(std::uint32_t at, std::int32_t node, std::int64_t index) {
  Node& self = nodes_[node];
  if (index > committed())
    return violation_at("State Machine Safety: " + node_name(node) + " takes a snapshot up to " +
                            std::to_string(index) + at_event(at) + ", but only " +
                            std::to_string(committed()) + " entries are committed",
                        {at});
  if (index <= self.base) return std::nullopt;
  // Later entries stay if they follow the snapshot.
  if (index <= self.last() && has(self, index))
    self.log.erase(self.log.begin(),
                   self.log.begin() + static_cast<std::ptrdiff_t>(index - self.base));
  else
    self.log.clear();
  self.base = index;
  self.base_digest = committed_[static_cast<std::size_t>(index - 1)].digest;
  self.applied = std::max(self.applied, index);
  return std::nullopt;
}

void RaftInvariants::recover(std::int32_t node) {
  Node& self = nodes_[node];
  self.leads = 0;
  self.applied = self.base;
}

namespace {

std::int64_t whole(const History& history, std::uint32_t at, const char* what, const Value& value) {
  if (value.is_integer() && value.a >= 0) return value.a;
  throw Error(ErrorCode::kInvalidArgument, "event " + std::to_string(at) + ": " + what + " is " +
                                               history.show(value) +
                                               "; it must be a whole number of at least 0");
}

std::uint64_t digest_of(const History& history, const Value& value) {
  // Texts and lists of one history have equal numbers exactly for equal content.
  return value.kind == Value::Kind::kText ? hash_text(history.text_of(value)) : ValueHash{}(value);
}

MaybeViolation feed(RaftInvariants& raft, const History& history, std::uint32_t at) {
  const Event& e = history.events()[at];
  const auto key = [&] { return whole(history, at, "key (the index)", e.key); };
  const auto value = [&] { return whole(history, at, "value (the index)", e.value); };
  switch (e.f) {
    case Function::kLeader:
      return raft.leader(at, e.node, e.epoch);
    case Function::kFollower:
      raft.follower(e.node);
      return std::nullopt;
    case Function::kAppend:
      return raft.append(at, e.node, key(), e.epoch, digest_of(history, e.value));
    case Function::kTruncate:
      return raft.truncate(at, e.node, value());
    case Function::kCommit:
      return raft.commit(at, e.node, value(), e.epoch);
    case Function::kApply:
      return raft.apply(at, e.node, key(), digest_of(history, e.value));
    case Function::kSnapshot:
      return raft.snapshot(at, e.node, key());
    case Function::kRecover:
      raft.recover(e.node);
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace

MaybeViolation check_raft(const History& history, const Operations& operations) {
  RaftInvariants raft;
  for (const std::uint32_t at : operations.points) {
    history.poll();
    if (auto found = feed(raft, history, at)) return found;
  }
  return std::nullopt;
}

}  // namespace pyrdma::check
