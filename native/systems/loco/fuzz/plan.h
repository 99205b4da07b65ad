// What each client of the LOCO scenario will do, drawn before it begins.
#pragma once
#include <cstdint>
#include <vector>

#include "systems/loco/fuzz/world.h"

namespace pyrdma::fuzz::loco {

/// The property that an operation tests stands beside it (L1 to L7).
enum class Act : std::uint8_t {
  kPush,       // L2: a wide owned_var, pushed to all
  kLook,       // L2: the copy of such a one here
  kStore,      // L2: a wide owned_var that others pull
  kPull,       // L2: that of another
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
  std::uint32_t pause_ns = 0;  // before it
  Act act = Act::kPush;
  std::uint32_t object = 0;
  std::uint32_t draw = 0;  // what else it needs
};

/// Whether the run has acts on the store.
bool uses_store(const World& world);

/// Client `caller` of `node`. A run has a random subset of acts.
std::vector<Planned> draw_plan(const World& world, NodeId node, std::uint32_t caller);

}  // namespace pyrdma::fuzz::loco
