// The messages by which endpoints of a channel meet (paper, section 4.2): join and connect, sent
// over a queue pair of their own to each peer.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "env/sync.h"
#include "fabric/fabric.h"
#include "systems/loco/names.h"

namespace pyrdma::loco {

class Manager;

inline constexpr std::size_t kMaxName = 119;       // bytes of a channel's full name
inline constexpr std::size_t kMaxRegionName = 23;  // bytes of a region's name
inline constexpr std::size_t kMaxRegions = 8;      // of one channel

/// A region as a message names it. A join says name and size of what it expects; a connect says
/// everything of what is there.
struct RegionEntry {
  char name[kMaxRegionName + 1] = {};
  RemoteRegion region;
};

/// As it travels; every field is checked when it comes from a peer.
struct ControlMessage {
  enum Kind : std::uint32_t { kJoin = 1, kConnect = 2, kRefuse = 3 };
  std::uint32_t kind = 0;
  std::uint32_t regions = 0;
  NodeId from = 0;  // set by the receiver
  std::uint32_t reserved = 0;
  char name[kMaxName + 1] = {};
  std::array<RegionEntry, kMaxRegions> entries = {};
  char reason[256] = {};  // of a refusal

  /// False when a field is out of its bounds or a text does not end.
  bool valid() const;
};
static_assert(std::is_trivially_copyable_v<ControlMessage>);

/// Copies at most what fits, and ends it with a zero.
void copy_text(std::span<char> to, std::string_view text);

class Control {
 public:
  static constexpr std::uint32_t kSlots = 16;  // messages in flight, each way

  explicit Control(Manager& manager);
  void post_receives(runtime::Connection& connection);

  /// Any thread; blocks while too many messages to that peer are on their way.
  void send(NodeId peer, const ControlMessage& message);
  /// A completion of a connection for messages; called by the polling thread.
  void complete(runtime::Connection& connection, const fabric::Completion& completion);
  /// Takes the oldest message that has come. Malformed ones are dropped and counted.
  bool receive(ControlMessage& message);
  std::uint64_t malformed() const { return malformed_.load(std::memory_order_relaxed); }

 private:
  struct Peer {
    LocalRegion outgoing, incoming;
  };
  void post_receive(runtime::Connection& connection, std::uint32_t slot);

  Manager& manager_;
  std::vector<Peer> peers_;  // by node; nothing for this one
  Mutex sending_;
  Mutex inbox_mutex_;
  std::deque<ControlMessage> inbox_;
  std::atomic<std::uint64_t> malformed_{0};
};

}  // namespace pyrdma::loco
