#include "fabric/verbs/ib/queue_pair.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "fabric/post_rules.h"
#include "fabric/verbs/ib/completion_queue.h"
#include "fabric/verbs/ib/shared_receive_queue.h"
#include "fabric/verbs/ib/translate.h"
#include "fabric/verbs/ib/trial.h"

namespace pyrdma::fabric::verbs {
namespace {

std::uint32_t random_psn() {
  std::uint32_t psn = 0;
  if (::getrandom(&psn, sizeof psn, 0) != sizeof psn)
    throw Error(ErrorCode::kUnavailable, "verbs: the kernel returned no random bytes (getrandom)");
  return psn & 0xffffff;
}

}  // namespace

// ---- shared receive queues ----

VerbsSharedReceiveQueue::VerbsSharedReceiveQueue(VerbsDevice& device, VerbsDomain& domain,
                                                 std::uint32_t entries, std::uint32_t max_sges)
    : device_(device),
      domain_(domain.share()),
      max_sges_(max_sges),
      record_(device.records().take(0, entries)) {
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = entries;
  attributes.attr.max_sge = max_sges;
  srq_ = Library::get().create_srq(domain.pd(), &attributes);
  if (srq_ == nullptr) {
    const int error = errno;
    device_.records().give_back(record_);
    throw_failed("create a shared receive queue of " + std::to_string(entries) + " entries", error);
  }
  record_.free.clear();
  for (std::uint32_t position = entries; position > 0; --position)
    record_.free.push_back(position - 1);
}

VerbsSharedReceiveQueue::~VerbsSharedReceiveQueue() {
  Library::get().destroy_srq(srq_);
  device_.records().give_back(record_);
}

// ---- queue pairs ----

VerbsQueuePair::VerbsQueuePair(VerbsDevice& device, VerbsDomain& domain,
                               VerbsCompletionQueue& send_queue,
                               VerbsCompletionQueue& receive_queue, const QpOptions& options,
                               VerbsSharedReceiveQueue* shared)
    : device_(device),
      domain_(domain.share()),
      options_(options),
      allowed_(allowed_opcodes(options.transport) &
               (device.capabilities().atomics ? ~0U : ~kAtomics)),
      longest_(!device.is_soft_roce()                ? 0
               : options.transport == Transport::kUd ? device.capabilities().max_datagram
                                                     : device.capabilities().max_message),
      shared_completions_(shared != nullptr ? &receive_queue : nullptr),
      record_(device.records().take(options.send_entries,
                                    shared != nullptr ? 0 : options.receive_entries)),
      psn_(random_psn()) {
  record_.datagram = options.transport == Transport::kUd;
  ibv_qp_init_attr attributes{};
  attributes.send_cq = send_queue.cq();
  attributes.recv_cq = receive_queue.cq();
  attributes.srq = shared != nullptr ? shared->srq() : nullptr;
  attributes.cap.max_send_wr = options.send_entries;
  attributes.cap.max_recv_wr = shared != nullptr ? 0 : options.receive_entries;
  attributes.cap.max_send_sge = options.max_sges;
  attributes.cap.max_recv_sge = shared != nullptr ? 0 : options.max_sges;
  attributes.cap.max_inline_data = options.max_inline;
  attributes.qp_type = type_of(options.transport);
  qp_ = Library::get().create_qp(domain.pd(), &attributes);
  if (qp_ == nullptr) {
    const int error = errno;
    device_.records().give_back(record_);
    throw_failed(
        std::string("create a ") + to_string(options.transport) + " queue pair with " +
            std::to_string(options.send_entries) + " send and " +
            std::to_string(options.receive_entries) + " receive entries, " +
            std::to_string(options.max_sges) + " pieces and " + std::to_string(options.max_inline) +
            " inline bytes",
        error,
        "each value is within the device's limits, but all together are not; give smaller ones");
  }
  device_.add(*this);
}

VerbsQueuePair::~VerbsQueuePair() {
  device_.remove(*this);
  save_shared_receives();
  Library::get().destroy_qp(qp_);
  device_.records().give_back(record_);
}

QpAddress VerbsQueuePair::address() const {
  QpAddress address = device_.address();
  address.qp_num = qp_->qp_num;
  address.psn = psn_;
  address.qkey = options_.qkey;
  address.reads = static_cast<std::uint16_t>(options_.max_outstanding_reads);
  return address;
}

QpState VerbsQueuePair::state() const {
  const QpState known = state_.load(std::memory_order_relaxed);
  if (known < QpState::kReadyToReceive || known == QpState::kError) return known;
  ibv_qp_attr attributes{};
  ibv_qp_init_attr unused{};
  const int failure = Library::get().query_qp(qp_, &attributes, IBV_QP_STATE, &unused);
  if (failure != 0) throw_failed("query a queue pair", failure);
  return state_of(attributes.qp_state);
}

void VerbsQueuePair::modify(QpState next, const QpAddress* peer) {
  const QpState from = state();
  check_transition(from, next);
  if (next == QpState::kReset) save_shared_receives();
  ibv_qp_attr attributes{};
  switch (next) {
    case QpState::kInit:
      to_init();
      break;
    case QpState::kReadyToReceive:
      to_ready_to_receive(peer);
      break;
    case QpState::kReadyToSend:
      if (from == QpState::kSendQueueError) {
        attributes.qp_state = IBV_QPS_RTS;
        change(attributes, IBV_QP_STATE);
      } else {
        to_ready_to_send();
      }
      break;
    default:
      attributes.qp_state = state_to(next);
      change(attributes, IBV_QP_STATE);
  }
  if (next == QpState::kReset) {
    psn_ = random_psn();
    record_.forget();
    record_.sends_done.store(sent_, std::memory_order_release);
    record_.receives_done.store(received_, std::memory_order_release);
  }
  state_.store(next, std::memory_order_release);
}

// A message that arrives at this moment may still take a place of the shared receive queue.
void VerbsQueuePair::save_shared_receives() {
  if (shared_completions_ == nullptr) return;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  Library::get().modify_qp(qp_, &attributes, IBV_QP_STATE);  // the kernel refuses it in RESET
  shared_completions_->take_in(qp_->qp_num);
}

void VerbsQueuePair::change(ibv_qp_attr& attributes, unsigned mask) {
  const int failure = Library::get().modify_qp(qp_, &attributes, static_cast<int>(mask));
  if (failure != 0) {
    throw_failed(std::string("bring queue pair ") + std::to_string(qp_->qp_num) + " to " +
                     to_string(state_of(attributes.qp_state)),
                 failure,
                 attributes.qp_state == IBV_QPS_RTR
                     ? "check that the peer is on the same network and its port is up: "
                       "run 'pyrdma devices' on both, and 'ping -I INTERFACE ADDRESS'"
                     : "");
  }
}

void VerbsQueuePair::to_init() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = device_.port();
  attributes.pkey_index = static_cast<std::uint16_t>(options_.pkey_index);
  unsigned mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  if (options_.transport == Transport::kUd) {
    attributes.qkey = options_.qkey;
    mask |= IBV_QP_QKEY;
  } else {
    attributes.qp_access_flags = static_cast<unsigned>(device_.rights_of(options_.access));
    mask |= IBV_QP_ACCESS_FLAGS;
  }
  change(attributes, mask);
}

