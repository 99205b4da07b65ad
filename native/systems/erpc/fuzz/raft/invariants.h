// Invariants judges the steps that members report: the five properties of Raft (by
// check/invariants/raft.h), what must survive a crash, and exactly-once execution.
//
// A violation has a kind, for tests of the oracle itself. The judge keeps all entries of a run, so
// it is for tests and scenarios.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "check/invariants/raft.h"
#include "systems/erpc/raft/observer.h"

namespace pyrdma::erpc::raft {

enum class Property : std::uint8_t {
  kElectionSafety,      // R1
  kLeaderAppendOnly,    // R2
  kLogMatching,         // R3
  kLeaderCompleteness,  // R4
  kStateMachineSafety,  // R5
  kDurableTermAndVote,  // a member restarts with the term and vote for which it spoke
  kDurableLog,          // and with the entries that it acknowledged
  kExactlyOnce,         // a command of a client takes effect at one index only
};

class Invariants final : public Observer {
 public:
  struct Finding {
    Property property;
    std::string text;
  };
  const std::vector<Finding>& findings() const { return findings_; }
  std::uint64_t executions() const { return executed_.size(); }
  /// The highest entry that any member knows to be committed.
  std::uint64_t committed() const { return committed_; }
  std::uint64_t elections() const { return elections_; }
  std::uint64_t truncations() const { return truncations_; }
  /// From now on a leader's commit must be durable at more than half of `voters` members.
  void expect_majority_of(std::size_t voters) { voters_ = voters; }
  /// The member has lost its storage and comes back as a new one.
  void forget(NodeId member);

  void started(NodeId member, std::uint64_t term, std::uint64_t vote, std::uint64_t snapshot_index,
               std::uint64_t snapshot_term, std::span<const EntryMark> log) override;
  void spoke(NodeId member, std::uint64_t term, std::uint64_t vote) override;
  void appended(NodeId member, const EntryMark& entry) override;
  void truncated(NodeId member, std::uint64_t last) override;
  void stored(NodeId member, std::uint64_t last) override;
  void snapshot(NodeId member, std::uint64_t index, bool installed) override;
  void leads(NodeId member, std::uint64_t term) override;
  void follows(NodeId member) override;
  void committed(NodeId member, std::uint64_t index, std::uint64_t term) override;
  void applied(NodeId member, std::uint64_t index, std::uint64_t digest) override;
  void executed(NodeId member, std::uint64_t index, std::uint64_t client,
                std::uint64_t sequence) override;

 private:
  struct Seen {
    std::int32_t identity = 0;  // of the member for the checker
    std::map<std::uint64_t, EntryMark> log;
    std::uint64_t base = 0;  // last entry of the snapshot
    std::uint64_t stored = 0, applied = 0;
    std::uint64_t term = 0, vote = 0;  // for which it spoke last
  };
  Seen& of(NodeId member);
  void judge(const check::MaybeViolation& found);
  void add(Property property, std::string text) { findings_.push_back({property, text}); }
  void check_restart(NodeId member, const Seen& before, std::uint64_t base,
                     std::span<const EntryMark> log);

  check::RaftInvariants raft_;
  std::map<NodeId, Seen> members_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> executed_;  // client, sequence
  std::uint64_t committed_ = 0, elections_ = 0, truncations_ = 0;
  void check_majority(NodeId leader, std::uint64_t index);
  std::size_t voters_ = 0;
  std::set<NodeId> lost_;  // members that have lost their storage, until they store anew
  std::map<NodeId, bool> leading_;
  std::int32_t identities_ = 0;
  std::uint32_t events_ = 0;
  std::vector<Finding> findings_;
};

}  // namespace pyrdma::erpc::raft
