// Sessions (eRPC, section 4.3): a connection between a client endpoint and a server endpoint, with
// slots for requests under way and credits for packets under way. All wire state that a
// retransmission rolls back is the client's.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "base/units.h"
#include "fabric/fabric.h"
#include "systems/erpc/msg_buffer.h"
#include "systems/erpc/outcome.h"
#include "systems/erpc/rate_control.h"
#include "systems/erpc/round_trip.h"
#include "systems/erpc/transport.h"

namespace pyrdma::erpc {

/// Names a client session of an endpoint: its place and its generation. A name is never used twice
/// in a row, so a call with the name of an ended session is found out.
using SessionId = std::uint32_t;

/// Called once for each request, in the thread of the endpoint, inside its event loop.
using Continuation = void (*)(void* context, std::uint64_t tag, Outcome outcome);

struct Request {
  SessionId session = 0;
  std::uint8_t type = 0;
  MsgBuffer* request = nullptr;   // its size is the length of the message; 0 is allowed
  MsgBuffer* response = nullptr;  // its capacity bounds the response; its size is set
  Continuation done = nullptr;
  void* context = nullptr;
  std::uint64_t tag = 0;
};

/// The name of an endpoint: the thread `endpoint` of a node.
struct EndpointName {
  NodeId node = 0;
  std::uint32_t endpoint = 0;
  bool operator==(const EndpointName&) const = default;
};

struct ClientSession;

/// Requests that wait for a slot, oldest first. Empty ones hold no memory: an endpoint may have ten
/// thousand sessions.
class Backlog {
 public:
  bool empty() const { return waiting_ == 0; }
  std::size_t size() const { return waiting_; }
  void push(const Request& request) {
    // The places of requests that have left are used again before the memory grows.
    if (first_ != 0 && requests_.size() == requests_.capacity()) {
      requests_.erase(requests_.begin(), requests_.begin() + static_cast<std::ptrdiff_t>(first_));
      first_ = 0;
    }
    requests_.push_back(request);
    ++waiting_;
  }
  Request pop() {
    const Request request = requests_[first_++];
    if (--waiting_ == 0) {
      requests_.clear();
      first_ = 0;
    }
    return request;
  }

 private:
  std::vector<Request> requests_;
  std::size_t first_ = 0;
  std::size_t waiting_ = 0;
};

/// A request under way at its client. Packets `received` to `sent`-1 are under way.
struct ClientSlot {
  Request call;
  std::uint64_t request_number = 0;
  std::uint32_t sent = 0, received = 0;  // packets of the client, and their answers
  std::uint32_t sent_once = 0;           // packets that the NIC has had at least once
  std::uint32_t request_packets = 0;
  std::uint32_t response_packets = 0;  // 0 until the first one has come
  std::uint32_t response_size = 0;
  std::uint32_t in_wheel = 0;         // packets that wait for their time
  std::uint32_t retransmissions = 0;  // since the last answer
  bool is_active = false;
  std::uint8_t index = 0;
  Time progress = 0;                // when the last packet was sent, or answered
  Time first_sent_at = 0;           // of a request of one packet
  std::unique_ptr<Time[]> sent_at;  // by packet number modulo credits; made when first needed
  // A packet that was sent again has kSentAgain less in its place.
  static constexpr Time kSentAgain = Time{1} << 62U;
  ClientSession* session = nullptr;
  ClientSlot *next = nullptr, *previous = nullptr;  // among the active slots of the endpoint
};

enum class SessionState : std::uint8_t {
  kFree,        // may be used again
  kConnecting,  // requests wait in the backlog
  kConnected,
  kDisconnecting,  // no requests; the server is told
  kLost,           // every request ends at once; destroy_session() frees the place
};

/// What a client knows of a server.
struct KnownEndpoint {
  std::uint32_t incarnations = 0;  // that are known; the address is that of the last one
  fabric::QpAddress address;
  Time connected = 0;  // when the last session was
};

struct ClientSession {
  SessionState state = SessionState::kFree;
  std::uint32_t index = 0, generation = 0;
  std::uint32_t number = 0;  // among all sessions that the endpoint has made
  std::uint32_t credits = 0;
  std::uint64_t free_slots = 0;     // bits
  std::uint64_t stalled_slots = 0;  // bits: active, and waiting for a credit
  std::uint8_t turn = 0;            // the slot that has had the last credit of those
  std::uint64_t peer = 0;           // header word: the server's session and generation
  std::uint64_t source = 0;         // of its packets: the sender that has connected it
  Destination to;
  Time heard = 0;  // when the last packet of the server came
  std::uint32_t in_wheel = 0;
  RateControl rate;
  RoundTrip round_trip;  // with Options::adaptive_timeout
  std::vector<ClientSlot> slots;
  Backlog backlog;

  // Management.
  EndpointName server;
  std::uint32_t server_session = 0, server_generation = 0;
  std::uint64_t server_token = 0, first_request = 0;
  std::uint32_t incarnation = 0;  // of the server's address
  fabric::QpAddress address;
  std::unique_ptr<fabric::AddressHandle> handle;
  KnownEndpoint* known = nullptr;  // the server
  Time connect_by = 0, asked = 0;
  Time insists_from = 0;         // it asks a busy server, too
  std::uint32_t unanswered = 0;  // pings, or requests to connect or disconnect
  const char* why_lost = "";
  const char* refusal = "";  // while connecting: what the server has said last

  SessionId id() const { return index | generation << 16U; }
};

enum class ServerState : std::uint8_t { kIdle, kReceiving, kRunning, kAnswered };

/// A request at its server.
struct ServerSlot {
  std::uint64_t request_number = 0;
  ServerState state = ServerState::kIdle;
  bool is_answered = false;  // the handler's: it has called respond()
  bool is_congested = false;
  bool is_refused = false;
  std::uint8_t type = 0;
  std::uint32_t size = 0;      // of the request
  std::uint32_t received = 0;  // packets of the client
  std::uint32_t request_packets = 0, response_packets = 0;
  const std::byte* data = nullptr;  // of the request: in `request`, or in the NIC's buffer
  MsgBuffer* request = nullptr;
  MsgBuffer* response = nullptr;
  MsgBuffer* preallocated = nullptr;
};

struct ServerSession {
  SessionState state = SessionState::kFree;
  std::uint32_t index = 0, generation = 0;
  std::uint64_t peer = 0;    // header word: the client's session and generation
  std::uint64_t source = 0;  // of its packets: the sender that has connected it
  Destination to;
  Time heard = 0;
  std::vector<ServerSlot> slots;
  std::uint32_t running = 0;  // handlers that have not answered

  // Management.
  EndpointName client;
  fabric::QpAddress address;  // of the client
  std::uint32_t client_session = 0, client_generation = 0;
  std::uint64_t client_token = 0, first_request = 0;
  std::unique_ptr<fabric::AddressHandle> handle;
  std::uint32_t unanswered = 0;
};

}  // namespace pyrdma::erpc
