// The send queue of a queue pair is a ring of requests. The CPU posts requests to the ring, and the
// NIC fetches requests from it.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "env/sim/event_queue.h"
#include "fabric/post_rules.h"
#include "fabric/sim/message.h"
#include "fabric/types.h"

namespace pyrdma::fabric::sim {

class Nic;

/// One slot of the ring. A slot is one cache line, because the NIC walks the ring from end to end.
struct alignas(64) SendEntry {
  std::uint64_t wr_id = 0, remote_addr = 0;
  // The doorbell reaches the NIC at this time. Once the request is sent: its last bytes have left.
  Picos ready_at = 0;
  Sge first_sge;
  std::uint32_t rkey = 0, immediate = 0, length = 0;
  Opcode opcode = Opcode::kWrite;
  std::uint8_t flags = 0;
  std::uint8_t sge_count = 0;
  std::uint32_t number = 0;  // among the requests of all queue pairs of the NIC

  bool is_atomic() const { return is_one_of(opcode, kAtomics); }
  bool needs_data_back() const { return is_one_of(opcode, kReturning); }
  bool is_signaled() const { return (flags & kSignaled) != 0; }
  bool is_inline() const { return (flags & kInline) != 0; }
};

/// The destination of a request on an addressed queue pair.
struct Destination {
  Nic* target = nullptr;
  std::uint32_t qpn = 0, qkey = 0;
  bool operator==(const Destination&) const = default;
};

/// The requests of a queue pair by sequence number. The sequence number counts posted requests:
/// retired <= completed <= next <= posted. CompleterState holds `completed`; RequesterState holds
/// `next`.
class SendQueue {
 public:
  /// `addressed`: each request names a destination.
  SendQueue(const QpOptions& options, bool addressed)
      : limit_(options.send_entries),
        max_sges_(options.max_sges),
        max_inline_(options.max_inline),
        entries_(std::bit_ceil(options.send_entries)),
        operands_(entries_.size()),
        destinations_(addressed ? entries_.size() : 0),
        sges_(entries_.size() * options.max_sges),
        inline_data_(entries_.size() * options.max_inline) {}

  /// Appends request `number` of the NIC. The queue must not be full. The NIC has the request at
  /// `visible_at`.
  void append(const WorkRequest& request, std::uint32_t number, Picos visible_at);
  /// The last bytes of a request that have been sent leave at `left`.
  void set_left(std::uint64_t sequence, Picos left) { entries_[slot_of(sequence)].ready_at = left; }
  /// Gives the slots of the requests before `sequence` back.
  void retire(std::uint64_t sequence) { retired_ = std::max(retired_, sequence); }
  void reset() { posted_ = retired_ = 0; }
  std::uint64_t posted() const { return posted_; }
  bool full() const { return posted_ - retired_ >= limit_; }
  const SendEntry& operator[](std::uint64_t sequence) const { return entries_[slot_of(sequence)]; }
  /// Prefetches the requests from `sequence` on into the cache of the CPU that runs the simulator.
  void prefetch(std::uint64_t sequence) const {
    for (std::uint64_t s = sequence; s < sequence + 4; ++s) {
      __builtin_prefetch(&(*this)[s]);
      __builtin_prefetch(inline_data_.data() + slot_of(s) * max_inline_);
    }
  }
  /// Returns the scatter-gather list of a request. The slot itself holds a list of one element.
  const Sge* sges(std::uint64_t sequence) const {
    const SendEntry& entry = (*this)[sequence];
    return entry.sge_count <= 1 ? &entry.first_sge : &sges_[slot_of(sequence) * max_sges_];
  }
  const AtomicOperands& operands(std::uint64_t sequence) const {
    return operands_[slot_of(sequence)];
  }
  /// Returns the destination of a request. The queue pair must be addressed.
  const Destination& destination(std::uint64_t sequence) const {
    return destinations_[slot_of(sequence)];
  }
  const std::byte* inline_data(std::uint64_t sequence) const {
    return inline_data_.data() + slot_of(sequence) * max_inline_;
  }

  /// The atomic has executed and has found `old_value`.
  void set_result(std::uint64_t sequence, std::uint64_t old_value) {
    operands_[slot_of(sequence)].swap = old_value;  // the slot needs the operand no more
  }
  /// Returns the value that an executed atomic has found. A retransmission returns it again.
  std::uint64_t result(std::uint64_t sequence) const { return operands(sequence).swap; }

 private:
  std::uint64_t slot_of(std::uint64_t sequence) const { return sequence & (entries_.size() - 1); }
  std::uint64_t posted_ = 0;
  std::uint64_t retired_ = 0;  // polling has freed the slots of earlier requests
  std::uint32_t limit_, max_sges_, max_inline_;
  std::vector<SendEntry> entries_;  // the size is a power of two, at least limit_
  // Few requests use the arrays below, so the arrays are apart from the slots.
  std::vector<AtomicOperands> operands_;
  std::vector<Destination> destinations_;
  std::vector<Sge> sges_;               // lists of more than one element
  std::vector<std::byte> inline_data_;  // the post copies inline payload here
};

}  // namespace pyrdma::fabric::sim
