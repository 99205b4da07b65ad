// The receiver matches sends, and writes with an immediate, to posted receives.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "fabric/sim/receive_queue.h"
#include "fabric/types.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;
class SimCompletionQueue;
struct Message;
struct Region;

/// The receive that a message takes with its first byte, until its last one has come.
struct ReceiveInProgress {
  void take(ReceiveQueue& queue) {
    entry = queue.take(sges);
    is_taken = true;
  }
  bool is_taken = false;
  ReceiveQueue::Entry entry;
  std::vector<Sge> sges;  // its scatter list
};

/// The receive side of a queue pair.
class ReceiverState {
 public:
  ReceiverState(Nic& nic, SimCompletionQueue& completions, const QpOptions& options,
                std::uint32_t domain, SimSharedReceiveQueue* shared);

  SimCompletionQueue& completions() const { return completions_; }
  /// Returns null with a shared receive queue.
  ReceiveQueue* own_queue() const { return own_.get(); }
  /// The queue that the queue pair takes receives from.
  ReceiveQueue& queue() const { return *queue_; }
  /// Takes a receive in progress, or the oldest posted receive of the queue pair's own queue.
  /// Returns its wr_id, or nothing when none is left.
  std::optional<std::uint64_t> flush_one();
  /// Forgets the receives in progress. An error has flushed the posted receives before.
  void reset() {
    in_progress_.is_taken = false;
    of_initiators_.clear();
  }

 private:
  friend class Receiver;
  std::unique_ptr<ReceiveQueue> own_;  // null with a shared receive queue
  ReceiveQueue* queue_;
  std::uint32_t domain_;  // receives may name regions of this protection domain
  ReceiveInProgress in_progress_;
  // A dynamic target has many initiators, whose packets come in turn. The receives of their long
  // messages in progress, by the initiator's serial number.
  std::map<std::uint64_t, ReceiveInProgress> of_initiators_;
  SimCompletionQueue& completions_;
};

class Receiver {
 public:
  explicit Receiver(Nic& nic) : nic_(nic) {}
  /// kGap: the beginning of the message found no receive, came before a reset, or its initiator has
  /// left. kOverrun: the completion queue has no room for the receive's completion.
  enum class Delivery { kDone, kNotReady, kGap, kTooLong, kBadBuffer, kOverrun };
  Delivery deliver(Message& message, QueuePairCore& target);
  /// A dynamic initiator has left. Flushes the receive of its unfinished message.
  void end(const QueuePairCore& initiator);

 private:
  Delivery deliver_to(ReceiveInProgress& receive, const Message& message, QueuePairCore& target);
  bool take_receive(QueuePairCore& target, ReceiveInProgress& receive);
  bool place(const Message& message, const QueuePairCore& target, const ReceiveInProgress& receive,
             std::uint32_t header_bytes) const;
  const Region* writable(const Sge& sge, const QueuePairCore& target) const;
  static Delivery complete(const Message& message, QueuePairCore& target,
                           ReceiveInProgress& receive, std::uint32_t header_bytes);
  static void fail(QueuePairCore& target, ReceiveInProgress& receive, Status status);
  Nic& nic_;
};

}  // namespace pyrdma::fabric::sim
