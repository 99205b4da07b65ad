// An RPC endpoint (eRPC, section 3.1): the RPCs of one thread, as client and as server. The thread
// runs the event loop; everything happens inside it, or inside the calls of the thread.
//
//   event_loop.cc         the turns of the loop, timers
//   client_sessions.cc    sessions of the client: made, ended, lost
//   enqueue_request.cc    a request begins
//   send_packets.cc       packets of the client: credits, pacing
//   receive_response.cc   credit returns and responses
//   packet_loss.cc        go-back-N
//   receive_request.cc    packets at the server, handlers
//   enqueue_response.cc   answers of the server
//   server_sessions.cc    sessions of the server
//   session_manager.cc    the messages that make, test and end sessions
//
// The functions that each packet passes take in what they call (flatten); what is rare stays out of
// them (noinline). This halves the instructions of a small RPC.
#pragma once
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/rng.h"
#include "env/env.h"
#include "runtime/memory_pool.h"
#include "systems/erpc/bugs.h"
#include "systems/erpc/handler.h"
#include "systems/erpc/management_message.h"
#include "systems/erpc/msg_buffer.h"
#include "systems/erpc/options.h"
#include "systems/erpc/session.h"
#include "systems/erpc/timing_wheel.h"
#include "systems/erpc/transport.h"
#include "systems/erpc/workers.h"

namespace pyrdma::erpc {

/// What has happened at an endpoint. Packets that a counter of the second group counts were
/// dropped.
struct Counters {
  std::uint64_t requests = 0, completed = 0, failed = 0, handled = 0;
  std::uint64_t retransmissions = 0;  // times that a request was rolled back
  std::uint64_t rate_updates = 0, paced = 0, resets = 0, lost_sessions = 0, late_answers = 0;

  std::uint64_t unknown_session = 0;  // no such session, or another generation
  std::uint64_t stale = 0;            // of an older request, or answered already
  std::uint64_t reordered = 0;        // of a later packet than the next one
  std::uint64_t lies = 0;             // a size, number or type that cannot be
  std::uint64_t in_wheel = 0;         // an answer while a retransmission waits (appendix C)
  std::uint64_t bad_management = 0;
};

class Endpoint {
 public:
  /// Makes the endpoint `number` of this node and publishes its address. An endpoint of the same
  /// number may follow it once it is destroyed. Throws Error(kInvalidArgument) for an option
  /// outside its bounds.
  Endpoint(Env& env, const Options& options, std::uint32_t number = 0, Bugs bugs = {});
  /// Ends without a word: peers learn it by silence, and requests under way get no continuation.
  /// Never waits. Call close() before.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// Ends all sessions: tells the peers if `says_so`, then calls the continuations of all requests,
  /// which end as kSessionLost or kNotSent. Call it last: only the destructor may follow.
  void close(bool says_so = true);

  Env& env() { return env_; }
  const Options& options() const { return options_; }
  EndpointName name() const { return {env_.node(), number_}; }
  const Counters& counters() const { return counters_; }
  const TransportCounters& packets() const { return transport_.counters(); }
  /// Bytes of data in a packet.
  std::uint32_t payload() const { return payload_; }

  // Server.

  /// Requests of `type` go to `handler`. Throws Error(kInvalidArgument) if the type has one, and
  /// for RunIn::kWorker without workers.
  void register_handler(std::uint8_t type, Handler handler, RunIn where = RunIn::kDispatch);

  // Client.

  /// Begins a session to an endpoint, which need not exist yet. Requests may be enqueued at once;
  /// they wait until it is connected, or lost after `connect_timeout`, else that of the options.
  /// Throws Error(kExhausted) without room for its credits (section 4.3.1) or without memory of the
  /// device, and Error(kInvalidArgument) for an unknown node.
  SessionId create_session(EndpointName server, std::optional<Time> connect_timeout = {});
  bool is_connected(SessionId session) const;
  /// The session is lost: its requests end at once. Destroy it and make a new one.
  bool is_lost(SessionId session) const;
  /// Why it is lost, or why the server has refused it so far, or an empty text.
  const char* why_lost(SessionId session) const;
  /// Ends a session without requests; Error(kInvalidArgument) if it has some.
  void destroy_session(SessionId session);
  /// Runs the loop until the sessions are connected. Throws Error(kTimeout) naming the first that
  /// is not, or that is lost.
  void connect(std::span<const SessionId> sessions);

