// A bounded FIFO queue between all participants, each of whom may push and pop (paper, section
// 5.4): an adaptation of the cyclic ring queue of Morrison and Afek (PPoPP'13) to network memory.
//
// A fetch-and-add of `tail` gives a push its ticket, one of `head` a pop; ticket t works on entry
// t modulo the capacity, in round t / capacity. So a push and a pop meet in exactly one entry, and
// tickets are the queue's order. A push waits until its entry is free for its round, a pop until
// its value is there.
//
// Deviations from the ring for one memory: that one changes index and value of an entry together,
// by a compare-and-swap of 16 bytes, so that a pop which comes too early can spoil the entry and
// tell that the queue is empty. No NIC has that. Here a pop that must not wait first looks whether
// a ticket has its push (try_pop), and takes it with a compare-and-swap of `head` instead; so a
// slow push holds up the pop of its ticket, and those that run into a full queue.
//
// Why it is right in weak memory. The two parts of an entry have one writer each at any time:
//  - the value with a checksum over ticket and value is written by the push of this round alone. A
//    pop takes it when the checksum is that of its own ticket: not a torn value, nor one of an
//    earlier round. So neither the words' order nor the time of placement matters, and push needs
//    no fence;
//  - `round` is an aligned word, never torn, which the pop writes when it has read the value, whose
//    push read it before. So rounds are written one after the other, and no push writes into a
//    value that is still to be read.
// Linearization: push t takes effect when it has its ticket and pop t - capacity has taken effect;
// pop t when it has its ticket and push t has taken effect. Both happen before the operation
// returns, and in the order of tickets. try_pop reads `head` before `tail`, with a fence between:
// head(then) >= tail(now) means that the queue is empty now, for both only grow. try_push reads
// `tail` before `head` likewise.
#pragma once
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "systems/loco/atomic_var.h"

namespace pyrdma::loco {

/// The queue of values of a fixed size. Any number of callers. All operations block for the network
/// (a push: three round trips; a pop: two, and a local copy if the entry is here) and throw
/// Error(kUnavailable), not definite, naming the node that does not answer, or Error(kTimeout) when
/// the manager's wait_timeout is over while they wait for others; the ticket is spent then: what
/// comes to it is lost, and the queue should not be used any more.
class SharedQueue : public Channel {
 public:
  /// `capacity` values of `value_bytes` each, striped over the participants. head and tail are at
  /// the first participant. Throws Error(kInvalidArgument) for a size that is 0, or too large for a
  /// block of the callers.
  SharedQueue(Manager& manager, std::string name, std::uint64_t capacity, std::uint32_t value_bytes,
              std::vector<NodeId> participants = {});

  std::uint64_t capacity() const { return capacity_; }
  std::uint32_t value_bytes() const { return value_bytes_; }

  /// Waits while the queue is full. What the caller wrote before, elsewhere, is not ordered before
  /// the value: fence first.
  void push(Caller& me, std::span<const std::byte> value);
  /// Waits while the queue is empty.
  void pop(Caller& me, std::span<std::byte> value);
  /// False, and nothing done, when the queue is full. Cost: a round trip more than push.
  bool try_push(Caller& me, std::span<const std::byte> value);
  /// False, and nothing done, when the queue is empty.
  bool try_pop(Caller& me, std::span<std::byte> value);

 private:
  struct Place {
    NodeId node;
    std::uint64_t offset;
    std::uint64_t round;
  };
  Place place_of(std::uint64_t ticket) const;
  std::uint64_t take_ticket(Caller& me, AtomicVar& end);
  std::optional<std::uint64_t> try_take_ticket(Caller& me, AtomicVar& end, AtomicVar& other,
                                               std::uint64_t most_ahead);
  void push_as(Caller& me, std::uint64_t ticket, std::span<const std::byte> value);
  void pop_as(Caller& me, std::uint64_t ticket, std::span<std::byte> value);
  template <class Ready>
  void wait_for(Caller& me, const Place& place, std::uint32_t from, const fabric::Sge& into,
                const char* what, Ready&& ready);
  void finish(AckKey key, NodeId node) const;
  std::uint64_t sum_of(const std::byte* entry, std::uint64_t ticket) const;
  [[noreturn]] void throw_late(Caller& me, const char* what) const;

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
                std::vector<NodeId> participants = {})
      : SharedQueue(manager, std::move(name), capacity, sizeof(T), std::move(participants)) {}

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
