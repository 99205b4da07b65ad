// Ticket locks over network memory (paper, section 5.4; Mellor-Crummey and Scott, 1991).
//
// A node takes a ticket by a remote fetch-and-add on next_ticket, and has the lock while
// now_serving, which each release moves on, equals its ticket. Both words are atomic_vars, next to
// each other at one host. The threads of a node queue among themselves first, by a ticket lock in
// its own memory, so that a node has one ticket per lock at most; a release hands the lock to the
// next thread of the node without the network, a bounded number of times in a row.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "systems/loco/atomic_var.h"
#include "systems/loco/preset.h"

namespace pyrdma::loco {

/// What a release orders before itself: what it takes along, by the order of the queue pair alone
/// (before), what the caller did to this lock's host (pair), to all nodes (thread), or what all
/// callers of this node did (global); see Caller. With none, the caller has seen to it that what
/// the lock protects is placed.
enum class Fence : std::uint8_t { kNone, kBefore, kPair, kThread, kGlobal };

struct TicketLockOptions {
  Placement placement = Placement::kHost;  // of the two words; kDevice: only the network reads them
  std::uint32_t max_handovers = 16;        // to threads of one node in a row, while others may wait
  Time backoff = 1 * kMicrosecond;  // of blocking acquires, per ticket between the next and ours

  // What is better than in the paper, a switch each; Preset::kPaper has none of these.

  /// now_serving is read behind the fetch-and-add, with one doorbell: a free lock takes one round
  /// trip. Paper: now_serving is read when the ticket is there, which takes two.
  bool combined_request = true;
  /// The holder writes ticket + 1, since nobody else changes now_serving. Paper: a fetch-and-add.
  bool release_by_write = true;
  /// A release returns when it is posted. Paper: when it has completed.
  bool unawaited_release = true;
  /// The pair fence of a release leaves the order to the queue pair, by the fence flag of the next
  /// request where reads or atomics are in flight. Paper: it waits for an ack_key.
  bool unawaited_fence = true;
  /// The writes that a release takes along leave with its doorbell. Paper: each by itself, and the
  /// fence and the release after them.
  bool one_doorbell = true;

  static TicketLockOptions of(Preset preset) {
    TicketLockOptions options;
    options.combined_request = options.release_by_write = options.unawaited_release =
        options.unawaited_fence = options.one_doorbell = preset == Preset::kBest;
    return options;
  }
};

class TicketLocks;

/// Where a lock is: offsets in its host's words.
struct LockPlace {
  NodeId host = 0;
  std::uint64_t next_ticket = 0, now_serving = 0;
};

/// An acquisition under way, so that one thread can have many. Movable, of the thread of its
/// caller. Once started it is polled until it holds: a ticket cannot be given back, so dropping it
/// before leaves the lock to nobody, which the others report.
class AcquireOp {
 public:
  AcquireOp() = default;

  /// True once the caller holds the lock. Never blocks, and makes no progress by itself where
  /// callers poll: Manager::turn() and the waits do. Throws Error(kUnavailable) when the lock's
  /// host does not answer, and Error(kTimeout) after the manager's wait_timeout, naming the lock,
  /// the ticket that is served, who has it, and the nodes that do not answer. `now`: the time, from
  /// a caller that polls many in one turn and reads the clock once for all; 0: it is read when
  /// needed.
  bool poll(Time now = 0);
  bool held() const { return stage_ == Stage::kHeld; }
  std::uint64_t index() const { return index_; }
  /// The ticket that this acquisition took; nothing when a thread of this node has handed its own
  /// over. Tickets are granted one after the other. Requires held().
  std::optional<std::uint64_t> ticket() const {
    return handed_over_ ? std::nullopt : std::optional(ticket_);
  }
  /// When poll() is to be called again though nothing has happened on this node.
  Time wakes_at() { return stage_ == Stage::kBackoff ? retry_at_ : deadline(); }

 private:
  friend class TicketLocks;
  enum class Stage : std::uint8_t {
    kNone,
    kLocalQueue,  // other threads of this node are before
    kHandover,    // handed over; the releaser's writes are on their way
    kTicket,      // next_ticket asked for, and now_serving with it in a combined request
    kServing,     // now_serving asked for
    kWatching,    // now_serving is in this node's memory
    kBackoff,
    kHeld
  };
  AcquireOp(TicketLocks& locks, Caller& me, std::uint64_t index, bool blocks);
  bool enter(Time now);
  bool answered();
  [[gnu::noinline]] bool learn_serving();
  bool compare(std::uint64_t serving, Time now = 0);
  void ask_ticket();
  void ask_serving();
  bool hold();
  Time deadline(Time now = 0);
  bool wait_on(Time now = 0);  // false; throws after wait_timeout

  TicketLocks* locks_ = nullptr;
  Caller* me_ = nullptr;
  std::uint64_t index_ = 0;
  std::uint64_t ticket_ = 0;
  LockPlace at_;
  std::uint32_t turn_ = 0;  // in the node's queue
  Stage stage_ = Stage::kNone;
  bool blocks_ = false;  // backs off, and its caller minds the deadline
  bool handed_over_ = false;
  Time retry_at_ = 0, deadline_ = 0;
  MemRef words_;  // now_serving, ticket; before the key, which ends first
  AckKey key_;
};

/// Lock i is at participant i modulo their number.
class TicketLocks : public Channel {
 public:
  TicketLocks(Manager& manager, std::string name, std::uint64_t count,
              const TicketLockOptions& options = {}, std::vector<NodeId> participants = {});
  TicketLocks(Channel& parent, std::string_view name, std::uint64_t count,
              const TicketLockOptions& options = {});
  ~TicketLocks() override;

