// The parameters of a service, and its presets.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "env/env.h"
#include "systems/krcore/bugs.h"

namespace pyrdma::krcore {

/// When the pool makes a reliable connection to a peer (section 4.3; ours is stated).
enum class RcPolicy : std::uint8_t {
  kNever,    // all traffic stays on dynamic connections
  kSampled,  // to peers that a sample finds frequent
  kAtOnce,   // for each connect that misses, in the background, as the public code does
};

/// How a node learns the metadata of another one (section 5.1, figure 9a).
enum class Metadata : std::uint8_t {
  kMetaServer,  // it reads the tables of a meta server
  kRpc,         // it asks the first meta server, whose thread answers: the paper's baseline
};

/// A service takes a turn every 100 us when it is busy. It announces a long message again at least
/// twice in a lease, which cannot be shorter than two turns.
inline constexpr Time kShortestLease = 200 * kMicrosecond;

struct Options {
  std::string name = "krcore";  // the services of one name meet
  /// Nodes whose services hold the metadata of all nodes, the nearest first. Every node names the
  /// same.
  std::vector<NodeId> meta_servers{0};

  // The hybrid pool (section 4.2).
  std::uint32_t cores = 0;           // pools of a node; 0: one for each core that Env names, else 2
  std::uint32_t dc_queue_pairs = 2;  // of a pool: 48 on the paper's 24 cores (section 5.2)
  std::uint32_t rc_queue_pairs = 16;       // of a pool, at most; the least recently used one goes
  std::uint32_t send_entries = 292;        // of a physical queue pair (section 2.3.2)
  std::uint32_t completion_entries = 257;  // of its completion queue, or of its share of one
  RcPolicy rc_policy = RcPolicy::kSampled;
  Time sample_interval = 100 * kMillisecond;  // ours
  std::uint32_t frequent_requests = 1000;     // of a pool to a peer in an interval; ours
  std::uint32_t frequent_samples = 2;         // in a row; ours
  std::uint32_t timeout_us = 1000;            // of a physical queue pair, for each attempt
  std::uint32_t retry_count = 7;

  // Messages (sections 4.4 and 4.5).
  std::uint32_t receive_buffers = 128;    // of a pool
  std::uint32_t message_bytes = 16384;    // of payload in one of them
  std::uint32_t zero_copy_above = 16384;  // bytes of payload from which on the receiver reads
  std::uint32_t inbox_messages = 512;     // of a virtual queue pair without a posted receive
  std::uint32_t inbox_bytes = 1 << 20;    // of payload of these
  /// A queue pair that waits for its peer's answer asks again after this time; it doubles. Ours.
  Time ask_again = 5 * kMillisecond;

  // Control path.
  Metadata metadata = Metadata::kMetaServer;
  Time boot_timeout = 10 * kSecond;  // of a meta server; later the service asks in the background
  bool dc_cache = true;              // false: each connect asks a meta server
  std::uint32_t virtual_queue_pairs = 16384;
  std::uint32_t nodes_known = 16384;  // that a meta server has room for
  /// Where the numbers of 16 bits begin that go round: how often a place of the table has been
  /// used, and how often its queue pair has been connected. For tests; 0 is no number.
  std::uint16_t first_generation = 1, first_epoch = 1;

  // Memory of applications (section 4.2).
  bool check_regions = true;  // against ValidMR; the public code does not
  bool slices = true;         // regions are slices of one registration (ambiguity mr_1_4us)
  std::uint64_t arena_bytes = 16 << 20;
  std::uint32_t regions = 1024;
  Time lease = kSecond;  // kShortestLease or more

  // Quotas of one application; ours.
  std::uint32_t app_queues = 16384;  // with those that answer its senders
  std::uint64_t app_bytes = 64ULL << 30;

  Bugs bugs;

  /// How long the NIC tries a request at most.
  Time attempts() const { return (retry_count + 1) * Time{timeout_us} * kMicrosecond; }

  /// Follows the paper.
  static Options paper() { return {}; }
  /// What the authors' public code does otherwise: no checks of regions, no zero copy, a reliable
  /// connection for each connect.
  static Options public_code();
  /// Throws Error(kInvalidArgument) that names the option, its value and the bound.
  void check(NodeId nodes) const;
};

}  // namespace pyrdma::krcore
