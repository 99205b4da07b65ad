// A record keeps, for each queue, the caller's wr_ids and the progress of completions. A request
// carries a ticket in place of its wr_id. By the ticket a poll finds the queue without a search,
// gives its slots back, and recognises completions of a queue that is gone or was reset, which some
// devices leave in the completion queue.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "fabric/types.h"

namespace pyrdma::fabric::verbs {

/// A ticket has 64 bits: receive, shared, generation (12), slot of the record (18), position (32).
struct Ticket {
  bool receive = false, shared = false;
  std::uint32_t generation = 0, slot = 0, position = 0;

  static constexpr std::uint32_t kGenerations = 1U << 12, kSlots = 1U << 18;
  std::uint64_t packed() const {
    return std::uint64_t{receive} << 63 | std::uint64_t{shared} << 62 |
           std::uint64_t{generation} << 50 | std::uint64_t{slot} << 32 | position;
  }
  static Ticket of(std::uint64_t bits) {
    return {bits >> 63 != 0, (bits >> 62 & 1) != 0,
            static_cast<std::uint32_t>(bits >> 50) % kGenerations,
            static_cast<std::uint32_t>(bits >> 32) % kSlots, static_cast<std::uint32_t>(bits)};
  }
};

/// Record belongs to one queue pair or shared receive queue. It is never freed while the device
/// lives, so that a poll may read any record.
struct Record {
  struct Sent {
    std::uint64_t wr_id;
    Opcode opcode;
  };
  std::uint32_t slot = 0;
  std::atomic<std::uint32_t> generation{0};
  bool datagram = false;
  std::uint32_t send_mask = 0, receive_mask = 0;  // ring sizes are 2^n
  std::vector<Sent> sends;
  std::vector<std::uint64_t> receives;
  std::atomic<std::uint32_t> sends_done{0};     // position after the last completed send
  std::atomic<std::uint32_t> receives_done{0};  // count
  std::mutex mutex;                             // shared receives: guards the list
  std::vector<std::uint32_t> free;              // shared receives: free positions

  bool is_current(const Ticket& ticket) const {
    return generation.load(std::memory_order_acquire) == ticket.generation;
  }
  /// Forgets the requests that are still under way.
  void forget() {
    generation.store((generation.load(std::memory_order_relaxed) + 1) % Ticket::kGenerations,
                     std::memory_order_release);
  }
  void finish_send(std::uint32_t position) {
    const std::uint32_t done = sends_done.load(std::memory_order_relaxed);
    if (static_cast<std::int32_t>(position + 1 - done) > 0)
      sends_done.store(position + 1, std::memory_order_release);
  }
};

class RecordTable {
 public:
  RecordTable() = default;
  ~RecordTable();
  RecordTable(const RecordTable&) = delete;
  RecordTable& operator=(const RecordTable&) = delete;
  /// Returns a record with rings of at least these sizes. Throws Error(kExhausted).
  Record& take(std::uint32_t sends, std::uint32_t receives);
  void give_back(Record& record);
  /// Returns the record of a ticket; null for a ticket that was never given out.
  Record* find(std::uint32_t slot) {
    Chunk* chunk = chunks_[slot / kChunk].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : &(*chunk)[slot % kChunk];
  }

 private:
  static constexpr std::uint32_t kChunk = 256;
  using Chunk = std::array<Record, kChunk>;
  std::array<std::atomic<Chunk*>, Ticket::kSlots / kChunk> chunks_{};
  std::mutex mutex_;
  std::uint32_t next_ = 0;
  std::vector<Record*> free_;
};

}  // namespace pyrdma::fabric::verbs
