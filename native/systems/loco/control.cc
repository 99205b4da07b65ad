#include "systems/loco/control.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/held_flag.h"
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
    : manager_(manager),
      peers_(manager.nodes()),
      sending_(manager.env()),
      inbox_mutex_(manager.env()) {
  constexpr std::uint32_t kBytes = kSlots * sizeof(ControlMessage);
  for (NodeId node = 0; node < manager.nodes(); ++node) {
    if (node == manager.self()) continue;
    peers_[node].outgoing = manager.memory().allocate(kBytes);
    peers_[node].incoming = manager.memory().allocate(kBytes);
  }
}

void Control::post_receives(runtime::Connection& connection) {
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) post_receive(connection, slot);
}

void Control::post_receive(runtime::Connection& connection, std::uint32_t slot) {
  const LocalRegion& incoming = peers_[connection.peer].incoming;
  connection.qp->receive(incoming.sge(slot * sizeof(ControlMessage), sizeof(ControlMessage)), slot);
}

void Control::send(NodeId node, const ControlMessage& message) {
  const std::lock_guard lock(sending_);
  const LocalRegion& outgoing = peers_.at(node).outgoing;
  runtime::Connection& connection = manager_.runtime_.messages(node);
  const auto wait_for = [&](auto&& ready) {
    if (ready()) return;
    // No thread of this node answers messages meanwhile: an answer would need the lock that is held
    // here.
    const bool serves = manager_.serving_.exchange(true, std::memory_order_acquire);
    const HeldFlag serving(serves ? nullptr : &manager_.serving_);
    // Any thread may send, so no caller waits here.
    Env& env = manager_.env();
    const Time limit = manager_.options().wait_timeout;
    if (env.poll_until(ready, env.now() + limit)) return;
    throw Error(ErrorCode::kTimeout,
                "node " + std::to_string(manager_.self()) +
                    ": no room for a join or connect message to node " + std::to_string(node) +
                    " within " + std::to_string(limit / kMillisecond) +
                    " ms; check that this node makes progress, or raise wait_timeout",
                false)
        .blaming({node});
  };
  wait_for([&] {
    manager_.runtime_.progress();  // the sender may be the polling thread itself
    return connection.posted - connection.completed.load(std::memory_order_acquire) < kSlots;
  });
  const std::size_t offset = connection.posted % kSlots * sizeof(ControlMessage);
  std::memcpy(outgoing.data + offset, &message, sizeof message);
  // A queue may be full while a completion is on its way, which wakes this thread. A completion
  // that is already there wakes nobody, so the thread takes it first.
  wait_for([&] {
    manager_.runtime_.progress();
    return connection.qp->send(outgoing.sge(offset, sizeof message));
  });
  ++connection.posted;  // not before: what was not sent never completes
}

void Control::complete(runtime::Connection& connection, const fabric::Completion& completion) {
  if (completion.status != fabric::Status::kSuccess) {
    // The peer is gone. A thread that waits for the peer finds that out and names it at its
    // timeout.
    connection.completed.store(connection.posted, std::memory_order_release);
    return;
  }
  if (completion.opcode != fabric::Opcode::kReceive) {
    connection.completed.fetch_add(1, std::memory_order_release);
    return;
  }
  const LocalRegion& incoming = peers_.at(connection.peer).incoming;
  const auto slot = static_cast<std::uint32_t>(completion.wr_id);
  ControlMessage message;
  std::memcpy(&message, incoming.data + slot * sizeof message, sizeof message);
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