  /// Begins a request. The request and response buffers belong to the endpoint until the
  /// continuation. Never calls the continuation itself. Throws Error(kInvalidArgument) for buffers
  /// that cannot be, and Error(kExhausted) when the session's backlog is full; neither takes the
  /// buffers.
  void enqueue_request(const Request& request);

  MsgBuffer* allocate(std::uint32_t bytes) { return buffers_.take(bytes); }
  void free(MsgBuffer* buffer) { buffer->pool().give_back(buffer); }

  // The event loop.

  /// One turn: packets, timers, answers of workers. Returns whether a packet came. Throws
  /// Error(kInvalidArgument) inside a handler or continuation, or beside another thread's turn.
  bool run_once();
  /// Runs turns until done() or `deadline`; returns done(). The first turn comes first.
  bool run_until(FunctionRef<bool()> done, Time deadline);
  void run_for(Time duration) {
    run_until([] { return false; }, env_.now() + duration);
  }
  /// Sends at once what was enqueued outside the loop; otherwise it leaves after the packets that
  /// the next turn receives. Cost: a doorbell.
  void flush() {
    transport_.flush();
    tx_stamp_ = -1;
  }
  /// Notify it from another thread of the node to end the wait of run_until(), whose done() is then
  /// asked again.
  Watch& watch() { return transport_.watch(); }
  /// Returns the latest reading of the clock: in a continuation or handler, the arrival of the
  /// batch that it belongs to. Cost: a load.
  Time recent() const { return clock_; }
  /// Returns what the pending requests wait for, such as a handler that does not answer.
  std::string describe_pending() const;

  // For tests and experiments.

  /// The rate in bytes per ns at which a session sends.
  double rate_of(SessionId session) const;
  std::uint32_t credits_of(SessionId session) const;
  std::uint32_t active_requests() const { return active_; }
  /// Returns true when each packet waits in the wheel at most once, its request and its session
  /// count it, and the wheel has no fewer, and when none has overtaken it there. The last is known
  /// until the endpoint first sends a packet again. Cost: a look at every slot.
  bool wheel_counts_fit() const;
  /// Returns true when no session has a credit while a request of it waits for one. Between packets
  /// this always holds.
  bool credits_are_used() const;
  /// Sessions that use receives: those of this endpoint as client, and as server.
  std::uint32_t client_sessions() const { return client_count_; }
  std::uint32_t server_sessions() const { return server_count_; }
  /// Sessions of the server that have ended, and keep their memory until their handlers answer.
  std::uint32_t kept_sessions() const;
  std::uint64_t memory_per_session() const;
  /// Calls `probe` with the round-trip time of each packet of the client that was sent once.
  void probe_round_trips(std::function<void(Time)> probe) { probe_ = std::move(probe); }
  fabric::QpAddress address() const { return transport_.address(); }

 private:
  friend class RequestHandle;
  friend class Workers;
  friend class Bugs;
  friend class EndpointProbe;  // of tests

  struct WheelEntry {
    std::uint32_t session, packet;
    std::uint64_t request_number;
    std::uint32_t session_number;
  };
  struct TypeEntry {
    Handler handler;
    RunIn where = RunIn::kDispatch;
    bool is_in_place = false;  // it reads requests of one packet in the NIC's buffer
  };

  // Counts a rare branch, outside of the functions that packets pass.
  [[gnu::cold, gnu::noinline]] void reached(const char* branch) { env_.reached(branch); }

  // event_loop.cc
  bool turn();  // returns whether it did more than look
  void receive(const Packet& packet);
  [[gnu::noinline]] void run_timers(Time now);
  Time next_due() const;
  [[gnu::noinline]] void take_answers();
  Time stamp();

  // client_sessions.cc
  [[noreturn, gnu::cold, gnu::noinline]] static void throw_session(SessionId id, const char* call);
  ClientSession& session_of(SessionId id, const char* call);
  const ClientSession* find_session(SessionId id) const;
  static const char* why_silent(const ClientSession& session);
  [[gnu::noinline]] void lose_session(ClientSession& session, const char* why);
  bool has_room() const;
  ClientSession& new_session();

