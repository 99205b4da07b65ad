// The shared control segment of the session holds its nodes, their states, and the rendezvous. The
// controller makes it; every node maps it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "env/thread/clock.h"
#include "fabric/shm/cluster.h"
#include "fabric/shm/layout.h"
#include "fabric/shm/segment.h"

namespace pyrdma::fabric::shm {

enum class NodeState : std::uint32_t {
  kFree,
  kAttaching,
  kAttached,
  kLeft,
  kKilled,  // ShmCluster::kill did it: its threads still run for a moment
  kDead,    // the process has ended without leaving
};

/// NodeStatus packs a node's state and the number of its restarts into one word. A statement about
/// an ended process thus never hits its successor.
struct NodeStatus {
  NodeState state = NodeState::kFree;
  std::uint32_t incarnation = 0;

  static NodeStatus of(std::uint32_t word) {
    return {static_cast<NodeState>(word & 0xff), word >> 8};
  }
  std::uint32_t word() const { return incarnation << 8 | static_cast<std::uint32_t>(state); }
  /// Peers consider the node present.
  bool is_attached() const { return state == NodeState::kAttached; }
  bool is_gone() const {
    return state == NodeState::kLeft || state == NodeState::kKilled || state == NodeState::kDead;
  }
  /// No thread of this incarnation runs any more.
  bool has_ended(std::uint32_t of_incarnation) const {
    return incarnation != of_incarnation || state == NodeState::kDead;
  }
};

struct alignas(kCacheLine) NodeEntry {
  Word<std::uint32_t> status;  // NodeStatus
  Word<std::uint32_t> pid;
  Word<std::uint64_t> start;  // start of the process, see process_start()
  Word<std::uint64_t> control_inode;
  Word<std::uint32_t> control_descriptor;
  Word<std::int32_t> running;  // threads that want a core
};

inline constexpr std::uint64_t kSessionMagic = 0x70797264'6d61'5302ULL;
inline constexpr std::uint32_t kMaxIncarnation = (1U << 22) - 1;  // also fits a lock's word
inline constexpr std::size_t kTokenBytes = 32;
inline constexpr std::size_t kMaxCores = 1024;
inline constexpr std::uint32_t kIndexSlots = 1U << 17;
inline constexpr std::uint64_t kLogBytes = 64 * kMiB;

struct SessionBlock {
  std::uint64_t magic;
  Word<std::uint32_t> nodes;  // read it through node_count()
  std::uint32_t controller_pid;
  std::uint64_t controller_start;
  std::uint64_t seed;
  std::byte token[kTokenBytes];
  Clock clock;
  alignas(kCacheLine) Word<std::uint32_t> stop;
  Word<std::int32_t> running;  // sum over the live nodes
  Word<std::int32_t> cores;    // union over the nodes
  alignas(kCacheLine) SharedLock publish_lock;
  Word<std::uint64_t> log_end;
  Word<std::uint64_t> core_bits[kMaxCores / 64];
  NodeEntry entries[kMaxNodes];
  Word<std::uint32_t> index[kIndexSlots];  // log position / 64 + 1, by key
  alignas(kCacheLine) std::byte log[kLogBytes];

  /// The number of the run, for its storage.
  std::uint64_t run() const { return checksum(token); }
  /// Never exceeds the number of entries, even if a peer has overwritten the word.
  std::uint32_t node_count() const { return std::min(relaxed(nodes), kMaxNodes); }
  NodeStatus status(NodeId node) const {
    return NodeStatus::of(entries[node].status.load(std::memory_order_acquire));
  }
  NodeState state(NodeId node) const { return status(node).state; }
  bool is_gone(NodeId node) const { return status(node).is_gone(); }
  bool is_dead(NodeId node) const { return state(node) == NodeState::kDead; }
  /// Takes the place of node `node`, if it is free or its process has ended, and returns the
  /// incarnation. Throws Error(kInvalidArgument) when the place is taken.
  std::uint32_t claim(NodeId node);
  /// Changes the state within one incarnation; returns false when the node is not in state `from`.
  bool change(NodeId node, std::uint32_t incarnation, NodeState from, NodeState to);
  /// Marks a node whose process has ended. Any process may call it. Returns false when the node was
  /// already marked, had left, or has been restarted.
  bool declare_dead(NodeId node, std::uint32_t incarnation);
  /// Adds the cores that a node may use. Nodes pinned apart have more cores together than each has.
  void add_cores(const std::vector<int>& core_list);
  void add_running(NodeId node, int change) {
    entries[node].running.fetch_add(change, std::memory_order_relaxed);
    running.fetch_add(change, std::memory_order_relaxed);
  }
};
inline constexpr std::uint64_t kSessionBytes = (sizeof(SessionBlock) + 4095) / 4096 * 4096;

std::shared_ptr<Mapping> create_session_block(std::uint32_t nodes, std::uint64_t seed);
inline SessionBlock& session_block(const Mapping& mapping) {
  return *reinterpret_cast<SessionBlock*>(mapping.data());
}

/// Returns the words by which nodes find a session: the name is public, the token is for its nodes.
std::string session_name(const Mapping& mapping);
std::string session_token(const Mapping& mapping);
/// Throws Error as ShmNode's constructor does.
std::shared_ptr<Mapping> open_session_block(const std::string& name, const std::string& token,
                                            std::uint32_t nodes);

}  // namespace pyrdma::fabric::shm
