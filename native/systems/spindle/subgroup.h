// A subgroup at one of its members, in one view: the ring of each sender, and the three predicates
// of the multicast (section 2.4). The group calls it, under its lock where the text says so.
//
//   send.cc      slots, queued messages, the send predicate
//   receive.cc   the receive predicate, null-sends
//   deliver.cc   the delivery predicate, the end of a view
//
// Message k of the sender with place j among S senders has sequence number k * S + j: round-robin
// (section 2.1). A null takes a round, and no slot: the header of a slot names the round of its
// message, so a round that no slot names is a null. So a sender tells others of any number of nulls
// by one integer (section 3.3), its guard: the rounds that it has sent. A guard is written after
// the slots that it announces, by a request of its own (section 2.2).
#pragma once
#include <atomic>
#include <boost/container/static_vector.hpp>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/function_ref.h"
#include "env/scope.h"
#include "systems/spindle/bugs.h"
#include "systems/spindle/counters.h"
#include "systems/spindle/links.h"
#include "systems/spindle/options.h"
#include "systems/spindle/shape.h"
#include "systems/spindle/table.h"

namespace pyrdma::spindle {

/// A message at its delivery. The bytes lie in the ring and are valid until the upcall returns.
struct Message {
  std::uint32_t sender = 0;    // its place among the senders of the subgroup
  NodeId node = 0;             // the sender's node
  std::uint64_t sequence = 0;  // place in the order of the view; nulls leave gaps
  std::span<const std::byte> bytes;
};
using Upcall = FunctionRef<void(std::span<const Message>)>;

/// Columns and slots that a predicate has changed and that are to be pushed.
struct Pushes {
  bool received = false, delivered = false, consumed = false, guard = false;
  std::uint64_t guard_value = 0;
  std::uint64_t first = 0, last = 0;  // messages whose slots are pushed before the guard
  bool any() const { return received || delivered || consumed || guard; }
};

class Subgroup {
 public:
  Subgroup(Env& env, const Options& options, const ViewShape& shape, std::uint32_t index, Rank self,
           Table& table, std::span<const Layout> layouts, Links& links, Bugs bugs);

  bool is_member() const { return member_ != kNotHere; }
  bool is_sender() const { return sender_ != kNotHere; }
  const SubgroupShape& shape() const { return shape_; }
  SubgroupCounters& counters() { return counters_; }
  const SubgroupCounters& counters() const { return counters_; }

  // The application, under the lock. One thread at a time sends in a subgroup.

  /// Returns the message area of the next slot, or nothing while all slots are in use (2.3).
  std::span<std::byte> acquire();
  /// The member that frees slots last; only of a sender.
  Rank slowest_member() const;
  bool has_free_slot() { return queued() < shape_.window || is_free(queued()); }
  /// Queues the acquired slot with a message of so many bytes. The send predicate pushes it.
  void commit(std::uint32_t bytes);
  std::uint64_t queued() const { return queued_.load(std::memory_order_relaxed); }
  /// Own messages that all members have delivered, or consumed. Cost: a look at each member.
  std::uint64_t delivered_by_all();
  /// Pushes a batch that is not full, with Options::fixed_batch.
  void flush() { leaving_.store(queued(), std::memory_order_relaxed); }

  // Tests of the predicates: cheap, without the lock.

  bool has_received() const;
  bool has_stable();
  bool has_queued() const {
    const std::uint64_t waiting = queued_.load(std::memory_order_acquire) - pushed_;
    return waiting != 0 &&
           (waiting >= options_.fixed_batch || leaving_.load(std::memory_order_relaxed) > pushed_);
  }

  std::uint64_t pushed() const { return pushed_; }  // messages of this sender

  // Triggers of the predicates, under the lock. They change own columns and note the pushes.

  void receive(Pushes& pushes, Upcall upcall);
  void deliver(Pushes& pushes, Upcall upcall);
  void send(Pushes& pushes);
  /// Posts to all other members; with Options::post_unlocked after the lock is released.
  void push(const Pushes& pushes);

  // The end of a view, under the lock.

  /// The rounds of each sender that this member has received.
  const std::vector<std::uint64_t>& received_rounds() const { return rounds_; }
  /// Delivers all messages of the rounds below `trim`, by sender, in their order.
  void deliver_to(std::span<const std::uint64_t> trim, Upcall upcall);
  /// Returns the own messages that the view does not deliver, oldest first: they are sent again.
  std::vector<Bytes> not_delivered(std::span<const std::uint64_t> trim) const;

 private:
  std::byte* slot(std::uint32_t sender, std::uint64_t message) const {
    return table_.at(layout_.ring(index_, sender) + message % shape_.window * slot_bytes_);
  }
  std::uint64_t tag_of(std::uint64_t round) const {
    return SlotHeader::tag_of(options_.first_round + round);
  }
  SlotHeader header(std::uint32_t sender, std::uint64_t message) const {
    return SlotHeader::of(
        load_acquire(reinterpret_cast<const std::uint64_t*>(slot(sender, message))));
  }
  /// Contiguous bytes of a ring, from its begin: one piece, or two where the ring ends.
  struct RingPiece {
    std::uint64_t offset, bytes;
  };
  using RingPieces = boost::container::static_vector<RingPiece, 2>;
  RingPieces pieces_of(const Pushes& pushes) const;
  bool is_free(std::uint64_t message);
  static std::uint64_t load(const std::byte* column) {
    return load_acquire(reinterpret_cast<const std::uint64_t*>(column));
  }
  std::uint64_t stable() const;
  std::uint64_t first_missing() const;
  void send_nulls(Pushes& pushes);
  void take_next();
  void skip_round();
  void call(Upcall upcall);
  void note(const Message& message);
  void deliver_unordered(std::uint32_t sender, std::uint64_t until, Upcall upcall);

  Env& env_;
  const Options& options_;
  const SubgroupShape& shape_;
  const std::vector<Member>& view_members_;
  const std::uint32_t index_;
  const Rank self_;
  const std::uint32_t member_, sender_;  // own places; kNotHere
  const std::uint32_t senders_;
  const std::uint64_t slot_bytes_;
  Table& table_;
  const Layout& layout_;
  const std::span<const Layout> layouts_;  // of all members
  Links& links_;
  const Bugs bugs_;

  // Columns of the members and senders, in their order.
  std::vector<const std::byte*> guards_;                  // of senders
  std::vector<const std::byte*> received_by_, freed_by_;  // of members; freed_by_: what frees slots

  // Of this sender.
  std::atomic<std::uint64_t> queued_{0};   // messages of the application
  std::uint64_t pushed_ = 0;               // of them
  std::uint64_t sent_rounds_ = 0;          // rounds given to messages and nulls
  std::vector<std::uint64_t> round_of_;    // of the message in each slot
  std::uint64_t delivered_by_all_ = 0;     // last known least delivered column
  std::uint64_t freed_ = 0;                // messages whose slots are known to be free
  std::atomic<std::uint64_t> leaving_{0};  // messages below it wait for no batch

  // Of all senders.
  std::vector<std::uint64_t> rounds_;           // received
  std::vector<std::uint64_t> messages_;         // delivered, by sender: the next slot to look at
  std::uint64_t received_ = 0, delivered_ = 0;  // own columns, as counts
  std::uint32_t next_sender_ = 0;               // of the message `delivered_`
  std::uint64_t next_round_ = 0;
  std::uint64_t stable_ = 0;  // as last computed
  std::vector<Message> batch_;
  SubgroupCounters counters_;
};

}  // namespace pyrdma::spindle
