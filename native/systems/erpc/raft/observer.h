// Observer sees the steps of members that the properties of Raft speak about. A member without an
// observer pays one comparison for each step.
#pragma once
#include <cstdint>
#include <span>

#include "env/env.h"

namespace pyrdma::erpc::raft {

/// An entry of a log. `digest` covers the type and the payload.
struct EntryMark {
  std::uint64_t index = 0, term = 0, digest = 0;
};

class Observer {
 public:
  virtual ~Observer() = default;
  /// The member has loaded its state, all of which is durable now: the term and vote, the position
  /// of its snapshot (0 for none), and the entries of its log, which may begin before the end of
  /// the snapshot.
  virtual void started(NodeId member, std::uint64_t term, std::uint64_t vote,
                       std::uint64_t snapshot_index, std::uint64_t snapshot_term,
                       std::span<const EntryMark> log) = 0;
  /// The member is about to send messages, and holds this term and vote.
  virtual void spoke(NodeId member, std::uint64_t term, std::uint64_t vote) = 0;
  virtual void appended(NodeId member, const EntryMark& entry) = 0;
  /// The log now ends with entry `last`.
  virtual void truncated(NodeId member, std::uint64_t last) = 0;
  /// The library is told that all entries up to `last` are durable.
  virtual void stored(NodeId member, std::uint64_t last) = 0;
  /// A snapshot of the entries up to `index` is durable; `installed` if the leader has sent it, in
  /// place of the whole log.
  virtual void snapshot(NodeId member, std::uint64_t index, bool installed) = 0;
  virtual void leads(NodeId member, std::uint64_t term) = 0;
  virtual void follows(NodeId member) = 0;
  virtual void committed(NodeId member, std::uint64_t index, std::uint64_t term) = 0;
  virtual void applied(NodeId member, std::uint64_t index, std::uint64_t digest) = 0;
  /// The state machine has carried out a command of a client.
  virtual void executed(NodeId member, std::uint64_t index, std::uint64_t client,
                        std::uint64_t sequence) = 0;
};

}  // namespace pyrdma::erpc::raft
