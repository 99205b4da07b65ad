#include "fabric/shm/queue_pair.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "fabric/post_rules.h"
#include "fabric/shm/batch.h"
#include "fabric/shm/shared_receive_queue.h"
#include "fabric/shm/thread_order.h"

namespace pyrdma::fabric::shm {
namespace {

constexpr Time kSilentRetry = 20 * kMicrosecond;

Status status_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kDone:
      return Status::kSuccess;
    case Outcome::kNoReceive:
      return Status::kRnrRetryExceeded;
    case Outcome::kSilent:
    case Outcome::kBusy:
    case Outcome::kUnreachable:
      return Status::kRetryExceeded;
    case Outcome::kLocalLength:
      return Status::kLocalLength;
    case Outcome::kLocalProtection:
      return Status::kLocalProtection;
    case Outcome::kRemoteInvalidRequest:
      return Status::kRemoteInvalidRequest;
    case Outcome::kRemoteAccess:
      return Status::kRemoteAccess;
    case Outcome::kRemoteOperation:
      return Status::kRemoteOperation;
  }
  return Status::kGeneral;
}

}  // namespace

ShmQueuePair::ShmQueuePair(ShmDevice& device, std::uint32_t pd, ShmCompletionQueue& send_queue,
                           ShmCompletionQueue& receive_queue, const QpOptions& options,
                           ShmSharedReceiveQueue* shared)
    : device_(device),
      node_(device.node()),
      options_(options),
      pd_(pd),
      allowed_(options.dc_target ? 0 : allowed_opcodes(options.transport)),
      epoch_(node_.control().header.epoch),
      qp_num_(device.take_qp_number()),
      entry_(node_.control().queue_pairs[qp_slot(qp_num_)]),
      send_queue_(send_queue),
      receive_queue_(receive_queue),
      shared_(shared) {
  draw_psn();
  if (shared == nullptr) {
    try {
      receives_ =
          ReceivePoster(device.make_receive_ring(options.receive_entries, options.max_sges,
                                                 options.receive_strides, false, &ring_offset_),
                        options.receive_entries);
    } catch (...) {
      device.give_back_qp_number(qp_num_);
      throw;
    }
  }
  if (is_addressed(options.transport)) target_paths_.resize(kTargetPaths);
  if (options.transport == Transport::kDc && !options.dc_target) device.publish_initiator(qp_num_);
  device.set_released(qp_num_, 0);
  const ReceiveView& receives = shared == nullptr ? receives_.view() : shared->view();
  set_relaxed(entry_.state, static_cast<std::uint8_t>(QpState::kReset));
  set_relaxed(entry_.transport, static_cast<std::uint8_t>(options.transport));
  set_relaxed(entry_.is_dc_target, static_cast<std::uint8_t>(options.dc_target));
  set_relaxed(entry_.access, options.access);
  set_relaxed(entry_.pd, pd);
  set_relaxed(entry_.receive_pd, shared == nullptr ? pd : shared->pd());
  set_relaxed(entry_.qkey, options.qkey);
  set_relaxed(entry_.rnr_timer_us, options.rnr_timer_us);
  set_relaxed(entry_.peer_node, kNoNode);
  set_relaxed(entry_.has_own_receives, shared == nullptr ? 1U : 0U);
  set_relaxed(entry_.receives, shared == nullptr ? ring_offset_ : shared->offset());
  set_relaxed(entry_.receives_id, receives.id);
  set_relaxed(entry_.completions, receive_queue.offset());
  set_relaxed(entry_.completions_id, receive_queue.view().id);
  entry_.qp_num.store(qp_num_, std::memory_order_release);
}

ShmQueuePair::~ShmQueuePair() {
  entry_.state.store(static_cast<std::uint8_t>(QpState::kReset));
  entry_.qp_num.store(0, std::memory_order_release);
  node_.change_epoch();
  node_.waiting().remove(*this);
  if (shared_ == nullptr)
    device_.retire_receive_ring(receives_.view(), ring_offset_, control_patience());
  else if (options_.transport == Transport::kUd)
    await_deliveries();
  send_queue_.purge_sends(qp_num_);
  receive_queue_.purge(qp_num_, only_peer());
  device_.give_back_qp_number(qp_num_);
}

QpAddress ShmQueuePair::address() const {
  QpAddress address;
  address.node = node_.self();
  address.qp_num = qp_num_;
  address.psn = psn_;
  address.qkey = options_.qkey;
  address.reads = static_cast<std::uint16_t>(options_.max_outstanding_reads);
  return address;
}

PostResult ShmQueuePair::post_receive(std::span<const ReceiveRequest> requests) {
  if (shared_ != nullptr) return {0, PostError::kInvalid};
  if (state() == QpState::kReset) return {0, PostError::kInvalidState};
  const PostResult result = receives_.post(requests);
  // The thread that sets kError flushes the receives posted so far; this function flushes later
  // ones.
  if (entry_.state.load() == static_cast<std::uint8_t>(QpState::kError)) [[unlikely]] {
    const WaitingLock lock(*this);
    flush_own_receives(kPatience);
  }
  return result;
}

// ---- states ----

