#include "systems/loco/control.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>

#include "base/error.h"
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
  if (kind < kJoin || kind > kNotYet || regions > kMaxRegions || options > kMaxRegions - regions ||
      generation == 0 || !ends(name) || !ends(reason)) {
    return false;
  }
  return std::all_of(entries.begin(), entries.begin() + regions + options,
                     [](const RegionEntry& entry) { return ends(entry.name); });
}

Control::Control(Manager& manager)
    : manager_(manager), peers_(manager.nodes()), inbox_mutex_(manager.env()) {
  constexpr std::uint32_t kBytes = kSlots * sizeof(ControlMessage);
  for (NodeId node = 0; node < manager.nodes(); ++node) {
    if (node == manager.self()) continue;
    peers_[node] = std::make_unique<Peer>(manager.env());
    peers_[node]->outgoing = manager.memory().allocate(kBytes);
    peers_[node]->incoming = manager.memory().allocate(kBytes);
  }
}

void Control::post_receives(runtime::Connection& connection) {
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) post_receive(connection, slot);
}

void Control::post_receive(runtime::Connection& connection, std::uint32_t slot) {
  const LocalRegion& incoming = peers_[connection.peer]->incoming;
  connection.qp->receive(incoming.sge(slot * sizeof(ControlMessage), sizeof(ControlMessage)), slot);
}

void Control::send(NodeId node, const ControlMessage& message) {
  manager_.runtime_.progress();  // makes room
  Peer& peer = *peers_.at(node);
  const std::lock_guard lock(peer.mutex);
  if (peer.waiting.size() == kMostWaiting) {
    throw Error(ErrorCode::kExhausted,
                "node " + std::to_string(manager_.self()) + ": " + std::to_string(kMostWaiting) +
                    " join or connect messages wait for node " + std::to_string(node) +
                    ", which takes none; check that it makes progress",
                false)
        .blaming({node});
  }
  peer.waiting.push_back(message);
  flush(peer, manager_.runtime_.messages(node));
}

bool Control::any_waiting() {
  return std::any_of(peers_.begin(), peers_.end(), [](const auto& peer) {
    if (!peer) return false;
    const std::lock_guard lock(peer->mutex);
    return !peer->waiting.empty();
  });
}

void Control::flush(Peer& peer, runtime::Connection& connection) {
  while (!peer.waiting.empty() &&
         connection.posted - connection.completed.load(std::memory_order_acquire) < kSlots) {
    const std::size_t offset = connection.posted % kSlots * sizeof(ControlMessage);
    std::memcpy(peer.outgoing.data + offset, &peer.waiting.front(), sizeof(ControlMessage));
    // A queue is full only while a completion is on its way, which tries again.
    if (!connection.qp->send(peer.outgoing.sge(offset, sizeof(ControlMessage)))) break;
    ++connection.posted;  // not before: what was not sent never completes
    peer.waiting.pop_front();
  }
}

void Control::complete(runtime::Connection& connection, const fabric::Completion& completion) {
  Peer& peer = *peers_.at(connection.peer);
  if (completion.status != fabric::Status::kSuccess) {
    // The peer is gone. A thread that waits for the peer finds that out and names it at its
    // timeout.
    const std::lock_guard lock(peer.mutex);
    peer.waiting.clear();
    connection.completed.store(connection.posted, std::memory_order_release);
    return;
  }
  if (completion.opcode != fabric::Opcode::kReceive) {
    connection.completed.fetch_add(1, std::memory_order_release);
    const std::lock_guard lock(peer.mutex);
    flush(peer, connection);
    return;
  }
  const auto slot = static_cast<std::uint32_t>(completion.wr_id);
  ControlMessage message;
  std::memcpy(&message, peer.incoming.data + slot * sizeof message, sizeof message);
  post_receive(connection, slot);
  if (completion.byte_count != sizeof message || !message.valid()) return;
  message.from = connection.peer;
  const std::lock_guard lock(inbox_mutex_);
  inbox_.push_back(message);
  manager_.runtime_.want_service(true);
}

bool Control::receive(ControlMessage& message) {
  if (!manager_.runtime_.service_wanted()) return false;
  const std::lock_guard lock(inbox_mutex_);
  if (inbox_.empty()) return false;
  message = inbox_.front();
  inbox_.pop_front();
  manager_.runtime_.want_service(!inbox_.empty());
  return true;
}

}  // namespace pyrdma::loco
