// Requests and responses between nodes: an inbox at one node, and the peers that call it. Each peer
// has a reliable connection to the inbox; the receives of an inbox are shared. A peer asks for its
// connection by a datagram, so an inbox serves nodes that come late or come back.
//
// Any thread of the node may use an inbox or a peer. Every wait is the caller's (Wait), so that it
// can be cancelled.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/function_ref.h"
#include "env/env.h"
#include "env/sync.h"
#include "fabric/fabric.h"
#include "runtime/memory_pool.h"
#include "runtime/messages/parts.h"
#include "runtime/messages/receives.h"

namespace pyrdma::runtime {

/// Waits until `ready()`, which looks at what notifies `watch`; returns false after `deadline`. It
/// may throw, which ends the call that waits.
using Wait = FunctionRef<bool(FunctionRef<bool()> ready, Time deadline, Watch& watch)>;

inline constexpr std::uint32_t kMaxMessageBytes = 1U << 20;
inline constexpr std::uint32_t kMaxInboxDepth = 4096;

struct InboxOptions {
  std::uint32_t depth = 64;        // requests that the NIC takes while no task looks
  std::uint32_t max_bytes = 4096;  // of a request or a reply
};

/// A request that has arrived.
struct Request {
  NodeId source = 0;
  std::uint64_t connection = 0;  // of the inbox
  std::uint64_t id = 0;          // 0: the sender wants no reply
  std::string data;
};

/// The requests to one service of this node. Creating one takes the NIC's time.
class Inbox {
 public:
  /// Nodes find it under `name`, which the node uses once in each incarnation. Throws
  /// Error(kInvalidArgument) for an option out of its bounds, Error(kUnavailable) if the device
  /// lacks datagrams or shared receives.
  Inbox(Env& env, const std::string& name, const InboxOptions& options);
  ~Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  /// Returns the oldest request whose caller has not given it up, or nothing after `deadline`. New
  /// peers are connected meanwhile.
  std::optional<Request> next(Time deadline, Wait wait);
  /// Answers `request`; returns when the reply is posted. A caller that has ended, or has given the
  /// call up, gets none. Waits while kShare replies to the same peer are under way. Throws
  /// Error(kInvalidArgument) for a reply that is too long or not wanted.
  void reply(const Request& request, std::string_view data, Wait wait);
  const InboxOptions& options() const { return options_; }
  /// Number of peers, those that have ended unnoticed included. Each new peer makes the inbox ask
  /// two of them whether they are still there.
  std::size_t connections() const { return connections_.size(); }

  /// Replies to one peer under way: to its calls, and to as many that it has given up.
  static constexpr std::uint32_t kShare = 2 * messages::kWindow;

 private:
  struct Connection;
  /// A node, its queue pair, and its port of the network: over verbs that alone is proved.
  using PeerName = std::tuple<NodeId, std::uint32_t, std::array<std::uint8_t, 16>>;
  static PeerName name_of(const messages::ConnectRequest& request);
  static constexpr std::uint32_t kMostSends = 4096;  // replies to all peers under way
  static constexpr std::uint32_t kMostProbes = 512;  // under way
  bool look();
  bool look_for_requests();
  void handle();
  void handle_polled();
  void handle(const fabric::Completion& completion);
  void accept(const messages::ConnectRequest& request);
  void answer(const messages::ConnectRequest& request, Connection& connection);
  void close_earlier(const messages::ConnectRequest& request);
  void probe();
  bool is_given_up(const Request& request) const;
  bool send_reply(Connection& connection, const Request& request, std::string_view data);
  std::optional<std::uint32_t> take_send();
  bool post_receives();
  void close(std::uint64_t connection);
  void end_closed();

  Env& env_;
  InboxOptions options_;
  Mutex mutex_;
  std::unique_ptr<fabric::ProtectionDomain> domain_;
  std::unique_ptr<fabric::CompletionQueue> completions_;
  std::unique_ptr<MemoryPool> memory_;
  std::unique_ptr<messages::Datagrams> datagrams_;
  std::uint32_t slot_bytes_ = 0;
  std::unique_ptr<messages::Receives> receives_;
  std::vector<std::unique_ptr<messages::Slots>> sends_;  // kShare each; more when all are in use
  std::vector<std::uint32_t> free_sends_;                // numbers over all of sends_
  std::map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Connection>> closing_;  // their queue pairs have failed
  std::map<std::uint32_t, std::uint64_t> by_qp_;
  std::map<PeerName, std::uint64_t> by_peer_;
  std::uint64_t next_connection_ = 1;
  std::uint64_t probed_ = 0;  // the connection that was probed last
  std::uint32_t probes_ = 0;  // under way
  std::deque<fabric::Completion> polled_;
  std::deque<Request> requests_;
};

/// A connection to the inbox of a node. Calls of several threads may be under way at once.
class Peer {
 public:
  static constexpr std::uint32_t kWindow = messages::kWindow;  // calls under way
  /// Waits for the inbox and connects. Throws Error(kTimeout) after `deadline`.
  Peer(Env& env, const std::string& name, NodeId node, Time deadline, Wait wait);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// Sends a request and returns its reply. Throws Error(kTimeout) after `deadline`, and
  /// Error(kUnavailable) when the node does not answer any more; the request may have been served
  /// in both cases.
  std::string call(std::string_view data, Time deadline, Wait wait);
  /// Sends a message without a reply; returns when it is posted. It arrives once, or the
  /// connection has failed.
  void send(std::string_view data, Time deadline, Wait wait);
  NodeId node() const { return node_; }

 private:
  struct Slot;
  bool ask(const fabric::QpAddress& inbox, Time until, Wait wait);
  void take_answer(const messages::Datagram& datagram);
  std::uint64_t post(std::string_view data, bool wants_reply, Time deadline, Wait wait);
  bool look(FunctionRef<bool()> found);
  void handle(const fabric::Completion& completion);
  void check() const;
  bool post_receives();
  Time until(Time deadline);

  Env& env_;
  std::string name_;
  NodeId node_;
  std::uint32_t max_bytes_ = 0;
  Mutex mutex_;
  std::unique_ptr<fabric::ProtectionDomain> domain_;
  std::unique_ptr<fabric::CompletionQueue> completions_;
  std::unique_ptr<MemoryPool> memory_;
  std::unique_ptr<messages::Datagrams> datagrams_;
  std::unique_ptr<messages::Slots> receives_, sends_;
  std::unique_ptr<fabric::QueuePair> qp_;
  std::vector<Slot> slots_;
  std::vector<std::uint64_t> free_receives_;
  std::uint64_t next_call_ = 1;
  fabric::QpAddress asked_;  // the inbox
  std::optional<messages::ConnectReply> answer_;
  fabric::Status error_ = fabric::Status::kSuccess;
};

}  // namespace pyrdma::runtime
