// The limits and switches of the store.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/units.h"
#include "env/env.h"

namespace pyrdma::tailwind {

/// How a primary brings its log to its backups.
enum class Replication : std::uint8_t {
  kRamcloud,  // an RPC to each backup, whose CPU copies the data
  kTailwind,  // one RDMA write to each backup, whose CPU does nothing
};
inline constexpr std::array<std::string_view, 2> kReplicationNames{"ramcloud", "tailwind"};

/// When a write counts as being at a backup.
enum class Durability : std::uint8_t {
  kCompletion,  // the write has completed (the paper's)
  kFlush,       // a read of no bytes behind it has completed too: its data are in memory
};
inline constexpr std::array<std::string_view, 2> kDurabilityNames{"completion", "flush"};

/// Which servers a primary asks for a new replica.
enum class Placement : std::uint8_t {
  kRandom,      // any
  kBestOfFive,  // of five random ones that with the fewest replicas of this primary (RAMCloud)
  kGroups,      // those of the primary's group: few connections, few sets whose loss loses data
};
inline constexpr std::array<std::string_view, 3> kPlacementNames{"random", "best_of_five",
                                                                 "groups"};

struct Options {
  std::string name = "tailwind";  // of the run: servers and clients of one name meet
  NodeId servers = 4;             // nodes 0 to servers - 1
  NodeId coordinator = 4;         // its node

  Replication replication = Replication::kTailwind;
  std::uint32_t replicas = 3;  // of each segment, beside the primary's memory; 0: none
  Durability durability = Durability::kCompletion;
  Placement placement = Placement::kRandom;
  /// Threads of a server beside its dispatch thread. 0: the dispatch thread does all work.
  std::uint32_t workers = 7;
  /// A dispatch thread that does all work appends what all clients' requests that it has change, 64
  /// at most, and then writes to the backups once. Needs workers = 0. Not in the paper.
  bool group_commit = false;

  // Work that this code does not do, in ns: the costs of another implementation. Simulated time
  // alone; in the real world threads burn it.
  Time dispatch_work = 0;  // of a thread, for each message that it sends or takes
  Time write_work = 0;     // of a worker, for each update

  // Memory of a server.
  std::uint64_t log_bytes = std::uint64_t{1} << 30;
  std::uint64_t keys = 1'000'000;          // that the hash table has room for
  std::uint32_t segment_bytes = 8U << 20;  // of a segment and of a backup's buffer
  std::uint32_t buffers = 32;              // of a backup
  bool cleaner = true;                     // of the log
  double clean_below = 0.1;                // it works when a smaller fraction of the log is free
  /// Bytes that a backup may hold in buffers: what its disk takes while the battery lasts.
  std::uint64_t flushable_bytes = std::uint64_t{45} * 400'000'000;

  // Failures.
  Time ping_interval = 100 * kMillisecond;  // between two probes of another server
  Time ping_timeout = 50 * kMillisecond;
  std::uint32_t pings = 5;          // that the coordinator sends before it takes a server for dead
  Time lease = 250 * kMillisecond;  // for which a server may serve without the coordinator
  Time call_timeout = kSecond;      // after which a request between nodes is sent again
  Time retry_pause = kMillisecond;
  /// After so long without a request, but those that look after servers, the threads of a server
  /// and of the coordinator look for one only every `idle_sleep`.
  Time idle_after = 10 * kMillisecond;
  Time idle_sleep = 300 * kMicrosecond;
  std::uint32_t timeout_us = 1000;  // of a reliable connection, per attempt
  std::uint32_t retry_count = 7;

  // Recovery.
  std::uint64_t partition_bytes = 500'000'000;
  std::uint64_t partition_records = 2'000'000;

  // Numbers that grow: tests let them begin near their ends.
  std::uint64_t first_segment = 1;  // of each log, up to 2^40
  std::uint64_t first_epoch = 0;    // of a new coordinator's view, up to 2^24
};

/// Throws Error(kInvalidArgument), naming the option, its value, the bound and what to do.
void check(const Options& options, NodeId nodes);

}  // namespace pyrdma::tailwind
