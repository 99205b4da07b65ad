// The outside view of a run of the eRPC scenario: every request, how often it ran and how it ended.
// All nodes of a simulation run on one thread of the machine, so they share it. It survives the
// crashes of its nodes.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "fabric/sim/cluster.h"
#include "fuzz/fault_phase.h"
#include "systems/erpc/bugs.h"
#include "systems/erpc/fuzz/plan.h"
#include "systems/erpc/outcome.h"

namespace pyrdma::erpc::scenario {

/// The bytes of a message: words that follow from `salt`, so that a piece in a wrong place is seen.
void fill(std::span<std::byte> bytes, std::uint64_t salt);
bool is_filled(std::span<const std::byte> bytes, std::uint64_t salt);

/// Requests of fewer bytes carry no number.
inline constexpr std::uint32_t kNumbered = sizeof(std::uint32_t);
/// The number in a request stands before these bytes.
std::uint64_t salt_of_request(std::uint32_t number);
std::uint32_t response_of_tiny(std::uint32_t bytes);

struct Call {
  NodeId client = 0, server = 0;
  Way way = Way::kAtOnce;
  std::uint32_t request = 0, response = 0, room = 0;  // bytes
  std::uint64_t salt = 0;                             // of the response
  std::uint32_t executed = 0, ended = 0;
  Outcome outcome = Outcome::kOk;
  bool is_orphan = false;             // its client has died
  std::optional<std::uint64_t> mark;  // of the phase, for the first request of an operation
};

/// The steps of the end of a run. Every node waits for the others before each.
enum class Stage : std::uint8_t { kActs, kQuiet, kSettled, kEmpty, kDone };

class Node;

struct World {
  World(const fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& faults);

  void violation(const char* kind, const std::string& text);
  std::string name_of(std::uint32_t call) const;
  /// A handler has this request. Returns the salt of the answer and its length.
  std::pair<std::uint64_t, std::uint32_t> executes(NodeId server, Way way,
                                                   std::span<const std::byte> request);
  void endpoint_ended(NodeId node) {
    sessions_ended = endpoints_ended = true;
    ++endings[node];
  }
  /// The calls of a node that has died will not end.
  void client_died(NodeId node);
  bool all_at(Stage stage) const;
  /// The fault memory_pressure may have caused the error.
  bool is_without_memory(const Error& error) const;
  /// A step of a node: whoever waits for the others has all its time again. A stuck run has a bound
  /// of such steps.
  void progress() {
    ++steps;
    phase.progress();
  }
  /// Nothing has lost a packet, or has changed the order of packets.
  bool packets_came_in_order() const;
  /// Checks what holds only at the end of a run: completeness, and outcomes.
  void check();

  const fuzz::Options& options;
  fuzz::Outcome& outcome;
  fuzz::FaultPhase& phase;
  fabric::sim::SimCluster* cluster = nullptr;
  Bugs bugs;
  const Shape shape;
  std::vector<std::vector<Planned>> plans;  // by node
  std::vector<std::size_t> next;            // operation of each node's plan
  std::vector<Stage> stages;                // by node
  std::vector<const Node*> nodes;           // by node; null while it is down
  std::vector<std::uint32_t> endings;       // by node: endpoints that have ended
  std::deque<Call> calls;
  std::uint64_t tiny_begun = 0, tiny_executed = 0;
  std::uint64_t steps = 0;
  bool sessions_ended = false;   // any session, in any way
  bool endpoints_ended = false;  // any endpoint, in any way
  Time healed_at = kForever;     // when a node first saw that the faults are over
};

}  // namespace pyrdma::erpc::scenario
