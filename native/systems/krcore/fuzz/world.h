// The outside view of a run of the KRCore scenario: what each virtual queue pair has posted, what
// its target must hold, and what receivers have seen. All nodes of a simulation run on one thread
// of the machine, so they share it. It survives the crashes of its nodes.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fabric/sim/cluster.h"
#include "fuzz/fault_phase.h"
#include "systems/krcore/app.h"

namespace pyrdma::krcore::scenario {

inline constexpr std::uint32_t kClients = 2;      // threads of a node
inline constexpr std::uint32_t kGenerations = 8;  // places of a client at a target, used in turn
inline constexpr std::uint32_t kWords = 8;        // of a place
inline constexpr std::uint32_t kPort = 7;
inline constexpr std::uint32_t kMostMessage = 3000;  // bytes; longer than a buffer of the service

/// What the seed decides for all nodes.
struct Shape {
  explicit Shape(const fuzz::Options& options);
  Options service;
  bool has_dynamic = true;            // connections
  NodeId stranger = fabric::kNoNode;  // the node that forges datagrams
};

enum class Act : std::uint8_t {
  kWrites,     // a list of writes, some without a signal, and a read behind them
  kAdd,        // a fetch-and-add
  kMessage,    // a message to the node's inbox
  kMalformed,  // a request that must fail alone
  kRenew,      // another queue pair to the same node
  kMove,       // the queue pair goes to another core, or to another physical one
  kRegion,     // a region is registered, used, removed, and used again after its end
};

struct Planned {
  std::uint32_t id = 0;
  Act act = Act::kWrites;
  NodeId target = 0;
  std::uint32_t size = 0;
  std::uint64_t draw = 0;
  Time pause = 0;
};

/// A message that a queue pair has sent, and how far its receiver is.
struct Stream {
  NodeId from = 0, to = 0;
  std::uint32_t to_life = 0;    // of the receiver, when the first message was sent
  std::uint64_t sent = 0;       // messages
  std::uint64_t succeeded = 0;  // of these, the first ones
  std::uint64_t received = 0;
};

struct World {
  World(fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& faults);

  void violation(const char* kind, const std::string& text);
  /// Whether a request between the nodes may fail without a fault of its own: a node has died, or
  /// faults end queue pairs or exhaust retries.
  bool may_fail(NodeId from, NodeId to) const;

  struct Node {
    std::uint32_t life = 0;  // restarts
    bool is_up = false;
    std::uint64_t crashes = 0;
    Registration cells;                                                 // of the present life
    std::vector<std::size_t> next{std::vector<std::size_t>(kClients)};  // operation of each plan
    std::vector<bool> is_done{std::vector<bool>(kClients)};
    std::vector<bool> has_reached{std::vector<bool>(kClients)};  // all nodes, after the faults
  };
  bool all_done() const;
  bool all_reached() const;
  std::string describe() const;
  void check();

  fuzz::Options& options;
  fuzz::Outcome& outcome;
  fuzz::FaultPhase& phase;
  fabric::sim::SimCluster* cluster = nullptr;
  const Shape shape;
  std::vector<std::vector<Planned>> plans;  // by node * kClients + client
  std::vector<Node> nodes;
  std::map<std::uint64_t, Stream> streams;  // by the number of a queue pair, over all lives
  std::uint64_t next_stream = 1;
  bool can_break = false;  // the drawn faults end queue pairs or exhaust retries
  bool is_over = false;
};

}  // namespace pyrdma::krcore::scenario