// Draws another packet sequence number than the last.
void ShmQueuePair::draw_psn() {
  const std::uint32_t last = psn_;
  do {
    fill_random(&psn_, sizeof psn_);
    psn_ &= 0xffffff;
  } while (psn_ == last);
  set_relaxed(entry_.psn, psn_);
}

void ShmQueuePair::modify(QpState next, const QpAddress* peer) {
  const QpState from = state();
  check_transition(from, next);
  if (next == QpState::kReadyToReceive && !is_addressed(options_.transport)) {
    if (peer == nullptr || peer->node >= node_.nodes()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "connecting needs the address of a peer; give a node below " +
                      std::to_string(node_.nodes()));
    }
    if (options_.transport == Transport::kRc)
      reads_in_flight(options_.max_outstanding_reads, *peer);
    path_.aim(node_.peer(peer->node), peer->qp_num, peer->psn & 0xffffff);
    set_relaxed(entry_.peer_node, peer->node);
    set_relaxed(entry_.peer_qpn, peer->qp_num);
    set_relaxed(entry_.peer_psn, peer->psn & 0xffffff);
  }
  if (next != QpState::kError && next != QpState::kReset) {
    entry_.state.store(static_cast<std::uint8_t>(next), std::memory_order_release);
    return;
  }
  const WaitingLock lock(*this);
  enter_own_error(control_patience());
  if (shared_ != nullptr && options_.transport == Transport::kUd) await_deliveries();
  flush_waiting();
  if (next == QpState::kReset) {
    send_queue_.purge_sends(qp_num_);
    receive_queue_.purge(qp_num_, only_peer());
    if (flush_pending_) replace_receives();
    reset_at_ = posted_;
    room_ = 0;
    draw_psn();
    entry_.state.store(static_cast<std::uint8_t>(QpState::kReset), std::memory_order_release);
  }
}

// The peer may be stopped within a send, and then hold the ring. A queue pair that is reset has
// other receives, so it takes another ring, and the old one is used again when the peer has left
// it.
void ShmQueuePair::replace_receives() {
  const ReceiveView old = receives_.view();
  std::uint64_t offset = 0;
  receives_ = ReceivePoster(device_.make_receive_ring(options_.receive_entries, options_.max_sges,
                                                      options_.receive_strides, false, &offset),
                            options_.receive_entries);
  device_.retire_receive_ring(old, ring_offset_, 0);
  ring_offset_ = offset;
  set_relaxed(entry_.receives, offset);
  set_relaxed(entry_.receives_id, receives_.view().id);
  flush_pending_ = false;
}

bool ShmQueuePair::is_quiet() const {
  if (is_addressed(options_.transport) && !options_.dc_target) return true;
  order_all_threads();
  if (!options_.dc_target) return path_.is_quiet(node_.session());
  for (NodeId node = 0; node < node_.nodes(); ++node) {
    if (has_initiator_at_work(node)) return false;
  }
  return true;
}

// Returns when no peer delivers datagrams from the shared queue to this queue pair. No peer begins
// to, because the queue pair is out of service. Peers of other transports say themselves that they
// are at work.
void ShmQueuePair::await_deliveries() {
  ReceiveTaker last;
  if (last.open(shared_->view(), node_.holder(), node_.session(), kLockTimeout) == Opened::kYes)
    last.close();
}

// The caller has locked the waiting requests.
void ShmQueuePair::enter_own_error(Time patience) {
  enter_error(node_.control(), entry_);
  flush_own_receives(patience);
}

// A flush that a peer holds up waits in the list, so that nobody waits for the peer.
bool ShmQueuePair::flush_own_receives(Time patience) {
  const Time now = node_.env().now();
  if (!flush_pending_) flush_since_ = now;
  const auto flush = [&](std::uint32_t bank) {
    return flush_receives(qp_num_, receives_.view(), receive_queue_.view().bank(bank),
                          node_.holder(), node_.session(), patience);
  };
  // Behind all earlier completions of the queue pair, which may be in the last ring in use.
  Word<std::uint32_t>& banks = receive_queue_.view().first->banks;
  const std::uint32_t used = (relaxed(banks) | 1U) & ((1U << kBanks) - 1);
  const auto last = static_cast<std::uint32_t>(std::bit_width(used)) - 1;
  flush_pending_ = !flush(last);
  if (flush_pending_ && now >= flush_since_ + kControlPatience && last + 1 < kBanks) {
    banks.fetch_or(1U << (last + 1), std::memory_order_acq_rel);
    flush_pending_ = !flush(last + 1);
    flush_since_ = now;
  }
  if (flush_pending_) list();
  return !flush_pending_;
}

void ShmQueuePair::list() {
  if (listed_) return;
  listed_ = true;
  node_.waiting().add(*this);
  node_.wake_monitor();
}

// The caller has locked the waiting requests.
void ShmQueuePair::complete(const SendCompletion& completion) {
  if (send_queue_.push(&completion, 1, qp_num_)) [[likely]]
    return;
  if (state() != QpState::kError) enter_own_error(kPatience);
}

void ShmQueuePair::complete(const Waiting& waited, Status status) {
  complete({waited.request.wr_id, waited.position, waited.request.opcode, status});
}

