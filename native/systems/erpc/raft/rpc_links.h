// RpcLinks carry Raft messages as RPCs (eRPC, section 7.1). A message is one request with an empty
// response. The response says that the peer's member has the message; its reply is a message of its
// own.
//
// The sender of a message is the node of the session that brought it, never a field of the message.
// Links take messages of peers: the nodes that they were given, and the members of the group as
// their own member knows it. A node that is neither, such as the leader after a change of which the
// member has not heard, is a peer once a peer vouches for it: it is asked, and knows that node as a
// member. Links that were given no nodes belong to a member that waits to be added; they take
// messages of all nodes until they know the group.
//
// A message that is longer than a request, such as a snapshot, goes in parts, one after another.
// One message is on its way to a peer at a time; a newer one ends it. The receiver keeps the parts
// of one message in all, that of the last sender that began one, so its memory is bounded by the
// longest message. It answers each part with a byte: 1 if it has taken the part. After another
// answer the sender gives the message up.
//
// part: PartHeader, bytes of the message
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
  kVouchRequest,         // of a member: a node (4 bytes); the response is 1 if it is a member
};

/// Where a part belongs. The parts of a message come in order; the first one begins a new message.
struct PartHeader {
  std::uint64_t number = 0;  // of the message, among those of all lives of its sender
  std::uint64_t total = 0;   // bytes of the message
  std::uint64_t at = 0;      // where the part begins
};

struct LinkCounters {
  std::uint64_t sent = 0, failed = 0;  // failed: the response did not come
  std::uint64_t not_sent = 0;          // no connected session, or too many requests under way
  std::uint64_t too_long = 0;          // not sent: longer than kLongest
  std::uint64_t parts = 0;             // sent
  std::uint64_t superseded = 0;        // long messages that a newer one has ended
  std::uint64_t malformed = 0;         // dropped: empty, or a part that belongs to no message
  std::uint64_t strangers = 0;         // dropped: of a node that is no peer
};

/// The endpoint's thread uses it. It outlives the endpoint, whose end ends the requests under way.
class RpcLinks final : public Links {
 public:
  /// Requests of one peer under way at most; further messages fail.
  static constexpr std::uint32_t kMostUnderWay = 256;

  /// Begins sessions to endpoint 0 of the nodes in `peers`, and takes their messages. A message of
  /// more bytes than `longest_request` goes in parts; 0: than the endpoint's max_message.
  RpcLinks(Endpoint& endpoint, std::span<const NodeId> peers, std::size_t longest_request = 0);

  /// Incoming messages go to `member`. Until then they are dropped.
  void connect_to(Member& member) { member_ = &member; }
  /// `message` is copied into a buffer of the endpoint's pool. A node to which there is no session
  /// yet gets one, for a later message.
  void send(NodeId to, std::span<const std::byte> message,
            std::function<void(bool delivered)> done) override;

  /// Reports the messages that send() could not send. Call it when has_failures().
  void turn();
  bool has_failures() const { return !failures_.empty(); }

  /// Bytes of the longest message that is sent, and that a receiver keeps the parts of.
  static constexpr std::size_t kLongest = 1025 * kMiB;
  /// Bytes of the longest message that an endpoint with these options carries in one request.
  static std::size_t max_message(const Options& options) { return options.max_message; }
  const LinkCounters& counters() const { return counters_; }
  std::uint64_t sessions_made_again() const { return sessions_.made_again(); }

 private:
  struct LongMessage {
    Bytes bytes;
    std::uint64_t number = 0;
    std::size_t sent = 0;
  };
  struct Call {
    MsgBuffer* request = nullptr;
    MsgBuffer* response = nullptr;
    NodeId to = 0;
    std::function<void(bool)> done;     // not of a question
    std::unique_ptr<LongMessage> rest;  // of a message that goes in parts
    std::optional<NodeId> asks_for;     // of a question: who is vouched for
  };
  /// A message whose parts arrive.
  struct Coming {
    NodeId from = 0;
    Bytes bytes;
    std::uint64_t number = 0, total = 0;
  };
  struct Peer {
    NodeId node = 0;
    bool is_known = false;  // its messages are taken
    std::uint32_t under_way = 0;
    std::uint64_t long_message = 0;  // that is on its way to it; 0: none
    Time asked = 0;                  // when a peer was last asked for it
  };
  Peer& peer_of(NodeId node);
  bool is_member(NodeId node) const;
  bool is_heard(NodeId node);
  void ask_for(Peer& stranger);
  void vouch(RequestHandle& handle);
  void drop();
  void take(const RequestHandle& handle);
  bool take_part(const RequestHandle& handle);
  std::uint32_t new_call(NodeId to);
  void post(std::uint32_t index, SessionId session, std::uint8_t type,
            std::span<const std::byte> head, std::span<const std::byte> body);
  void post_part(std::uint32_t index, SessionId session);
  static void end(void* context, std::uint64_t tag, erpc::Outcome outcome);
  void finish(std::uint32_t index, bool delivered, bool taken);

  Endpoint& endpoint_;
  PeerSessions sessions_;
  Member* member_ = nullptr;
  std::vector<Peer> peers_;
  const bool waits_;  // to be added, by a node that it does not know
  const std::size_t longest_request_;
  Coming coming_;
  std::deque<Call> calls_;
  std::vector<std::uint32_t> free_calls_;
  std::vector<std::function<void(bool)>> failures_;
  std::uint64_t long_messages_;  // the last number; each life begins elsewhere
  LinkCounters counters_;
};

}  // namespace pyrdma::erpc::raft
