// The outside view of a run of the scenario: what clients have seen. All nodes of a simulation run
// on one thread of the machine, so they share it. It survives the crashes of its nodes.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "check/history.h"
#include "fabric/sim/cluster.h"
#include "fuzz/fault_phase.h"
#include "systems/krcore/race/client.h"
#include "systems/krcore/race/storage.h"

namespace pyrdma::krcore::race::scenario {

/// What the seed decides for all nodes.
struct Shape {
  explicit Shape(const fuzz::Options& options);
  std::uint32_t storages = 1, clients = 1;  // the storage nodes are the first ones
  StorageOptions storage;
  ClientOptions client;
  std::uint32_t hot = 0, fillers = 0;  // keys that all change, and keys that are there at first
  std::uint32_t cold_share = 0;        // percent of the operations on other keys
  /// What happens to hot keys: everything, or insertions and removals, or updates and lookups with
  /// values of one size, so that a block is soon used again.
  enum class Mix : std::uint8_t { kAll, kInserts, kUpdates } mix = Mix::kAll;
  double death_per_step = 0;  // of a client
};

/// An operation of a client's plan.
struct Planned {
  std::uint32_t id = 0;  // over all nodes; also the value that a change stores
  Kind kind = Kind::kLookup;
  std::uint32_t key = 0, bytes = 0;
  Time pause = 0;
};

struct World {
  World(fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& faults);

  void violation(const char* kind, const std::string& text);

  // ---- operations ----

  /// Returns the number of the operation. `is_connected_late`: after all faults, so that nothing
  /// has broken the connection.
  /// `mark` is that of FaultPhase; an operation of the end checks has none.
  std::uint64_t begin(const Planned& op, bool is_connected_late,
                      std::optional<std::uint64_t> mark = std::nullopt);
  void end(std::uint64_t number, const Result& result);
  /// Its outcome stays unknown.
  void forget(std::uint64_t number);
  /// The value of a change: its number, then bytes that follow from it.
  static Bytes value_of(std::uint32_t id, std::uint32_t bytes);
  const std::string& key(std::uint32_t number) const { return keys_[number]; }
  std::uint32_t keys() const { return static_cast<std::uint32_t>(keys_.size()); }

  // ---- nodes ----

  /// The client's node is killed, and comes back.
  void kill(NodeId node, Fault fault, Time after = 0);
  bool all_done() const;
  std::string describe() const;
  /// All nodes are over.
  void check();

  fuzz::Options& options;
  fuzz::Outcome& outcome;
  fuzz::FaultPhase& phase;
  fabric::sim::SimCluster* cluster = nullptr;
  const Shape shape;
  std::vector<std::vector<Planned>> plans;  // by client
  std::vector<std::size_t> next;            // operation of each plan
  std::vector<bool> is_done;                // by client
  std::vector<std::uint32_t> connections;   // that each client has begun to make
  std::vector<std::uint32_t> opened;        // storage nodes that have made their end of it
  std::set<NodeId> down;
  bool is_filled = false, is_over = false, is_looked_at = false;
  TableAddress table;
  std::vector<TableAddress> parts;
  std::vector<const std::byte*> regions;

 private:
  struct Open {
    Planned op;
    std::int32_t process = 0;
    std::size_t event = 0;
    std::optional<std::uint64_t> mark;
    bool is_after_faults = false, is_connected_late = false;
  };
  std::vector<std::string> keys_;
  std::vector<check::Event> events_;
  std::map<std::uint64_t, Open> open_;
  std::set<std::int32_t> free_processes_;
  std::int32_t processes_ = 0;
  std::uint64_t begun_ = 0;
};

}  // namespace pyrdma::krcore::race::scenario
