// The requester's side from the response to the completion: the NIC scatters the data, advances the
// send queue and wakes polling threads.
#pragma once
#include <cstdint>

#include "env/sim/event_queue.h"
#include "fabric/types.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;
class SimCompletionQueue;
struct Message;

/// Progress of the answers to a queue pair's requests.
class CompleterState {
 public:
  explicit CompleterState(SimCompletionQueue& completions) : completions_(completions) {}

  SimCompletionQueue& completions() const { return completions_; }
  /// All requests before this one have completed.
  std::uint64_t completed() const { return completed_; }
  bool has_completed(std::uint64_t sequence) const { return sequence < completed_; }
  /// Returns the number of bytes that the response to read `sequence` has delivered.
  std::uint32_t delivered(std::uint64_t sequence) const {
    return sequence == completed_ ? response_offset_ : 0;
  }
  /// Completes the requests up to `sequence`. Request `sequence` gets the completion `error`.
  void fail(QueuePairCore& qp, std::uint64_t sequence, const Completion& error);
  void reset() { completed_ = response_offset_ = 0; }

 private:
  friend class Completer;
  std::uint64_t completed_ = 0;
  std::uint32_t response_offset_ = 0;  // next byte of the read that the responder answers in chunks
  Picos last_due_ = 0;                 // responses arrive in order
  Picos last_completion_ = 0;
  SimCompletionQueue& completions_;
};

class Completer {
 public:
  explicit Completer(Nic& nic) : nic_(nic) {}

  /// Schedules a response whose last byte reaches the port at `arrival`. The event comes when an
  /// idle requester will have completed the response.
  void expect(Message& message, Picos arrival, Picos now);
  void response_arrives(Message& message, Picos now);
  void response_completes(Message& message, Picos now);
  /// Completes a request of an unconnected transport when its packet has left, at `left`.
  void complete_locally(QueuePairCore& qp, std::uint64_t sequence, Picos left);
  void local_completes(Message& message, Picos now);

 private:
  Picos engine_time(const Message& message) const;
  inline Picos request_time(const Message& message);
  inline Picos cross_pcie(const Message& message, Picos now, Picos at);
  static bool is_void(const Nic& nic, const Message& message);
  inline bool answers_in_order(const Message& message, Picos now);
  inline void negative(const Message& message, Picos now);
  static void acknowledge_up_to(QueuePairCore& qp, std::uint64_t sequence, Picos now);
  inline void finish(QueuePairCore& qp, std::uint64_t sequence, Picos now);
  static bool complete(QueuePairCore& qp, std::uint64_t sequence);
  Nic& nic_;
};

}  // namespace pyrdma::fabric::sim
