// The outside view of a run of the LOCO scenario: the values written to each place, the histories,
// and the violations. All nodes of a simulation run on one thread of the machine, so they share it.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "check/history.h"
#include "fabric/sim/cluster.h"
#include "fuzz/fault_phase.h"
#include "systems/loco/bugs.h"
#include "systems/loco/fuzz/fates.h"
#include "systems/loco/fuzz/kinds.h"
#include "systems/loco/fuzz/lock_use.h"
#include "systems/loco/fuzz/places.h"

namespace pyrdma::loco::scenario {

inline constexpr std::uint32_t kCallers = 2;  // clients per node
// A caller that no client owns. The holder of lock 1 lends it, to write by other queue pairs.
inline constexpr std::uint32_t kOutsider = kCallers;
inline constexpr std::uint32_t kEpochs = 3;  // parts of a plan, with a barrier after each
inline constexpr std::uint32_t kWords = 3, kLocks = 3, kRings = 2, kQueueCapacity = 4;
inline constexpr std::uint32_t kRecordWords = 12, kMostHandovers = 1;
inline constexpr std::uint64_t kRingBytes = 512;
inline constexpr std::uint32_t kKeys = 4, kKeyLocks = 2;
// A lock and a key for operations that are dropped before they end; no history has them.
inline constexpr std::uint32_t kDroppedLock = kLocks, kDroppedKey = kKeys;

/// The histories by object, for the checkers.
enum class Log : std::uint8_t { kWords, kQueue, kLocks, kBarriers, kStore, kCount };

struct World {
  World(const fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& phase,
        Crashes& crashes, bool locks_alone);

  /// An operation begins; returns its mark.
  std::uint64_t operation();
  void violation(const char* kind, const std::string& text);
  /// Of an operation after all clients have ended.
  std::int32_t next_process() { return processes++; }
  check::History& log(Log which) { return logs[static_cast<std::size_t>(which)]; }
  /// Adds the verdicts of the checkers on the histories, and the wrong errors.
  void check();

  const fuzz::Options& options;
  fuzz::Outcome& outcome;
  fuzz::FaultPhase& phase;
  Crashes& crashes;
  const bool locks_alone;  // clients only take locks
  fabric::sim::SimCluster* cluster = nullptr;
  Bugs bugs;
  std::array<check::History, static_cast<std::size_t>(Log::kCount)> logs;
  Fates fates;
  std::int32_t processes;
  std::vector<bool> usable;                          // nodes that have joined all others
  std::uint32_t finished = 0, looked = 0, left = 0;  // numbers of nodes
  std::vector<std::uint64_t> pushed, pulled;         // last number of each node's variables
  std::vector<std::uint64_t> placed;                 // last number that was pushed without an error
  std::array<std::uint64_t, kRings> sent{};          // messages, by ring
  std::array<std::uint64_t, kRings> sent_to{};       // position after the last message
  std::array<std::uint64_t, kWords> sums{};          // of the addends of each word
  std::uint64_t queued = 0;                          // values in the queue
  std::array<std::uint32_t, kLocks> handovers{};     // since the lock's last ticket
  LockUse lock_use;
  std::map<Key, std::uint32_t> unsure;  // changes that have not ended well, by key
  Places places;                        // of the keys of the store
  std::map<std::pair<NodeId, std::uint32_t>, std::uint64_t> received;  // by reader and ring
  std::array<std::uint64_t, kLocks> guarded{};                         // last stamp of each record
  std::uint64_t stamps = 0;
};

}  // namespace pyrdma::loco::scenario