  static constexpr std::size_t kMostBefore = 7;

  std::uint64_t count() const { return count_; }
  NodeId host_of(std::uint64_t i) const { return place_of(i).host; }

  /// Blocks until the caller holds lock i. Not recursive. What was released before is visible to
  /// plain reads, local or remote. Throws as AcquireOp::poll() does. Cost: a round trip when nobody
  /// holds it (two without combined_request), none when a thread of this node hands it over, and a
  /// read now and then while waiting. Returns AcquireOp::ticket().
  std::optional<std::uint64_t> acquire(Caller& me, std::uint64_t i);
  /// The same without blocking: poll the result. Does not back off.
  [[nodiscard]] AcquireOp start_acquire(Caller& me, std::uint64_t i);

  /// Gives lock i, which the caller holds, back. `before`: up to kMostBefore requests to the lock's
  /// host that go in front of the release, such as the write of what the lock protects; kBefore
  /// orders them alone, kPair too; the caller keeps their buffers until the key is done; the
  /// release may be added to them. The key may be dropped; its status says whether the release
  /// reached the lock's host. Blocks for Fence::kThread and kGlobal, for kPair without
  /// unawaited_fence, and without unawaited_release. Throws Error(kInvalidArgument), naming lock
  /// and holder, when the caller does not hold it; and Error(kUnavailable), still holding it, when
  /// the fence fails. Cost: a write or a fetch-and-add, behind a read of no bytes under kPair and
  /// kBefore where the words are on the NIC; or, handed over under these behind writes, a read of
  /// no bytes, which the next thread waits for.
  AckKey release(Caller& me, std::uint64_t i, Fence fence, Requests& before);
  AckKey release(Caller& me, std::uint64_t i, Fence fence) {
    Requests nothing;
    return release(me, i, fence, nothing);
  }
  /// release() with Fence::kNone that never blocks: where a release is awaited, the caller polls
  /// its key.
  AckKey start_release(Caller& me, std::uint64_t i);
  const TicketLockOptions& options() const { return options_; }

 private:
  friend class AcquireOp;
  /// A lock as the threads of this node see it; owned by the one whose place is served.
  struct alignas(kCacheLine) Local {
    std::atomic<std::uint32_t> next{0}, serving{0};  // places in the node's queue
    bool has_ticket = false;                         // the node holds the lock
    std::uint32_t handovers = 0;                     // since the ticket was taken
    std::uint64_t ticket = 0;
    Mark placed;  // what the last holder wrote is placed when this is reached
  };

  void make();
  // The two words of a lock are atomic_vars of one host, which lie next to each other there.
  LockPlace place_of(std::uint64_t i) const {
    const std::uint64_t offset = i / hosts_ * 16;
    return {participants()[i % hosts_], offset, offset + 8};
  }
  std::uint64_t& holder_word(std::uint64_t i) const;
  void check_holder(Caller& me, std::uint64_t i);
  void fence(Caller& me, std::uint64_t i, NodeId host, Fence fence);
  [[gnu::noinline]] AckKey release_in_steps(Caller& me, std::uint64_t i, const LockPlace& at,
                                            Fence fence, Requests& before);
  AckKey give_back(Caller& me, std::uint64_t i, const LockPlace& at, Fence fence, Requests& before);
  AckKey hand_over(Caller& me, std::uint64_t i, NodeId host, Fence fence, Requests& before);
  AckKey move_on(Caller& me, std::uint64_t i, const LockPlace& at, Fence fence, Requests& before);
  std::string find_holder(Caller& me, std::uint64_t i, const std::vector<NodeId>& silent);
  [[noreturn]] void throw_overdue(Caller& me, std::uint64_t i, const AcquireOp& op);
  [[noreturn]] void throw_passed(std::uint64_t i, std::uint64_t ticket,
                                 std::uint64_t serving) const;
  [[noreturn]] void throw_unplaced(Caller& me, std::uint64_t i, fabric::Status status) const;
  [[noreturn]] void throw_unreachable(std::uint64_t i, fabric::Status status) const;

  std::uint64_t count_;
  std::uint64_t hosts_;
  TicketLockOptions options_;
  AtomicVars words_;
  LocalRegion holders_;  // who on this node holds which lock: for reports of all nodes
  std::unique_ptr<Local[]> locals_;
};

/// One lock, at the first participant.
class TicketLock : public TicketLocks {
 public:
  TicketLock(Manager& manager, std::string name, const TicketLockOptions& options = {},
             std::vector<NodeId> participants = {})
      : TicketLocks(manager, std::move(name), 1, options, std::move(participants)) {}
  TicketLock(Channel& parent, std::string_view name, const TicketLockOptions& options = {})
      : TicketLocks(parent, name, 1, options) {}
  std::optional<std::uint64_t> acquire(Caller& me) { return TicketLocks::acquire(me, 0); }
  AckKey release(Caller& me, Fence fence) { return TicketLocks::release(me, 0, fence); }
};

}  // namespace pyrdma::loco
