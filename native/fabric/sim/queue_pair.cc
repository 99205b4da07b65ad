#include "fabric/sim/queue_pair.h"

#include <string>

#include "base/error.h"
#include "fabric/sim/nic.h"

namespace pyrdma::fabric::sim {

QueuePairCore::QueuePairCore(Nic& owner, const QpOptions& wanted, std::uint32_t pd,
                             SimCompletionQueue& send, SimCompletionQueue& receive,
                             SimSharedReceiveQueue* shared)
    : nic(owner),
      options(wanted),
      domain(pd),
      reads_at_once(wanted.max_outstanding_reads),
      sends(wanted, is_addressed()),
      completer(send),
      receiver(owner, receive, wanted, pd, shared) {}

void QueuePairCore::reset() {
  enter_error();
  completer.completions().purge(*this);
  receiver.completions().purge(*this);
  retransmit.reset();
  sends.reset();
  completer.reset();
  responder.reset();
  receiver.reset();
  Requester::leave(*this);
  requester.reset();
}

void drop_reference(QueuePairCore* core) {
  if (--core->references > 0 || !core->destroyed) return;
  core->nic.fabric().orphans.erase(core);
  delete core;
}

SimQueuePair::SimQueuePair(Nic& nic, std::unique_ptr<QueuePairCore> core)
    : nic_(nic),
      core_(std::move(core)),
      allowed_(core_->options.dc_target ? 0 : allowed_opcodes(core_->options.transport)) {}

SimQueuePair::~SimQueuePair() {
  QueuePairCore& qp = *core_;
  const bool is_reset = qp.state == QpState::kReset;
  nic_.queue_pairs.erase(qp.number, &qp);
  nic_.contexts.change_footprint(-nic_.fabric().profile.nic_qp_state_bytes);
  ++qp.references;  // keeps the core alive while purge() drops other references
  qp.completer.completions().purge(qp);
  qp.receiver.completions().purge(qp);
  Requester::leave(qp);
  qp.destroyed = true;
  nic_.weak_memory.settle(qp.number);
  nic_.fabric().orphans.insert(core_.release());
  drop_reference(&qp);
  nic_.control.destroy_queue_pair(is_reset);
}

QpAddress SimQueuePair::address() const {
  QpAddress address;
  address.node = nic_.node();
  address.lid = static_cast<std::uint16_t>(nic_.device());
  address.qp_num = core_->number;
  address.psn = core_->psn;
  address.qkey = core_->options.qkey;
  address.reads = static_cast<std::uint16_t>(core_->options.max_outstanding_reads);
  return address;
}

void SimQueuePair::connect_to(const QpAddress* peer) {
  if (peer == nullptr)
    throw Error(ErrorCode::kInvalidArgument, "a connection needs the peer's address; give one");
  const QpOptions& options = core_->options;
  if (options.transport == Transport::kRc)
    core_->reads_at_once = reads_in_flight(options.max_outstanding_reads, *peer);
  core_->peer_nic = &nic_.fabric().nic_of(*peer);
  core_->peer_number = peer->qp_num;
  core_->peer_psn = peer->psn;
  core_->connection = ++nic_.fabric().connections;
}

void SimQueuePair::modify(QpState next, const QpAddress* peer) {
  QueuePairCore& qp = *core_;
  check_transition(qp.state, next);
  if (next == QpState::kReadyToReceive && !qp.is_addressed()) connect_to(peer);
  nic_.control.modify();
  if (next == QpState::kError) qp.enter_error();
  if (next == QpState::kReset) {
    qp.reset();
    qp.psn = nic_.draw_packet_number();
  }
  if (next == QpState::kError || next == QpState::kReset) nic_.weak_memory.settle(qp.number);
  if (next == QpState::kError) return;
  qp.state = next;
}

}  // namespace pyrdma::fabric::sim
