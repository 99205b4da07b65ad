// A bounded FIFO queue between all participants; each of them may push and pop (paper, section
// 5.4). It adapts the cyclic ring queue of Morrison and Afek (PPoPP'13) to network memory.
//
// A fetch-and-add of `tail` gives a push its ticket, and a fetch-and-add of `head` gives a pop its
// ticket. Ticket t works on entry t modulo the capacity, in round t / capacity. So a push and a pop
// meet in exactly one entry, and the order of the tickets is the order of the queue. A push waits
// until its entry is free for its round; a pop waits until its value is in its entry.
//
// Deviations from the ring for one memory. That ring changes index and value of an entry together,
// by a compare-and-swap of 16 bytes, so a pop that comes too early can spoil the entry and report
// an empty queue. No NIC has such a compare-and-swap. Here a pop that must not wait first reads
// whether a ticket has its push (try_pop), and takes the ticket with a compare-and-swap of `head`.
// So a slow push delays the pop of its ticket, and pushes that find the queue full.
//
// Correctness in weak memory. Each of the two parts of an entry has one writer at any time:
//  - The push of this round alone writes the value, with a checksum over ticket and value. A pop
//    takes the value when the checksum matches its own ticket, so it takes neither a torn value nor
//    the value of an earlier round. Neither the order of the words nor the time of placement
//    matters, and push needs no fence.
//  - `round` is an aligned word, which is never torn. The pop writes it after it has read the
//    value, and the push of that value had read it before. So rounds are written one after the
//    other, and no push overwrites a value that a pop must still read.
// Linearization: push t takes effect when it has its ticket and pop t - capacity has taken effect;
// pop t takes effect when it has its ticket and push t has taken effect. Both happen before the
// operation returns, and in the order of the tickets. try_pop reads `head` before `tail`, with a
// fence between. Both only grow, so head(then) >= tail(now) means that the queue is empty now.
// try_push reads `tail` before `head` likewise.
#pragma once
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "systems/loco/atomic_var.h"

namespace pyrdma::loco {

/// The queue of values of a fixed size, for any number of callers. All operations block for the
/// network (a push: three round trips; a pop: two, and a local copy if the entry is on this node).
/// They throw Error(kUnavailable), not definite, naming the node that does not answer. They throw
/// Error(kTimeout) when the manager's wait_timeout passes while they wait for other callers. The
/// ticket is then spent: its value is lost, and the queue should not be used any more. Tickets
/// count modulo 2^64. A queue whose capacity is not a power of two ends there: after 584 years at a
/// ticket per ns.
class SharedQueue : public Channel {
 public:
  /// Makes `capacity` entries for values of `value_bytes` each, striped over the participants. head
  /// and tail are at the first participant. Throws Error(kInvalidArgument) for a size that is 0, or
  /// too large for a block of the callers. `first_ticket` is that of the first push and pop, for
  /// tests.
  SharedQueue(Manager& manager, std::string name, std::uint64_t capacity, std::uint32_t value_bytes,
              std::vector<NodeId> participants = {}, Joins joins = Joins::kHere,
              std::uint64_t first_ticket = 0);

  std::uint64_t capacity() const { return capacity_; }
  std::uint32_t value_bytes() const { return value_bytes_; }

  /// Waits while the queue is full. Does not order earlier writes of the caller to other places
  /// before the value: use a fence first.
  void push(Caller& me, std::span<const std::byte> value);
  /// Waits while the queue is empty.
  void pop(Caller& me, std::span<std::byte> value);
  /// Returns false, and changes nothing, when the queue is full. Cost: a round trip more than push.
  bool try_push(Caller& me, std::span<const std::byte> value);
  /// Returns false, and changes nothing, when the queue is empty.
  bool try_pop(Caller& me, std::span<std::byte> value);

 private:
  struct Place {
    NodeId node;
    std::uint64_t offset;
    std::uint64_t round;
  };
  Place place_of(std::uint64_t ticket) const;
  void begin_with(std::uint64_t first_ticket);
  std::uint64_t take_ticket(Caller& me, AtomicVar& end);
  std::optional<std::uint64_t> try_take_ticket(Caller& me, AtomicVar& end, AtomicVar& other,
                                               std::uint64_t most_ahead);
  void push_as(Caller& me, std::uint64_t ticket, std::span<const std::byte> value, InFlight& entry);
  void pop_as(Caller& me, std::uint64_t ticket, std::span<std::byte> value, InFlight& entry);
  template <class Ready>
  void wait_for(Caller& me, const Place& place, std::uint32_t from, std::uint32_t bytes,
                InFlight& into, bool pushes, Ready&& ready);
  void finish(AckKey& key, NodeId node) const;
  std::uint64_t sum_of(const std::byte* entry, std::uint64_t ticket) const;
  [[noreturn]] void throw_late(Caller& me, bool pushes) const;

  std::uint64_t capacity_;
  std::uint32_t value_bytes_, entry_bytes_;
  LocalRegion entries_;
  AtomicVar head_, tail_;
};

/// The queue of values of one type.
template <class T>
class SharedQueueOf : public SharedQueue {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  SharedQueueOf(Manager& manager, std::string name, std::uint64_t capacity,
                std::vector<NodeId> participants = {}, std::uint64_t first_ticket = 0)
      : SharedQueue(manager, std::move(name), capacity, sizeof(T), std::move(participants),
                    Joins::kDerived, first_ticket) {
    join();
  }

  void push(Caller& me, const T& value) {
    SharedQueue::push(me, std::as_bytes(std::span(&value, 1)));
  }
  bool try_push(Caller& me, const T& value) {
    return SharedQueue::try_push(me, std::as_bytes(std::span(&value, 1)));
  }
  T pop(Caller& me) {
    T value;
    SharedQueue::pop(me, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  std::optional<T> try_pop(Caller& me) {
    T value;
    if (!SharedQueue::try_pop(me, std::as_writable_bytes(std::span(&value, 1)))) return {};
    return value;
  }
};

}  // namespace pyrdma::loco
