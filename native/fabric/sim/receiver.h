// The receiver matches sends, and writes with an immediate, to posted receives.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/sim/receive_queue.h"
#include "fabric/types.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;
class SimCompletionQueue;
struct Message;
struct Region;

/// The receive side of a queue pair.
struct ReceiverState {
  std::unique_ptr<ReceiveQueue> own;  // null with a shared receive queue
  ReceiveQueue* queue = nullptr;
  std::uint32_t domain = 0;  // receives may name regions of this protection domain
  bool receiving = false;    // a message has taken `current` and is not complete
  ReceiveQueue::Entry current;
  std::vector<Sge> sges;  // scatter list of `current`
  SimCompletionQueue* completions = nullptr;

  /// Takes the next posted receive. The queue must not be empty.
  void take() {
    current = queue->take(sges);
    receiving = true;
  }
};

class Receiver {
 public:
  explicit Receiver(Nic& nic) : nic_(nic) {}
  enum class Delivery { kDone, kNotReady, kTooLong, kBadBuffer };
  Delivery deliver(Message& message, QueuePairCore& target);

 private:
  bool take_receive(const Message& message, QueuePairCore& target);
  bool place(const Message& message, const QueuePairCore& target, std::uint32_t header_bytes) const;
  const Region* writable(const Sge& sge, const QueuePairCore& target) const;
  static void complete(const Message& message, QueuePairCore& target, std::uint32_t header_bytes);
  static void fail(QueuePairCore& target, Status status);
  Nic& nic_;
};

}  // namespace pyrdma::fabric::sim
