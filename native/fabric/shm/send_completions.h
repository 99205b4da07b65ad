// The completions of one queue for the requests of its own node. They lie in memory of the node
// alone, so no peer can hold them up or forge them. Its threads produce under a lock, one consumes.
#pragma once
#include <sched.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>

#include "base/units.h"
#include "fabric/types.h"

namespace pyrdma::fabric::shm {

struct SendCompletion {
  std::uint64_t wr_id;
  std::uint32_t position;  // the requests up to it are done
  Opcode opcode;
  Status status;
};

class SendCompletions {
 public:
  explicit SendCompletions(std::uint32_t capacity)
      : capacity_(capacity),
        mask_(std::bit_ceil(capacity) - 1),
        entries_(std::make_unique<Entry[]>(std::uint64_t{mask_} + 1)) {}

  /// Returns the number of completions that found room.
  std::uint32_t push(const SendCompletion* completions, std::uint32_t count, std::uint32_t qp_num) {
    lock();
    std::uint64_t at = produced_.load(std::memory_order_relaxed);
    std::uint32_t pushed = 0;
    for (; pushed < count; ++pushed, ++at) {
      if (at - consumed_seen_ >= capacity_) [[unlikely]] {
        consumed_seen_ = consumed_.load(std::memory_order_acquire);
        if (at - consumed_seen_ >= capacity_) break;
      }
      Entry& entry = entries_[at & mask_];
      entry.completion = completions[pushed];
      entry.qp_num.store(qp_num, std::memory_order_relaxed);
    }
    produced_.store(at, std::memory_order_release);
    unlock();
    return pushed;
  }

  // ---- the consumer's side ----

  bool empty() const {
    return consumed_.load(std::memory_order_relaxed) == produced_.load(std::memory_order_acquire);
  }
  /// Calls take(completion, qp_num) for the oldest ones, at most `most`. A purged one has queue
  /// pair 0.
  template <class Take>
  void consume(std::uint64_t most, Take take) {
    std::uint64_t at = consumed_.load(std::memory_order_relaxed);
    const std::uint64_t produced = produced_.load(std::memory_order_acquire);
    for (; at != produced && most != 0; ++at) {
      const Entry& entry = entries_[at & mask_];
      most -= take(entry.completion, entry.qp_num.load(std::memory_order_relaxed)) ? 1 : 0;
    }
    consumed_.store(at, std::memory_order_release);
  }

  /// Drops the completions of a queue pair. Any thread may call it.
  void purge(std::uint32_t qp_num) {
    lock();
    const std::uint64_t produced = produced_.load(std::memory_order_relaxed);
    for (std::uint64_t at = consumed_.load(std::memory_order_acquire); at != produced; ++at) {
      std::uint32_t expected = qp_num;
      entries_[at & mask_].qp_num.compare_exchange_strong(expected, 0, std::memory_order_relaxed);
    }
    unlock();
  }

 private:
  struct Entry {
    SendCompletion completion{};
    std::atomic<std::uint32_t> qp_num{0};
  };
  void lock() {
    while (busy_.exchange(true, std::memory_order_acquire)) [[unlikely]] sched_yield();
  }
  void unlock() { busy_.store(false, std::memory_order_release); }

  std::uint32_t capacity_, mask_;
  std::unique_ptr<Entry[]> entries_;
  alignas(kCacheLine) std::atomic<bool> busy_{false};
  std::uint64_t consumed_seen_ = 0;  // the producers' copy of consumed_
  std::atomic<std::uint64_t> produced_{0};
  alignas(kCacheLine) std::atomic<std::uint64_t> consumed_{0};
};

}  // namespace pyrdma::fabric::shm
