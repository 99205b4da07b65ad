// Between the structures of the library and the wire.
#include "systems/erpc/raft/libraft/libraft_member.h"

#ifdef PYRDMA_LIBRAFT

#include <algorithm>
#include <cstring>
#include <utility>

namespace pyrdma::erpc::raft {

static_assert(RAFT_STANDBY == static_cast<int>(Role::kStandby) &&
              RAFT_VOTER == static_cast<int>(Role::kVoter) &&
              RAFT_SPARE == static_cast<int>(Role::kSpare));
static_assert(RAFT_COMMAND == static_cast<int>(EntryType::kCommand) &&
              RAFT_BARRIER == static_cast<int>(EntryType::kBarrier) &&
              RAFT_CHANGE == static_cast<int>(EntryType::kChange));

Servers LibraftMember::servers_of(const struct raft_configuration& configuration) const {
  Servers servers;
  for (unsigned i = 0; i < configuration.n; ++i)
    servers.push_back(
        {configuration.servers[i].id, static_cast<Role>(configuration.servers[i].role)});
  return servers;
}

void LibraftMember::fill_servers(struct raft_configuration& configuration,
                                 const Servers& servers) const {
  for (const Server& server : servers)
    lib_.configuration_add(&configuration, server.id, address_of(server.id).c_str(),
                           static_cast<int>(server.role));
}

Bytes LibraftMember::encode_message(const struct raft_message& m) {
  switch (m.type) {
    case RAFT_IO_APPEND_ENTRIES: {
      const auto& a = m.append_entries;
      AppendEntries out{a.term, a.prev_log_index, a.prev_log_term, a.leader_commit, {}};
      // The library sends all that the follower lacks. A shorter message is correct as well.
      std::size_t bytes = 256;
      for (unsigned i = 0; i < a.n_entries && i < kMaxEntries; ++i) {
        const struct raft_entry& entry = a.entries[i];
        out.entries.push_back(
            {entry.term, static_cast<EntryType>(entry.type),
             ByteView(static_cast<const std::byte*>(entry.buf.base), entry.buf.len)});
        bytes += wire_size(out.entries.back());
        if (bytes <= options_.max_message) continue;
        out.entries.pop_back();
        break;
      }
      if (out.entries.size() < a.n_entries) env_.reached("erpc/raft/cut_append");
      return encode(out);
    }
    case RAFT_IO_APPEND_ENTRIES_RESULT: {
      const auto& a = m.append_entries_result;
      // Libraft names the last entry that it stores. Entries behind those that the leader has
      // compared may be an older leader's, and the new leader would take them for its own.
      const std::uint64_t compared = compared_term_ == a.term ? compared_ : 0;
      std::uint64_t last = a.last_log_index;
      if (a.rejected == 0) {
        last = options_.bugs.index_to_acknowledge(last, compared);
        if (last < a.last_log_index) env_.reached("erpc/raft/leftover_not_acknowledged");
      }
      return encode(AppendResult{a.term, a.rejected, last});
    }
    case RAFT_IO_REQUEST_VOTE: {
      const auto& v = m.request_vote;
      return encode(RequestVote{v.term, v.candidate_id, v.last_log_index, v.last_log_term,
                                v.disrupt_leader, v.pre_vote});
    }
    case RAFT_IO_REQUEST_VOTE_RESULT: {
      const auto& v = m.request_vote_result;
      std::uint64_t term = v.term;
      // Libraft refuses a pre-vote in the candidate's term. A candidate with an old term and the
      // longest log would never learn the group's term, and nobody could win.
      if (v.pre_vote == raft_tribool_true && !v.vote_granted && options_.bugs.tells_term())
        term = std::max<std::uint64_t>(term, raft_.current_term);
      return encode(VoteResult{term, v.vote_granted, static_cast<std::uint8_t>(v.pre_vote)});
    }
    case RAFT_IO_INSTALL_SNAPSHOT: {
      // The library has asked for the snapshot in this turn, and has got it without its data.
      const StoredSnapshot& s = *store_.snapshot();
      return encode(InstallSnapshot{m.install_snapshot.term, s.index, s.term, s.servers_index,
                                    s.servers, s.data});
    }
    default: {
      const auto& t = m.timeout_now;
      return encode(TimeoutNow{t.term, t.last_log_index, t.last_log_term});
    }
  }
}

// A member may have become a voter by an entry that it has not got, and a majority may need its
// vote. Who asks knows whose votes count (thesis, 4.2.2), so it votes in each role. Libraft 0.15
// refuses a vote by the role, and only its voters forget a leader that is silent. No vote changes a
// configuration.
void LibraftMember::vote(struct raft_message& request) {
  struct raft_server* const own = own_server();
  if (own == nullptr || own->role == RAFT_VOTER) return recv_(&io_, &request);
  const bool is_silent = io_.time(&io_) - raft_.election_timer_start >= raft_.election_timeout;
  if (is_silent && lib_.state(&raft_) == RAFT_FOLLOWER) raft_.follower_state.current_leader.id = 0;
  const int role = std::exchange(own->role, RAFT_VOTER);
  recv_(&io_, &request);
  own->role = role;
}

// Fills a message of the library. The library frees entries, servers and data.
void LibraftMember::pass_on(NodeId from, Message& message) {
  const std::string address = address_of(std::uint64_t{from} + 1);
  struct raft_message m {};
  m.type = static_cast<unsigned short>(message.index() + 1);
  m.server_id = std::uint64_t{from} + 1;
  m.server_address = address.c_str();
  if (auto* append = std::get_if<AppendEntries>(&message)) {
    auto& out = m.append_entries;
    out.term = append->term;
    out.prev_log_index = append->previous_index;
    out.prev_log_term = append->previous_term;
    out.leader_commit = append->commit;
    out.n_entries = static_cast<unsigned>(append->entries.size());
    std::size_t total = 0;
    for (const EntryView& entry : append->entries) total += entry.payload.size();
    if (out.n_entries > 0) {
      out.entries = lib_.take_array<struct raft_entry>(out.n_entries);
      auto* batch = static_cast<std::byte*>(lib_.take(total));
      std::byte* at = batch;
      for (unsigned i = 0; i < out.n_entries; ++i) {
        const EntryView& entry = append->entries[i];
        out.entries[i] = {};
        out.entries[i].term = entry.term;
        out.entries[i].type = static_cast<unsigned short>(entry.type);
        out.entries[i].buf = {at, entry.payload.size()};
        out.entries[i].batch = batch;
        std::memcpy(at, entry.payload.data(), entry.payload.size());
        at += entry.payload.size();
      }
    }
  } else if (const auto* result = std::get_if<AppendResult>(&message)) {
    m.append_entries_result.term = result->term;
    m.append_entries_result.rejected = result->rejected;
    m.append_entries_result.last_log_index = result->last_index;
  } else if (auto* vote = std::get_if<RequestVote>(&message)) {
    options_.bugs.compare_logs(*vote, last_index(), term_of(last_index()));
    m.request_vote.term = vote->term;
    m.request_vote.candidate_id = vote->candidate;
    m.request_vote.last_log_index = vote->last_index;
    m.request_vote.last_log_term = vote->last_term;
    m.request_vote.disrupt_leader = vote->disrupt_leader;
    m.request_vote.pre_vote = vote->pre_vote;
  } else if (const auto* answer = std::get_if<VoteResult>(&message)) {
    m.request_vote_result.term = answer->term;
    m.request_vote_result.vote_granted = answer->granted;
    m.request_vote_result.pre_vote = static_cast<raft_tribool>(answer->pre_vote);
  } else if (const auto* install = std::get_if<InstallSnapshot>(&message)) {
    auto& out = m.install_snapshot;
    out.term = install->term;
    out.last_index = install->last_index;
    out.last_term = install->last_term;
    out.conf_index = install->servers_index;
    lib_.configuration_init(&out.conf);
    fill_servers(out.conf, install->servers);
    out.data.len = install->data.size();
    out.data.base = lib_.take(install->data.size());
    std::ranges::copy(install->data, static_cast<std::byte*>(out.data.base));
  } else if (const auto* now = std::get_if<TimeoutNow>(&message)) {
    m.timeout_now.term = now->term;
    m.timeout_now.last_log_index = now->last_index;
    m.timeout_now.last_log_term = now->last_term;
  }
  if (std::holds_alternative<RequestVote>(message) && options_.bugs.votes_in_any_role())
    vote(m);
  else
    recv_(&io_, &m);
}

}  // namespace pyrdma::erpc::raft

#endif
