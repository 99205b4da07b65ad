// A queue pair of the simulated fabric has two parts: the CPU's handle and the NIC's side. The
// NIC's side holds one state struct for each step of a request.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "fabric/fabric.h"
#include "fabric/sim/completer.h"
#include "fabric/sim/completion_queue.h"
#include "fabric/sim/nic.h"
#include "fabric/sim/placement.h"
#include "fabric/sim/receiver.h"
#include "fabric/sim/requester.h"
#include "fabric/sim/responder.h"
#include "fabric/sim/responses.h"
#include "fabric/sim/retransmitter.h"
#include "fabric/sim/send_queue.h"

namespace pyrdma::fabric::sim {

inline constexpr std::uint64_t kMaxMessage = 1ULL << 31;  // bytes

struct SimProtectionDomain final : ProtectionDomain {
  SimProtectionDomain(Nic& owner, std::uint32_t number) : nic(&owner), id(number) {}
  ~SimProtectionDomain() override { nic->control.destroy_domain(); }
  Nic* nic;
  std::uint32_t id;  // unique; no later domain gets it
};

struct SimAddressHandle final : AddressHandle {
  SimAddressHandle(Nic* nic, std::uint32_t pd) : target(nic), domain(pd) {}
  Nic* target;
  std::uint32_t domain;
};

/// The NIC's side of a queue pair. The core outlives the QueuePair object while messages still
/// refer to the core.
class alignas(64) QueuePairCore {
 public:
  void prefetch() const {
    const auto* at = reinterpret_cast<const char*>(this);
    for (std::size_t line = 0; line < 8; ++line) __builtin_prefetch(at + line * 64);
  }
  QueuePairCore(Nic& nic, const QpOptions& options, std::uint32_t pd, SimCompletionQueue& send,
                SimCompletionQueue& receive, SimSharedReceiveQueue* shared);
  QueuePairCore(const QueuePairCore&) = delete;
  QueuePairCore& operator=(const QueuePairCore&) = delete;

  /// Completes request `sequence` with an error and flushes the later requests.
  void fail(std::uint64_t sequence, Status status);
  /// Fails the request that cannot be sent, once all earlier requests have been answered.
  void fail_pending();
  /// Moves to the error state and flushes all requests and receives.
  void enter_error();
  /// Completes all posted requests as flushed, with `cause` as the vendor's error.
  void flush_sends(Status cause = Status::kFlushed);
  void flush_receives();
  void reset();
  bool ordered() const {
    return options.transport == Transport::kRc || options.transport == Transport::kDc;
  }
  /// Returns whether the responder answers a request that needs no completion.
  bool is_answered(const SendEntry& entry) const {
    return entry.needs_data_back() || options.transport == Transport::kDc;
  }
  /// Returns whether a request has been sent of which the requester knows no acknowledgement.
  bool awaits_answer() const {
    return completer.completed() < std::min(requester.awaited(), requester.next()) ||
           (ordered() && responder.expected() < requester.position());
  }
  /// An acknowledgement comes that the simulation does not follow.
  void acknowledged(Picos now) {
    retransmit.progress(now);
    if (requester.pending_failure() != Status::kSuccess) [[unlikely]]
      fail_pending();
  }
  /// Each request names its target.
  bool is_addressed() const {
    return options.transport == Transport::kUd || options.transport == Transport::kDc;
  }

  Nic& nic;
  QpOptions options;
  std::uint32_t domain;
  std::uint32_t number = 0, psn = 0;
  std::uint64_t serial = 0;  // key in the context cache
  QpState state = QpState::kReset;
  bool destroyed = false;
  bool crashed = false;          // the node has crashed
  std::uint32_t references = 0;  // messages, completions and events that name this core
  std::uint32_t peer_number = 0, peer_psn = 0;
  std::uint64_t connection = 0;  // each connect() makes another one
  std::uint32_t reads_at_once;   // reads and atomics in flight
  Nic* peer_nic = nullptr;

  SendQueue sends;
  RequesterState requester;
  ResponderState responder;
  ResponsesState responses;
  CompleterState completer;
  RetransmitState retransmit{*this};
  PlacementQueue placements{*this};  // writes that are not yet visible at the target
  ReceiverState receiver;
};

class SimQueuePair final : public QueuePair {
 public:
  SimQueuePair(Nic& nic, std::unique_ptr<QueuePairCore> core);
  ~SimQueuePair() override;
  Transport transport() const override { return core_->options.transport; }
  std::uint32_t qp_num() const override { return core_->number; }
  QpState state() const override { return core_->state; }
  QpAddress address() const override;
  PostResult post(std::span<const WorkRequest> requests) override;
  PostResult post_receive(std::span<const ReceiveRequest> requests) override;
  void modify(QpState next, const QpAddress* peer) override;

 private:
  inline PostError why_not(const WorkRequest& request) const;
  inline Picos ring(std::span<const WorkRequest> requests);
  [[gnu::cold, gnu::noinline]] void record(std::span<const WorkRequest> posted,
                                           std::size_t asked) const;
  void connect_to(const QpAddress* peer);
  Nic& nic_;
  std::unique_ptr<QueuePairCore> core_;
  std::uint32_t allowed_;  // bit set of allowed opcodes
};

/// Drops one reference to `core`. The last reference of a destroyed queue pair deletes the core.
void drop_reference(QueuePairCore* core);

}  // namespace pyrdma::fabric::sim
