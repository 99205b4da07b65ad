// The acquisition of a ticket lock, step by step; see ticket_lock.h.
#include <algorithm>
#include <array>

#include "base/assert.h"
#include "base/remote_word.h"
#include "systems/loco/scopes.h"
#include "systems/loco/ticket_lock.h"

namespace pyrdma::loco {

// The delegation makes an error in this constructor run the destructor, which passes the turn on.
AcquireOp::AcquireOp(TicketLocks& locks, Caller& me, std::uint64_t index, bool blocks)
    : AcquireOp() {
  PYRDMA_CHECK(index, <, locks.count_);
  me.report_dropped(&locks);
  locks_ = &locks;
  me_ = &me;
  index_ = index;
  at_ = locks.place_of(index);
  blocks_ = blocks;
  Env& env = locks.manager().env();
  const Scope step(env, scope::acquire_begin);
  env.charge_walk(*locks.footprint_, &locks.locals_[index]);
  env.charge(Cost::kAtomic);
  turn_ = locks.locals_[index].next.fetch_add(1, std::memory_order_relaxed);
  stage_ = Stage::kLocalQueue;
  poll();
}

// Takes a place in the node's queue only if the queue is empty. See the other constructor.
AcquireOp::AcquireOp(TicketLocks& locks, Caller& me, std::uint64_t index, Try) : AcquireOp() {
  PYRDMA_CHECK(index, <, locks.count_);
  locks_ = &locks;
  me_ = &me;
  index_ = index;
  at_ = locks.place_of(index);
  TicketLocks::Local& local = locks.locals_[index];
  turn_ = local.serving.load(std::memory_order_acquire);
  std::uint32_t next = turn_;
  me.env().charge(Cost::kAtomic);
  if (!local.next.compare_exchange_strong(next, turn_ + 1, std::memory_order_relaxed)) return;
  stage_ = Stage::kLocalQueue;  // an error before the post leaves a turn to pass on
  words_.block = me.block(16);
  words_.key = me.read(at_.host, locks.words_.at(at_.host), at_.next_ticket, words_.block.sge(16));
  stage_ = Stage::kLooking;
}

// A lock is free if the next ticket is served. Nobody else has that ticket until next_ticket is
// swapped, and only its owner changes now_serving; so the swap takes a free lock or fails.
bool AcquireOp::try_take() {
  auto* words = words_.block.as<std::uint64_t>();
  if (stage_ == Stage::kTaking) {
    if (words[0] == words[1]) return hold();
  } else {
    ticket_ = TicketLocks::ticket_of(words[0]);
    if (is_served(words[1])) {
      words[1] = words[0];  // what the swap must find
      words_.key = me_->compare_swap(at_.host, locks_->words_.at(at_.host), at_.next_ticket,
                                     words[0], words[0] + 1, words_.block.sge(8));
      stage_ = Stage::kTaking;
      return false;
    }
  }
  store_release(&locks_->holder_word(index_), std::uint64_t{0});
  pass_turn();
  return false;
}

bool AcquireOp::poll(Time now) {
  const Scope step(locks_->manager().env(), scope::acquire_poll);
  switch (stage_) {
    case Stage::kNone:
      return false;
    case Stage::kHeld:
      return true;
    case Stage::kLocalQueue:
      return enter(now);
    case Stage::kHandover:
      return locks_->locals_[index_].placed.reached() && take_over();
    case Stage::kTicket:
    case Stage::kServing:
    case Stage::kLooking:
    case Stage::kTaking:
      return words_.key.query() && answered();
    case Stage::kWatching:
      return compare(load_acquire(locks_->words_.local(at_.host, at_.now_serving)), now);
    case Stage::kBackoff:
      if (locks_->manager().env().now() >= retry_at_) ask_serving();
      return false;
  }
  return false;
}

bool AcquireOp::enter(Time now) {
  TicketLocks::Local& local = locks_->locals_[index_];
  if (local.serving.load(std::memory_order_acquire) != turn_) return !blocks_ && wait_on(now);
  if (!local.has_ticket) {
    ask_ticket();
    return false;
  }
  ticket_ = local.ticket;
  handed_over_ = true;
  stage_ = Stage::kHandover;
  if (local.placed.reached()) return take_over();
  me_->env().reached("lock/hand-over before placement");
  return false;
}

// A thread must not find the writes of the last holder missing without a word. It hears of them
// once, and the lock goes on to the next thread or node.
bool AcquireOp::take_over() {
  const fabric::Status lost = locks_->locals_[index_].placed.status();
  hold();
  if (lost == fabric::Status::kSuccess) [[likely]]
    return true;
  locks_->start_release(*me_, index_);
  stage_ = Stage::kNone;
  locks_->throw_lost(index_, lost);
}

void AcquireOp::ask_ticket() {
  const Scope step(me_->env(), scope::acquire_ask);
  words_.block = me_->block(16);  // nothing is in flight
  locks_->manager().bugs().ask_ticket(*this, [&] { post_ticket(); });
}

// In a combined request the NIC reads now_serving after the fetch-and-add, on the same queue pair,
// so that a free lock takes one round trip.
[[gnu::always_inline]] inline void AcquireOp::post_ticket() {
  const RemoteRegion& at = locks_->words_.at(at_.host);
  const std::array<fabric::Sge, 2> into = {words_.block.sge(8, 8), words_.block.sge(8)};
  Requests requests;
  requests.add(fabric::Opcode::kFetchAdd, at, at_.next_ticket, into[0]).compare_add = 1;
  if (locks_->options_.combined_request) {
    requests.add(fabric::Opcode::kRead, at, at_.now_serving, into[1]);
  }
  words_.key = me_->post(at_.host, requests.span());
  stage_ = Stage::kTicket;
}

void AcquireOp::ask_serving() {
  const Scope step(me_->env(), scope::acquire_ask_again);
  words_.key =
      me_->read(at_.host, locks_->words_.at(at_.host), at_.now_serving, words_.block.sge(8));
  stage_ = Stage::kServing;
}

bool AcquireOp::answered() {
  const fabric::Status status = words_.key.status();
  if (status != fabric::Status::kSuccess) [[unlikely]] {
    pass_turn();
    locks_->throw_unreachable(index_, status);
  }
  if (stage_ >= Stage::kLooking) [[unlikely]]
    return try_take();
  const auto* words = words_.block.as<std::uint64_t>();
  if (stage_ == Stage::kTicket) {
    ticket_ = TicketLocks::ticket_of(words[1]);
    if (!locks_->options_.combined_request) return learn_serving();
  }
  return compare(words[0]);
}

// This acquisition ends without a ticket. The next thread of the node asks for itself.
void AcquireOp::pass_turn() {
  stage_ = Stage::kNone;
  locks_->locals_[index_].serving.store(turn_ + 1, std::memory_order_release);
}

// Only the ticket is known. The host reads its own memory.
bool AcquireOp::learn_serving() {
  if (const std::uint64_t* word = locks_->words_.local(at_.host, at_.now_serving)) {
    return compare(load_acquire(word));
  }
  ask_serving();
  return false;
}

// Learns the lock's mark too, if this acquisition has the lock now.
inline bool AcquireOp::is_served(std::uint64_t now_serving) {
  if (TicketLocks::ticket_of(now_serving) != ticket_) return false;
  locks_->locals_[index_].in_doubt = (now_serving & TicketLocks::kInDoubt) != 0;
  return true;
}

bool AcquireOp::compare(std::uint64_t now_serving, Time now) {
  if (is_served(now_serving)) return hold();
  const std::uint64_t serving = TicketLocks::ticket_of(now_serving);
  if (TicketLocks::has_passed(ticket_, serving)) [[unlikely]] {
    pass_turn();
    locks_->throw_passed(index_, ticket_, serving);
  }
  store_release(&locks_->holder_word(index_), TicketLocks::waiting(ticket_));
  if (!blocks_) wait_on(now);
  if (const std::uint64_t* word = locks_->words_.local(at_.host, at_.now_serving)) {
    // The host waits in its own memory: a plain read sees data that was released. The word may have
    // changed since the NIC read it; then no event wakes the waiter.
    stage_ = Stage::kWatching;
    return is_served(load_acquire(word)) && hold();
  }
  const std::uint64_t before_us = TicketLocks::distance(serving, ticket_) - 1;
  if (blocks_ && before_us != 0) {
    retry_at_ = std::min(deadline(), locks_->manager().env().now() +
                                         static_cast<Time>(before_us) * locks_->options_.backoff);
    me_->env().reached("lock/back-off");
    stage_ = Stage::kBackoff;
  } else {
    ask_serving();
  }
  return false;
}

bool AcquireOp::hold() {
  const Scope step(me_->env(), scope::acquire_hold);
  TicketLocks::Local& local = locks_->locals_[index_];
  local.has_ticket = true;
  local.ticket = ticket_;
  store_release(&locks_->holder_word(index_), ticket_ << 8 | (me_->index() + 1));
  words_.key = AckKey();
  words_.block = MemRef();
  stage_ = Stage::kHeld;
  return true;
}

// The clock is read first when the acquisition must wait.
Time AcquireOp::deadline(Time now) {
  Manager& manager = locks_->manager();
  if (deadline_ == 0) {
    deadline_ = (now != 0 ? now : manager.env().now()) + manager.options().wait_timeout;
  }
  return deadline_;
}

bool AcquireOp::wait_on(Time now) {
  const Time end = deadline(now);
  if ((now != 0 ? now : locks_->manager().env().now()) < end) return false;
  throw_overdue();
}

void AcquireOp::throw_overdue() {
  overdue_ = true;
  locks_->throw_overdue(*me_, index_, *this);
}

/// Gives a ticket back for locks that are destroyed: waits until it is served, then releases. The
/// words of the lock live on, because a region is never given back.
class AcquireOp::Return {
 public:
  Return(AcquireOp& op, const TicketLocks::Local& local)
      : me_(op.me_),
        at_(op.at_),
        words_(op.locks_->words_.at(op.at_.host)),
        published_(&op.locks_->holder_word(op.index_)),
        by_write_(op.locks_->options_.release_by_write),
        request_(std::move(op.words_)) {
    if (op.stage_ == Stage::kHandover || op.stage_ == Stage::kLocalQueue) {
      ticket_ = local.ticket;
      placed_ = local.placed;
    } else if (op.stage_ != Stage::kTicket) {
      ticket_ = op.ticket_;
    }
    swaps_ = op.stage_ == Stage::kTaking;
  }

