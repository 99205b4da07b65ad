#include "systems/erpc/fuzz/raft/invariants.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

namespace pyrdma::erpc::raft {

namespace {

std::int64_t whole_of(std::uint64_t value) { return static_cast<std::int64_t>(value); }
std::string member_name(NodeId member) { return "member " + std::to_string(member); }

}  // namespace

Invariants::Seen& Invariants::of(NodeId member) {
  const auto [at, fresh] = members_.try_emplace(member);
  if (fresh) at->second.identity = identities_++;
  return at->second;
}

void Invariants::forget(NodeId member) {
  raft_.follower(of(member).identity);
  members_.erase(member);
  lost_.insert(member);
}

void Invariants::judge(const check::MaybeViolation& found) {
  if (!found) return;
  constexpr std::array<std::string_view, 5> kNames{"Election Safety", "Leader Append-Only",
                                                   "Log Matching", "Leader Completeness",
                                                   "State Machine Safety"};
  const auto name = std::ranges::find_if(
      kNames, [&](std::string_view candidate) { return found->text.starts_with(candidate); });
  add(static_cast<Property>(name - kNames.begin()), found->text);
}

void Invariants::started(NodeId member, std::uint64_t term, std::uint64_t vote,
                         std::uint64_t snapshot_index, std::uint64_t snapshot_term,
                         std::span<const EntryMark> log) {
  leading_[member] = false;
  const bool fresh = !members_.contains(member);
  Seen& seen = of(member);
  ++events_;
  raft_.recover(seen.identity);
  if (term < seen.term || (term == seen.term && seen.vote != 0 && vote != seen.vote))
    add(Property::kDurableTermAndVote,
        member_name(member) + " restarts with term " + std::to_string(term) + " and vote " +
            std::to_string(vote) + ", and spoke for term " + std::to_string(seen.term) +
            " and vote " + std::to_string(seen.vote));
  if (!fresh) check_restart(member, seen, snapshot_index, log);
  const auto base = seen.log.find(snapshot_index);
  if (base != seen.log.end() && base->second.term != snapshot_term)
    add(Property::kLogMatching, member_name(member) + " restarts with a snapshot up to entry " +
                                    std::to_string(snapshot_index) + " of term " +
                                    std::to_string(snapshot_term) + "; that entry is of term " +
                                    std::to_string(base->second.term));
  // Entries that were not yet durable are gone, and so may be the end of others: they are back.
  const std::uint64_t last = log.empty() ? snapshot_index : log.back().index;
  const std::uint64_t known = seen.log.empty() ? seen.base : seen.log.rbegin()->first;
  std::uint64_t equal = std::min(last, known);
  for (const EntryMark& entry : log) {
    const auto at = seen.log.find(entry.index);
    if (at == seen.log.end() ||
        (at->second.term == entry.term && at->second.digest == entry.digest))
      continue;
    equal = std::min(equal, entry.index - 1);
  }
  if (equal < known) truncated(member, equal);
  for (const EntryMark& entry : log) {
    if (entry.index > equal && entry.index > seen.base) appended(member, entry);
  }
  if (snapshot_index > seen.base) snapshot(member, snapshot_index, false);
  seen.applied = snapshot_index;
  seen.stored = last;  // a member makes durable what it loads
  seen.term = term;
  seen.vote = vote;
}

// Compares what a member loads with what it had.
void Invariants::check_restart(NodeId member, const Seen& before, std::uint64_t base,
                               std::span<const EntryMark> log) {
  const std::uint64_t last = log.empty() ? base : log.back().index;
  if (last < before.stored)
    add(Property::kDurableLog, member_name(member) + " restarts with a log up to entry " +
                                   std::to_string(last) + ", and acknowledged entry " +
                                   std::to_string(before.stored));
  for (const EntryMark& entry : log) {
    const auto at = before.log.find(entry.index);
    if (at == before.log.end() || entry.index > before.stored) continue;
    if (at->second.term != entry.term || at->second.digest != entry.digest)
      add(Property::kDurableLog, member_name(member) + " restarts with another entry " +
                                     std::to_string(entry.index) + " than it acknowledged");
  }
}

void Invariants::spoke(NodeId member, std::uint64_t term, std::uint64_t vote) {
  Seen& seen = of(member);
  seen.term = term;
  seen.vote = vote;
}

void Invariants::appended(NodeId member, const EntryMark& entry) {
  Seen& seen = of(member);
  seen.log[entry.index] = entry;
  judge(raft_.append(events_++, seen.identity, whole_of(entry.index), whole_of(entry.term),
                     entry.digest));
}

void Invariants::truncated(NodeId member, std::uint64_t last) {
  Seen& seen = of(member);
  ++truncations_;
  if (last < committed_ && seen.log.contains(last + 1)) {
    // The entry goes, and the group may rely on it.
    if (last < seen.applied)
      add(Property::kStateMachineSafety, member_name(member) + " truncates its log to entry " +
                                             std::to_string(last) + " and has applied entry " +
                                             std::to_string(seen.applied));
  }
  seen.log.erase(seen.log.upper_bound(last), seen.log.end());
  seen.stored = std::min(seen.stored, last);
  judge(raft_.truncate(events_++, seen.identity, whole_of(last)));
}

void Invariants::stored(NodeId member, std::uint64_t last) {
  Seen& seen = of(member);
  lost_.erase(member);
  // Entries that wait for their turn may follow.
  seen.stored = seen.log.empty() ? last : std::min(last, seen.log.rbegin()->first);
}

void Invariants::snapshot(NodeId member, std::uint64_t index, bool installed) {
  Seen& seen = of(member);
  if (installed && !seen.log.empty() && seen.log.rbegin()->first > index) truncated(member, index);
  judge(raft_.snapshot(events_++, seen.identity, whole_of(index)));
  seen.base = std::max(seen.base, index);
  seen.stored = std::max(seen.stored, index);
  seen.applied = std::max(seen.applied, index);
  if (installed) seen.log.clear();
}

void Invariants::leads(NodeId member, std::uint64_t term) {
  ++elections_;
  leading_[member] = true;
  judge(raft_.leader(events_++, of(member).identity, whole_of(term)));
}

void Invariants::follows(NodeId member) {
  leading_[member] = false;
  raft_.follower(of(member).identity);
}

// A leader may not take an entry for committed that a majority does not hold.
void Invariants::check_majority(NodeId leader, std::uint64_t index) {
  const auto& log = of(leader).log;
  const auto entry = log.find(index);
  if (entry == log.end()) return;
  std::size_t holders = lost_.size();  // they may have held it
  for (const auto& [member, seen] : members_) {
    const auto at = seen.log.find(index);
    const bool in_log = at != seen.log.end() && at->second.term == entry->second.term;
    if (seen.stored >= index && (in_log || seen.base >= index)) ++holders;
  }
  if (holders * 2 <= voters_)
    add(Property::kLeaderCompleteness,
        member_name(leader) + " takes entry " + std::to_string(index) + " for committed, and " +
            std::to_string(holders) + " of " + std::to_string(voters_) + " members hold it");
}

void Invariants::committed(NodeId member, std::uint64_t index, std::uint64_t term) {
  judge(raft_.commit(events_++, of(member).identity, whole_of(index), whole_of(term)));
  if (voters_ > 0 && leading_[member]) check_majority(member, index);
  committed_ = std::max(committed_, index);
}

void Invariants::applied(NodeId member, std::uint64_t index, std::uint64_t digest) {
  Seen& seen = of(member);
  // Barriers and changes of the group do not reach the state machine.
  for (std::uint64_t i = seen.applied + 1; i < index; ++i) {
    const auto at = seen.log.find(i);
    judge(raft_.apply(events_++, seen.identity, whole_of(i),
                      at == seen.log.end() ? 0 : at->second.digest));
  }
  judge(raft_.apply(events_++, seen.identity, whole_of(index), digest));
  seen.applied = index;
}

void Invariants::executed(NodeId member, std::uint64_t index, std::uint64_t client,
                          std::uint64_t sequence) {
  const auto [first, fresh] = executed_.try_emplace({client, sequence}, index);
  if (!fresh && first->second != index)
    add(Property::kExactlyOnce, member_name(member) + " executes command " +
                                    std::to_string(sequence) + " of client " +
                                    std::to_string(client) + " as entry " + std::to_string(index) +
                                    "; it was executed as entry " + std::to_string(first->second));
}

}  // namespace pyrdma::erpc::raft
