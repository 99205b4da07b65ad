// The requests of a node to others and theirs to it, on reliable connections by send and receive.
//
// A node has one transport, whose completion queue one thread polls: the dispatch thread of a
// server, or the thread of a client. A request opens a connection to the other node if there is
// none: datagrams carry the addresses of both ends (hello.h). The rendezvous only tells where a
// node takes datagrams. A message longer than a frame goes in several, one behind the other, and is
// put together at the receiver.
//
// All receives of a node come from one shared queue. A server has another one for what clients
// send: however many of their requests wait for it, it hears pings, leases and the answers of
// backups.
//
// A connection that a peer has begun ends here when the peer has gone: when a later life of it
// knocks, or when it does not acknowledge. So an idle connection is probed after each call_timeout,
// by a write of no bytes, which the peer's NIC acknowledges: a client that lives need do nothing.
//
// A request ends once: with an answer, because the connection broke, or at its deadline. In the
// last two cases the other node may have served it, so requests that are sent again must be such
// that it does not matter.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "env/sync.h"
#include "fabric/fabric.h"
#include "systems/tailwind/bugs.h"
#include "systems/tailwind/options.h"
#include "systems/tailwind/rpc/hello.h"
#include "systems/tailwind/rpc/opcode.h"
#include "systems/tailwind/server_id.h"

namespace pyrdma::tailwind {

enum class CallEnd : std::uint8_t {
  kAnswered,
  kUnreachable,
  kRefused,  // the other node has closed this one: Transport::close()
  kTimedOut
};

/// A request that has come. It keeps its receive until Transport::answer().
class Incoming {
 public:
  /// Who asks. The node is the one that the fabric has named when the connection began (over verbs:
  /// the one that the other end has named), and only it chooses the life. Handlers that must know
  /// who asks use it, and no field of the request.
  ServerId from;
  Opcode opcode = Opcode::kPing;
  Time arrived = 0;  // when the dispatch thread took it
  ByteView payload() const { return payload_; }

 private:
  friend class Transport;
  std::uint64_t call_ = 0, session_ = 0;
  ByteView payload_;
  Bytes bytes_;             // of a message of several frames
  std::int32_t slot_ = -1;  // of the receive, or -1
};

struct TransportCounters {
  std::uint64_t sent = 0, received = 0;  // messages
  std::uint64_t broken = 0;              // connections
  std::uint64_t malformed = 0;           // frames and datagrams that were refused or failed
};

class Transport {
 public:
  /// Bytes of a frame, its header included.
  static constexpr std::uint32_t kFrameBytes = 4096;
  static constexpr std::uint32_t kMostMessage = 20U << 20;
  /// The newest life of a node, for servers that are found by their node.
  static constexpr std::uint32_t kNewest = ~0U;

  /// The answer is valid during the call.
  using OnEnd = std::function<void(CallEnd, ByteView answer)>;
  using OnConnected = std::function<void(std::optional<fabric::QpAddress>)>;

  /// `receives`: frames that may wait here. At a server and at the coordinator half of them are for
  /// clients: a NIC keeps about so many receives at hand, and more would make each slower. Blocks
  /// for the NIC's time. Throws Error when the device lacks something.
  Transport(Env& env, const Options& options, ServerId self, std::uint32_t receives,
            Bugs bugs = {});
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  ServerId self() const { return self_; }
  Env& env() const { return env_; }
  fabric::ProtectionDomain& domain() { return *domain_; }
  /// Notified when poll() has something to do. Other threads may notify it too.
  Watch& watch() { return completions_->watch(); }
  const Options& options() const { return options_; }
  /// The longest time between two polls after which deadlines and timers are kept.
  Time tick() const { return tick_; }

  // ---- any thread ----

