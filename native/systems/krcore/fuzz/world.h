// The outside view of a run of the KRCore scenario: what each virtual queue pair has posted, what
// its target must hold, and what receivers have seen. All nodes of a simulation run on one thread
// of the machine, so they share it. It survives the crashes of its nodes. Its times are the
// cluster's, since the clocks of nodes differ.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fabric/sim/cluster.h"
#include "fuzz/fault_phase.h"
#include "systems/krcore/app.h"
#include "systems/krcore/fuzz/registers.h"
#include "systems/krcore/fuzz/shape.h"

namespace pyrdma::krcore::scenario {

inline constexpr std::uint32_t kPlaces = 64;        // of a client at a target, used in turn
inline constexpr std::uint32_t kWords = 8;          // of a place
inline constexpr std::uint32_t kMostShared = 1024;  // words that all clients use
inline constexpr std::uint32_t kPort = 7;
inline constexpr std::uint64_t kUnknown = ~0ULL;  // what a word holds
/// What is under way when a queue pair ends may take effect so much later, and a fault may still
/// end a request: all attempts of those before it in a full queue.
inline constexpr Time kAftermath = 40 * kMillisecond;
/// A run in which nothing ends for so long is stuck. Services ask each other again after 64 ms, and
/// after times that double.
inline constexpr Time kPatience = kSecond;

/// The messages of a queue pair, and how far its receiver is.
struct Stream {
  NodeId from = 0, to = 0;
  std::uint32_t to_life = 0;    // of the receiver, to which the queue pair is connected
  std::uint64_t sent = 0;       // messages
  std::uint64_t succeeded = 0;  // of these, the first ones
  std::uint64_t received = 0;
};

/// A region that a client has registered for all others.
struct Loan {
  NodeId owner = 0;
  std::uint32_t life = 0;  // of the owner
  Registration region;
  bool is_ending = false;  // its removal has begun
  Time removed = kForever;
};

struct World {
  World(fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& faults);

  void violation(const char* kind, const std::string& text);
  Time now() const { return cluster->now(); }

  // ---- faults ----

  /// Notes which faults have had an effect.
  void look_at_faults();
  /// Whether what began at `since` may fail, or take longer: one of the two nodes has died, or a
  /// fault that ends queue pairs or exhausts attempts has had an effect, since then or just before.
  bool may_fail(NodeId from, NodeId to, Time since);
  /// A request of a node to a life of another one has succeeded.
  void know(NodeId from, NodeId to, std::uint32_t life) { known_[from][to] = life; }
  /// Whether a node has met the present life of another one. One that has not may have what leads
  /// to an earlier life, and learns of it by a failure.
  bool knows(NodeId from, NodeId to) const {
    const auto known = known_[from].find(to);
    return nodes[to].life == 0 || (known != known_[from].end() && known->second == nodes[to].life);
  }
  /// A node has begun another life, which knows nobody.
  void forget(NodeId node) { known_[node].clear(); }
  /// Likewise, of deaths alone.
  bool has_died(NodeId node, Time since) const;

  struct Node {
    std::uint32_t life = 0;  // restarts
    bool is_up = false;
    Time died = -1;                 // the last death
    Time broke = -1;                // the last failure of a queue pair that a client has caused
    std::uint32_t shared = 0;       // operations on words of all clients
    Registration cells;             // of the present life
    std::vector<Time> deaths;       // of each life that has ended
    std::vector<std::size_t> next;  // operation of each client's plan
    std::vector<bool> is_done;      // by client
    std::vector<bool> has_reached;  // all nodes, after the faults
    std::set<std::uint32_t> keys;   // that regions of the present life have had
  };
  /// A client's places at a target are used in turn, each for one connection.
  struct Places {
    std::uint32_t life = 0, next = 0;
    std::array<Time, kPlaces> used_until{};
  };
  /// Returns the word of an operation. The words change from time to time, since a checker of long
  /// histories gives up.
  std::uint32_t shared_word(NodeId node, std::uint64_t draw);
  bool all_done() const;
  bool all_reached() const;
  std::string describe() const;
  void check();

  fuzz::Options& options;
  fuzz::Outcome& outcome;
  fuzz::FaultPhase& phase;
  fabric::sim::SimCluster* cluster = nullptr;
  const Shape shape;
  std::vector<std::vector<Planned>> plans;  // by node * clients + client
  std::vector<Node> nodes;
  std::map<std::uint64_t, Stream> streams;  // by the number of a queue pair, over all lives
  std::uint64_t next_stream = 1, next_value = 1;
  std::vector<Places> places;  // by (node * clients + client) * nodes + target
  Registers registers;
  std::deque<Loan> loans;  // the oldest first; those of the past stay
  std::uint64_t steps =
      0;  // of a stuck run there is a bound: requests that have succeeded, and messages
  bool is_over = false;

 private:
  std::vector<std::map<NodeId, std::uint32_t>> known_;  // lives, by node
  std::uint64_t effects_ = 0;
  Time last_effect_ = -1;
};

}  // namespace pyrdma::krcore::scenario
