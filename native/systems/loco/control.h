// The messages that connect the endpoints of a channel (paper, section 4.2): join and connect. They
// travel over a separate queue pair to each peer.
#pragma once
#include <array>
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

/// A region as a message describes it. A join message holds the name and size of an expected
/// region, or the name and value of an option; a connect message holds all fields of an existing
/// region.
struct RegionEntry {
  char name[kMaxRegionName + 1] = {};
  RemoteRegion region;
};

/// The format on the wire; the receiver checks every field.
struct ControlMessage {
  enum Kind : std::uint32_t { kJoin = 1, kConnect = 2, kRefuse = 3, kNotYet = 4 };
  std::uint32_t kind = 0;
  std::uint32_t regions = 0;
  std::uint32_t options = 0;     // entries after those of the regions, with a value as their length
  NodeId from = 0;               // set by the receiver
  std::uint32_t generation = 0;  // of the endpoint, from 1; see Channel::generation
  std::uint64_t participants = 0;  // their checksum
  char name[kMaxName + 1] = {};
  std::array<RegionEntry, kMaxRegions> entries = {};
  char reason[248] = {};  // the reason of a refusal

  /// Returns false when a field is out of its bounds or a text has no end.
  bool valid() const;
};
static_assert(std::is_trivially_copyable_v<ControlMessage>);

/// Copies as many bytes as fit, and ends the text with a zero.
void copy_text(std::span<char> to, std::string_view text);

class Control {
 public:
  static constexpr std::uint32_t kSlots = 16;  // messages in flight in each direction

  explicit Control(Manager& manager);
  void post_receives(runtime::Connection& connection);

  static constexpr std::size_t kMostWaiting = 4096;  // messages to a peer that find no room

  /// Any thread may call. Never blocks: a peer that takes no messages must not keep this node from
  /// the others. What finds no room waits for completions. Throws Error(kExhausted) when
  /// kMostWaiting messages wait.
  void send(NodeId peer, const ControlMessage& message);
  /// Returns true if a message waits for room.
  bool any_waiting();
  /// Handles a completion of a connection for messages; the polling thread calls it.
  void complete(runtime::Connection& connection, const fabric::Completion& completion);
  /// Takes the oldest message that has arrived. Drops malformed messages.
  bool receive(ControlMessage& message);

 private:
  struct Peer {
    explicit Peer(Env& env) : mutex(env) {}
    LocalRegion outgoing, incoming;
    Mutex mutex;  // of the posts to this peer
    std::deque<ControlMessage> waiting;
  };
  void flush(Peer& peer, runtime::Connection& connection);
  void post_receive(runtime::Connection& connection, std::uint32_t slot);

  Manager& manager_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by peer; none for this node
  Mutex inbox_mutex_;
  std::deque<ControlMessage> inbox_;
};

}  // namespace pyrdma::loco
