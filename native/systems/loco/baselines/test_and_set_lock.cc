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
  deadline_ = locks.manager().env().now() + locks.manager().options().wait_timeout;
  old_ = InFlight(me.block(8));
  try_once();
}

void TestAndSetOp::try_once() {
  const Scope step(me_->env(), scope::test_and_set_try);
  if (locks_->grant_ == Grant::kTicket) {
    AtomicVars& words = locks_->words_;
    old_.key = has_ticket_ ? words.load(*me_, index_, old_.block)
                           : words.fetch_add(*me_, index_, std::uint64_t{1} << 32, old_.block);
    return;
  }
  old_.key = locks_->words_.compare_swap(*me_, index_, 0, locks_->owner(me_->index()), old_.block);
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
  if (!old_.key.query()) return false;
  const std::string lock = "lock " + std::to_string(index_) + " of '" + locks_->name() +
                           "' at node " + std::to_string(locks_->host_of(index_));
  if (old_.key.status() != fabric::Status::kSuccess) {
    throw Error(ErrorCode::kUnavailable,
                lock + ": the node does not answer (" + to_string(old_.key.status()) + ")", false)
        .blaming({locks_->host_of(index_)});
  }
  const std::uint64_t word = *old_.block.as<std::uint64_t>();
  if (is_free(word)) {
    old_ = InFlight();
    return held_ = true;
  }
  if (env.now() >= deadline_) {
    const std::string holder = locks_->grant_ == Grant::kTicket
                                   ? "ticket " + std::to_string(static_cast<std::uint32_t>(word)) +
                                         " is served, not " + std::to_string(ticket_)
                                   : "caller " + std::to_string(word & 0xff) + " of node " +
                                         std::to_string((word >> 8) - 1) + " holds it";
    throw Error(ErrorCode::kTimeout,
                lock + " was not released within " +
                    std::to_string(locks_->manager().options().wait_timeout / kMillisecond) +
                    " ms, for which caller " + std::to_string(me_->index()) + " of node " +
                    std::to_string(locks_->self()) + " waited; " + holder,
                false);
  }
  try_once();
  return false;
}

}  // namespace pyrdma::loco
