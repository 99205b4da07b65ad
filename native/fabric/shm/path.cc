#include "fabric/shm/path.h"

#include <algorithm>

#include "fabric/shm/session_block.h"

namespace pyrdma::fabric::shm {
namespace {

/// The longest time of InfiniBand. A DC target thus cannot stop an initiator of others for longer.
constexpr std::uint32_t kMostRnrTimerUs = 655'360;

}  // namespace

// Both ends of a reliable connection must be as they were when they were connected. A reset gives
// an end another packet sequence number, so a NIC takes the packets of an end that was reset alone
// for duplicates, or for packets ahead. UC has no such check: the first packet of each message sets
// the number again.
bool Path::is_connected(Transport transport, NodeId self, const QpEntry& own,
                        const QpEntry& there) const {
  if (relaxed(there.peer_node) != self || relaxed(there.peer_qpn) != relaxed(own.qp_num))
    return false;
  return transport != Transport::kRc ||
         (relaxed(there.peer_psn) == relaxed(own.psn) && relaxed(there.psn) == psn_);
}

Reach Path::refresh(Transport transport, NodeId self, const QpEntry& own) {
  epoch_ = 0;
  if (!peer_->attach()) return Reach::kGone;
  Control& control = *peer_->control();
  header_ = &control.header;
  const std::uint64_t epoch = header_->epoch.load(std::memory_order_acquire);
  if (header_->gone.load(std::memory_order_acquire) != 0) return Reach::kGone;
  const QpEntry& entry = control.queue_pairs[qp_slot(qpn_)];
  if (entry.qp_num.load(std::memory_order_acquire) != qpn_) return Reach::kSilent;
  const auto state = static_cast<QpState>(entry.state.load(std::memory_order_acquire));
  if (state != QpState::kReadyToReceive && state != QpState::kReadyToSend &&
      state != QpState::kSendQueueError) {
    return Reach::kSilent;
  }
  if (static_cast<Transport>(relaxed(entry.transport)) != transport) return Reach::kSilent;
  if (transport == Transport::kDc && relaxed(entry.is_dc_target) == 0) return Reach::kSilent;
  if (!is_addressed(transport) && !is_connected(transport, self, own, entry)) return Reach::kSilent;
  access_ = relaxed(entry.access);
  pd_ = relaxed(entry.pd);
  receive_pd_ = relaxed(entry.receive_pd);
  qkey_ = relaxed(entry.qkey);
  rnr_timer_ = Time{std::min(relaxed(entry.rnr_timer_us), kMostRnrTimerUs)} * kMicrosecond;
  receives_ = peer_->receive_view(relaxed(entry.receives), relaxed(entry.receives_id));
  completions_ = peer_->completion_view(relaxed(entry.completions), relaxed(entry.completions_id));
  if (bank_ != 0 && completions_.ring != nullptr) completions_ = completions_.bank(bank_);
  has_shared_receives_ = relaxed(entry.has_own_receives) == 0;
  regions_.clear();
  peer_->drop_freed_segments();
  epoch_ = epoch;
  return Reach::kReady;
}

bool Path::leave_bank() {
  if (completions_.ring == nullptr || bank_ + 1 == kBanks) return false;
  completions_ = completions_.bank(++bank_);
  completions_.first->banks.fetch_or(1U << bank_, std::memory_order_acq_rel);
  return true;
}

const Translation* Path::find_region(std::uint32_t key) {
  FoundRegion found;
  if (!peer_->find_region(key, found)) return nullptr;
  std::uint32_t& rights = found.translation.rights;
  const bool may_receive = found.pd == receive_pd_ && (rights & kLocalWrite) != 0;
  rights = (found.pd == pd_ ? rights & access_ : 0) | (may_receive ? kMayReceive : 0);
  return regions_.insert(found);
}

bool Path::is_quiet(const SessionBlock& session) const {
  if (peer_ == nullptr || !peer_->attach()) return true;
  const QpEntry& entry = peer_->control()->queue_pairs[qp_slot(qpn_)];
  return relaxed(entry.qp_num) != qpn_ || entry.at_work.load(std::memory_order_acquire) == 0 ||
         session.status(node_).has_ended(peer_->incarnation());
}

void Path::fail_responder(std::uint32_t self, const SessionBlock& session) {
  Control& control = *peer_->control();
  QpEntry& entry = control.queue_pairs[qp_slot(qpn_)];
  if (relaxed(entry.qp_num) != qpn_) return;
  enter_error(control, entry);
  // If a third node holds up the flush, the owner's next change of the state does it.
  if (relaxed(entry.has_own_receives) != 0)
    flush_receives(qpn_, receives_, completions_, self, session, kPatience);
}

void enter_error(Control& control, QpEntry& entry) {
  // The state changes before the flush of the receives: see post_receive.
  entry.state.store(static_cast<std::uint8_t>(QpState::kError));
  control.header.epoch.fetch_add(1, std::memory_order_acq_rel);
}

bool flush_receives(std::uint32_t qp_num, const ReceiveView& receives,
                    const CompletionView& completions, std::uint32_t self,
                    const SessionBlock& session, Time patience) {
  ReceiveTaker taker;
  if (const Opened opened = taker.open(receives, self, session, patience); opened != Opened::kYes)
    return opened == Opened::kGone;
  CompletionWriter writer;
  const Opened opened = writer.open(completions, self, session, patience);
  if (opened == Opened::kYes) {
    TakenReceive receive;
    for (std::uint32_t n = 0; n <= receives.mask && taker.peek(receive); ++n) {
      taker.take_whole();
      Completion flushed;
      flushed.wr_id = receive.wr_id;
      flushed.status = Status::kFlushed;
      flushed.qp_num = qp_num;
      if (!writer.push(flushed)) break;
    }
    writer.close();
  }
  taker.close();
  return opened != Opened::kBusy;
}

}  // namespace pyrdma::fabric::shm
