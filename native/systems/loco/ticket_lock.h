// Ticket locks over network memory (paper, section 5.4; Mellor-Crummey and Scott, 1991).
//
// A node takes a ticket by a remote fetch-and-add on next_ticket. The node has the lock while
// now_serving equals its ticket; each release increments now_serving. Both words are atomic_vars,
// next to each other at one host. The threads of a node queue first in a ticket lock in the node's
// own memory, so a node has at most one ticket per lock. A release hands the lock to the next
// thread of the node without the network, a bounded number of times in a row.
//
// The paper has no failures. If a node loses its connection to the host while the request for a
// ticket, or a release, is on its way, the host may have served the request or not. In the worst
// case nobody ever gets the lock again: the errors of the waiters then name that node, and the
// other nodes must make another lock without it. A holder that dies keeps its lock too. There is no
// lease that would give the lock to the next node: a write of the first holder could arrive later,
// and nothing would keep it from the data.
//
// A ticket cannot be given back either, so a node whose acquisition was dropped, or has timed out,
// passes its ticket on in its turn. Its thread does so in whatever it does next with the same
// caller: waits, turns (Manager::turn), temporary blocks, and the end of the node's part. While the
// thread does nothing of the kind, all nodes wait, and their errors name that node: each node
// publishes its ticket while it waits. A second thread of the node cannot step in, because a caller
// has one thread at a time; a thread that ends leaves its caller to another thread, or to
// Manager::leave().
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/moved_value.h"
#include "env/scope.h"
#include "systems/loco/atomic_var.h"
#include "systems/loco/preset.h"

namespace pyrdma::loco {

/// The operations that a release orders before itself. kNone: none, the caller has made sure that
/// the data under the lock is placed. kBefore: the requests that the release takes along, by the
/// order of the queue pair alone. kPair: this caller's operations on the lock's host. kThread: this
/// caller's operations on all nodes. kGlobal: the operations of all callers of this node. See
/// Caller.
enum class Fence : std::uint8_t { kNone, kBefore, kPair, kThread, kGlobal };

struct TicketLockOptions {
  Placement placement = Placement::kHost;  // kDevice: only the network reads the two words
  std::uint32_t max_handovers = 16;  // to threads of one node in a row, while other nodes may wait
  Time backoff = 1 * kMicrosecond;   // pause of blocking acquires per ticket before their own
  /// The ticket of the first acquisition, for tests: tickets count modulo 2^55, and the places in a
  /// node's queue, which begin with its low bits, modulo 2^32. Other than 0 needs words in the
  /// host's memory; Error(kInvalidArgument) otherwise.
  std::uint64_t first_ticket = 0;

  // Improvements on the paper, one switch each. Preset::kPaper has none of them.

  /// The NIC reads now_serving after the fetch-and-add, with one doorbell: a free lock takes one
  /// round trip. Paper: the node reads now_serving after the ticket has arrived, which takes two
  /// round trips.
  bool combined_request = true;
  /// The holder writes ticket + 1, because only the holder changes now_serving. Paper: a
  /// fetch-and-add.
  bool release_by_write = true;
  /// A release returns when it is posted. Paper: a release returns when it has completed.
  bool unawaited_release = true;
  /// The pair fence of a release relies on the order of the queue pair, with the fence flag on the
  /// next request if reads or atomics are in flight. Paper: the pair fence waits for an ack_key.
  bool unawaited_fence = true;
  /// The writes that a release takes along share its doorbell. Paper: each write has its own
  /// doorbell, and the fence and the release follow.
  bool one_doorbell = true;

