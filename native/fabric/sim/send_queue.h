// The send queue of a queue pair: a ring of requests between the CPU, which posts them, and the
// NIC, which fetches them.
#pragma once
#include <bit>
#include <cstdint>
#include <vector>

#include "env/sim/event_queue.h"
#include "fabric/post_rules.h"
#include "fabric/sim/message.h"
#include "fabric/types.h"

namespace pyrdma::fabric::sim {

class Nic;

/// One slot: a line of the cache, because a ring is walked from end to end.
struct alignas(64) SendEntry {
  std::uint64_t wr_id = 0, remote_addr = 0;
  Picos visible_at = 0;  // when the doorbell has reached the NIC
  Sge first_sge;
  std::uint32_t rkey = 0, immediate = 0, length = 0;
  Opcode opcode = Opcode::kWrite;
  std::uint8_t flags = 0;
  std::uint8_t sge_count = 0;
  bool executed = false;  // an atomic that a retransmission must not repeat

  bool is_atomic() const { return is_one_of(opcode, kAtomics); }
  bool needs_data_back() const { return is_one_of(opcode, kReturning); }
  bool is_signaled() const { return (flags & kSignaled) != 0; }
  bool is_inline() const { return (flags & kInline) != 0; }
};

/// Whom a request on an unconnected queue pair goes to.
struct Destination {
  Nic* target = nullptr;
  std::uint32_t qpn = 0, qkey = 0;
};

/// Requests by sequence number, which counts posts: retired <= completed <= next <= posted, of
/// which the completer owns `completed` and the requester `next`.
class SendQueue {
 public:
  /// `addressed`: each request names its destination.
  SendQueue(const QpOptions& options, bool addressed)
      : limit_(options.send_entries),
        max_sges_(options.max_sges),
        max_inline_(options.max_inline),
        entries_(std::bit_ceil(options.send_entries)),
        operands_(entries_.size()),
        destinations_(addressed ? entries_.size() : 0),
        sges_(entries_.size() * options.max_sges),
        inline_data_(entries_.size() * options.max_inline) {}

  bool full() const { return posted - retired >= limit_; }
  SendEntry& operator[](std::uint64_t sequence) { return entries_[slot_of(sequence)]; }
  const SendEntry& operator[](std::uint64_t sequence) const { return entries_[slot_of(sequence)]; }
  /// Brings requests from `sequence` on into the CPU's cache.
  void prefetch(std::uint64_t sequence) const {
    for (std::uint64_t s = sequence; s < sequence + 4; ++s) {
      __builtin_prefetch(&(*this)[s]);
      __builtin_prefetch(inline_data_.data() + slot_of(s) * max_inline_);
    }
  }
  /// The scatter-gather list of a request: in the slot when it has one element.
  Sge* sges(std::uint64_t sequence) {
    SendEntry& entry = (*this)[sequence];
    return entry.sge_count <= 1 ? &entry.first_sge : &sges_[slot_of(sequence) * max_sges_];
  }
  /// Of an atomic. After execution `swap` holds the old value, for retransmissions.
  AtomicOperands& operands(std::uint64_t sequence) { return operands_[slot_of(sequence)]; }
  /// On an addressed queue pair.
  Destination& destination(std::uint64_t sequence) { return destinations_[slot_of(sequence)]; }
  std::byte* inline_data(std::uint64_t sequence) {
    return inline_data_.data() + slot_of(sequence) * max_inline_;
  }

  std::uint64_t posted = 0;
  std::uint64_t retired = 0;  // slots before it were given back by polling

 private:
  std::uint64_t slot_of(std::uint64_t sequence) const { return sequence & (entries_.size() - 1); }
  std::uint32_t limit_, max_sges_, max_inline_;
  std::vector<SendEntry> entries_;  // a power of two of them, at least limit_
  // What few requests have stands apart.
  std::vector<AtomicOperands> operands_;
  std::vector<Destination> destinations_;
  std::vector<Sge> sges_;               // of requests with more than one
  std::vector<std::byte> inline_data_;  // copied at the post
};

}  // namespace pyrdma::fabric::sim