  // enqueue_request.cc
  void start(ClientSession& session, const Request& request);
  [[gnu::noinline]] void start_waiting(ClientSession& session);
  void finish(ClientSlot& slot, Outcome outcome);
  [[gnu::noinline]] void fail_later(const Request& request, Outcome outcome);
  [[gnu::noinline]] void call_failed();

  // send_packets.cc
  static constexpr std::uint32_t kAllPackets = ~std::uint32_t{0};
  [[gnu::noinline]] void send_packets(ClientSlot& slot, std::uint32_t most = kAllPackets);
  [[gnu::noinline]] void send_next(ClientSlot& slot);
  [[gnu::noinline]] void send_stalled(ClientSession& session);
  [[gnu::noinline]] void pace(ClientSlot& slot, std::uint32_t packet);
  [[gnu::noinline]] void transmit(ClientSlot& slot, std::uint32_t packet);
  void transmit_small(ClientSession& session, ClientSlot& slot);
  void send_due(Time now);
  std::uint32_t piece_bytes(std::uint32_t size, std::uint32_t piece) const {
    const std::uint32_t begin = piece * payload_;
    return size - begin < payload_ ? size - begin : payload_;
  }
  // The number of the next request of a slot; packet_header.h.
  std::uint64_t after(std::uint64_t request) const {
    return (request + options_.slots) & last_request_;
  }
  std::uint32_t packets_of(std::uint32_t size) const {
    return size <= payload_ ? 1 : (size + payload_ - 1) / payload_;
  }
  Time& sent_at(ClientSlot& slot, std::uint32_t packet) {
    return slot.sent_at == nullptr ? slot.first_sent_at : slot.sent_at[packet % options_.credits];
  }

  // receive_response.cc
  void receive_answer(const Packet& packet);
  bool is_small_response(const ClientSlot& slot, const Packet& packet) const;
  void take_small_response(ClientSession& session, ClientSlot& slot, const Packet& packet);
  [[gnu::noinline]] void take_response(ClientSession& session, ClientSlot& slot,
                                       const Packet& packet);
  void measure(ClientSession& session, ClientSlot& slot, const Packet& packet);
  [[gnu::noinline]] void update_rate(ClientSession& session, Time rtt, const Packet& packet);

  // packet_loss.cc
  void scan_for_losses(Time now);
  Time timeout_of(const ClientSlot& slot) const;
  [[gnu::noinline]] void retransmit(ClientSlot& slot, Time now);
  [[gnu::cold, gnu::noinline]] void drain_copies();
  void activate(ClientSlot& slot);
  void deactivate(ClientSlot& slot);

  // receive_request.cc
  void receive_request(const Packet& packet);
  void begin_request(ServerSession& session, ServerSlot& slot, const Packet& packet);
  [[gnu::noinline]] void take_piece(ServerSession& session, ServerSlot& slot, const Packet& packet);
  RequestHandle begin_handler(ServerSession& session, ServerSlot& slot);
  void run_handler(ServerSession& session, ServerSlot& slot);
  [[gnu::noinline]] void return_credit(ServerSession& session, const ServerSlot& slot,
                                       std::uint32_t packet);
  void receive_response_request(const Packet& packet);
  [[gnu::noinline]] void repeat_answer(ServerSession& session, ServerSlot& slot,
                                       std::uint32_t packet);
  ServerSession* server_session_of(const Packet& packet);

  // enqueue_response.cc
  std::span<std::byte> response_of(RequestHandle& handle, std::uint32_t bytes);
  void respond(RequestHandle& handle);
  [[gnu::noinline]] void fail(RequestHandle& handle, std::string_view message);
  void answer(const RequestHandle& handle);
  void send_answer(ServerSession& session, ServerSlot& slot);
  [[noreturn, gnu::cold, gnu::noinline]] static void throw_answered(const RequestHandle& handle,
                                                                    const char* call);
  ServerSlot* slot_of(const RequestHandle& handle);
  static PacketHeader header_of(const ServerSession& session, const ServerSlot& slot,
                                std::uint32_t piece);
  void send_small_response(const ServerSession& session, const ServerSlot& slot);
  [[gnu::noinline]] void send_response(ServerSession& session, ServerSlot& slot,
                                       std::uint32_t piece);
  void release_response(ServerSlot& slot);

