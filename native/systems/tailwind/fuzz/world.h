// The outside view of a run of the Tailwind scenario: what clients have seen, which servers have
// died, and whether the store may have lost data. All nodes of a simulation run on one thread of
// the machine, so they share it. It survives the crashes of its nodes.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "check/history.h"
#include "fabric/sim/cluster.h"
#include "fuzz/fault_phase.h"
#include "systems/tailwind/bugs.h"
#include "systems/tailwind/client/client.h"
#include "systems/tailwind/coordinator/coordinator.h"
#include "systems/tailwind/server.h"

namespace pyrdma::tailwind::scenario {

inline constexpr std::array<std::string_view, 3> kPresetNames{"ramcloud", "tailwind", "flush"};

/// What the seed decides for all nodes.
struct Shape {
  explicit Shape(const fuzz::Options& options);
  Options store;
  NodeId first_client = 0;  // the clients are the last nodes
  std::uint32_t keys = 0;
  std::uint32_t window = 0;      // operations in flight of a client
  std::uint32_t most_value = 0;  // bytes
  /// A server dies when all is over: the others must have all that it has.
  bool has_last_crash = false;
  /// All servers lose power at once, and batteries save their memory.
  bool has_outage = false;
};

/// An operation of a client's plan.
struct Planned {
  std::uint32_t id = 0;  // over all nodes; also the value that a write stores
  Opcode opcode = Opcode::kRead;
  std::uint32_t key = 0, bytes = 0;
  Time pause = 0;
};

bool has_any(const fuzz::Options& options, std::initializer_list<Fault> faults);
/// What was durable may be gone.
bool has_bad_disks(const fuzz::Options& options);

struct World {
  World(fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& faults);

  void violation(const char* kind, const std::string& text);

  // ---- operations ----

  struct Open {
    Planned op;
    std::int32_t process = 0;
    std::uint64_t floor = 0;  // the newest version of the key when the operation began
  };
  /// Returns the number of the operation.
  std::uint64_t begin(const Planned& op);
  void end(std::uint64_t number, const Result& result);
  /// The value of a write: its number, then bytes that follow from it.
  static Bytes value_of(std::uint32_t id, std::uint32_t bytes);

  // ---- lives ----

  void server_began(ServerId server, bool is_new_process);
  /// The process or the server has ended. What it had in buffers is gone, unless a battery saved
  /// it.
  void server_ended(ServerId server);
  /// The process of the calling node ends soon, and begins again.
  void restart(NodeId node);
  /// What a server or the coordinator says of itself, from time to time.
  void note(Server& server);
  void note(Coordinator& coordinator);
  /// Servers that have died and whose data the others may not have yet.
  std::uint32_t unsettled() const;
  /// No life is unsettled, and every server's node has one that serves.
  bool is_whole() const;
  /// Replicas of logs that nobody needs.
  std::string garbage() const;
  bool all_done() const;
  /// What a disk takes for one replica.
  Time flush_time() const;
  /// What the slowest disk takes, at the profile's rate, for what the store has to do before it is
  /// whole: who begins again reads all that it has; replicas of a dead log are read, and what they
  /// had is written to those of the heirs; primaries make the replicas anew that an earlier life of
  /// a node had; and replicas in buffers are written before others may be opened.
  Time disk_work() const;
  /// More servers have died than the store survives: data may be gone, and then they are not
  /// served.
  bool may_lose = false;
  /// A battery saves memory: from now on clients may be told of a past that is gone.
  void battery_saves();
  /// The store may lack what it needs to be whole.
  bool may_miss() const { return may_lose || has_bad_disks(options); }
  /// The store has given up what it could not find.
  bool has_salvaged() const;
  /// What clients were told may be gone. A bit that flips in a saved buffer looks like the end of
  /// a write that was torn.
  bool may_forget() const;
  std::string describe() const;
  void check();

  fuzz::Options& options;
  fuzz::Outcome& outcome;
  fuzz::FaultPhase& phase;
  fabric::sim::SimCluster* cluster = nullptr;
  Bugs bugs;
  const Shape shape;
  std::vector<std::vector<Planned>> plans;  // by client
  std::vector<std::size_t> next;            // operation of each plan
  std::vector<bool> is_done;                // by client
  check::History history;
  bool is_over = false;
  bool reads_all = false;   // the first client reads all keys
  bool is_stalled = false;  // data may be gone, and the store waits for them
  /// Called with the server of the next answer, if it is set.
  std::function<void(NodeId)> at_answer;
  std::set<NodeId> down;  // nodes that are killed and not up again
  std::string coordinator_problem;

  struct Life {
    bool has_ended = false, is_settled = false, is_saved = false;
    bool is_serving = false, is_whole = false;
    std::uint64_t epoch = 0;
    // Replicas in its buffers, and those of servers that have ended, by server.
    std::uint64_t unflushed = 0;
    std::map<ServerId, std::uint64_t> of_ended;
    std::uint64_t to_replace = 0;     // replicas of earlier lives, which their primaries make anew
    std::vector<std::uint64_t> logs;  // of which it has replicas
    std::vector<std::uint64_t> inherited_logs;  // and has had them when it began
  };
  std::map<ServerId, Life> lives;
  ClusterView view;  // the coordinator's
  std::string recoveries;

 private:
  /// Bits have flipped in what a battery has saved, or that lacked data whose completion had come.
  bool may_lack_saved() const;
  /// How many events of the history were there before anything could be forgotten.
  std::size_t events_to_judge() const;
  bool has_saved_ = false, forgets_completed_ = false;
  std::size_t events_before_saved_ = 0, events_before_salvage_ = 0;
  void settle();
  struct Key {
    std::uint64_t newest = 0;                      // version that a client has seen
    std::map<std::uint64_t, std::int64_t> values;  // of versions
  };
  std::vector<Key> keys_;
  std::map<std::uint64_t, Open> open_;
  std::set<std::int32_t> free_processes_;
  std::int32_t processes_ = 0;
  std::uint64_t begun_ = 0;
};

}  // namespace pyrdma::tailwind::scenario
