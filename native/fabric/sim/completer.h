// From the response to the completion: data is scattered, the send queue advances, polling threads
// wake.
#pragma once
#include <cstdint>

#include "env/sim/event_queue.h"
#include "fabric/types.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;
class SimCompletionQueue;
struct Message;

/// How far a queue pair's requests have been answered.
struct CompleterState {
  std::uint64_t completed = 0;        // all before have completed
  std::uint32_t response_offset = 0;  // of the read that is being answered in chunks
  Picos last_completion = 0;
  SimCompletionQueue* completions = nullptr;
};

class Completer {
 public:
  explicit Completer(Nic& nic) : nic_(nic) {}

  void response_arrives(Message& message, Picos now);
  void response_completes(Message& message, Picos now);
  /// A request of an unconnected transport is done when its packet has left, at `left`.
  void complete_locally(QueuePairCore& qp, std::uint64_t sequence, Picos left);
  void local_completes(Message& message, Picos now);

  /// Completes what needs no data, up to `sequence` or what does. Whether it came so far.
  bool acknowledge_up_to(QueuePairCore& qp, std::uint64_t sequence);
  /// What the requester engine takes for a response.
  Picos engine_time(const Message& message) const;

 private:
  static bool is_void(const Nic& nic, const Message& message);
  inline bool answers_in_order(const Message& message, Picos now);
  inline void finish(QueuePairCore& qp, std::uint64_t sequence);
  static void complete(QueuePairCore& qp, std::uint64_t sequence);
  Nic& nic_;
};

}  // namespace pyrdma::fabric::sim
