#include "systems/loco/shared_queue.h"

#include <algorithm>

#include "base/assert.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/remote_word.h"

namespace pyrdma::loco {
namespace {

// An entry holds the round that may push, the checksum, the value, and padding to whole words.
constexpr std::uint32_t kSum = 8, kValue = 16;

std::uint32_t entry_bytes_of(std::uint32_t value_bytes) {
  return kValue + (value_bytes + 7) / 8 * 8;
}

}  // namespace

SharedQueue::SharedQueue(Manager& manager, std::string name, std::uint64_t capacity,
                         std::uint32_t value_bytes, std::vector<NodeId> participants, Joins joins,
                         std::uint64_t first_ticket)
    : Channel(manager, std::move(name), std::move(participants)),
      capacity_(capacity),
      value_bytes_(value_bytes),
      entry_bytes_(entry_bytes_of(value_bytes)),
      head_(*this, "head", Channel::participants().front(), first_ticket),
      tail_(*this, "tail", Channel::participants().front(), first_ticket) {
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
  begin_with(first_ticket);
  if (joins == Joins::kHere) join();
}

// Each entry of this node is free for the first ticket that comes to it.
void SharedQueue::begin_with(std::uint64_t first_ticket) {
  for (std::uint64_t i = 0; i < capacity_; ++i) {
    const Place place = place_of(first_ticket + i);
    if (place.node == self())
      store_release(reinterpret_cast<std::uint64_t*>(entries_.data + place.offset), place.round);
  }
}

// Every call takes its block before its ticket: a ticket without its value stops the queue.
void SharedQueue::push(Caller& me, std::span<const std::byte> value) {
  PYRDMA_CHECK(value.size(), ==, value_bytes_);
  InFlight entry(me.block(entry_bytes_));
  push_as(me, take_ticket(me, tail_), value, entry);
}

void SharedQueue::pop(Caller& me, std::span<std::byte> value) {
  PYRDMA_CHECK(value.size(), ==, value_bytes_);
  InFlight entry(me.block(entry_bytes_));
  pop_as(me, take_ticket(me, head_), value, entry);
}

bool SharedQueue::try_push(Caller& me, std::span<const std::byte> value) {
  PYRDMA_CHECK(value.size(), ==, value_bytes_);
  InFlight entry(me.block(entry_bytes_));
  const auto ticket = try_take_ticket(me, tail_, head_, capacity_);
  if (ticket) push_as(me, *ticket, value, entry);
  return ticket.has_value();
}

bool SharedQueue::try_pop(Caller& me, std::span<std::byte> value) {
  PYRDMA_CHECK(value.size(), ==, value_bytes_);
  InFlight entry(me.block(entry_bytes_));
  const auto ticket = try_take_ticket(me, head_, tail_, 0);
  if (ticket) pop_as(me, *ticket, value, entry);
  return ticket.has_value();
}

SharedQueue::Place SharedQueue::place_of(std::uint64_t ticket) const {
  const std::uint64_t slot = ticket % capacity_, nodes = participants().size();
  return {participants()[slot % nodes], slot / nodes * entry_bytes_, ticket / capacity_};
}

std::uint64_t SharedQueue::take_ticket(Caller& me, AtomicVar& end) {
  InFlight old(me.block(8));
  old.key = end.fetch_add(me, 1, old.block);
  finish(old.key, end.host());
  return *old.block.as<std::uint64_t>();
}

// Takes a ticket of `end`, unless the ticket would be `most_ahead` or more ahead of `other`.
std::optional<std::uint64_t> SharedQueue::try_take_ticket(Caller& me, AtomicVar& end,
                                                          AtomicVar& other,
                                                          std::uint64_t most_ahead) {
  InFlight words(me.block(16));
  const auto* word = words.block.as<std::uint64_t>();
  while (true) {
    words.key = end.load(me, words.block);
    me.order_pair(end.host());  // `other` is read later than `end`
    words.key.unite(me.read(other.host(), other.at(), 0, words.block.sge(8, 8)));
    finish(words.key, end.host());
    const std::uint64_t ticket = word[0], limit = word[1];
    if (static_cast<std::int64_t>(ticket - limit) >= static_cast<std::int64_t>(most_ahead)) {
      me.env().reached(most_ahead == 0 ? "queue/empty" : "queue/full");
      return std::nullopt;
    }
    words.key = end.compare_swap(me, ticket, ticket + 1, words.block);
    finish(words.key, end.host());
    if (word[0] == ticket) return ticket;
    me.env().reached("queue/ticket lost");
  }
}

void SharedQueue::push_as(Caller& me, std::uint64_t ticket, std::span<const std::byte> value,
                          InFlight& entry) {
  const Place place = place_of(ticket);
  std::byte* bytes = entry.block.data();
  wait_for(me, place, 0, 8, entry, true,
           [&] { return *entry.block.as<std::uint64_t>() == place.round; });
  std::memset(bytes, 0, entry_bytes_);
  std::ranges::copy(value, bytes + kValue);
  *reinterpret_cast<std::uint64_t*>(bytes + kSum) = sum_of(bytes, ticket);
  manager().env().charge_copy(entry_bytes_);
  entry.key = me.write(place.node, remote(place.node, 0), place.offset + kSum,
                       entry.block.sge(entry_bytes_ - kSum, kSum));
  finish(entry.key, place.node);
}

void SharedQueue::pop_as(Caller& me, std::uint64_t ticket, std::span<std::byte> value,
                         InFlight& entry) {
  const Place place = place_of(ticket);
  const std::byte* bytes = entry.block.data();
  wait_for(me, place, kSum, entry_bytes_ - kSum, entry, false, [&] {
    return *reinterpret_cast<const std::uint64_t*>(bytes + kSum) == sum_of(bytes, ticket);
  });
  std::copy_n(bytes + kValue, value.size(), value.begin());
  manager().env().charge_copy(entry_bytes_);
  *entry.block.as<std::uint64_t>() = place_of(ticket + capacity_).round;
  entry.key = me.write(place.node, remote(place.node, 0), place.offset, entry.block.sge(8));
  entry.key.keep(std::move(entry.block));
}

// Waits until ready(). Tests ready() after each copy of the entry's `bytes` bytes from `from` on to
// the same place of the block. The CPU copies if the entry is on this node.
template <class Ready>
void SharedQueue::wait_for(Caller& me, const Place& place, std::uint32_t from, std::uint32_t bytes,
                           InFlight& into, bool pushes, Ready&& ready) {
  if (place.node == self()) {
    const auto* source =
        reinterpret_cast<const std::uint64_t*>(entries_.data + place.offset + from);
    auto* target = reinterpret_cast<std::uint64_t*>(into.block.data() + from);
    const auto look = [&] {
      for (std::uint32_t i = 0; i < bytes / 8; ++i) target[i] = load_acquire(source + i);
      return ready();
    };
    if (look()) return;
    manager().env().reached(pushes ? "queue/push waits" : "queue/pop waits");
    const std::string what =
        (pushes ? "pop from the full queue '" : "push to the empty queue '") + name() + "'";
    me.wait_until(look, what.c_str());
    return;
  }
  Env& env = manager().env();
  const auto look = [&] {
    into.key = me.read(place.node, remote(place.node, 0), place.offset + from,
                       into.block.sge(bytes, from));
    finish(into.key, place.node);
    return ready();
  };
  if (look()) [[likely]]
    return;
  env.reached(pushes ? "queue/push waits" : "queue/pop waits");
  const Time deadline = env.now() + manager().options().wait_timeout;
  while (!look()) {
    if (env.now() > deadline) throw_late(me, pushes);
  }
}

std::uint64_t SharedQueue::sum_of(const std::byte* entry, std::uint64_t ticket) const {
  return mix64(checksum({entry + kValue, entry_bytes_ - kValue}) + ticket);
}

void SharedQueue::finish(AckKey& key, NodeId node) const {
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
