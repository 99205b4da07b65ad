#include "systems/loco/ticket_lock.h"

#include <algorithm>

#include "base/assert.h"
#include "base/error.h"
#include "base/remote_word.h"
#include "systems/loco/scopes.h"

namespace pyrdma::loco {

namespace {

// True if a queue pair keeps the order that the fence asks for.
bool is_of_one_queue_pair(Fence fence) { return fence == Fence::kBefore || fence == Fence::kPair; }

}  // namespace

TicketLocks::TicketLocks(Manager& manager, std::string name, std::uint64_t count,
                         const TicketLockOptions& options, std::vector<NodeId> participants,
                         Joins joins)
    : Channel(manager, std::move(name), std::move(participants)),
      count_(count),
      hosts_(Channel::participants().size()),
      options_(options),
      words_(*this, "words", (count + hosts_ - 1) / hosts_ * hosts_ * 2, options.placement) {
  make(joins);
}

TicketLocks::TicketLocks(Channel& parent, std::string_view name, std::uint64_t count,
                         const TicketLockOptions& options, Joins joins)
    : Channel(parent, name),
      count_(count),
      hosts_(Channel::participants().size()),
      options_(options),
      words_(*this, "words", (count + hosts_ - 1) / hosts_ * hosts_ * 2, options.placement) {
  make(joins);
}

TicketLocks::~TicketLocks() { manager().caller(0).runtime().forget(this); }

void TicketLocks::make(Joins joins) {
  if (count_ == 0) {
    throw Error(ErrorCode::kInvalidArgument, "'" + name() + "' has 0 locks; give it 1 or more");
  }
  locals_ = std::make_unique<Local[]>(count_);
  if (options_.first_ticket != 0) begin_with(ticket_of(options_.first_ticket));
  footprint_.emplace(manager().env(), locals_.get(), count_ * sizeof(Local));
  holders_ = add_region("holders", (count_ + hosts_) * 8, fabric::kRemoteRead);
  expect_region("holders", (count_ + hosts_) * 8);
  agree("placement", static_cast<std::uint64_t>(options_.placement));
  if (joins == Joins::kHere) join();
}

// Before join(): no other node uses the words yet.
void TicketLocks::begin_with(std::uint64_t ticket) {
  for (std::uint64_t i = 0; i < count_; ++i) {
    locals_[i].next = locals_[i].serving = static_cast<std::uint32_t>(ticket);
    const LockPlace at = place_of(i);
    if (at.host != self()) continue;
    std::uint64_t* next = words_.local(at.host, at.next_ticket);
    if (next == nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  "locks '" + name() + "' begin with ticket " + std::to_string(ticket) +
                      ", but their words lie on the NIC, where they begin with 0");
    }
    store_release(next, ticket);
    store_release(words_.local(at.host, at.now_serving), ticket);
  }
}

std::uint64_t& TicketLocks::holder_word(std::uint64_t i) const {
  return reinterpret_cast<std::uint64_t*>(holders_.data)[i];
}

AcquireOp TicketLocks::start_acquire(Caller& me, std::uint64_t i) { return {*this, me, i, false}; }

std::optional<std::uint64_t> TicketLocks::acquire(Caller& me, std::uint64_t i) {
  const Scope all(me.env(), scope::acquire);
  AcquireOp op(*this, me, i, true);
  bool ended = false;  // dropped work of this caller
  Time until = 0;
  const auto turn = [&] {
    const Scope step(me.env(), scope::acquire_turn);
    ended = manager().turn(me);
    return op.poll() || ended || op.wakes_at() != until;
  };
  if (op.held()) return op.ticket();
  turn();
  while (!op.held()) {
    until = op.wakes_at();
    if (!manager().env().poll_until(turn, until)) op.wait_on();
  }
  return op.ticket();
}

bool TicketLocks::try_acquire(Caller& me, std::uint64_t i) {
  AcquireOp op(*this, me, i, AcquireOp::Try());
  if (!op.over()) {
    me.wait_until([&] { return op.poll() || op.over(); }, "an answer of a lock's host");
  }
  return op.held();
}

inline AckKey TicketLocks::give_back(Caller& me, std::uint64_t i, const LockPlace& at, Fence fence,
                                     Requests& before, bool in_doubt) {
  Local& local = locals_[i];
  const std::uint32_t place = local.serving.load(std::memory_order_relaxed);
  const bool waited_for = local.next.load(std::memory_order_relaxed) != place + 1;
  if (waited_for && local.handovers == options_.max_handovers)
    me.env().reached("lock/last hand-over");
  const std::size_t given = before.size();
  AckKey key;
  try {
    key = waited_for && local.handovers < options_.max_handovers && !in_doubt
              ? hand_over(me, i, at.host, fence, before)
              : move_on(me, i, at, fence, before, in_doubt);
  } catch (...) {
    before.resize(given);  // the caller tries again with its own requests
    throw;
  }
  // An error above leaves the lock held.
  store_release(&holder_word(i), local.has_ticket ? waiting(local.ticket) : 0);
  local.serving.store(place + 1, std::memory_order_release);
  return key;
}

