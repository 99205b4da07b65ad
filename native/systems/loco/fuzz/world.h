// What a run of the LOCO scenario knows from outside: what was written where, the histories, and
// what was wrong. All nodes of a simulation run on one thread of the machine, so they share it.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "check/history.h"
#include "fabric/sim/cluster.h"
#include "fuzz/scenario.h"
#include "systems/loco/bugs.h"

namespace pyrdma::fuzz::loco {

inline constexpr std::uint32_t kCallers = 2;  // clients per node
inline constexpr std::uint32_t kEpochs = 3;   // parts of a plan, with a barrier behind each
inline constexpr std::uint32_t kWords = 3, kLocks = 3, kRings = 2, kQueueCapacity = 4;
inline constexpr std::uint32_t kRecordWords = 12;
inline constexpr std::uint32_t kKeys = 4, kKeyLocks = 2;

/// Histories by object, for the checkers.
enum class Log : std::uint8_t { kWords, kQueue, kLocks, kBarriers, kStore, kCount };

struct World {
  World(const Options& wanted, Outcome& result, bool locks_alone);

  void violation(const char* kind, const std::string& text);
  /// Whether operation `id` happens in this run.
  bool keeps(std::uint32_t id) const;
  check::History& log(Log which) { return logs[static_cast<std::size_t>(which)]; }
  bool all_ended() const;
  /// A client could not go on: right only if the text names a node that was killed.
  void failed(NodeId node, const std::string& text);
  /// What the checkers say of the histories.
  void check();

  const Options& options;
  Outcome& outcome;
  const bool locks_alone;  // clients do nothing but take locks
  fabric::sim::SimCluster* cluster = nullptr;
  pyrdma::loco::Bugs bugs;
  std::array<check::History, static_cast<std::size_t>(Log::kCount)> logs;
  std::vector<bool> ended, died;                       // by node
  std::vector<std::pair<NodeId, std::string>> errors;  // of clients that could not go on
  std::vector<std::uint64_t> pushed, pulled;           // last number of each node's variables
  std::array<std::uint64_t, kRings> sent{};            // messages, by ring
  std::map<std::pair<NodeId, std::uint32_t>, std::uint64_t> heard;  // by reader and ring
  std::array<std::uint64_t, kLocks> guarded{};                      // last stamp of each record
  std::uint64_t stamps = 0;
};

}  // namespace pyrdma::fuzz::loco
