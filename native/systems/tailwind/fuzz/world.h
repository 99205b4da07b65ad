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
#include "systems/tailwind/fuzz/losses.h"
#include "systems/tailwind/fuzz/shape.h"
#include "systems/tailwind/server.h"

namespace pyrdma::tailwind::scenario {

struct World {
  World(fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& faults);

  void violation(const char* kind, const std::string& text);

  // ---- operations ----

  struct Open {
    Planned op;
    std::int32_t process = 0;
    std::uint64_t floor = 0;   // the newest version of the key when the operation began
    std::uint32_t losses = 0;  // of the key, by then
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
  /// Tells at_cleaning and at_roll of what the server does. Often.
  void note_moment(Server& server);
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
  /// A battery saves memory. Changes whose completion had come may be missing there; and a bit that
  /// flips in what it has saved looks like the end of a write that was torn.
  void battery_saves();
  /// The store may lack what it needs to be whole.
  bool may_miss() const { return may_lose || has_bad_disks(options); }
  /// Whether a server with a lease has the key.
  bool is_served(std::uint32_t key) const;
  bool has_cleaned() const { return cluster->branches().contains("tailwind/cleaned"); }
  std::string describe() const;
  /// Whoever waits for data waits for a log that may lack some.
  void check_lost();
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
  bool reads_all = false;  // the first client reads all keys
  /// Data may be gone, and the store waits for them: the first client reads what is served.
  bool is_stalled = false;
  std::uint64_t table = 0;  // its number; 0: not known yet
  /// Called with the server of the next answer or write, with the next one whose cleaner has moved
  /// all that is of use in segments, that has a head without these, and whose head is almost full,
  /// if they are set.
  std::function<void(NodeId)> at_answer, at_write, at_cleaning, at_head, at_roll;
  std::set<NodeId> down;  // nodes that are killed and not up again
  std::string coordinator_problem;
  std::vector<ServerId> waiting_for_data;  // dead servers whose logs are not whole

  struct Life {
    bool has_ended = false, is_settled = false, is_saved = false;
    bool may_lack = false;  // so many have ended with it that its log may lack data
    bool is_serving = false, is_whole = false;
    std::uint64_t epoch = 0;
    // Replicas in its buffers, and those of servers that have ended, by server.
    std::uint64_t unflushed = 0;
    std::map<ServerId, std::uint64_t> of_ended;
    std::uint64_t to_replace = 0;     // replicas of earlier lives, which their primaries make anew
    std::vector<std::uint64_t> logs;  // of which it has replicas
    std::vector<std::uint64_t> inherited_logs;  // and has had them when it began
    std::optional<std::uint64_t> survivors;     // segments that its cleaner has made
    // After the faults: the replicas that its log has, and those of others that it has, by server.
    std::uint64_t held = 0;
    std::map<ServerId, std::uint64_t> replicas;
  };
  std::map<ServerId, Life> lives;
  ClusterView view;  // the coordinator's
  std::string recoveries;

 private:
  /// A log was salvaged, or the bits of saved memory have flipped.
  void note_losses();
  void lose(const std::set<std::int64_t>& keys, Time durable);
  std::set<std::int64_t> all_keys() const;
  const Tablet* tablet_of(std::uint32_t key) const;
  void settle();
  struct Key {
    std::uint64_t newest = 0;                      // version that a client has seen
    std::map<std::uint64_t, std::int64_t> values;  // of versions
    std::uint32_t losses = 0;                      // after which the versions begin again
    bool has_forgotten = false;                    // or may forget later what was seen since
  };
  std::vector<Key> keys_;
  std::vector<Loss> losses_;
  std::uint64_t salvages_ = 0;  // that have been seen
  std::map<std::uint64_t, Open> open_;
  std::set<std::int32_t> free_processes_;
  std::int32_t processes_ = 0;
  std::uint64_t begun_ = 0;
};

}  // namespace pyrdma::tailwind::scenario
