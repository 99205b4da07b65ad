// A receive queue holds posted receives. One queue pair owns the queue, or many share it.
#pragma once
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "fabric/fabric.h"

namespace pyrdma::fabric::sim {

class Nic;

/// A ring of requests with their scatter lists.
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
  /// Takes the oldest receive and copies its scatter list to `sges`. The queue must not be empty.
  Entry take(std::vector<Sge>& sges);

 private:
  std::size_t limit_;
  std::vector<Entry> entries_;  // the size is a power of two
  std::vector<Sge> sges_;
  std::uint32_t max_sges_;
  std::uint64_t head_ = 0, tail_ = 0;
};

class SimSharedReceiveQueue final : public SharedReceiveQueue {
 public:
  SimSharedReceiveQueue(Nic& nic, std::uint32_t pd, std::uint32_t entries, std::uint32_t max_sges)
      : domain(pd), queue(entries, max_sges), nic_(nic) {}
  ~SimSharedReceiveQueue() override;
  PostResult post_receive(std::span<const ReceiveRequest> requests) override;
  const Nic& nic() const { return nic_; }

  std::uint32_t domain;
  ReceiveQueue queue;

 private:
  Nic& nic_;
};

}  // namespace pyrdma::fabric::sim