  // server_sessions.cc
  void take_connect(const Packet& packet, const ManagementMessage& message);
  void end_server_session(ServerSession& session);
  void reclaim(ServerSession& session);
  ServerSession* new_server_session();
  bool ends_older(const ManagementMessage& message);
  bool is_newest(const ManagementMessage& message);

  // session_manager.cc
  std::uint32_t publish_address();
  void look_up(EndpointName name, KnownEndpoint& known);
  bool look_up(ClientSession& session);
  std::unique_ptr<fabric::AddressHandle> handle_of_peer(const fabric::QpAddress& address);
  bool is_from(const Packet& packet, const fabric::QpAddress& address) const;
  bool is_peer(const fabric::QpAddress& sender, const fabric::QpAddress& peer) const;
  [[gnu::noinline]] void take_management(const Packet& packet);
  [[gnu::noinline]] void manage(Time now);
  void manage_client(ClientSession& session, Time now);
  void manage_server(ServerSession& session, Time now);
  void send_management(const Destination& to, const ManagementMessage& message);
  ManagementMessage about(const ClientSession& session, ManagementKind kind) const;
  ManagementMessage about(const ServerSession& session, ManagementKind kind) const;
  void take_for_client(const Packet& packet, const ManagementMessage& message);
  void take_for_server(const ManagementMessage& message);
  void take_connected(ClientSession& session, const Packet& packet,
                      const ManagementMessage& message);
  void take_refusal(ClientSession& session, Refusal reason);
  void deny(const ManagementMessage& message);
  void answer_sender(const ManagementMessage& message, ManagementKind kind,
                     Refusal reason = Refusal::kNone);
  std::string address_key(EndpointName name, std::uint32_t incarnation) const;
  bool is_to_ask_again(const ClientSession& session, Time now) const;
  void ask_to_connect(ClientSession& session, Time now);

  Env& env_;
  const Options options_;
  const std::uint32_t number_, payload_;
  const std::uint32_t small_;  // longest message of one packet
  Bugs bugs_;
  const std::uint64_t last_request_;  // the highest number
  std::unique_ptr<fabric::ProtectionDomain> pd_;
  runtime::MemoryPool memory_;
  BufferPool buffers_, worker_buffers_;
  Transport transport_;
  Counters counters_;
  std::array<TypeEntry, 256> handlers_;
  Rng rng_;
  bool is_closed_ = false;
  std::uint32_t incarnation_ = 0;  // number of earlier endpoints of this name
  std::uint64_t token_ = 0;        // names this incarnation of the endpoint
  std::function<void(Time)> probe_;

  // Client.
  std::vector<std::unique_ptr<ClientSession>> clients_;
  std::uint32_t client_count_ = 0, first_generation_ = 0, sessions_made_ = 0;
  ClientSlot* first_active_ = nullptr;
  std::uint32_t active_ = 0;
  TimingWheel<WheelEntry> wheel_;
  struct Failed {
    Request request;
    Outcome outcome;
  };
  std::vector<Failed> failed_;
  std::map<std::pair<NodeId, std::uint32_t>, KnownEndpoint> known_;  // servers, clients that died
  Time connecting_since_ = 0;                                        // the last call of connect()

  // Server.
  std::vector<std::unique_ptr<ServerSession>> servers_;
  std::unordered_map<std::uint64_t, std::uint32_t> server_index_;  // by the client's name for it
  std::uint32_t server_count_ = 0;
  struct Served {
    std::uint64_t token = 0;  // of all its sessions
    std::uint32_t sessions = 0;
  };
  std::unordered_map<std::uint64_t, Served> served_;  // by the name of the client's endpoint

  // Loop.
  Time tx_stamp_ = -1;  // of the present batch of packets; negative: to be read
  Time clock_ = 0;      // the latest reading
  Time scan_at_ = 0, manage_at_ = 0;
  bool is_due_earlier_ = false;  // a timer was set that the waiting loop does not know
  bool has_sent_again_ = false;  // the NIC may still read the second copy of a packet
  std::atomic<bool> is_running_{false};
  std::unique_ptr<Workers> workers_;
};

}  // namespace pyrdma::erpc