  static TicketLockOptions of(Preset preset);
};

/// The switches, with their meaning when on, for presets and parameters.
struct LockSwitch {
  const char* name;
  bool TicketLockOptions::*value;
  const char* meaning;
};
inline constexpr LockSwitch kLockSwitches[] = {
    {"combined_request", &TicketLockOptions::combined_request,
     "one doorbell asks for the ticket and now_serving"},
    {"release_by_write", &TicketLockOptions::release_by_write,
     "a release writes now_serving instead of adding to it"},
    {"unawaited_release", &TicketLockOptions::unawaited_release,
     "a release returns before it has completed"},
    {"unawaited_fence", &TicketLockOptions::unawaited_fence,
     "the queue pair, not a wait, gives the order of a pair fence"},
    {"one_doorbell", &TicketLockOptions::one_doorbell,
     "requests to one host share a doorbell, also writes with a release"},
};

inline TicketLockOptions TicketLockOptions::of(Preset preset) {
  TicketLockOptions options;
  for (const LockSwitch& each : kLockSwitches) options.*each.value = preset == Preset::kBest;
  return options;
}

class TicketLocks;

/// The place of a lock: offsets in the words of its host.
struct LockPlace {
  NodeId host = 0;
  std::uint64_t next_ticket = 0, now_serving = 0;
};

/// An acquisition in progress, so that one thread can have many. Movable; belongs to the thread of
/// its caller. A ticket cannot be given back. So if an acquisition is dropped before it holds the
/// lock, also after its error, its caller goes on with it: it takes the lock in its turn and gives
/// it back (Caller::finish_later), also if the locks of this node are destroyed meanwhile. This
/// needs the thread of the caller: it waits, or calls Manager::turn(caller) now and then. If the
/// request for the ticket fails, the next thread of the node asks for itself.
class AcquireOp {
 public:
  AcquireOp() = default;
  AcquireOp(AcquireOp&&) noexcept = default;
  AcquireOp& operator=(AcquireOp&& other) noexcept {
    std::destroy_at(this);
    return *std::construct_at(this, std::move(other));
  }
  ~AcquireOp() {
    if (stage_ != Stage::kNone && stage_ != Stage::kHeld) [[unlikely]]
      drop();
  }

  /// Returns true once the caller holds the lock. Never blocks. Makes no progress where callers
  /// poll: Manager::turn() and the waits do. Throws Error(kUnavailable) when the lock's host does
  /// not answer. Throws Error(kTimeout) after the manager's wait_timeout, naming the lock, the
  /// ticket that is served, its holder, and the nodes that do not answer. `now` is the time, from a
  /// caller that polls many acquisitions in one turn and reads the clock once for all; 0: poll()
  /// reads the clock when it needs the time.
  bool poll(Time now = 0);
  bool held() const { return stage_ == Stage::kHeld; }
  std::uint64_t index() const { return index_; }
  /// Returns the ticket that this acquisition took; nothing when a thread of this node has handed
  /// over its own ticket. Tickets are granted one after the other. Requires held().
  std::optional<std::uint64_t> ticket() const {
    return handed_over_ ? std::nullopt : std::optional(ticket_);
  }
  /// Throws the error of poll() for a wait that was too long.
  [[noreturn]] void throw_overdue();
  /// Returns when the caller must call poll() again even if nothing has happened on this node.
  Time wakes_at() { return stage_ == Stage::kBackoff ? retry_at_ : deadline(); }

 private:
  friend class TicketLocks;
  friend class Bugs;
  enum class Stage : std::uint8_t {
    kNone,
    kLocalQueue,  // other threads of this node come first
    kHandover,    // handed over; the releaser's writes are on their way
    kTicket,      // request for next_ticket in flight, and for now_serving if combined
    kServing,     // request for now_serving in flight
    kWatching,    // now_serving is in this node's memory
    kBackoff,
    kHeld,
    kLooking,  // a try: the read of both words in flight
    kTaking,   // a try: the swap of next_ticket in flight
  };
  AcquireOp(TicketLocks& locks, Caller& me, std::uint64_t index, bool blocks);
  struct Try {};
  AcquireOp(TicketLocks& locks, Caller& me, std::uint64_t index, Try);
  bool over() const { return stage_ == Stage::kNone || stage_ == Stage::kHeld; }
  bool try_take();
  bool enter(Time now);
  bool take_over();
  bool answered();
  [[gnu::noinline]] bool learn_serving();
  bool compare(std::uint64_t now_serving, Time now = 0);
  bool is_served(std::uint64_t now_serving);
  void ask_ticket();
  void post_ticket();
  void ask_serving();
  bool hold();
  Time deadline(Time now = 0);
  bool wait_on(Time now = 0);  // returns false, or throws after wait_timeout
  class Dropped;
  class Return;
  [[gnu::cold]] void drop();
  void pass_turn();