  /// Sends a request; `on_end` is called once, by the polling thread, later. A connection that must
  /// be made first costs the NIC's time; without a queue pair for it the request ends as
  /// kUnreachable.
  void call(ServerId to, Opcode opcode, ByteView payload, Time deadline, OnEnd on_end);
  /// Calls `act` on the polling thread at `at` or up to a tick later.
  void defer(Time at, std::function<void()> act);
  /// Connects a queue pair of the caller, made in domain(), with a new one of the other node that
  /// takes RDMA writes and nothing else. `on_connected` is called by the polling thread.
  void connect_log(ServerId to, const fabric::QpAddress& own, Time deadline,
                   OnConnected on_connected);
  /// Ends all connections with a server and refuses new ones: nothing of it arrives any more once
  /// is_quiet(). Requests to it end as kUnreachable.
  void close(ServerId peer);
  bool is_quiet(ServerId peer);
  TransportCounters counters();
  /// Reliable connections that exist here, those that still end included.
  std::uint32_t connections();
  /// Those of them for writes of other primaries.
  std::uint32_t log_connections();

  // ---- the polling thread ----

  /// Takes what has come. Appends requests to `requests`, calls the ends of calls and timers that
  /// are due. Returns false when there was nothing to do.
  bool poll(std::vector<std::unique_ptr<Incoming>>& requests);
  /// Throws Error(kUnavailable) when the completion queue has overrun: nothing comes any more.
  void expect_completions() const {
    if (completions_->overrun()) [[unlikely]]
      throw_overrun();
  }
  /// Keeps deadlines and timers; at least once a tick.
  void keep_time();
  /// When the next timer is due of those that keep_time() has left, or kForever.
  Time next_timer() const { return next_timer_; }
  /// When the last message came that is part of an operation or of a change of the cluster; those
  /// that look after servers, pings and leases, do not count.
  Time last_event() const { return last_event_; }
  /// Sends the answer, unless the connection has broken.
  void answer(std::unique_ptr<Incoming> request, ByteView answer);

 private:
  static constexpr std::uint32_t kSendEntries = 64, kSignalEvery = 16;
  struct FrameHeader {
    std::uint64_t call = 0;
    std::uint32_t total = 0, offset = 0;
    std::uint8_t is_answer = 0, opcode = 0;
    std::uint16_t zero = 0;
    std::uint32_t zeros = 0;
  };
  static_assert(sizeof(FrameHeader) == 24);
  static constexpr std::uint32_t kFrameData = kFrameBytes - sizeof(FrameHeader);

  struct Session {
    std::uint64_t number = 0;  // never used again
    ServerId peer;             // as the caller named it
    bool is_outgoing = false, is_ready = false;
    std::uint64_t nonce = 0;
    std::unique_ptr<fabric::QueuePair> qp;
    std::uint64_t posted = 0, completed = 0, signaled = 0;
    Time heard = 0;  // when the peer last gave a sign, or was probed
    std::deque<std::pair<std::uint64_t, std::uint32_t>> in_flight;  // position, frame
    std::deque<Bytes> backlog;                                      // frames that wait
    FrameHeader partial;
    Bytes bytes;  // of a message of several frames, so far
  };
  struct Call {
    std::uint64_t session = 0;
    Time deadline = 0;
    OnEnd on_end;
  };
  struct Ended {
    OnEnd on_end;
    CallEnd end = CallEnd::kUnreachable;
    ByteView answer;
    Bytes bytes;
    std::int32_t slot = -1;
  };
  struct Timer {
    Time at = 0;
    std::function<void()> act;
  };
  /// A datagram that is sent again until it is answered.
  struct Knock {
    std::uint64_t session = 0;  // or 0: for a log
    ServerId to;
    Time deadline = 0, next = 0, interval = 0;
    Hello hello;
    Doorbell place;
    OnConnected on_connected;
  };
  /// The end of a peer's log connection.
  struct LogEnd {
    std::uint64_t number = 0, nonce = 0;
    std::unique_ptr<fabric::QueuePair> qp;
  };
  /// A queue pair that has failed, until its last completions have been taken.
  struct Ending {
    ServerId peer;
    std::unique_ptr<fabric::QueuePair> qp;
    std::vector<std::uint32_t> frames;  // the NIC reads none of a queue pair that is gone
    Time failed = 0;
    std::uint64_t taken_at = 0;  // what passed_ is when they have been taken; 0: not known yet
  };
  /// What a knock leads to: the end for it; or none, and another connection has the number.
  struct End {
    std::uint64_t number = 0;
    const fabric::QueuePair* qp = nullptr;
  };

