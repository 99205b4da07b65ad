// A completion queue. The NIC pushes completions and the CPU polls them. A poll gives slots of the
// send queue back.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "fabric/fabric.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;
struct Message;

class SimCompletionQueue final : public CompletionQueue {
 public:
  SimCompletionQueue(Nic& nic, std::uint32_t entries);
  ~SimCompletionQueue() override;
  std::size_t poll(std::span<Completion> out) override;
  std::uint32_t entries() const override { return entries_; }
  bool overrun() const override { return overrun_; }
  const Nic& nic() const { return nic_; }

  /// Adds a completion. If `qp` is not null, polling the completion gives the slots of the send
  /// queue before `retire` back. `delivers` is the message of a receive, or null. Returns false
  /// when the completion is lost, because the queue is full or has overrun before: the queue pair
  /// must then enter the error state.
  bool push(const Completion& completion, QueuePairCore* qp, std::uint64_t retire,
            const Message* delivers = nullptr);
  /// Forgets the completions of a destroyed queue pair.
  void purge(const QueuePairCore& qp);

 private:
  struct Entry {
    Completion completion;
    QueuePairCore* qp = nullptr;
    std::uint64_t retire = 0;
  };
  // A thousand queues of 64 Ki entries each would take 4 GiB, and few of them are ever in use.
  static constexpr std::uint32_t kFirstEntries = 64;
  void grow();
  [[gnu::cold, gnu::noinline]] void record(std::uint64_t position, std::size_t taken);
  [[gnu::cold, gnu::noinline]] void record_delivery(const Message& message);
  Entry& at(std::uint64_t i) { return ring_[i & (ring_.size() - 1)]; }
  Nic& nic_;
  std::uint32_t entries_;
  std::vector<Entry> ring_;  // the size is a power of two, and grows up to `entries_`
  std::uint64_t head_ = 0, tail_ = 0;
  bool overrun_ = false;
};

}  // namespace pyrdma::fabric::sim
