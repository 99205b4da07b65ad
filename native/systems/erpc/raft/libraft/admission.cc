// What a message must satisfy, beyond its form, before the library sees it.
//
// Links deliver a message late, twice, or in another life of its sender. Libraft 0.15 relies on
// assertions that Debian's build leaves out. So each message that no correct member could send now
// ends here, and one that the library would take wrongly is put right.
#include "systems/erpc/raft/libraft/libraft_member.h"

#ifdef PYRDMA_LIBRAFT

#include <algorithm>

#include "systems/erpc/scopes.h"

namespace pyrdma::erpc::raft {

std::uint64_t LibraftMember::term_of(std::uint64_t index) const {
  const struct raft_log& log = raft_.log;
  if (index == log.snapshot.last_index) return log.snapshot.last_term;
  if (index <= log.offset || index > lib_.last_index(raft())) return 0;
  return log.entries[(log.front + index - log.offset - 1) % log.size].term;
}

// The entry is known here, is committed, and is of another term. The library stops the whole member
// when it meets that.
bool LibraftMember::contradicts(std::uint64_t index, std::uint64_t term) const {
  const std::uint64_t known = term_of(index);
  return index <= raft_.commit_index && known != 0 && known != term;
}

bool LibraftMember::may_append(const AppendEntries& m) const {
  if (contradicts(m.previous_index, m.previous_term)) return false;
  for (std::size_t i = 0; i < m.entries.size(); ++i) {
    if (contradicts(m.previous_index + 1 + i, m.entries[i].term)) return false;
  }
  return true;
}

// A candidate asks for one term more than it knows, so a vote is at most that. The library counts a
// vote of a later term, too. No member of this protocol leaves open which kind of vote it was.
bool LibraftMember::may_vote(const VoteResult& m) const {
  const bool pre_vote = m.pre_vote == raft_tribool_true;
  if (m.pre_vote == raft_tribool_unknown) return false;
  return !m.granted || m.term <= raft_.current_term + (pre_vote ? 1 : 0);
}

// While it hands the lead over, the library votes for its heir even if it has voted in that term.
bool LibraftMember::may_ask(NodeId from, const RequestVote& m) const {
  if (m.candidate != std::uint64_t{from} + 1) return false;
  const bool voted = m.term == raft_.current_term && raft_.voted_for != 0;
  return m.pre_vote || !voted || raft_.voted_for == m.candidate || raft_.transfer == nullptr ||
         options_.bugs.votes_again();
}

// A follower acknowledges no more than this leader has sent it. The library would take a larger
// index for its whole log.
bool LibraftMember::may_acknowledge(const AppendResult& m) const {
  return m.term != raft_.current_term || m.rejected != 0 || m.last_index <= last_index();
}

bool LibraftMember::may_come(NodeId from, const Message& message) const {
  const bool leads_term = lib_.state(raft()) == RAFT_LEADER;
  const auto of_other_leader = [&](std::uint64_t term) {
    return leads_term && term == raft_.current_term;
  };
  if (from == env_.node()) return false;
  const std::uint64_t term = std::visit([](const auto& m) { return m.term; }, message);
  if (!options_.bugs.may_leap(raft_.current_term, term)) return false;
  if (const auto* vote = std::get_if<RequestVote>(&message)) return may_ask(from, *vote);
  if (const auto* vote = std::get_if<VoteResult>(&message)) return may_vote(*vote);
  if (const auto* result = std::get_if<AppendResult>(&message)) return may_acknowledge(*result);
  if (const auto* append = std::get_if<AppendEntries>(&message))
    return !of_other_leader(append->term) && may_append(*append);
  if (const auto* install = std::get_if<InstallSnapshot>(&message))
    return !of_other_leader(install->term) && !contradicts(install->last_index, install->last_term);
  return true;
}

// Raft's rule for the commit: no entry behind those of the message. The library takes all that it
// stores, also leftovers of an older leader.
//
// An append may begin before the log, if the log is compacted: it is late, or a new leader does not
// know yet what this member has. The library would append its entries at the end of the log, under
// wrong indices. The entries up to the snapshot are committed. So each leader whose term is not
// older has the same ones (Leader Completeness), and the message says as much without them.
void LibraftMember::rebase(AppendEntries& m) const {
  const std::uint64_t reached = m.previous_index + m.entries.size();
  m.commit = options_.bugs.index_to_commit(m.commit, reached);
  if (m.term < raft_.current_term || m.previous_index >= raft_.log.offset) return;
  if (!options_.bugs.leaves_compacted_out()) return;
  env_.reached("erpc/raft/append_before_log");
  const std::uint64_t base = raft_.log.snapshot.last_index;
  const auto known = std::min<std::uint64_t>(base - m.previous_index, m.entries.size());
  m.entries.erase(m.entries.begin(), m.entries.begin() + static_cast<std::ptrdiff_t>(known));
  m.previous_index = base;
  m.previous_term = raft_.log.snapshot.last_term;
}

// What the seam itself learns from a message.
void LibraftMember::note(NodeId from, const Message& message) {
  if (const auto* append = std::get_if<AppendEntries>(&message)) {
    if (append->term < raft_.current_term) return;
    if (compared_term_ != append->term) compared_ = 0;
    compared_term_ = append->term;
    const std::uint64_t reached = append->previous_index + append->entries.size();
    if (append->previous_index == 0 || term_of(append->previous_index) == append->previous_term)
      compared_ = std::max(compared_, reached);
    if (options_.bugs.truncates_after_match() && !append->entries.empty() &&
        term_of(reached) == append->entries.back().term && reached < last_index()) {
      Work work(Work::Kind::kTruncate);
      work.from = reached + 1;
      work_.push_back(std::move(work));
    }
  } else if (const auto* install = std::get_if<InstallSnapshot>(&message)) {
    if (install->term < raft_.current_term) return;
    if (compared_term_ != install->term) compared_ = 0;
    compared_term_ = install->term;
    // The library keeps a leftover of a later term than the snapshot's. The leader has not got it.
    if (term_of(install->last_index) <= install->last_term)
      compared_ = std::max(compared_, install->last_index);
  } else if (const auto* result = std::get_if<AppendResult>(&message)) {
    if (result->term == raft_.current_term && led_) heard_[std::uint64_t{from} + 1] = now_;
  }
}

void LibraftMember::deliver(NodeId from, ByteView bytes) {
  Scope step(env_, scope::raft_receive);
  auto message = decode(bytes);
  if (!message) {
    ++counters_.malformed;
    return;
  }
  if (!may_come(from, *message)) {
    ++counters_.refused;
    env_.reached("erpc/raft/refused");
    return;
  }
  if (auto* append = std::get_if<AppendEntries>(&*message)) {
    rebase(*append);
    forget_uncommitted(*append);
  }
  note(from, *message);
  pass_on(from, *message);
  watch();
}

}  // namespace pyrdma::erpc::raft

#endif