AckKey TicketLocks::release(Caller& me, std::uint64_t i, Fence fence, Requests& before) {
  const Scope step(me.env(), scope::release);
  PYRDMA_CHECK(before.size(), <=, kMostBefore);
  check_holder(me, i);
  const LockPlace at = place_of(i);
  if (!options_.one_doorbell || !options_.unawaited_release) {
    return release_in_steps(me, i, at, fence, before);
  }
  if (fence > Fence::kBefore) this->fence(me, i, at.host, fence);
  return give_back(me, i, at, fence, before);
}

AckKey TicketLocks::start_release(Caller& me, std::uint64_t i, bool in_doubt) {
  const Scope step(me.env(), scope::release);
  check_holder(me, i);
  Requests nothing;
  return give_back(me, i, place_of(i), Fence::kNone, nothing, in_doubt);
}

// Releases with a doorbell for each request, or waits for the release, or both.
AckKey TicketLocks::release_in_steps(Caller& me, std::uint64_t i, const LockPlace& at, Fence fence,
                                     Requests& before) {
  AckKey written;
  if (!options_.one_doorbell) {
    for (fabric::WorkRequest& request : before) me.post(at.host, {&request, 1}, written);
    before.clear();
  }
  if (fence > Fence::kBefore) this->fence(me, i, at.host, fence);
  AckKey key = give_back(me, i, at, fence, before);
  key.unite(std::move(written));
  if (!options_.unawaited_release) key.wait();
  return key;
}

void TicketLocks::fence(Caller& me, std::uint64_t i, NodeId host, Fence fence) {
  const Bugs& bugs = manager().bugs();
  bugs.fence_release([&] {
    const bool is_pair = fence == Fence::kPair;
    const fabric::Status status = is_pair && options_.unawaited_fence ? me.fence_pair(host)
                                  : is_pair                           ? me.await_pair(host)
                                  : fence == Fence::kThread           ? bugs.fence_thread(me)
                                                                      : bugs.fence_global(me);
    if (status != fabric::Status::kSuccess) throw_unplaced(me, i, status);
  });
}

void TicketLocks::check_holder(Caller& me, std::uint64_t i) {
  PYRDMA_CHECK(i, <, count_);
  if ((holder_word(i) & 0xff) != me.index() + 1) [[unlikely]]
    throw_not_held(me, i);
}

void TicketLocks::throw_lost(std::uint64_t i, fabric::Status status) const {
  throw Error(ErrorCode::kUnavailable,
              "lock " + std::to_string(i) + " of '" + name() +
                  "': writes of its last holder, a thread of this node, to node " +
                  std::to_string(host_of(i)) + " were lost (" + to_string(status) +
                  "); check the protected data, then acquire the lock again",
              false)
      .blaming({host_of(i)});
}

// The next thread uses other queue pairs, so the order within this queue pair does not help it: it
// waits until the writes are placed.
AckKey TicketLocks::hand_over(Caller& me, std::uint64_t i, NodeId host, Fence fence,
                              Requests& before) {
  const Scope step(me.env(), scope::hand_over);
  Local& local = locals_[i];
  me.env().reached("lock/hand-over");
  AckKey key;
  if (!before.empty()) {
    // A read of no bytes, posted together with the writes, is the mark.
    if (is_of_one_queue_pair(fence)) before.emplace_back().opcode = fabric::Opcode::kRead;
    key = me.post(host, before.span());
  }
  local.placed = is_of_one_queue_pair(fence) ? me.mark(host, key) : Mark();
  ++local.handovers;
  return key;
}

AckKey TicketLocks::move_on(Caller& me, std::uint64_t i, const LockPlace& at, Fence fence,
                            Requests& before, bool in_doubt) {
  const Scope step(me.env(), scope::move_on);
  Local& local = locals_[i];
  MemRef word = me.block(8);  // the next value of now_serving, or its old value
  const fabric::Sge sge = word.sge(8);
  if (options_.placement == Placement::kDevice && is_of_one_queue_pair(fence)) {
    // A write to a word on the NIC overtakes writes that are still on their way to the host's
    // memory.
    me.env().reached("lock/words on the NIC");
    before.emplace_back().opcode = fabric::Opcode::kRead;
  }
  const RemoteRegion& words = words_.at(at.host);
  if (options_.release_by_write) {
    *word.as<std::uint64_t>() = after(local.ticket) | mark_of(local.in_doubt || in_doubt);
    before.add(fabric::Opcode::kWrite, words, at.now_serving, sge);
  } else {
    before.add(fabric::Opcode::kFetchAdd, words, at.now_serving, sge).compare_add =
        after(local.ticket) - local.ticket + mark_of(in_doubt && !local.in_doubt);
  }
  AckKey key = me.post(at.host, before.span());
  key.keep(std::move(word));
  local.has_ticket = false;
  local.handovers = 0;
  return key;
}

}  // namespace pyrdma::loco
