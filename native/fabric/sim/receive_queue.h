// A receive queue holds posted receives. One queue pair owns the queue, or many share it.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "env/sim/event_queue.h"
#include "fabric/fabric.h"

namespace pyrdma::fabric::sim {

class Nic;

/// A ring of requests with their scatter lists. Each receive takes `strides` messages.
/// `posted_on_nic` counts the posted receives of all queues.
class ReceiveQueue {
 public:
  struct Entry {
    std::uint64_t wr_id = 0;
    std::uint32_t sge_count = 0;
    std::uint32_t stride = 0;
  };
  ReceiveQueue(std::uint64_t& posted_on_nic, std::uint32_t entries, std::uint32_t max_sges,
               std::uint32_t strides = 1)
      : posted_on_nic_(posted_on_nic),
        limit_(entries),
        entries_(std::bit_ceil(entries)),
        sges_(entries_.size() * max_sges),
        max_sges_(max_sges),
        strides_(strides),
        stride_bits_(static_cast<std::uint32_t>(std::countr_zero(strides))) {}
  ~ReceiveQueue() { posted_on_nic_ -= tail_ - oldest(); }
  ReceiveQueue(const ReceiveQueue&) = delete;
  ReceiveQueue& operator=(const ReceiveQueue&) = delete;
  PostResult post(std::span<const ReceiveRequest> requests);
  bool empty() const { return oldest() == tail_; }
  /// Takes a stride of the oldest receive, and copies its scatter list to `sges`. The queue must
  /// not be empty.
  Entry take(std::vector<Sge>& sges);
  /// Drops the other strides of a receive of which a stride has been taken.
  void end_receive() { advance(-head_ & (strides_ - 1)); }

  struct Fetched {
    Picos ready;    // the NIC has the receive
    bool is_first;  // the message is the first one of the receive
  };
  /// A message needs a receive at `at`. The NIC holds one batch of receives, and fetches the next
  /// one meanwhile. A fetch takes `latency`.
  Fetched fetch(Picos now, Picos at, Picos latency, std::uint64_t batch);

 private:
  std::uint64_t oldest() const { return head_ >> stride_bits_; }
  void advance(std::uint64_t strides) {
    const std::uint64_t before = oldest();
    head_ += strides;
    posted_on_nic_ -= oldest() - before;
  }
  /// Asks for the next posted receives, which come in at `when`.
  void ask(Picos when, std::uint64_t batch) {
    asked_ = std::max(asked_, oldest());
    asked_ += std::min(batch, tail_ - asked_);
    asked_from_ = when;
  }
  std::uint64_t& posted_on_nic_;
  std::size_t limit_;
  std::vector<Entry> entries_;  // the size is a power of two
  std::vector<Sge> sges_;
  std::uint32_t max_sges_;
  std::uint32_t strides_, stride_bits_;
  std::uint64_t head_ = 0;  // strides taken
  std::uint64_t tail_ = 0;  // receives posted
  // Strides that arrived messages will take. A message that is dropped takes none, so the count is
  // that of the taken ones again when no message can be under way.
  std::uint64_t wanted_ = 0;
  Picos settled_ = 0;  // every message that has arrived has taken its stride by then
  // The NIC holds the receives before `held_`, and has asked for those before `asked_`.
  std::uint64_t held_ = 0, asked_ = 0;
  Picos held_from_ = 0, asked_from_ = 0;  // the batches come in
};

class SimSharedReceiveQueue final : public SharedReceiveQueue {
 public:
  SimSharedReceiveQueue(Nic& nic, std::uint32_t pd, std::uint32_t entries, std::uint32_t max_sges);
  ~SimSharedReceiveQueue() override;
  PostResult post_receive(std::span<const ReceiveRequest> requests) override;
  const Nic& nic() const { return nic_; }

  std::uint32_t domain;
  ReceiveQueue queue;

 private:
  Nic& nic_;
};

}  // namespace pyrdma::fabric::sim
