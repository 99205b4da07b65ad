// Test-and-set locks over network memory, with a word per lock. A caller takes a lock by a
// compare-and-swap over the network, repeated until it succeeds. A caller releases the lock by a
// write of zero, or by a swap if the device would lose the write (Soft-RoCE). The locks are not
// fair, and every try of every waiter goes to the word. Sherman's locks (hierarchical_lock.h) add a
// queue on each node. Grant::kTicket replaces the test-and-set by tickets, to show what it costs.
#pragma once
#include <atomic>
#include <memory>
#include <span>

#include "base/moved_value.h"
#include "systems/loco/atomic_var.h"

namespace pyrdma::loco {

class TestAndSetLocks;

/// How the waiters get a lock. kTestAndSet: whose try comes first after the release. kTicket: in
/// the order of their arrival; the word holds the next ticket and the served one, 32 bits each, so
/// that one fetch-and-add draws a ticket and tells whether it is served.
enum class Grant : std::uint8_t { kTestAndSet, kTicket };

/// A try in progress, like AcquireOp of ticket_lock.h. If it is dropped with a try in flight or
/// with a ticket, also after its error, its caller gives back what it gets (Caller::finish_later),
/// as long as the locks exist.
class TestAndSetOp {
 public:
  TestAndSetOp() = default;
  TestAndSetOp(TestAndSetOp&&) noexcept = default;
  TestAndSetOp& operator=(TestAndSetOp&& other) noexcept {
    std::destroy_at(this);
    return *std::construct_at(this, std::move(other));
  }
  ~TestAndSetOp() {
    if (may_get_) [[unlikely]]
      drop();
  }
  /// Returns true once the caller holds the lock; posts the next try when one has failed. Never
  /// blocks. Throws Error(kUnavailable) when the lock's host does not answer, and Error(kTimeout)
  /// after the manager's wait_timeout; the next call goes on.
  bool poll();
  bool held() const { return held_; }

 private:
  friend class TestAndSetLocks;
  friend class HierarchicalOp;
  TestAndSetOp(TestAndSetLocks& locks, Caller& me, std::uint64_t index);
  void try_once();
  bool is_free(std::uint64_t word);
  [[noreturn]] void throw_overdue(std::uint64_t word);
  class Dropped;
  [[gnu::cold]] void drop();

  TestAndSetLocks* locks_ = nullptr;
  Caller* me_ = nullptr;
  std::uint64_t index_ = 0;
  bool held_ = false, has_ticket_ = false, overdue_ = false, dropped_ = false;
  MovedValue<bool> may_get_;  // the lock, by a try in flight or by a ticket
  std::uint32_t ticket_ = 0;
  Time deadline_ = 0;
  InFlight old_;
};

/// Lock i is at participant i modulo the number of participants. The word holds the owner, for
/// reports.
class TestAndSetLocks : public Channel {
 public:
  TestAndSetLocks(Manager& manager, std::string name, std::uint64_t count,
                  std::vector<NodeId> participants = {}, Placement placement = Placement::kHost,
                  Grant grant = Grant::kTestAndSet);
  TestAndSetLocks(Channel& parent, std::string_view name, std::uint64_t count,
                  Placement placement = Placement::kHost, Grant grant = Grant::kTestAndSet);
  ~TestAndSetLocks() override;

  std::uint64_t count() const { return words_.count(); }
  NodeId host_of(std::uint64_t i) const { return words_.host_of(i); }
  AtomicVars& words() { return words_; }  // for tests
  void acquire(Caller& me, std::uint64_t i);
  [[nodiscard]] TestAndSetOp start_acquire(Caller& me, std::uint64_t i) { return {*this, me, i}; }
  /// Releases the lock after `before`, requests to the lock's host, all with one doorbell:
  /// Sherman's combined write and unlock. Orders no other requests. The caller keeps the buffers of
  /// `before` until the key is complete.
  AckKey release(Caller& me, std::uint64_t i, std::span<fabric::WorkRequest> before = {}) {
    return release_for(me, me.index(), i, before);
  }
  /// The same for a lock that caller `acquirer` of this node took, and handed on.
  AckKey release_for(Caller& me, std::uint32_t acquirer, std::uint64_t i,
                     std::span<fabric::WorkRequest> before);

 private:
  friend class TestAndSetOp;
  /// The word of a lock that caller `index` of this node holds.
  std::uint64_t owner(std::uint32_t index) const;
  void make();
  std::uint64_t next_served(std::uint64_t i) const;
  AtomicVars words_;
  Grant grant_ = Grant::kTestAndSet;
  // Grant::kTicket: the tickets of the locks that this node holds, written by their holders.
  std::unique_ptr<std::atomic<std::uint32_t>[]> tickets_;
};

}  // namespace pyrdma::loco