  TicketLocks* locks_ = nullptr;
  Caller* me_ = nullptr;
  std::uint64_t index_ = 0;
  std::uint64_t ticket_ = 0;
  LockPlace at_;
  std::uint32_t turn_ = 0;  // place in the node's queue
  MovedValue<Stage> stage_;
  bool blocks_ = false;  // backs off; its caller checks the deadline
  bool handed_over_ = false;
  bool overdue_ = false;  // its caller has got an error
  Time retry_at_ = 0, deadline_ = 0;
  InFlight words_;  // now_serving, ticket
};

/// Lock i is at participant i modulo the number of participants.
class TicketLocks : public Channel {
 public:
  TicketLocks(Manager& manager, std::string name, std::uint64_t count,
              const TicketLockOptions& options = {}, std::vector<NodeId> participants = {},
              Joins joins = Joins::kHere);
  TicketLocks(Channel& parent, std::string_view name, std::uint64_t count,
              const TicketLockOptions& options = {}, Joins joins = Joins::kHere);
  ~TicketLocks() override;

  static constexpr std::size_t kMostBefore = 7;
  /// The last ticket before 0 comes again.
  static constexpr std::uint64_t kTickets = (std::uint64_t{1} << 55) - 1;

  std::uint64_t count() const { return count_; }
  NodeId host_of(std::uint64_t i) const { return place_of(i).host; }

  /// Blocks until the caller holds lock i. Not recursive. Plain reads, local or remote, then see
  /// all data that was released before. Throws as AcquireOp::poll() does. Cost: a round trip when
  /// the lock is free (two without combined_request), none when a thread of this node hands the
  /// lock over, and an occasional read while waiting. Returns AcquireOp::ticket().
  std::optional<std::uint64_t> acquire(Caller& me, std::uint64_t i);
  /// Starts the same acquisition without blocking: poll the result. Does not back off.
  [[nodiscard]] AcquireOp start_acquire(Caller& me, std::uint64_t i);

  /// Takes lock i if nobody holds it or waits for it, and returns whether it did. Takes no ticket
  /// otherwise, so nobody waits for this caller. Throws Error(kUnavailable) as AcquireOp::poll()
  /// does. Cost: a round trip, and one more if the lock is free. Not in the paper.
  bool try_acquire(Caller& me, std::uint64_t i);

  /// Gives back lock i, which the caller holds. `before` holds up to kMostBefore requests to the
  /// lock's host that precede the release, such as the write of the data under the lock. kBefore
  /// orders these requests only; kPair orders them too. The caller keeps their buffers until the
  /// key is complete. release() may append the release to `before`. The caller may drop the key;
  /// its status says whether the release reached the lock's host. Blocks for Fence::kThread and
  /// kGlobal, for kPair without unawaited_fence, and without unawaited_release. Throws
  /// Error(kInvalidArgument), naming lock and holder, when the caller does not hold the lock;
  /// throws Error(kUnavailable), still holding the lock, when the fence fails. Cost: a write or a
  /// fetch-and-add. Under kPair and kBefore with the words on the NIC, a read of no bytes precedes
  /// it. A hand-over under kPair and kBefore after writes costs a read of no bytes, which the next
  /// thread waits for.
  AckKey release(Caller& me, std::uint64_t i, Fence fence, Requests& before);
  AckKey release(Caller& me, std::uint64_t i, Fence fence) {
    Requests nothing;
    return release(me, i, fence, nothing);
  }
  /// release() with Fence::kNone that never blocks. If a release must be awaited, the caller polls
  /// its key. `in_doubt`: the caller cannot tell whether a write under the lock has happened,
  /// because its answer is lost. All later holders hear of it (in_doubt()), for good: one word of
  /// the lock carries the mark, so it costs no message. A release in doubt is never a hand-over.
  AckKey start_release(Caller& me, std::uint64_t i, bool in_doubt = false);
  /// Returns true if a holder has released lock i in doubt. The caller holds the lock.
  bool in_doubt(std::uint64_t i) const { return locals_[i].in_doubt; }
  const TicketLockOptions& options() const { return options_; }

  /// What the nodes that answer know of lock i, for an error. Blocks.
  struct Report {
    std::string text;
    std::vector<NodeId> blamed;
    bool in_doubt = false;
  };
  Report report(Caller& me, std::uint64_t i);

 private:
  friend class AcquireOp;
  friend class Bugs;
  /// The state of a lock for the threads of this node. The thread whose place is served owns it.
  struct alignas(kCacheLine) Local {
    std::atomic<std::uint32_t> next{0}, serving{0};  // places in the node's queue
    bool has_ticket = false;                         // the node holds the lock
    bool in_doubt = false;                           // as now_serving says
    std::uint32_t handovers = 0;                     // since the ticket was taken
    std::uint64_t ticket = 0;
    Mark placed;  // when it is reached, the last holder's writes are placed or lost
  };

