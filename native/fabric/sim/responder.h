// The responder works between the port and the memory. A request passes the responder engine. The
// responder finds the queue pair, executes the request in order and answers it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fabric/sim/message.h"
#include "fabric/sim/server.h"
#include "fabric/types.h"

namespace pyrdma::fabric::sim {

/// The responder's half of a connection: the bytes that the responder expects next, and the times
/// of its last arrival and execution. The initiator's queue pair holds this state, because a
/// simulated connection has exactly one initiator.
class ResponderState {
 public:
  /// The first bytes that the responder has not executed.
  Position expected() const { return expected_; }
  /// Returns whether `connection` of the responder's queue pair may serve the initiator. A queue
  /// pair that was reset and connected again expects the initiator's first packet, which one that
  /// was not reset sends never again.
  bool is_served_by(std::uint64_t connection) const {
    return served_by_ == connection || expected_ == Position{};
  }
  /// The messages under way are void. The times stay, because time does not go back.
  void reset() {
    expected_ = {};
    asked_ = false;
  }

 private:
  friend class Responder;
  /// The chunk has taken effect, by `connection`.
  void advance(const Message& message, std::uint64_t connection);

  Position expected_;
  std::uint64_t served_by_ = 0;  // the connection that has executed the first request
  bool asked_ =
      false;  // a negative acknowledgement has named `expected_`, which has not come since
  Picos last_due_ = 0;  // requests arrive in order, whatever they cost the target
  Picos last_execution_ = 0;
};

class Responder {
 public:
  explicit Responder(Nic& nic) : nic_(nic) {}
  void drop_backlog(Picos now) {
    engine_.drop_backlog(now);
    for (Picos& free : address_free_) free = std::min(free, now);
  }

  /// Schedules a request whose last byte reaches the port at `arrival`. The event comes when an
  /// idle responder will have executed the request.
  void expect(Message& message, Picos arrival);
  void request_arrives(Message& message, Picos now);
  void request_executes(Message& message, Picos now);
  /// Returns the queue pair that a request reaches, or null.
  QueuePairCore* find_target(const Message& message) const;

 private:
  Picos engine_time(const Message& message) const;
  inline Picos placement_time(const Message& message) const;
  inline Picos load_contexts(const Message& message, Picos now, Picos at) const;
  inline bool on_device(const Message& message) const;
  inline Picos cross_pcie(const Message& message, Picos now, Picos at);
  inline Picos fetch_receive(const Message& message, Picos now, Picos at);
  inline Picos wait_for_address(const Message& message, Picos at);
  void execute_unordered(Message& message, Picos now);
  void execute_out_of_order(Message& message, QueuePairCore& target, Picos now);
  void execute_duplicate(Message& message, QueuePairCore& target, Picos now);
  Status execute(Message& message, QueuePairCore& target, Picos now);
  inline Status execute_write(Message& message, QueuePairCore& target, Picos now);
  inline Status execute_send(Message& message, QueuePairCore& target);
  inline void acknowledge(Message& message, Picos now);
  static bool follows(QueuePairCore& qp, const Message& message);

  static constexpr std::size_t kAddressSlots = 4096;
  Nic& nic_;
  Server engine_;
  std::vector<Picos> address_free_;  // by slot: end of the last atomic; empty before the first one
};

}  // namespace pyrdma::fabric::sim
