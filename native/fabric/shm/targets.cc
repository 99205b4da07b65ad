// The queue pairs that requests name: those of datagrams, and the targets of dynamically connected
// requests. A queue pair keeps the paths to the latest ones, so no request connects anything.
#include <algorithm>

#include "fabric/shm/batch.h"
#include "fabric/shm/queue_pair.h"

namespace pyrdma::fabric::shm {

ShmQueuePair::Target ShmQueuePair::find_target(const WorkRequest& request, Batch& batch) {
  const NodeId to = static_cast<const ShmAddressHandle*>(request.address_handle)->node;
  if (options_.transport == Transport::kDc) note_target(to, request.remote_qpn);
  Path& path = target_path(to, request.remote_qpn, batch);
  Reach found = reach(path);
  if (found == Reach::kGone && path.incarnation() != node_.peer(to)->incarnation()) [[unlikely]] {
    batch.close();  // the batch may be open towards the previous incarnation of the node
    path.aim(node_.peer(to), request.remote_qpn);
    found = reach(path);
  }
  if (found == Reach::kReady && path.qkey() != request.remote_qkey) found = Reach::kSilent;
  return {path, found};
}

Path& ShmQueuePair::target_path(NodeId node, std::uint32_t qpn, Batch& batch) {
  std::unique_ptr<Path>& path = target_paths_[slot_of(node, qpn)];
  if (path == nullptr)
    path = std::make_unique<Path>();  // once per destination, as a NIC resolves it
  if (!path->aims_at(node, qpn)) {
    batch.close();  // the batch may be open towards this path's former destination
    path->aim(node_.peer(node), qpn);
  }
  return *path;
}

// A target does not know its initiators, so it looks at those of all nodes.
bool ShmQueuePair::has_initiator_at_work(NodeId of) const {
  const std::shared_ptr<Peer> peer = node_.peer(of);
  peer->attach();
  const NodeStatus status = node_.session().status(of);
  if (status.has_ended(peer->incarnation())) return false;
  const Control* control = peer->control();
  // An attached node whose segment cannot be mapped may have initiators.
  if (control == nullptr) return status.is_attached();
  const std::uint32_t own = target_word(node_.self(), qp_num_);
  const std::uint32_t end = std::min(relaxed(control->header.initiators_end), kQpSlots);
  return std::any_of(control->queue_pairs, control->queue_pairs + end, [own](const QpEntry& entry) {
    return entry.at_work.load(std::memory_order_acquire) == own;
  });
}

}  // namespace pyrdma::fabric::shm
