// The configuration of the group as the log has it. Libraft 0.15 loses it in five cases:
//
// - Entries are cut off, and the last committed configuration is in the snapshot alone: the library
//   reads it from the log, where it is not.
// - A member starts with a configuration that is not committed: the library takes it for committed,
//   and keeps it when its entry is cut off.
// - A snapshot is installed: the library keeps the mark of a configuration that was not committed.
// - A snapshot is taken while a configuration is not committed: the library puts that one into it.
// - A follower stands for election while it stores a configuration: the library takes that
//   over when it is stored, and only in a follower. As leader it would count other voters than the
//   others do.
//
// A configuration is that of the last change in the log (thesis, section 4.1), so the seam reads it
// there.
#include "systems/erpc/raft/libraft/libraft_member.h"

#ifdef PYRDMA_LIBRAFT

namespace pyrdma::erpc::raft {

const struct raft_entry* LibraftMember::entry_of(std::uint64_t index) const {
  const struct raft_log& log = raft_.log;
  if (index <= log.offset || index > lib_.last_index(raft())) return nullptr;
  return &log.entries[(log.front + index - log.offset - 1) % log.size];
}

LibraftMember::Configuration LibraftMember::configuration_at(std::uint64_t index) const {
  for (; index > raft_.log.offset; --index) {
    const struct raft_entry* entry = entry_of(index);
    if (entry == nullptr || entry->type != RAFT_CHANGE) continue;
    const ByteView payload(static_cast<const std::byte*>(entry->buf.base), entry->buf.len);
    if (auto servers = decode_change(payload)) return {index, std::move(*servers)};
  }
  const auto& snapshot = store_.snapshot();
  if (snapshot == nullptr) return {};
  return {snapshot->servers_index, snapshot->servers};
}

/// This member in the configuration of the library, or null.
struct raft_server* LibraftMember::own_server() {
  struct raft_configuration& group = raft_.configuration;
  for (unsigned i = 0; i < group.n; ++i)
    if (group.servers[i].id == raft_.id) return &group.servers[i];
  return nullptr;
}

// Before an append that cuts off a configuration: the library has nothing to roll back.
void LibraftMember::forget_uncommitted(const AppendEntries& m) {
  if (raft_.configuration_uncommitted_index == 0 || m.term < raft_.current_term) return;
  for (std::size_t i = 0; i < m.entries.size(); ++i) {
    const std::uint64_t index = m.previous_index + 1 + i, known = term_of(index);
    if (known == 0 || known == m.entries[i].term) continue;
    if (raft_.configuration_uncommitted_index >= index) raft_.configuration_uncommitted_index = 0;
    return;
  }
}

// A leader keeps its configuration itself. A candidate has counted its voters, so this runs before
// a member can become one.
void LibraftMember::read_configuration() {
  if (!configuration_moved_ || lib_.state(&raft_) != RAFT_FOLLOWER) return;
  configuration_moved_ = false;
  if (!options_.bugs.reads_configuration()) return;
  const Configuration last = configuration_at(last_index());
  const bool committed = last.index <= raft_.commit_index;
  raft_.configuration_index = committed ? last.index : configuration_at(raft_.commit_index).index;
  raft_.configuration_uncommitted_index = committed ? 0 : last.index;
  if (servers_of(raft_.configuration) == last.servers) return;
  env_.reached("erpc/raft/configuration_put_right");
  lib_.configuration_close(&raft_.configuration);
  lib_.configuration_init(&raft_.configuration);
  fill_servers(raft_.configuration, last.servers);
}

// After each message. The library counts who uses an entry by index and term. An entry that is cut
// off and comes again, while its first copy is still being stored or sent, would be counted twice
// under one name and be freed too early. So what uses the old entries ends first. Only a follower
// cuts its log, and a follower's messages need no report.
void LibraftMember::settle() {
  if (!log_cut_) return;
  log_cut_ = false;
  configuration_moved_ = true;
  std::map<std::uint64_t, Outgoing> ended;
  ended.swap(in_flight_);
  for (const auto& [number, out] : ended) out.report(0);
  while (flush()) {
  }
}

// A leader changes the group only once an entry of its term is committed. Before, a change of an
// older leader may still become committed, and the two changes need not have a common majority
// (D. Ongaro, 2015, on the changes of single servers).
bool LibraftMember::may_change() const {
  return term_of(raft_.commit_index) == raft_.current_term || options_.bugs.changes_at_once();
}

}  // namespace pyrdma::erpc::raft

#endif
