// The requester engine works between the doorbell and the link, and serves the responses. The
// engine takes work requests of the active queue pairs in turn, checks each request, starts the DMA
// of the payload and hands messages to the transmitter. The engine never runs far ahead of the
// link, so later requests of other queue pairs get their turn.
#pragma once
#include <algorithm>
#include <cstdint>

#include "fabric/sim/message.h"
#include "fabric/sim/profile.h"
#include "fabric/sim/send_queue.h"
#include "fabric/sim/server.h"
#include "fabric/types.h"

namespace pyrdma::fabric::sim {

struct SendEntry;

/// The requester engine's state of a queue pair.
class RequesterState {
 public:
  /// Request `sequence` is complete.
  void answered(std::uint64_t sequence, bool needed_data) {
    if (sequence < next_) outstanding_reads_ -= needed_data;
  }
  /// Stops the sending of all requests posted so far.
  void stop(std::uint64_t posted) {
    go_to(posted);
    pending_failure_ = Status::kSuccess;
  }
  /// Continues the sending at `sequence`, unless it is already there or later. All earlier requests
  /// have been answered.
  void skip_to(std::uint64_t sequence) {
    if (next_ < sequence) go_to(sequence);
  }
  /// Sends again from `place` on. No earlier request still waits for data. Returns the number of
  /// requests of which the requester had sent bytes.
  std::uint64_t repeat_from(Position place);
  void reset();

  /// The next request to send.
  std::uint64_t next() const { return next_; }
  /// The first bytes that have not been sent.
  Position position() const { return {next_, chunk_offset_}; }
  /// All requests before this one that have an answer of their own have been sent.
  std::uint64_t awaited() const { return awaited_; }
  /// A fence or too many reads stop the sending. A response lets the sending continue.
  bool blocked() const { return blocked_; }
  /// The reason why the next request cannot be sent.
  Status pending_failure() const { return pending_failure_; }
  /// The packets of a queue pair leave one after another. Returns the time at which a request has
  /// left that takes `wire` on the link and could have left by `left`.
  Picos in_order(Picos left, Picos wire) { return left_ = std::max(left_ + wire, left); }

 private:
  friend class Requester;
  void go_to(std::uint64_t sequence, std::uint32_t offset = 0) {
    next_ = sequence;
    chunk_offset_ = offset;
  }

  std::uint64_t next_ = 0;               // the next request to send
  std::uint32_t chunk_offset_ = 0;       // bytes of `next_` that are already sent
  std::uint32_t outstanding_reads_ = 0;  // reads and atomics before `next_` without an answer
  bool active_ = false;                  // the engine's list has the queue pair
  bool blocked_ = false;
  bool drains_ = false;  // a DC initiator waits for all answers before it turns to another target
  Status pending_failure_ = Status::kSuccess;
  std::uint64_t awaited_ = 0;  // behind the last request with an answer of its own
  Picos ready_at_ = 0;
  Picos left_ = 0;         // the last request left at this time
  Picos paced_until_ = 0;  // the queue pair may start its next request at this time
  QueuePairCore* next_active_ = nullptr;
  Destination dc_target_;                // the present target of a DC initiator
  std::uint64_t connected_for_ = ~0ULL;  // the request for which a DC initiator connected last
};

class Requester final : public SimEvent {
 public:
  Requester(Nic& nic, const SimProfile& profile)
      : nic_(nic), kept_(static_cast<std::uint32_t>(profile.nic_request_cache)) {}

  /// The CPU has posted requests. The requests reach the NIC at `when`.
  void doorbell(QueuePairCore& qp, Picos when);
  /// A queue pair has requests that the NIC may process from `when` on.
  void activate(QueuePairCore& qp, Picos when);
  /// The requests that blocked the queue pair may have completed.
  void unblock(QueuePairCore& qp);
  /// The requester may use the link again at `when`.
  void resume(Picos when);
  void drop_backlog(Picos now) { engine_.drop_backlog(now); }
  /// The engine serves a response that it has at `ready`. Returns when it is served.
  Picos serve_response(Picos now, Picos ready, Picos time) {
    return engine_.serve(now, ready, time);
  }
  /// Counts a request that the NIC gets with the doorbell. Returns its number.
  std::uint32_t note_posted() { return ++posted_; }
  /// Returns whether the NIC still has request `number`. The NIC keeps the last requests that it
  /// got; a response scatters its data by the request.
  bool keeps(std::uint32_t number) const { return posted_ - number < kept_; }
  /// A DC initiator leaves: it is reset, or destroyed.
  static void leave(QueuePairCore& qp);
  /// Runs the engine's turn.
  void fire(Picos now) override;
  void prefetch() const override;

 private:
  static void disconnect(QueuePairCore& qp);
  enum class Step { kSent, kWaits, kBlocked };
  // The inline functions are steps of send_chunk(). Their only caller is in the same file.
  Step turn(QueuePairCore& qp, Picos now);
  Step send_chunk(QueuePairCore& qp, Picos now);
  inline Step fetch(QueuePairCore& qp, Picos now);
  static inline bool may_start(const QueuePairCore& qp, const SendEntry& entry);
  inline Status check(QueuePairCore& qp) const;
  inline Status check_keys(QueuePairCore& qp) const;
  inline Message& make_message(QueuePairCore& qp);
  enum class Payload { kNone, kByDma, kGone };
  inline Payload load_payload(Message& message, QueuePairCore& qp);
  inline Step connect(QueuePairCore& qp, Picos now);
  inline Picos pace(QueuePairCore& qp, const SendEntry& entry, Picos begin);
  inline void sent(QueuePairCore& qp, const SendEntry& entry, Picos left);
  Step fail(QueuePairCore& qp, Status status);
  Picos earliest_turn() const;
  void append(QueuePairCore& qp);
  void schedule(Picos when);

  Nic& nic_;
  Server engine_;
  std::uint32_t posted_ = 0;  // requests that the NIC got, modulo 2^32
  std::uint32_t kept_;        // the NIC keeps so many of them
  Picos due_ = kNever;        // time of the engine's next turn
  QueuePairCore* first_active_ = nullptr;
  QueuePairCore* last_active_ = nullptr;
};

}  // namespace pyrdma::fabric::sim
