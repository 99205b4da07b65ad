// The nodes of the scenario `erpc_raft`, and what they share. All nodes of a simulation run on one
// thread of the machine.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "check/history.h"
#include "fabric/sim/cluster.h"
#include "fuzz/fault_phase.h"
#include "fuzz/scenario.h"
#include "systems/erpc/fuzz/plan.h"
#include "systems/erpc/fuzz/raft/invariants.h"
#include "systems/erpc/fuzz/replicas/living_observer.h"
#include "systems/erpc/raft/kv_client.h"
#include "systems/erpc/raft/peer_sessions.h"
#include "systems/erpc/raft/rpc_member.h"

namespace pyrdma::erpc::replicas {

struct PlannedOperation {
  std::uint32_t id = 0;
  bool is_put = false;
  std::uint64_t key = 0;
  Time pause = 0;
};

struct World {
  World(const fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& faults);
  raft::RpcMemberOptions member_options();
  void violation(std::string_view kind, const std::string& text) {
    outcome.report(kind, cluster->now(), text);
  }
  /// All members run, and have the same state.
  bool is_settled() const;
  /// Grows with what the members that run have applied.
  std::uint64_t applied() const;
  std::string describe() const;

  const fuzz::Options& options;
  fuzz::Outcome& outcome;
  fuzz::FaultPhase& phase;
  fabric::sim::SimCluster* cluster = nullptr;
  const NodeId members;  // the first nodes; all others are clients
  Options endpoint;
  std::uint32_t snapshot_threshold = 20;
  bool pre_vote = true;
  std::size_t longest_request = 0;  // see raft::RpcMemberOptions
  std::vector<NodeId> group;
  std::vector<raft::RpcMember*> running;             // by member; null while it is down
  std::vector<std::vector<PlannedOperation>> plans;  // by client
  std::vector<std::size_t> next;                     // operation of each plan
  std::vector<bool> finished;                        // by client
  std::int32_t processes = 0;
  std::uint64_t puts = 0;
  std::int64_t value = 0;
  bool over = false;
  raft::Invariants invariants;
  LivingObserver observer{invariants};
  check::History history;
};

/// Runs members of the node, one after the other: each that fails makes room for the next.
void run_member(World& world, Env& env);

/// A client, which ends with its node. The next one goes on with the plan.
class Client {
 public:
  Client(World& world, Env& env);
  /// Carries out the rest of the plan. Returns false if an operation has not ended in time.
  bool run();
  /// Serves the event loop until `ready`, or the deadline; returns ready().
  bool wait(FunctionRef<bool()> ready, Time deadline) {
    return endpoint_.run_until(ready, deadline);
  }

 private:
  struct Try {
    Client* client = nullptr;
    MsgBuffer *request = nullptr, *response = nullptr;
    bool is_open = false;
    std::uint64_t number = 0;  // among the tries
  };
  bool carry_out(const PlannedOperation& op);
  void try_now();
  void take(const raft::KvAnswer& answer);
  static void end(void* context, std::uint64_t tag, Outcome outcome);

  World& world_;
  Env& env_;
  const std::size_t number_;
  const std::int32_t process_;
  std::deque<Try> tries_;  // before the endpoint, whose end ends them
  Endpoint endpoint_;
  raft::PeerSessions sessions_;
  raft::KvClient logic_;
  PlannedOperation op_;
};

}  // namespace pyrdma::erpc::replicas