  /// Returns true when nothing is left to do.
  bool poll() {
    if (!request_.key.query() || !placed_.reached()) return false;
    if (request_.key.status() != fabric::Status::kSuccess) return true;
    if (request_.block.data() == nullptr) request_.block = me_->block(16);
    const auto* words = request_.block.as<std::uint64_t>();
    if (!ticket_) {
      ticket_ = TicketLocks::ticket_of(words[1]);
    } else if (swaps_) {
      if (words[0] != words[1]) {  // it has taken nothing
        store_release(published_, std::uint64_t{0});
        return true;
      }
      swaps_ = false;
    } else if (has_read_) {
      const std::uint64_t serving = TicketLocks::ticket_of(words[0]);
      if (serving == *ticket_) give_back(words[0] & TicketLocks::kInDoubt);
      if (serving == *ticket_ || TicketLocks::has_passed(*ticket_, serving)) return true;
    }
    has_read_ = true;
    store_release(published_, TicketLocks::waiting(*ticket_));
    request_.key = me_->read(at_.host, words_, at_.now_serving, request_.block.sge(8));
    return false;
  }

 private:
  void give_back(std::uint64_t mark) {
    const std::uint64_t next = TicketLocks::after(*ticket_);
    MemRef word = me_->block(8);
    *word.as<std::uint64_t>() = next | mark;
    const fabric::Sge sge = word.sge(8);
    AckKey key = by_write_
                     ? me_->write(at_.host, words_, at_.now_serving, sge)
                     : me_->fetch_add(at_.host, words_, at_.now_serving, next - *ticket_, sge);
    key.keep(std::move(word));
    store_release(published_, std::uint64_t{0});
  }