// The completion has found its queue full or overrun.
void ShmQueuePair::lose_completion(bool has_locked) {
  if (!has_locked) lock_waiting();
  if (state() != QpState::kError) enter_own_error(kPatience);
  if (!has_locked) unlock_waiting();
}

void ShmQueuePair::fail(std::uint64_t wr_id, Outcome outcome, std::uint32_t position) {
  // The state changes first, because another thread may take the completion and read the state at
  // once.
  const bool reliable = is_reliable(options_.transport);
  auto sending = static_cast<std::uint8_t>(QpState::kReadyToSend);
  entry_.state.compare_exchange_strong(
      sending, static_cast<std::uint8_t>(reliable ? QpState::kError : QpState::kSendQueueError));
  has_taken_ = false;
  complete({wr_id, position, Opcode::kWrite, status_of(outcome)});
  if (reliable) enter_own_error(kPatience);
}

// ---- waiting ----

void ShmQueuePair::lock_waiting() {
  while (busy_.exchange(true, std::memory_order_acquire)) sched_yield();
}

PostResult ShmQueuePair::post_slow(std::span<const WorkRequest> requests) {
  const QpState now = state();
  if (now == QpState::kReset || now == QpState::kInit || now == QpState::kReadyToReceive) {
    return {0, PostError::kInvalidState};
  }
  {
    const WaitingLock lock(*this);
    retry_locked(node_.env().now());
    if (!waiting_.empty() || state() != QpState::kReadyToSend) return append(requests, 0);
  }
  stores_drained_ = false;
  const AtWork at_work(entry_);
  return post_now(requests, 0);
}

void ShmQueuePair::keep(const WorkRequest& request, std::uint32_t position) {
  Waiting& kept = waiting_.emplace_back();
  kept.request = request;
  kept.position = position;
  kept.sges.assign(request.sges, request.sges + request.sge_count);
  if ((request.flags & kInline) != 0) {
    for (Sge& sge : kept.sges) {
      const auto* data = reinterpret_cast<const std::byte*>(sge.addr);
      kept.inline_data.insert(kept.inline_data.end(), data, data + sge.length);
    }
    std::size_t offset = 0;
    for (Sge& sge : kept.sges) {
      sge.addr = reinterpret_cast<std::uint64_t>(kept.inline_data.data() + offset);
      offset += sge.length;
    }
  }
  kept.request.sges = kept.sges.data();
}

void ShmQueuePair::begin_waiting() {
  is_waiting_.store(true, std::memory_order_release);
  list();
}

// Counts a fruitless attempt; returns true when it was the last.
bool ShmQueuePair::wait_over(Outcome reason, Time now) {
  if (reason != wait_reason_) {
    wait_reason_ = reason;
    attempts_ = 0;
    const Time timeouts = Time{options_.timeout_us} * kMicrosecond * (options_.retry_count + 1);
    silent_until_ = now + (reason == Outcome::kBusy ? busy_limit() : timeouts);
    busy_since_ = now;
  }
  ++attempts_;
  if (reason == Outcome::kNoReceive) {
    next_attempt_ = now + std::max<Time>(rnr_timer_, kMicrosecond);
    return options_.rnr_retry != kInfiniteRetry && attempts_ > options_.rnr_retry;
  }
  next_attempt_ = now + kSilentRetry;
  return now >= silent_until_;
}

bool ShmQueuePair::retry(Time now) {
  if (busy_.exchange(true, std::memory_order_acquire)) return false;
  if (flush_pending_) flush_own_receives(0);
  retry_locked(now);
  const bool done = waiting_.empty() && !flush_pending_;
  if (done) listed_ = false;
  unlock_waiting();
  return done;
}

void ShmQueuePair::retry_locked(Time now) {
  while (!waiting_.empty()) {
    if (state() != QpState::kReadyToSend) return flush_waiting();
    if (wait_reason_ != Outcome::kDone && now < next_attempt_) return;
    const Waiting& first = waiting_.front();
    Outcome outcome = Outcome::kDone;
    {
      const AtWork at_work(entry_);
      Batch batch(*this, Batch::Of::kRetry);
      outcome = execute(first.request, batch);
    }
    if (must_wait(outcome) && !wait_over(outcome, now)) return;
    if (outcome == Outcome::kBusy && !is_reliable(options_.transport)) {  // lost
      outcome = Outcome::kDone;
      has_taken_ = false;
    }
    if (outcome == Outcome::kDone && (first.request.flags & kSignaled) != 0)
      complete(first, Status::kSuccess);
    if (outcome != Outcome::kDone) fail(first.request.wr_id, outcome, first.position);
    wait_reason_ = Outcome::kDone;
    waiting_.pop_front();
  }
  is_waiting_.store(false, std::memory_order_release);
}

void ShmQueuePair::flush_waiting() {
  for (; !waiting_.empty(); waiting_.pop_front()) {
    complete(waiting_.front(), Status::kFlushed);
  }
  has_taken_ = false;
  is_waiting_.store(false, std::memory_order_release);
}

}  // namespace pyrdma::fabric::shm