  enum class EndOf : std::uint8_t { kOutgoing, kIncoming, kLog };
  std::unique_ptr<fabric::QueuePair> make_queue_pair(EndOf end, bool is_of_client = false);
  std::unique_ptr<fabric::QueuePair> connected(const Hello& knock);
  /// Null when the device has no queue pair left.
  Session* session_to(ServerId to, Time deadline);
  void knock(Knock& knock, Time now);
  void send(Session& session, FrameHeader header, ByteView payload);
  bool post(Session& session, ByteView frame);
  bool post(Session& session, fabric::WorkRequest& request, bool is_signaled);
  void probe(Session& session, Time now);
  void flush(Session& session);
  void tend_sessions(Time now);
  /// Nothing when the device has no memory for more.
  std::optional<std::uint32_t> take_frame();
  void end_session(std::uint64_t number, CallEnd end = CallEnd::kUnreachable);
  void end_call(std::uint64_t call, CallEnd end);
  void take(const fabric::Completion& completion, Time now,
            std::vector<std::unique_ptr<Incoming>>& requests);
  void take_frame_of(Session& session, ByteView frame, std::int32_t slot, Time now,
                     std::vector<std::unique_ptr<Incoming>>& requests);
  bool is_from_its_sender(const ReceivedHello& received) const;
  void take_hello(const ReceivedHello& received);
  void take_knock(const Hello& hello);
  void answer_knock(const Hello& hello);
  bool replaces(const Hello& knock, std::uint64_t connection, std::uint64_t nonce) const;
  End log_end_for(const Hello& knock);
  End session_for(const Hello& knock);
  void end_log(ServerId peer);
  void end_replaced_by(ServerId peer);
  void end(ServerId peer, std::unique_ptr<fabric::QueuePair> qp,
           std::vector<std::uint32_t> frames = {});
  void destroy_ended(Time now);
  void take_answer(const Hello& hello);
  void post_receive(std::int32_t slot);
  [[noreturn]] void throw_overrun() const;
  void run_ended();
  void work_for(std::uint64_t messages) {
    if (options_.dispatch_work != 0 && messages != 0)
      env_.work(options_.dispatch_work * static_cast<Time>(messages));
  }

  Env& env_;
  const Options& options_;
  const ServerId self_;
  const Bugs bugs_;
  const Time tick_;
  std::unique_ptr<fabric::ProtectionDomain> domain_;
  std::uint32_t completion_count_ = 0;
  std::unique_ptr<fabric::CompletionQueue> completions_;
  const std::uint32_t receive_count_;                                       // not of clients
  std::unique_ptr<fabric::SharedReceiveQueue> receives_, client_receives_;  // the latter at servers
  std::unique_ptr<fabric::MemoryRegion> receive_memory_;
  std::vector<std::unique_ptr<fabric::MemoryRegion>> frame_memory_;  // kFramesOfRegion each
  std::vector<std::uint32_t> free_frames_;
  std::uint32_t max_inline_ = 0;
  std::unique_ptr<HelloPort> port_;

  Mutex mutex_;  // of all below
  std::uint64_t next_session_ = 1, next_call_ = 1, next_nonce_ = 0;
  std::map<std::uint64_t, Session> sessions_;
  std::map<ServerId, std::uint64_t> outgoing_, incoming_;
  std::unordered_map<std::uint32_t, std::uint64_t> by_qp_;  // sessions by queue pair number
  std::map<std::uint64_t, Call> calls_;
  std::vector<Ended> ended_;
  std::vector<Knock> knocks_;
  std::vector<Timer> timers_;
  std::map<ServerId, LogEnd> log_ends_;
  std::vector<Ending> endings_;
  std::set<ServerId> closed_;
  std::map<NodeId, std::uint32_t> newest_;  // known incarnation of nodes
  TransportCounters counters_;
  // Of the polling thread.
  std::vector<fabric::Completion> batch_;
  Time last_event_ = 0;
  Time next_timer_ = kForever;
  /// Completions that have been taken; a poll that leaves none counts as a whole queue of them.
  std::uint64_t passed_ = 0;
};

}  // namespace pyrdma::tailwind
