// What a seed of the Tailwind scenario decides before the run: the store, its load, and the
// operations of its clients.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "env/faults.h"
#include "fuzz/scenario.h"
#include "systems/tailwind/options.h"
#include "systems/tailwind/rpc/opcode.h"

namespace pyrdma::tailwind::scenario {

inline constexpr std::array<std::string_view, 3> kPresetNames{"ramcloud", "tailwind", "flush"};

/// What the seed decides for all nodes.
struct Shape {
  explicit Shape(const fuzz::Options& options);
  Options store;
  NodeId first_client = 0;  // the clients are the last nodes
  std::uint32_t keys = 0;
  std::uint32_t window = 0;                // operations in flight of a client
  std::uint32_t most_value = 0;            // bytes
  std::uint32_t writes = 0, removals = 0;  // percent of the operations; the others are reads
  bool has_reader = false;  // the first client only reads, so it never waits for a commit
  /// A server dies when all is over: the others must have all that it has.
  bool has_last_crash = false;
  /// All servers die at once, in this way. Only batteries save what their memory has.
  std::optional<Fault> outage;
  /// Servers die in this way amid the work of their cleaners, again and again.
  std::optional<Fault> cleaner_crash;
  /// Faults that cost servers do not wait until the store has got over the last ones.
  bool is_rash = false;
  /// So many servers may be missing, with data that the others do not have yet, when another one is
  /// killed.
  std::uint32_t most_unsettled = 0;
  std::uint32_t first_life = 0;  // of the servers of a process, and of its clients
};

/// An operation of a client's plan.
struct Planned {
  std::uint32_t id = 0;  // over all nodes; also the value that a write stores
  Opcode opcode = Opcode::kRead;
  std::uint32_t key = 0, bytes = 0;
  Time pause = 0;
};

inline constexpr std::uint32_t kLeastValue = 4;  // bytes: the number of the write

/// By client. `pace` lengthens the pauses.
std::vector<std::vector<Planned>> plans_of(const fuzz::Options& options, const Shape& shape,
                                           std::uint32_t pace);
bool has_any(const fuzz::Options& options, std::initializer_list<Fault> faults);
/// What was durable may be gone.
bool has_bad_disks(const fuzz::Options& options);

}  // namespace pyrdma::tailwind::scenario
