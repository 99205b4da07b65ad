#include "systems/loco/shared_queue.h"

#include <algorithm>

#include "base/assert.h"
#include "base/error.h"
#include "base/remote_word.h"
#include "systems/loco/checksum.h"

namespace pyrdma::loco {
namespace {

// An entry holds the round that may push, the checksum, the value, and padding to whole words.
constexpr std::uint32_t kSum = 8, kValue = 16;

std::uint32_t entry_bytes_of(std::uint32_t value_bytes) {
  return kValue + (value_bytes + 7) / 8 * 8;
}

}  // namespace

SharedQueue::SharedQueue(Manager& manager, std::string name, std::uint64_t capacity,
                         std::uint32_t value_bytes, std::vector<NodeId> participants)
    : Channel(manager, std::move(name), std::move(participants)),
      capacity_(capacity),
      value_bytes_(value_bytes),
      entry_bytes_(entry_bytes_of(value_bytes)),
      head_(*this, "head", Channel::participants().front()),
      tail_(*this, "tail", Channel::participants().front()) {
  const std::uint32_t most = manager.options().block_bytes - kValue;
  if (capacity == 0 || value_bytes == 0 || value_bytes > most) {
    throw Error(ErrorCode::kInvalidArgument,
                "queue '" + Channel::name() + "' has a capacity of " + std::to_string(capacity) +
                    " and values of " + std::to_string(value_bytes) +
                    " bytes; it must hold at least 1 value of 1 to " + std::to_string(most) +
                    " bytes, which block_bytes limits");
  }
  const std::uint64_t nodes = Channel::participants().size();
  const std::uint64_t bytes = (capacity + nodes - 1) / nodes * entry_bytes_;
  entries_ = add_region("entries", bytes, fabric::kRemoteRead | fabric::kRemoteWrite);
  expect_region("entries", bytes);
  join();
}

void SharedQueue::push(Caller& me, std::span<const std::byte> value) {
  PYRDMA_CHECK(value.size(), ==, value_bytes_);
  push_as(me, take_ticket(me, tail_), value);
}

void SharedQueue::pop(Caller& me, std::span<std::byte> value) {
  PYRDMA_CHECK(value.size(), ==, value_bytes_);
  pop_as(me, take_ticket(me, head_), value);
}

bool SharedQueue::try_push(Caller& me, std::span<const std::byte> value) {
  PYRDMA_CHECK(value.size(), ==, value_bytes_);
  const auto ticket = try_take_ticket(me, tail_, head_, capacity_);
  if (ticket) push_as(me, *ticket, value);
  return ticket.has_value();
}

bool SharedQueue::try_pop(Caller& me, std::span<std::byte> value) {
  PYRDMA_CHECK(value.size(), ==, value_bytes_);
  const auto ticket = try_take_ticket(me, head_, tail_, 0);
  if (ticket) pop_as(me, *ticket, value);
  return ticket.has_value();
}

SharedQueue::Place SharedQueue::place_of(std::uint64_t ticket) const {
  const std::uint64_t slot = ticket % capacity_, nodes = participants().size();
  return {participants()[slot % nodes], slot / nodes * entry_bytes_, ticket / capacity_};
}

std::uint64_t SharedQueue::take_ticket(Caller& me, AtomicVar& end) {
  const MemRef old = me.block(8);
  finish(end.fetch_add(me, 1, old), end.host());
  return *old.as<std::uint64_t>();
}

// Takes a ticket of `end`, unless the ticket would be `most_ahead` or more ahead of `other`.
std::optional<std::uint64_t> SharedQueue::try_take_ticket(Caller& me, AtomicVar& end,
                                                          AtomicVar& other,
                                                          std::uint64_t most_ahead) {
  const MemRef mine = me.block(8), others = me.block(8);
  while (true) {
    AckKey key = end.load(me, mine);
    me.fence_pair(end.host());  // `other` is read later than `end`
    key.unite(other.load(me, others));
    finish(std::move(key), end.host());
    const std::uint64_t ticket = *mine.as<std::uint64_t>(), limit = *others.as<std::uint64_t>();
    if (static_cast<std::int64_t>(ticket - limit) >= static_cast<std::int64_t>(most_ahead)) {
      return std::nullopt;
    }
    finish(end.compare_swap(me, ticket, ticket + 1, mine), end.host());
    if (*mine.as<std::uint64_t>() == ticket) return ticket;
  }
}

void SharedQueue::push_as(Caller& me, std::uint64_t ticket, std::span<const std::byte> value) {
  const Place place = place_of(ticket);
  const MemRef entry = me.block(entry_bytes_);
  wait_for(me, place, 0, entry.sge(8), true,
           [&] { return *entry.as<std::uint64_t>() == place.round; });
  std::memset(entry.data(), 0, entry_bytes_);
  std::memcpy(entry.data() + kValue, value.data(), value.size());
  *reinterpret_cast<std::uint64_t*>(entry.data() + kSum) = sum_of(entry.data(), ticket);
  manager().env().charge_copy(entry_bytes_);
  finish(me.write(place.node, remote(place.node, 0), place.offset + kSum,
                  entry.sge(entry_bytes_ - kSum, kSum)),
         place.node);
}

void SharedQueue::pop_as(Caller& me, std::uint64_t ticket, std::span<std::byte> value) {
  const Place place = place_of(ticket);
  MemRef entry = me.block(entry_bytes_);
  wait_for(me, place, kSum, entry.sge(entry_bytes_ - kSum, kSum), false, [&] {
    return *reinterpret_cast<const std::uint64_t*>(entry.data() + kSum) ==
           sum_of(entry.data(), ticket);
  });
  std::memcpy(value.data(), entry.data() + kValue, value.size());
  manager().env().charge_copy(entry_bytes_);
  *entry.as<std::uint64_t>() = place.round + 1;
  AckKey key = me.write(place.node, remote(place.node, 0), place.offset, entry.sge(8));
  key.keep(std::move(entry));
}

// Waits until ready(). Tests ready() after each copy of the entry's bytes from `from` on. The CPU
// copies if the entry is on this node.
template <class Ready>
void SharedQueue::wait_for(Caller& me, const Place& place, std::uint32_t from,
                           const fabric::Sge& into, bool pushes, Ready&& ready) {
  if (place.node == self()) {
    const auto* source =
        reinterpret_cast<const std::uint64_t*>(entries_.data + place.offset + from);
    auto* target = reinterpret_cast<std::uint64_t*>(into.addr);
    const auto look = [&] {
      for (std::uint32_t i = 0; i < into.length / 8; ++i) target[i] = load_acquire(source + i);
      return ready();
    };
    if (look()) return;
    const std::string what =
        (pushes ? "pop from the full queue '" : "push to the empty queue '") + name() + "'";
    me.wait_until(look, what.c_str());
    return;
  }
  Env& env = manager().env();
  const auto look = [&] {
    finish(me.read(place.node, remote(place.node, 0), place.offset + from, into), place.node);
    return ready();
  };
  if (look()) [[likely]]
    return;
  const Time deadline = env.now() + manager().options().wait_timeout;
  while (!look()) {
    if (env.now() > deadline) throw_late(me, pushes);
  }
}

std::uint64_t SharedQueue::sum_of(const std::byte* entry, std::uint64_t ticket) const {
  return mix64(checksum({entry + kValue, entry_bytes_ - kValue}) + ticket);
}

void SharedQueue::finish(AckKey key, NodeId node) const {
  const fabric::Status status = key.wait();
  if (status == fabric::Status::kSuccess) [[likely]]
    return;
  throw Error(ErrorCode::kUnavailable,
              "queue '" + name() + "': a request to node " + std::to_string(node) + " failed (" +
                  to_string(status) + "); the request may have taken effect",
              false)
      .blaming({node});
}

void SharedQueue::throw_late(Caller& me, bool pushes) const {
  const std::vector<NodeId> silent = me.silent_peers();
  throw Error(
      ErrorCode::kTimeout,
      "queue '" + name() + "': node " + std::to_string(self()) + " could not " +
          (pushes ? "push" : "pop") + " within " +
          std::to_string(manager().options().wait_timeout / kMillisecond) +
          " ms because the queue was " + (pushes ? "full" : "empty") + "; " +
          (silent.empty() ? std::string(pushes ? "pop" : "push") + " values or raise wait_timeout"
                          : "no answer from node" + text_of(silent)),
      false)
      .blaming(silent);
}

}  // namespace pyrdma::loco
