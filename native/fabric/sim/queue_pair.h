// Queue pairs, completion queues and shared receive queues of the simulated fabric.
#pragma once
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/post_rules.h"
#include "fabric/sim/nic.h"

namespace pyrdma::fabric::sim {

inline constexpr std::uint64_t kMaxMessage = 1ULL << 31;  // bytes

class SimCompletionQueue;

struct SimProtectionDomain final : ProtectionDomain {
  explicit SimProtectionDomain(std::uint32_t number) : id(number) {}
  std::uint32_t id;  // of this domain alone, for ever
};

struct SimAddressHandle final : AddressHandle {
  SimAddressHandle(Nic* nic, std::uint32_t pd) : target(nic), domain(pd) {}
  Nic* target;
  std::uint32_t domain;
};

/// Receives of one queue pair, or shared by many: a ring of requests with their scatter lists.
class ReceiveQueue {
 public:
  struct Entry {
    std::uint64_t wr_id = 0;
    std::uint32_t sge_count = 0;
  };
  ReceiveQueue(std::uint32_t entries, std::uint32_t max_sges)
      : limit_(entries),
        entries_(std::bit_ceil(entries)),
        sges_(entries_.size() * max_sges),
        max_sges_(max_sges) {}
  PostResult post(std::span<const ReceiveRequest> requests);
  bool empty() const { return head_ == tail_; }
  Entry take(std::vector<Sge>& sges);  // not empty()

 private:
  std::size_t limit_;
  std::vector<Entry> entries_;  // a power of two of them
  std::vector<Sge> sges_;
  std::uint32_t max_sges_;
  std::uint64_t head_ = 0, tail_ = 0;
};

class SimSharedReceiveQueue final : public SharedReceiveQueue {
 public:
  SimSharedReceiveQueue(Nic& nic, std::uint32_t pd, std::uint32_t entries, std::uint32_t max_sges)
      : nic_(nic), domain(pd), queue(entries, max_sges) {}
  PostResult post_receive(std::span<const ReceiveRequest> requests) override;

 private:
  Nic& nic_;

 public:
  std::uint32_t domain;
  ReceiveQueue queue;
};

// One slot of a send queue. Small, because a ring is walked from end to end and a big one leaves
// the cache.
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
};

/// The NIC's side of a queue pair. It outlives the QueuePair object while messages still refer to
/// it.
class QueuePairCore final : public SimEvent {
 public:
  QueuePairCore(Nic& nic, const QpOptions& options, std::uint32_t pd, SimCompletionQueue& send,
                SimCompletionQueue& receive, SimSharedReceiveQueue* shared);
  /// The retry timer.
  void fire(Picos now) override;

  Nic& nic;
  QpOptions options;
  std::uint32_t domain;
  SimCompletionQueue* send_queue;
  SimCompletionQueue* receive_queue;
  std::uint32_t number = 0, psn = 0;
  std::uint64_t serial = 0;
  QpState state = QpState::kReset;
  Nic* peer_nic = nullptr;
  std::uint32_t peer_number = 0, peer_psn = 0;

  // Send queue: sequence numbers count requests; retired <= completed <= next <= posted.
  std::vector<SendEntry> entries;  // a power of two of them, at least options.send_entries
  std::uint64_t slot_of(std::uint64_t sequence) const { return sequence & (entries.size() - 1); }
  std::vector<Sge> sges;               // entries x max_sges, for requests with more than one
  std::vector<std::byte> inline_data;  // entries x max_inline
  std::uint64_t retired = 0;           // slots given back by polling
  std::uint64_t completed = 0;         // all before have completed
  std::uint64_t next = 0;              // the next to send
  std::uint64_t posted = 0;
  std::uint32_t chunk_offset = 0;  // progress within `next`
  SendEntry& entry(std::uint64_t sequence) { return entries[slot_of(sequence)]; }
  const SendEntry& entry(std::uint64_t sequence) const { return entries[slot_of(sequence)]; }
  const Sge* entry_sges(std::uint64_t sequence) const {
    const SendEntry& at = entry(sequence);
    return at.sge_count <= 1 ? &at.first_sge : &sges[slot_of(sequence) * options.max_sges];
  }
  std::byte* entry_inline(std::uint64_t sequence) {
    return inline_data.data() + slot_of(sequence) * options.max_inline;
  }

