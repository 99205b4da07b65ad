// A virtual queue pair (sections 4.1 and 4.2): software queues, and the physical queue pair that
// carries its requests.
#pragma once
#include <array>
#include <atomic>
#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "env/sync.h"
#include "systems/krcore/memory/mr_store.h"
#include "systems/krcore/pool/core_pool.h"
#include "systems/krcore/vqp/completion_rows.h"
#include "systems/krcore/vqp/taken_tickets.h"

namespace pyrdma::krcore {

struct VqpOptions {
  std::uint32_t send_entries = 128;     // requests whose completion has not been taken
  std::uint32_t receive_entries = 128;  // posted receives
  std::uint32_t max_sges = kMostSges;
  std::uint32_t max_inline = 0;
  std::uint64_t domain = 0;  // its regions'
  std::uint64_t app = 0;     // whose end frees it
};

/// What the checks of a request have found. A write with immediate has two: the write, and the
/// message behind it.
struct Checked {
  const fabric::WorkRequest* request = nullptr;  // of the caller's list
  std::uint64_t bytes = 0;
  std::uint64_t ticket = 0;  // of a zero-copy send
  std::uint32_t pieces = 0;  // of its buffers
  std::uint32_t rkey = 0;    // the physical one, like those of its buffers
  std::array<std::uint32_t, kMostSges> lkeys{};
  Prepared::Kind kind = Prepared::Kind::kUser;
  MessageKind message = MessageKind::kData;
  fabric::Opcode opcode = fabric::Opcode::kWrite;  // that is posted
  bool is_signaled = false;
  bool is_notice() const {
    return kind == Prepared::Kind::kMessage && message == MessageKind::kWriteNotice;
  }
};

/// The remote region that a queue pair has used last.
struct KnownRegion {
  NodeId node = fabric::kNoNode;
  std::uint16_t epoch = 0;      // of the connection
  std::uint32_t key = 0;        // the virtual one
  std::uint64_t forgotten = 0;  // how often the service had forgotten its regions
  MrStore::Entry entry;
  bool was_looked_up = false;  // in the table of its node, since push() has reset it

  bool is_valid(NodeId to, std::uint16_t of, Time now, std::uint64_t times_forgotten) const {
    return node == to && epoch == of && entry.expires > now && forgotten == times_forgotten;
  }
};

struct PostedReceive {
  std::uint64_t wr_id = 0;
  std::vector<fabric::Sge> sges;  // with virtual keys: their regions may end before a message comes
  std::uint64_t bytes = 0;
};

/// The connection from which a message comes. Numbers come again in another life of the node.
struct Sender {
  NodeId node = 0;
  std::uint32_t incarnation = 0;
  std::uint32_t vqp = 0;
  std::uint16_t epoch = 0;
  auto operator<=>(const Sender&) const = default;
  static Sender of(const MessageHeader& header) {
    return {header.from_node, header.meta.incarnation, header.from, header.from_epoch};
  }
  /// The place of its queue pair in the table of its node, which has one connection at a time.
  std::pair<NodeId, std::uint16_t> place() const { return {node, VqpId::of(vqp).index}; }
  /// Tells whether this connection of a place has ended, since there is `other`. Generations and
  /// epochs go round.
  bool is_before(const Sender& other) const {
    const auto is_behind = [](std::uint16_t a, std::uint16_t b) {
      return static_cast<std::int16_t>(a - b) < 0;
    };
    const std::uint16_t own = VqpId::of(vqp).generation, others = VqpId::of(other.vqp).generation;
    if (incarnation != other.incarnation) return incarnation < other.incarnation;
    return own != others ? is_behind(own, others) : is_behind(epoch, other.epoch);
  }
};

/// What the sender of a message learns that is too long for its receive, or whose receive has lost
/// its memory.
inline constexpr auto kNotTaken = fabric::Status::kRemoteInvalidRequest;

/// A message that has arrived.
struct InboxItem {
  /// One whose READ has not begun within the lease of its announcement waits for the next one.
  enum State : std::uint8_t { kWaits, kFetching, kReady, kFailed, kStale };
  State state = kWaits;  // never kStale
  bool is_lost = false;  // it ends before somebody takes it
  /// The completion of the READ sets it, without the lock of the inbox.
  std::shared_ptr<std::atomic<std::uint8_t>> fetched;
  Time good_until = 0;  // kZeroCopy: the end of the announcement's lease
  MessageHeader header;
  std::vector<std::byte> bytes;  // of one that waits for a receive
  PostedReceive receive;
  fabric::Status status = fabric::Status::kSuccess;
};

enum class VqpState : std::uint8_t { kCreated, kConnected, kError };

/// A message whose answer ends a request or a transfer. The answer may be lost with the queue pair
/// that carried it, so the message is sent again.
struct Question {
  Prepared message;
  Time again = 0, interval = 0;
};

/// How long a WRITE that has completed may be on its way to the memory. The interface names no
/// bound: this is a hundred times what PCIe takes.
inline constexpr Time kMostPlacement = 100 * kMicrosecond;

struct Transfer {
  enum Stage : std::uint8_t { kNone, kWanted, kRunning };
  Stage stage = kNone;
  bool is_answer = false;
  bool fake_done = false, acked = false;
  bool is_timed = false;  // Vqp::placed_at stands in for the fake request
  std::uint64_t ticket = 0;
  Time again = 0, interval = 0;  // when the peer is asked again
  CorePool* pool = nullptr;      // the new one
  std::optional<DctMeta> meta;   // of the peer's new core
};

class Vqp {
 public:
  explicit Vqp(Env& env) : receive_mutex(env) {}

