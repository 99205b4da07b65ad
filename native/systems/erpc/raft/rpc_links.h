// RpcLinks carry Raft messages as RPCs (eRPC, section 7.1). A message is one request with an empty
// response. The response says that the peer's member has the message; its reply is a message of its
// own.
//
// request: the sender's node (4 bytes), message
//
// A message that is longer than a request, such as a snapshot, goes in parts, one after another.
//
// part: the sender's node (4 bytes), PartHeader, bytes of the message
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "systems/erpc/endpoint.h"
#include "systems/erpc/raft/links.h"
#include "systems/erpc/raft/member.h"
#include "systems/erpc/raft/peer_sessions.h"

namespace pyrdma::erpc::raft {

/// The request types of a member's endpoint.
enum RequestType : std::uint8_t {
  kMessageRequest = 16,  // of a member: a Raft message
  kCommandRequest,       // of a client: a KvCommand; the response is a KvAnswer
  kFinishedRequest,      // of a client: its number (8 bytes); it sends no more
  kPartRequest,          // of a member: a part of a long Raft message
};

/// Where a part belongs. The parts of a message come in order; the first one begins a new message.
struct PartHeader {
  std::uint64_t number = 0;  // of the message, among those of its sender
  std::uint64_t total = 0;   // bytes of the message
  std::uint64_t at = 0;      // where the part begins
};

struct LinkCounters {
  std::uint64_t sent = 0, failed = 0;  // failed: the response did not come
  std::uint64_t not_sent = 0;          // no connected session, or too many requests under way
  std::uint64_t too_long = 0;          // not sent: longer than kLongest
  std::uint64_t parts = 0;             // sent
  std::uint64_t malformed = 0;         // dropped: too short, from no peer, or of no message
};

/// The endpoint's thread uses it. It outlives the endpoint, whose end ends the requests under way.
class RpcLinks final : public Links {
 public:
  /// Requests of one peer under way at most; further messages fail.
  static constexpr std::uint32_t kMostUnderWay = 256;

  /// Begins sessions to endpoint 0 of the nodes in `peers`, and takes their messages.
  RpcLinks(Endpoint& endpoint, std::span<const NodeId> peers);

  /// Incoming messages go to `member`. Until then they are dropped.
  void connect_to(Member& member) { member_ = &member; }
  /// `message` is copied into a buffer of the endpoint's pool.
  void send(NodeId to, std::span<const std::byte> message,
            std::function<void(bool delivered)> done) override;

  /// Reports the messages that send() could not send. Call it when has_failures().
  void turn();
  bool has_failures() const { return !failures_.empty(); }

  /// Bytes of the longest message that is sent, and that a receiver keeps the parts of.
  static constexpr std::size_t kLongest = 1025 * kMiB;
  /// Bytes of the longest message that an endpoint with these options carries in one request.
  static std::size_t max_message(const Options& options) {
    return options.max_message - kSenderBytes;
  }
  const LinkCounters& counters() const { return counters_; }
  std::uint64_t sessions_made_again() const { return sessions_.made_again(); }

 private:
  static constexpr std::size_t kSenderBytes = sizeof(NodeId);
  struct LongMessage {
    Bytes bytes;
    std::uint64_t number = 0;
    std::size_t sent = 0;
  };
  struct Call {
    MsgBuffer* request = nullptr;
    MsgBuffer* response = nullptr;
    std::size_t peer = 0;  // in peers_
    std::function<void(bool)> done;
    std::unique_ptr<LongMessage> rest;  // of a message that goes in parts
  };
  struct Coming {  // a message whose parts arrive
    Bytes bytes;
    std::uint64_t number = 0, total = 0;
  };
  struct Peer {
    NodeId node = 0;
    std::uint32_t under_way = 0;
    Coming coming = {};
  };
  std::optional<std::size_t> sender_of(const RequestHandle& handle) const;  // in peers_
  void drop();
  void take(const RequestHandle& handle);
  void take_part(const RequestHandle& handle);
  void post(std::uint32_t index, SessionId session, std::uint8_t type,
            std::span<const std::byte> head, std::span<const std::byte> body);
  void post_part(std::uint32_t index, SessionId session);
  static void end(void* context, std::uint64_t tag, erpc::Outcome outcome);
  std::size_t find_peer(NodeId node) const;  // peers_.size() if there is none

  Endpoint& endpoint_;
  PeerSessions sessions_;
  Member* member_ = nullptr;
  std::vector<Peer> peers_;
  std::deque<Call> calls_;
  std::vector<std::uint32_t> free_calls_;
  std::vector<std::function<void(bool)>> failures_;
  std::uint64_t long_messages_ = 0;
  LinkCounters counters_;
};

}  // namespace pyrdma::erpc::raft
