// The operations of each client of the LOCO scenario, drawn before the client begins.
#pragma once
#include <cstdint>
#include <vector>

#include "systems/loco/fuzz/first_numbers.h"
#include "systems/loco/fuzz/world.h"

namespace pyrdma::loco::scenario {

/// The comment of an operation names the property that it tests (L1 to L7).
enum class Act : std::uint8_t {
  kPush,       // L2: push a wide owned_var to all
  kLook,       // L2: read the local copy of such a variable
  kStore,      // L2: store into a wide owned_var that others pull
  kPull,       // L2: pull the variable of another node
  kAdd,        // atomic_vars are linearizable counters
  kEnqueue,    // L7
  kDequeue,    // L7
  kBroadcast,  // L6
  kReceive,    // L6
  kCritical,   // L3: a record of many words under a lock
  kLookup,     // L1, and L2: values are wide
  kChange,     // L1: insertion, removal, update
  kCount
};

struct Planned {
  std::uint32_t id = 0;        // among all operations of the run
  std::uint32_t pause_ns = 0;  // pause before the operation
  Act act = Act::kPush;
  std::uint32_t object = 0;
  std::uint32_t draw = 0;  // random bits for further choices
};

/// Returns true if the run has operations on the store.
bool uses_store(const World& world);

/// The shape of a run, drawn from its seed.
struct Shape {
  explicit Shape(const World& world);
  /// The participants of the queue, the locks and the last ring: all nodes, or all but one.
  std::vector<NodeId> members;
  bool polling_thread = false;
  bool device_words = false;    // the words of the locks lie on NICs
  bool blocking_queue = false;  // clients push, then pop, and wait for both
  std::uint64_t slots = 0;      // of each node's part of the store; few, so that it fills up
  FirstNumbers first;
};

/// Draws the plan of client `caller` of `node`. A run has a random subset of operations.
std::vector<Planned> draw_plan(const World& world, NodeId node, std::uint32_t caller);

}  // namespace pyrdma::loco::scenario