  // Requester engine.
  bool active = false;
  Picos ready_at = 0;
  QueuePairCore* next_active = nullptr;
  std::uint32_t outstanding_reads = 0;  // reads and atomics from `completed` up to `next`
  bool blocked = false;                 // by a fence, or by too many reads: a response reactivates
  const Nic* dc_target = nullptr;
  Picos last_completion = 0;
  // Requests of a queue pair reach the target in order, and so do their responses, whatever each
  // one costs there.
  Picos last_request_due = 0, last_response_due = 0;
  std::uint64_t awaited = 0;  // completed must reach this before a local error may be reported
  Status pending_failure = Status::kSuccess;  // of the request `next`

  // Retransmission. The responder's half of the connection state stands here too, because a
  // simulated connection has exactly one initiator: what the responder expects next, and since
  // when.
  std::uint32_t epoch = 0;
  std::uint64_t epoch_from = 0;   // the first request that it sent again
  std::uint32_t first_epoch = 0;  // since the last reset: what is older answers nothing
  std::uint64_t expected = 0;
  std::uint32_t expected_offset = 0;
  std::uint32_t response_offset = 0;  // of the read that is being answered in pieces
  Picos last_execution = 0;
  Message* long_read = nullptr;     // being answered, piece by piece
  Message* first_behind = nullptr;  // answers that wait for it
  Message* last_behind = nullptr;
  std::uint32_t retries = 0, rnr_retries = 0;
  bool retry_is_rnr = false, retry_after_timeout = false;
  Picos retry_at = kNever;  // nothing is sent until then
  bool retry_pending() const { return retry_at != kNever; }
  std::uint64_t retry_from = 0;

  PlacementQueue placements{*this};  // weak memory, at the target

  // Receiving.
  std::unique_ptr<ReceiveQueue> own_receives;
  ReceiveQueue* receives;
  std::uint32_t receive_domain;  // whose regions receives may name
  bool receiving = false;        // a message of several chunks has taken `current_receive`
  ReceiveQueue::Entry current_receive;
  std::vector<Sge> current_sges;

  bool destroyed = false;
  bool crashed = false;          // with its node
  std::uint32_t references = 0;  // messages and completions that name this

  bool ordered() const {
    return options.transport == Transport::kRc || options.transport == Transport::kDc;
  }
  /// Each request names its target.
  bool is_addressed() const {
    return options.transport == Transport::kUd || options.transport == Transport::kDc;
  }
};

class SimCompletionQueue final : public CompletionQueue {
 public:
  SimCompletionQueue(Nic& nic, std::uint32_t entries);
  ~SimCompletionQueue() override;
  std::size_t poll(std::span<Completion> out) override;
  std::uint32_t entries() const override { return entries_; }
  bool overrun() const override { return overrun_; }

  /// `qp` non-null: polling this gives the send-queue slots before `retire` back.
  void push(const Completion& completion, QueuePairCore* qp, std::uint64_t retire);
  /// Forgets the completions of a destroyed queue pair.
  void purge(const QueuePairCore& qp);

 private:
  struct Entry {
    Completion completion;
    QueuePairCore* qp = nullptr;
    std::uint64_t retire = 0;
  };
  Entry& at(std::uint64_t i) { return ring_[i & (ring_.size() - 1)]; }
  Nic& nic_;
  std::uint32_t entries_;
  std::vector<Entry> ring_;  // a power of two of them
  std::uint64_t head_ = 0, tail_ = 0;
  bool overrun_ = false;
};

class SimQueuePair final : public QueuePair {
 public:
  SimQueuePair(Nic& nic, std::unique_ptr<QueuePairCore> core);
  ~SimQueuePair() override;
  Transport transport() const override { return core_->options.transport; }
  std::uint32_t qp_num() const override { return core_->number; }
  QpState state() const override { return core_->state; }
  QpAddress address() const override;
  PostResult post(std::span<const WorkRequest> requests) override;
  PostResult post_receive(std::span<const ReceiveRequest> requests) override;
  void modify(QpState next, const QpAddress* peer) override;

 private:
  void enqueue(const WorkRequest& request);
  Nic& nic_;
  std::unique_ptr<QueuePairCore> core_;
  std::uint32_t allowed_;  // opcodes, a bit each
};

/// Deletes the core once nothing refers to it any more.
void drop_reference(QueuePairCore* core);

}  // namespace pyrdma::fabric::sim
