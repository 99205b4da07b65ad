// What calls of a service return, and what it counts.
#pragma once
#include <atomic>
#include <cstdint>

#include "systems/krcore/meta/meta_server.h"
#include "systems/krcore/wire.h"

namespace pyrdma::krcore {

enum class ConnectResult : std::uint8_t {
  kConnected,
  kAlreadyConnected,
  kUnknownNode,  // no metadata, and the node does not answer
  kNoServer,     // no meta server answers, nor the node
  kNoRoom,       // without dynamic connections: one of the two nodes has no room for another one
  kBadId,
};

/// What happened to a list of requests. Nothing of a list with a bad request is posted.
struct PushResult {
  std::uint32_t accepted = 0;
  fabric::PostError error = fabric::PostError::kNone;
  fabric::Status status =
      fabric::Status::kSuccess;  // of the bad request, which is number `accepted`
};

/// A message, as qpop_msgs returns it.
struct Message {
  VqpId reply;  // a virtual queue pair connected to the sender; none for a directly connected pair
  std::uint64_t wr_id = 0;  // of the receive that took it
  std::uint32_t bytes = 0;
  std::uint32_t immediate = 0;
  bool has_immediate = false;
  fabric::Opcode opcode = fabric::Opcode::kReceive;
  fabric::Status status = fabric::Status::kSuccess;
  NodeId from = fabric::kNoNode;
};

/// How long a node may take to tell about itself, by datagrams.
inline constexpr Time kNodeAnswers = 20 * kMillisecond;

/// Where the ValidMR table is of the node that tells about itself.
inline ValidMrRecord location_in(const ControlMessage& message) {
  const TableAddress& table = message.tables[0];
  return {table.region.addr, table.region.rkey, table.buckets, table.entries,
          message.meta.incarnation};
}

struct Counters {
  std::atomic<std::uint64_t> connects{0}, rc_hits{0}, cache_hits{0}, meta_reads{0};
  std::atomic<std::uint64_t> region_misses{0}, transfers{0}, refused_messages{0}, malformed{0};
  std::atomic<std::uint64_t> reposted{0}, rc_made{0}, rc_reclaimed{0}, zero_copies{0};
};

}  // namespace pyrdma::krcore