  Caller* me_;
  LockPlace at_;
  RemoteRegion words_;
  std::uint64_t* published_;  // outlives the locks as the words do
  bool by_write_, has_read_ = false, swaps_ = false;
  std::optional<std::uint64_t> ticket_;  // nothing: its request is in flight
  Mark placed_;                          // of the thread that has handed it over
  InFlight request_;                     // now_serving, ticket
};

/// Takes the lock and gives it back.
class AcquireOp::Dropped final : public runtime::Unfinished {
 public:
  explicit Dropped(AcquireOp&& op)
      : runtime::Unfinished(op.locks_, op.overdue_), op_(std::move(op)) {
    op_.deadline_ = kForever;  // no further report of a timeout
    op_.blocks_ = false;       // no back-off: nothing would wake a waiter at its end
    op_.retry_at_ = 0;
    if (op_.stage_ == Stage::kTicket || op_.stage_ == Stage::kTaking) {
      store_release(&op_.locks_->holder_word(op_.index_),
                    TicketLocks::waiting(TicketLocks::kUnknown));
    }
  }
  ~Dropped() override { op_.stage_ = Stage::kNone; }  // the lock may be gone
  bool poll() override {
    if (return_) return return_->poll();
    if (!op_.poll()) return op_.stage_ == Stage::kNone;
    op_.locks_->start_release(*op_.me_, op_.index_);
    return true;
  }
  bool outlive() override {
    const TicketLocks::Local& local = op_.locks_->locals_[op_.index_];
    const bool in_queue = op_.stage_ == Stage::kLocalQueue;
    const bool is_first = local.serving.load(std::memory_order_acquire) == op_.turn_;
    if (op_.stage_ == Stage::kLooking || (in_queue && !(is_first && local.has_ticket)))
      return false;
    return_.emplace(op_, local);
    return true;
  }

 private:
  AcquireOp op_;
  std::optional<Return> return_;  // the locks are destroyed
};

void AcquireOp::drop() { me_->finish_later(std::make_unique<Dropped>(std::move(*this))); }

}  // namespace pyrdma::loco
