// The send queue of a queue pair: a ring of requests between the CPU, which posts them, and the
// NIC, which fetches them.
#pragma once
#include <bit>
#include <cstdint>
#include <vector>

#include "env/sim/event_queue.h"
#include "fabric/post_rules.h"
#include "fabric/types.h"

namespace pyrdma::fabric::sim {

class Nic;

/// One slot. Small, because a ring is walked from end to end and a big one leaves the cache.
struct SendEntry {
  std::uint64_t wr_id = 0, remote_addr = 0;
  std::uint64_t compare_add = 0,
                swap = 0;  // after execution `swap` holds the old value, for retransmissions
  Nic* target = nullptr;   // UD, DC
  Picos visible_at = 0;    // when the doorbell has reached the NIC
  Sge first_sge;
  std::uint32_t rkey = 0, remote_qpn = 0, remote_qkey = 0, immediate = 0, length = 0;
  Opcode opcode = Opcode::kWrite;
  std::uint8_t flags = 0;
  std::uint8_t sge_count = 0;
  bool executed = false;  // an atomic that a retransmission must not repeat

  bool needs_data_back() const { return is_one_of(opcode, kReturning); }
  bool is_signaled() const { return (flags & kSignaled) != 0; }
  bool is_inline() const { return (flags & kInline) != 0; }
};

/// Requests by sequence number, which counts posts: retired <= completed <= next <= posted, of
/// which the completer owns `completed` and the requester `next`.
class SendQueue {
 public:
  explicit SendQueue(const QpOptions& options)
      : limit_(options.send_entries),
        max_sges_(options.max_sges),
        max_inline_(options.max_inline),
        entries_(std::bit_ceil(options.send_entries)),
        sges_(entries_.size() * options.max_sges),
        inline_data_(entries_.size() * options.max_inline) {}

  bool full() const { return posted - retired >= limit_; }
  SendEntry& operator[](std::uint64_t sequence) { return entries_[slot_of(sequence)]; }
  const SendEntry& operator[](std::uint64_t sequence) const { return entries_[slot_of(sequence)]; }
  /// The scatter-gather list of a request: in the slot when it has one element.
  Sge* sges(std::uint64_t sequence) {
    SendEntry& entry = (*this)[sequence];
    return entry.sge_count <= 1 ? &entry.first_sge : &sges_[slot_of(sequence) * max_sges_];
  }
  std::byte* inline_data(std::uint64_t sequence) {
    return inline_data_.data() + slot_of(sequence) * max_inline_;
  }

  std::uint64_t posted = 0;
  std::uint64_t retired = 0;  // slots before it were given back by polling

 private:
  std::uint64_t slot_of(std::uint64_t sequence) const { return sequence & (entries_.size() - 1); }
  std::uint32_t limit_, max_sges_, max_inline_;
  std::vector<SendEntry> entries_;      // a power of two of them, at least limit_
  std::vector<Sge> sges_;               // of requests with more than one
  std::vector<std::byte> inline_data_;  // copied at the post
};

}  // namespace pyrdma::fabric::sim
