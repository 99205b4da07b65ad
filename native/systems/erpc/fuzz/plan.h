// The options and the operations of a run of the eRPC scenario, drawn from its seed before it
// begins.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "fuzz/fault_phase.h"
#include "fuzz/scenario.h"
#include "systems/erpc/options.h"

namespace pyrdma::erpc::scenario {

/// How the server treats a request; also its request type, plus 1.
enum class Way : std::uint8_t {
  kAtOnce,  // the handler answers
  kWorker,  // a worker thread answers
  kLate,    // the event loop answers some time after the handler has returned
  kNested,  // the handler asks another node, and answers when that has ended
  kNobody,  // the type has no handler
  kCount
};

enum class Act : std::uint8_t {
  kCall,
  kBurst,   // requests until the backlog is full
  kRenew,   // ends a session, and makes another
  kCrowd,   // sessions until the receives are used up
  kReopen,  // ends the endpoint, and makes another
};

struct Planned {
  std::uint32_t id = 0;        // among all operations of the run
  std::uint32_t pause_ns = 0;  // before the operation
  Act act = Act::kCall;
  Way way = Way::kAtOnce;
  NodeId target = 0;
  std::uint32_t session = 0;  // of those to the target
  std::uint32_t request = 0, response = 0;
  bool is_short = false;   // the buffer for the response is too short, if the response is long
  std::uint32_t draw = 0;  // random bits for further choices
};

/// What the requests of a seed mostly are. Half of the seeds have all kinds.
enum class Sizes : std::uint8_t { kAll, kShort, kLong };

struct Shape {
  Options options;
  Sizes sizes = Sizes::kAll;
  std::optional<Way> favourite;  // of three of four requests
  std::uint64_t renews = 8;      // percent of the operations that end a session and make another
  bool keeps_lost = false;       // lost sessions stay while their successors work
  std::uint32_t sessions = 1;    // to each node
  Time latest = 0;               // answer of a handler that is late
  bool is_tight = false;         // the receives are too few for all sessions
  bool is_steady = false;        // no operation ends a session or an endpoint
  bool is_calm = false;          // no node is silent: a session is lost with an end of it alone
};

/// Some copies and disorder end no session. Any other fault may keep a node silent for long.
inline constexpr std::array kHarmlessFaults{Fault::duplicate, Fault::reorder, Fault::cache_miss};

Shape draw_shape(const fuzz::Options& options);
std::vector<Planned> draw_plan(const fuzz::Options& options, const Shape& shape, NodeId node,
                               std::uint32_t pace);

}  // namespace pyrdma::erpc::scenario
