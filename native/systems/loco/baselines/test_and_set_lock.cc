#include "systems/loco/baselines/test_and_set_lock.h"

#include <array>

#include "base/assert.h"
#include "base/error.h"
#include "systems/loco/scopes.h"

namespace pyrdma::loco {

TestAndSetLocks::TestAndSetLocks(Manager& manager, std::string name, std::uint64_t count,
                                 std::vector<NodeId> participants, Placement placement, Grant grant)
    : Channel(manager, std::move(name), std::move(participants)),
      words_(*this, "words", count, placement),
      grant_(grant) {
  make();
}

TestAndSetLocks::TestAndSetLocks(Channel& parent, std::string_view name, std::uint64_t count,
                                 Placement placement, Grant grant)
    : Channel(parent, name), words_(*this, "words", count, placement), grant_(grant) {
  make();
}

TestAndSetLocks::~TestAndSetLocks() { manager().caller(0).runtime().forget(this); }

void TestAndSetLocks::make() {
  if (grant_ == Grant::kTicket) {
    tickets_ = std::make_unique<std::atomic<std::uint32_t>[]>(count());
  }
  join();
}

// Returns what a release adds to the word, to serve the next ticket. The served one is in the low
// half: its last number is followed by 0, and the carry must not reach the tickets in the high
// half.
std::uint64_t TestAndSetLocks::next_served(std::uint64_t i) const {
  const bool carries = tickets_[i].load(std::memory_order_relaxed) == ~std::uint32_t{0};
  return 1 - (carries ? std::uint64_t{1} << 32 : 0);
}

void TestAndSetLocks::acquire(Caller& me, std::uint64_t i) {
  TestAndSetOp op = start_acquire(me, i);
  me.wait_until([&] { return op.poll(); }, "acquisition of a test-and-set lock");
}

AckKey TestAndSetLocks::release_for(Caller& me, std::uint32_t acquirer, std::uint64_t i,
                                    std::span<fabric::WorkRequest> before) {
  const Scope step(me.env(), scope::test_and_set_release);
  PYRDMA_CHECK(i, <, count());
  const NodeId host = host_of(i);
  MemRef zero = me.block(8);
  *zero.as<std::uint64_t>() = 0;
  const fabric::Sge from = zero.sge(8);
  std::array<fabric::WorkRequest, 8> requests;
  PYRDMA_CHECK(before.size(), <, requests.size());
  std::size_t posted = 0;
  for (const fabric::WorkRequest& request : before) requests[posted++] = request;
  fabric::WorkRequest& unlock = requests[posted++];
  unlock.opcode = fabric::Opcode::kWrite;
  if (grant_ == Grant::kTicket) {
    unlock.opcode = fabric::Opcode::kFetchAdd;
    unlock.compare_add = next_served(i);
  }
  // A swap of a waiting caller may lose the write.
  else if (manager().env().device().capabilities().swaps_lose_writes) {
    unlock.opcode = fabric::Opcode::kCompareSwap;
    unlock.compare_add = owner(acquirer);
  }
  unlock.sges = &from;
  unlock.sge_count = 1;
  unlock.remote_addr = words_.at(host).addr + words_.offset_of(i);
  unlock.rkey = words_.at(host).rkey;
  AckKey key = me.post(host, {requests.data(), posted});
  key.keep(std::move(zero));
  return key;
}

std::uint64_t TestAndSetLocks::owner(std::uint32_t index) const {
  return (std::uint64_t{self()} + 1) << 8 | index;
}

TestAndSetOp::TestAndSetOp(TestAndSetLocks& locks, Caller& me, std::uint64_t index)
    : locks_(&locks), me_(&me), index_(index) {
  PYRDMA_CHECK(index, <, locks.count());
  me.report_dropped(&locks);
  deadline_ = locks.manager().env().now() + locks.manager().options().wait_timeout;
  old_ = InFlight(me.block(8));
  try_once();
}

void TestAndSetOp::try_once() {
  const Scope step(me_->env(), scope::test_and_set_try);
  may_get_ = has_ticket_;  // a post may throw
  AtomicVars& words = locks_->words_;
  if (locks_->grant_ == Grant::kTestAndSet) {
    old_.key = words.compare_swap(*me_, index_, 0, locks_->owner(me_->index()), old_.block);
  } else if (has_ticket_) {
    old_.key = words.load(*me_, index_, old_.block);
  } else {
    old_.key = words.fetch_add(*me_, index_, std::uint64_t{1} << 32, old_.block);
  }
  may_get_ = true;
}

bool TestAndSetOp::is_free(std::uint64_t word) {
  if (locks_->grant_ == Grant::kTestAndSet) return word == 0;
  if (!has_ticket_) ticket_ = static_cast<std::uint32_t>(word >> 32);
  has_ticket_ = true;
  if (static_cast<std::uint32_t>(word) != ticket_) return false;
  locks_->tickets_[index_].store(ticket_, std::memory_order_relaxed);
  return true;
}

bool TestAndSetOp::poll() {
  Env& env = locks_->manager().env();
  const Scope step(env, scope::test_and_set_poll);
  if (held_) return true;
  if (!may_get_ && dropped_) return false;
  if (!may_get_) try_once();  // after an error
  if (!old_.key.query()) return false;
  if (old_.key.status() != fabric::Status::kSuccess) {
    may_get_ = false;
    throw Error(ErrorCode::kUnavailable,
                "lock " + std::to_string(index_) + " of '" + locks_->name() + "' at node " +
                    std::to_string(locks_->host_of(index_)) + ": the node does not answer (" +
                    to_string(old_.key.status()) + ")",
                false)
        .blaming({locks_->host_of(index_)});
  }
  const std::uint64_t word = *old_.block.as<std::uint64_t>();
  if (is_free(word)) {
    old_ = InFlight();
    may_get_ = false;
    return held_ = true;
  }
  const bool late = !dropped_ && env.now() >= deadline_;
  may_get_ = has_ticket_;
  if (has_ticket_ || !(late || dropped_)) try_once();
  if (late) throw_overdue(word);
  return false;
}

void TestAndSetOp::throw_overdue(std::uint64_t word) {
  overdue_ = true;
  const bool has_ticket = locks_->grant_ == Grant::kTicket;
  const std::string holder = has_ticket
                                 ? "ticket " + std::to_string(static_cast<std::uint32_t>(word)) +
                                       " is served, not " + std::to_string(ticket_)
                                 : "caller " + std::to_string(word & 0xff) + " of node " +
                                       std::to_string((word >> 8) - 1) + " holds it";
  throw Error(ErrorCode::kTimeout,
              "lock " + std::to_string(index_) + " of '" + locks_->name() + "' at node " +
                  std::to_string(locks_->host_of(index_)) + " was not released within " +
                  std::to_string(locks_->manager().options().wait_timeout / kMillisecond) +
                  " ms, for which caller " + std::to_string(me_->index()) + " of node " +
                  std::to_string(locks_->self()) + " waited; " + holder,
              false)
      .blaming(has_ticket ? me_->silent_peers()
                          : std::vector{static_cast<NodeId>((word >> 8) - 1)});
}

/// Waits for the answer of the last try, or for the ticket, and gives the lock back.
class TestAndSetOp::Dropped final : public runtime::Unfinished {
 public:
  explicit Dropped(TestAndSetOp&& op)
      : runtime::Unfinished(op.locks_, op.overdue_), op_(std::move(op)) {
    op_.dropped_ = true;
  }
  ~Dropped() override { op_.may_get_ = false; }  // the locks may be gone
  bool poll() override {
    if (!op_.poll()) return !op_.may_get_;
    op_.locks_->release(*op_.me_, op_.index_);
    return true;
  }

 private:
  TestAndSetOp op_;
};

void TestAndSetOp::drop() { me_->finish_later(std::make_unique<Dropped>(std::move(*this))); }

}  // namespace pyrdma::loco