void VerbsQueuePair::to_ready_to_receive(const QpAddress* peer) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  unsigned mask = IBV_QP_STATE;
  if (options_.transport != Transport::kUd) {
    if (peer == nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  "connecting needs the peer's address; give it to modify() to RTR");
    }
    attributes.ah_attr = device_.route_to(*peer, options_.path);
    const auto theirs = static_cast<ibv_mtu>(peer->path & 0xff);
    attributes.path_mtu = theirs == 0 ? device_.mtu() : std::min(theirs, device_.mtu());
    attributes.dest_qp_num = peer->qp_num;
    attributes.rq_psn = peer->psn;
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  }
  if (options_.transport == Transport::kRc) {
    reads_at_once_ = reads_in_flight(options_.max_outstanding_reads, *peer);
    attributes.max_dest_rd_atomic = static_cast<std::uint8_t>(options_.max_outstanding_reads);
    attributes.min_rnr_timer = rnr_timer_code(options_.rnr_timer_us);
    mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  }
  change(attributes, mask);
}

void VerbsQueuePair::to_ready_to_send() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = psn_;
  unsigned mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (options_.transport == Transport::kRc) {
    attributes.timeout = timeout();
    attributes.retry_cnt = retry_count();
    attributes.rnr_retry = static_cast<std::uint8_t>(options_.rnr_retry);
    attributes.max_rd_atomic = static_cast<std::uint8_t>(reads_at_once_);
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  change(attributes, mask);
}

void VerbsQueuePair::take_step(QpState next, ibv_qp_attr& attributes, unsigned mask) {
  // librdmacm chooses what the options leave at 0.
  if (next == QpState::kInit) {
    if (options_.pkey_index != 0)
      attributes.pkey_index = static_cast<std::uint16_t>(options_.pkey_index);
    attributes.qp_access_flags = static_cast<unsigned>(device_.rights_of(options_.access));
    mask |= IBV_QP_ACCESS_FLAGS;
  } else if (next == QpState::kReadyToReceive) {
    PathOptions path = options_.path;
    if (path.service_level == 0) path.service_level = attributes.ah_attr.sl;
    if (path.traffic_class == 0) path.traffic_class = attributes.ah_attr.grh.traffic_class;
    set_path(attributes.ah_attr, path);
    attributes.max_dest_rd_atomic = static_cast<std::uint8_t>(options_.max_outstanding_reads);
    attributes.min_rnr_timer = rnr_timer_code(options_.rnr_timer_us);
    mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  } else {
    // librdmacm has what the peer serves.
    attributes.max_rd_atomic = static_cast<std::uint8_t>(
        std::min<std::uint32_t>(attributes.max_rd_atomic, options_.max_outstanding_reads));
    attributes.timeout = timeout();
    attributes.retry_cnt = retry_count();
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT;
  }
  change(attributes, mask);
  state_.store(next, std::memory_order_release);
}

std::uint8_t VerbsQueuePair::retry_count() const {
  return static_cast<std::uint8_t>(device_.is_soft_roce() ? kSoftRoceRetries
                                                          : options_.retry_count);
}

// With fewer attempts than asked for, each attempt takes longer.
std::uint8_t VerbsQueuePair::timeout() const {
  if (!device_.is_soft_roce()) return timeout_exponent(options_.timeout_us);
  const std::uint64_t all = std::uint64_t{options_.timeout_us} * (options_.retry_count + 1);
  const std::uint64_t each =
      std::max<std::uint64_t>(all / (kSoftRoceRetries + 1), kSoftRoceTimeoutUs);
  return timeout_exponent(static_cast<std::uint32_t>(std::min<std::uint64_t>(each, ~0U)));
}

// In ERROR the queue pair answers no peer, and unlike in RESET the node's threads may still post.
void VerbsQueuePair::silence() {
  // It has not sent anything yet.
  if (state_.load(std::memory_order_acquire) == QpState::kReset) return;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  if (Library::get().modify_qp(qp_, &attributes, IBV_QP_STATE) == 0)
    state_.store(QpState::kError, std::memory_order_release);
}

}  // namespace pyrdma::fabric::verbs
