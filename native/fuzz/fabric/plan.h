// The plan of a client, drawn before the client begins.
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
  kRead,       // reads a record that this client writes
  kReadOther,  // reads a record that another client writes at that node
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

/// Route names the queue pair that a kind uses. A batch has one route.
enum class Route : std::uint8_t { kRc, kUc, kUd, kDc, kDisk };
Route route_of(Kind kind);

/// Bytes of each writer's records at each node: four records over RC, two over UC, two over DC.
inline constexpr std::array<std::uint32_t, 8> kRecordBytes{8, 64, 256, 200, 64, 256, 64, 256};
inline constexpr std::uint32_t kRecords = 8, kFirstUc = 4, kFirstDc = 6;
inline constexpr std::uint32_t kMostBytes = 256;

struct PlannedOperation {
  std::uint32_t id = 0;        // unique among all operations of the run
  std::uint32_t pause_ns = 0;  // pause after the previous operation
  std::uint16_t place = 0;     // record or word
  std::uint16_t length = 0;    // bytes of a send
  Kind kind = Kind::kWrite;
  std::uint8_t flags = 0;   // fabric::SendFlags
  std::uint8_t target = 0;  // node, of kinds to any node; source of kReadOther
  bool probe = false;       // runs after all faults, until it succeeds
};
using Plan = std::vector<PlannedOperation>;

/// Returns how many words of each sort a node has for atomics: enough that each sees only some
/// dozen operations.
std::uint32_t atomic_words(const Options& options);

/// Draws the operations of client `from` -> `to` (equal: the client of node `from` that talks to
/// any node). `span` is the virtual time over which they are spread.
Plan draw_plan(const Options& options, NodeId from, NodeId to, Time span);

}  // namespace pyrdma::fuzz