  /// Forgets the connection and all posts. The caller holds the lock of `pool`, and has taken the
  /// physical queue pair away.
  void end_sending() {
    completions.clear();
    pending.clear();
    announced.clear();
    transfer = {};
    node.store(fabric::kNoNode, std::memory_order_relaxed);
    port = peer = 0;
    if (++epoch == 0) epoch = 1;
    peer_epoch = 0;
    life.reset();
    refusal = fabric::Status::kSuccess;
    to = {};
    way.reset();
    placed_at = 0;
    unchecked = 0;
    has_sent_messages = false;
    next_announced = 1;
  }
  /// Forgets what has arrived and what waits for it. The caller holds `receive_mutex`.
  void end_receiving() {
    receives.clear();
    inbox.clear();
    inbox_bytes = waiting_items = 0;
    refused.clear();
    taken.clear();
  }

  VqpId id;
  VqpOptions options;

  // The sending side, guarded by the lock of `pool`.
  std::atomic<CorePool*> pool{nullptr};
  std::atomic<VqpState> state{VqpState::kCreated};
  /// A thread that posts looks at it without the lock, while another one may reset the queue pair.
  std::atomic<NodeId> node{fabric::kNoNode};
  std::uint32_t port = 0;
  std::uint32_t peer = 0;  // VqpId of the other end, or 0: whoever has bound the port
  /// A message for an earlier connection is dropped; its look takes no lock.
  std::atomic<std::uint16_t> epoch{1};
  std::uint16_t peer_epoch = 0;       // 0: not known
  std::optional<std::uint32_t> life;  // of the node to which it is connected
  PhysicalQp* qp = nullptr;
  Destination to;  // for a dynamic connection
  /// The queue pair or target of the peer to which the latest `qp` leads. Messages by one way
  /// arrive in order.
  std::optional<std::uint64_t> way;
  /// When the WRITEs have been placed that went by a queue pair which no fake request has emptied.
  Time placed_at = 0;
  CompletionRows completions;
  std::deque<Prepared> pending;  // posts that wait for a physical queue pair
  std::uint32_t unchecked = 0;   // the remote key of the oldest, if it must be looked up again
  std::uint64_t next_order = 1;
  std::deque<Question> announced;  // zero-copy sends that the receiver has not read
  bool is_asking = false;          // in the pool's list of those that wait for an answer
  Transfer transfer;
  std::uint64_t next_ticket = 1;     // of transfers
  std::uint64_t next_announced = 1;  // ticket of the next zero-copy send of the connection
  bool has_sent_messages = false;
  bool is_waiting = false;  // in the pool's list of those with pending posts
  fabric::Status refusal = fabric::Status::kSuccess;  // why the peer took no message
  Watch watch;                                        // a completion is ready

  // Of the thread that posts.
  std::vector<Checked> checked;
  KnownRegion region;

  // The receiving side.
  Mutex receive_mutex;
  std::deque<PostedReceive> receives;
  std::deque<InboxItem> inbox;
  std::uint64_t inbox_bytes = 0, waiting_items = 0;
  std::uint32_t bound_port = 0;  // 0: none
  struct Reply {
    VqpId vqp;
    std::uint64_t popped = 0;  // `pops` at its last message
    std::uint64_t used = 0;    // `pops` at its last use, as the last search for idle ones saw it
    std::uint64_t seen_posts = 0;  // likewise; 0: none has seen it
    std::uint64_t messages = 1;
    std::uint32_t foreign = 0;  // messages that came to another core
    bool is_moved = false;      // the sender has been asked to send to this core
  };
  static constexpr std::size_t kFewReplies = 64;
  std::map<Sender, Reply> replies;
  std::size_t most_replies = kFewReplies;
  std::uint64_t pops = 1;  // calls that have taken messages
  /// Connections of which a message is lost, by the place of their sender. A later one of the place
  /// ends the one before.
  std::map<std::pair<NodeId, std::uint16_t>, Sender> refused;
  /// Zero-copy messages that have been taken, by the place of their sender: at most one entry for
  /// each queue pair that there is.
  struct Taken {
    Sender sender;
    TakenTickets tickets;
  };
  std::map<std::pair<NodeId, std::uint16_t>, Taken> taken;
};

}  // namespace pyrdma::krcore
