// The outside view of a run of the Spindle scenario: every message, delivery and view. All nodes of
// a simulation run on one thread of the machine, so they share it. It survives the crashes of its
// nodes.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "check/history.h"
#include "fabric/sim/cluster.h"
#include "fuzz/fault_phase.h"
#include "systems/spindle/bugs.h"
#include "systems/spindle/group.h"

namespace pyrdma::spindle::scenario {

/// Faults that may cost a member its place, whatever the timeouts.
inline constexpr std::array kLosses{Fault::crash,
                                    Fault::host_crash,
                                    Fault::battery_crash,
                                    Fault::qp_error,
                                    Fault::partition,
                                    Fault::isolation,
                                    Fault::partition_partial,
                                    Fault::partition_one_way,
                                    Fault::partition_flapping,
                                    Fault::coordinator_down,
                                    Fault::nic_failure,
                                    Fault::clock_jump,
                                    Fault::pause,
                                    Fault::slow_node};

/// What the seed decides for all nodes.
struct Shape {
  explicit Shape(const fuzz::Options& options);
  /// Timeouts are so long that only faults of kLosses cost a member its place.
  bool is_patient = false;
  std::uint32_t sends = 45, bursts = 30;  // percent of the operations; the others mostly pause
  std::uint32_t longest_burst = 12;
  bool leaves = true;   // one operation of a hundred
  bool copies = false;  // half of the messages are sent by try_send()
  Options group;
  /// The load, as Options says: how long a heartbeat may wait behind messages.
  Time load = 0;
  bool outlasts_load() const;  // both timeouts do
  std::vector<SubgroupSpec> subgroups;
  NodeId founders = 0;  // the others join at once
};

/// An operation of a node's plan.
struct Planned {
  enum class Kind : std::uint8_t { kSend, kBurst, kPause, kLeave };
  Kind kind = Kind::kSend;
  std::uint32_t id = 0;  // over all nodes
  std::uint32_t subgroup = 0, count = 1, bytes = 0;
  Time pause = 0;
};

/// A member's number in histories: one for each time that a node joins.
constexpr std::int32_t number_of(Member member) {
  return static_cast<std::int32_t>(member.node * 10'000 + member.incarnation / 4096 * 100 +
                                   member.incarnation % 4096);
}

struct World {
  World(const fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& faults);

  void violation(const char* kind, const std::string& text);
  void sent(Member sender, std::uint32_t subgroup, std::uint64_t number);
  /// A member delivers a message. `is_whole`: its bytes are those that were sent.
  void delivered(Member member, std::uint64_t view, std::uint32_t subgroup, Member sender,
                 std::uint64_t number, bool is_whole);
  void entered(Member member, const ViewShape& shape);
  /// The member has ended: by a crash, by leaving, by its exclusion.
  void ended(Member member);

  /// All members that live have delivered all messages of each other.
  bool is_complete() const;
  bool is_member(NodeId node, std::uint32_t subgroup) const;
  bool all_done() const;
  /// Checks that the end of all views is no surprise: faults, or leavers, have cost the last view
  /// its majority.
  void check_stall();
  /// How many members the faults may have cost their places so far. A partition costs several.
  std::uint64_t losses() const;
  /// Where each node stands, for the report of a run that does not end.
  std::string describe() const;
  /// Checks what holds at the end of a run.
  void check();

  const fuzz::Options& options;
  fuzz::Outcome& outcome;
  fuzz::FaultPhase& phase;
  fabric::sim::SimCluster* cluster = nullptr;
  Bugs bugs;
  const Shape shape;
  std::vector<std::vector<Planned>> plans;  // by node
  std::vector<std::size_t> next;            // operation of each node's plan
  std::vector<bool> is_done;                // by node: has carried out its plan, or ended
  check::History history;
  Time healed_at = kForever;  // when a node first saw that the faults are over
  bool is_stalled = false;    // no view has a majority
  bool is_over = false;
  // Without messages of the application nulls end (V8).
  Time complete_at = kForever;
  std::map<NodeId, std::uint64_t> nulls;  // of each node, some time after the last message

  struct Sent {
    std::uint64_t count = 0;
  };
  struct Life {
    Member member;
    bool is_alive = true, is_running = false;
    std::uint64_t view = 0;
    std::map<std::uint32_t, std::uint64_t> sent;                           // by subgroup
    std::map<std::pair<std::uint32_t, std::int32_t>, std::uint64_t> next;  // by subgroup, sender
  };
  std::map<std::int32_t, Life> lives;
  std::map<std::uint64_t, std::vector<Member>> views;
  std::set<std::int32_t> leavers;
  std::uint64_t opens = 0;  // operations of the history
};

}  // namespace pyrdma::spindle::scenario
