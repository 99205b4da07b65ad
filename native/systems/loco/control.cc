#include "systems/loco/control.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "systems/loco/manager.h"

namespace pyrdma::loco {

namespace {

bool ends(std::span<const char> text) {
  return std::find(text.begin(), text.end(), '\0') != text.end();
}

}  // namespace

void copy_text(std::span<char> to, std::string_view text) {
  const std::size_t length = std::min(text.size(), to.size() - 1);
  std::memcpy(to.data(), text.data(), length);
  to[length] = '\0';
}

bool ControlMessage::valid() const {
  if (kind < kJoin || kind > kRefuse || regions > kMaxRegions || !ends(name) || !ends(reason)) {
    return false;
  }
  return std::all_of(entries.begin(), entries.begin() + regions,
                     [](const RegionEntry& entry) { return ends(entry.name); });
}

Control::Control(Manager& manager)
    : manager_(manager), sending_(manager.env()), inbox_mutex_(manager.env()) {
  constexpr std::uint32_t kBytes = kSlots * sizeof(ControlMessage);
  for (NodeId node = 0; node < manager.nodes(); ++node) {
    peers_.push_back(node == manager.self() ? nullptr : std::make_unique<Peer>());
    if (!peers_.back()) continue;
    Peer& peer = *peers_.back();
    peer.lane = std::make_unique<Lane>();
    peer.lane->peer = node;
    peer.lane->qp = manager.make_queue_pair(kSlots, kSlots);
    peer.outgoing = manager.memory().allocate(kBytes);
    peer.incoming = manager.memory().allocate(kBytes);
  }
}

void Control::post_receives() {
  for (const auto& peer : peers_) {
    for (std::uint32_t slot = 0; peer && slot < kSlots; ++slot) post_receive(*peer, slot);
  }
}

void Control::post_receive(Peer& peer, std::uint32_t slot) {
  peer.lane->qp->receive(peer.incoming.sge(slot * sizeof(ControlMessage), sizeof(ControlMessage)),
                         slot);
}

void Control::send(NodeId node, const ControlMessage& message) {
  const std::lock_guard lock(sending_);
  Peer& peer = *peers_.at(node);
  Lane& lane = *peer.lane;
  const auto wait_for = [&](auto&& ready) {
    if (ready()) return;
    // Nobody of this node answers messages meanwhile: an answer would come here for the lock.
    const bool serves = manager_.serving_.exchange(true, std::memory_order_acquire);
    manager_.wait_until(manager_.caller(0), ready, "room for a join or connect message");
    if (!serves) manager_.serving_.store(false, std::memory_order_release);
  };
  wait_for([&] {
    manager_.progress();  // the sender may be the polling thread itself
    return lane.posted - lane.completed.load(std::memory_order_acquire) < kSlots;
  });
  const std::size_t offset = lane.posted % kSlots * sizeof(ControlMessage);
  std::memcpy(peer.outgoing.data + offset, &message, sizeof message);
  ++lane.posted;
  // A queue may be full for as long as a completion is under way.
  wait_for([&] {
    if (lane.qp->send(peer.outgoing.sge(offset, sizeof message))) return true;
    manager_.progress();
    return false;
  });
}

void Control::complete(Lane& lane, const fabric::Completion& completion) {
  if (completion.status != fabric::Status::kSuccess) {
    // The peer is gone. Who waits for it finds out, and names it, when its patience is over.
    lane.completed.store(lane.posted, std::memory_order_release);
    return;
  }
  if (completion.opcode != fabric::Opcode::kReceive) {
    lane.completed.fetch_add(1, std::memory_order_release);
    return;
  }
  Peer& peer = *peers_.at(lane.peer);
  const auto slot = static_cast<std::uint32_t>(completion.wr_id);
  ControlMessage message;
  std::memcpy(&message, peer.incoming.data + slot * sizeof message, sizeof message);
  post_receive(peer, slot);
  if (completion.byte_count != sizeof message || !message.valid()) {
    malformed_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  message.from = lane.peer;
  const std::lock_guard lock(inbox_mutex_);
  inbox_.push_back(message);
  has_mail_.store(true, std::memory_order_release);
}

bool Control::receive(ControlMessage& message) {
  if (!has_mail_.load(std::memory_order_acquire)) return false;
  const std::lock_guard lock(inbox_mutex_);
  if (inbox_.empty()) return false;
  message = inbox_.front();
  inbox_.pop_front();
  has_mail_.store(!inbox_.empty(), std::memory_order_release);
  return true;
}

}  // namespace pyrdma::loco