  // Tickets count modulo 2^55. next_ticket counts on beyond; now_serving has the ticket alone, and
  // the mark of a release in doubt beside it.
  static std::uint64_t ticket_of(std::uint64_t word) { return word & kTickets; }
  static std::uint64_t after(std::uint64_t ticket) { return ticket_of(ticket + 1); }
  /// Returns how many tickets `to` is behind `from`.
  static std::uint64_t distance(std::uint64_t from, std::uint64_t to) {
    return ticket_of(to - from);
  }
  static bool has_passed(std::uint64_t ticket, std::uint64_t serving) {
    return serving != ticket && distance(ticket, serving) <= kTickets / 2;
  }
  static constexpr std::uint64_t kInDoubt = std::uint64_t{1} << 63;
  static std::uint64_t mark_of(bool in_doubt) { return in_doubt ? kInDoubt : 0; }

  void make(Joins joins);
  void begin_with(std::uint64_t ticket);
  // The two words of a lock are atomic_vars of one host, next to each other.
  LockPlace place_of(std::uint64_t i) const {
    const std::uint64_t offset = i / hosts_ * 16;
    return {participants()[i % hosts_], offset, offset + 8};
  }
  std::uint64_t& holder_word(std::uint64_t i) const;
  // What other nodes read of a lock on this node: 0, or the node's ticket and who has it.
  static constexpr std::uint64_t kWaits = 0xff;  // instead of a caller: a thread still to take over
  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0} >> 8;  // no ticket: still to arrive
  static std::uint64_t waiting(std::uint64_t ticket) { return ticket << 8 | kWaits; }
  void check_holder(Caller& me, std::uint64_t i);
  [[noreturn]] void throw_not_held(Caller& me, std::uint64_t i);
  void fence(Caller& me, std::uint64_t i, NodeId host, Fence fence);
  [[gnu::noinline]] AckKey release_in_steps(Caller& me, std::uint64_t i, const LockPlace& at,
                                            Fence fence, Requests& before);
  AckKey give_back(Caller& me, std::uint64_t i, const LockPlace& at, Fence fence, Requests& before,
                   bool in_doubt = false);
  AckKey hand_over(Caller& me, std::uint64_t i, NodeId host, Fence fence, Requests& before);
  AckKey move_on(Caller& me, std::uint64_t i, const LockPlace& at, Fence fence, Requests& before,
                 bool in_doubt);
  void lost(NodeId peer) override;
  std::optional<std::uint64_t> ask(Caller& me, NodeId node, const RemoteRegion& at,
                                   std::uint64_t offset);
  [[noreturn]] void throw_overdue(Caller& me, std::uint64_t i, const AcquireOp& op);
  [[noreturn]] void throw_passed(std::uint64_t i, std::uint64_t ticket,
                                 std::uint64_t serving) const;
  [[noreturn]] void throw_unplaced(Caller& me, std::uint64_t i, fabric::Status status) const;
  [[noreturn]] void throw_lost(std::uint64_t i, fabric::Status status) const;
  [[noreturn]] void throw_unreachable(std::uint64_t i, fabric::Status status) const;

  std::uint64_t count_;
  std::uint64_t hosts_;
  TicketLockOptions options_;
  AtomicVars words_;
  // For reports of all nodes: this node's ticket of each lock and who has it (holder_word()), then
  // a word for each host, 1 if this node has lost its connection to it.
  LocalRegion holders_;
  std::unique_ptr<Local[]> locals_;
  std::optional<Footprint> footprint_;  // of locals_
};

/// One lock, at the first participant.
class TicketLock : public TicketLocks {
 public:
  TicketLock(Manager& manager, std::string name, const TicketLockOptions& options = {},
             std::vector<NodeId> participants = {})
      : TicketLocks(manager, std::move(name), 1, options, std::move(participants),
                    Joins::kDerived) {
    join();
  }
  TicketLock(Channel& parent, std::string_view name, const TicketLockOptions& options = {})
      : TicketLocks(parent, name, 1, options, Joins::kDerived) {
    join();
  }
  std::optional<std::uint64_t> acquire(Caller& me) { return TicketLocks::acquire(me, 0); }
  bool try_acquire(Caller& me) { return TicketLocks::try_acquire(me, 0); }
  AckKey release(Caller& me, Fence fence) { return TicketLocks::release(me, 0, fence); }
};

}  // namespace pyrdma::loco
