// What each client will do, drawn before it begins.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "fuzz/scenario.h"

namespace pyrdma::fuzz {

enum class Kind : std::uint8_t {
  // between two nodes, on the reliable connection
  kWrite,
  kWriteImm,
  kRead,       // of what this client writes
  kReadOther,  // of what another client writes at that node
  kFetchAdd,
  kCompareSwap,
  kSend,
  kSendImm,
  // between two nodes, on the unreliable connection
  kUcWrite,
  kUcSend,
  // from one node to any
  kDatagram,
  kDcWrite,
  kDcRead,
  kDcFetchAdd,
  kDcSend,
  kLogAppend,
};
const char* to_string(Kind kind);

/// Which queue pair a kind takes. A batch has one route.
enum class Route : std::uint8_t { kRc, kUc, kUd, kDc, kDisk };
Route route_of(Kind kind);

/// Bytes of each writer's records at each node: four over RC, two over UC, two over DC.
inline constexpr std::array<std::uint32_t, 8> kRecordBytes{8, 64, 256, 200, 64, 256, 64, 256};
inline constexpr std::uint32_t kRecords = 8, kFirstUc = 4, kFirstDc = 6;
inline constexpr std::uint32_t kMostBytes = 256;

struct PlannedOperation {
  std::uint32_t id = 0;        // among all operations of the run
  std::uint32_t pause_ns = 0;  // before it, since the one before
  std::uint16_t place = 0;     // record or word
  std::uint16_t length = 0;    // bytes, of sends
  Kind kind = Kind::kWrite;
  std::uint8_t flags = 0;   // fabric::SendFlags
  std::uint8_t target = 0;  // node, of kinds to any; source of kReadOther
  bool probe = false;       // after all faults, until it succeeds
};
using Plan = std::vector<PlannedOperation>;

/// How many words of each sort a node has for atomics: so many that each sees some dozen
/// operations.
std::uint32_t atomic_words(const Options& options);

/// The operations of client `from` -> `to` (equal: the client of node `from` that talks to any).
/// `span`: virtual time over which they are spread.
Plan draw_plan(const Options& options, NodeId from, NodeId to, Time span);

}  // namespace pyrdma::fuzz
