// The operations of clients on the queue, the rings and the locks.
#include <algorithm>

#include "base/remote_word.h"
#include "systems/loco/fuzz/node.h"

namespace pyrdma::loco::scenario {

using check::EventType;
using check::Function;
using check::Value;

std::vector<std::byte> message(std::uint32_t ring, std::uint64_t number) {
  const std::uint64_t seed = mix64(number * kRings + ring);
  std::vector<std::byte> bytes(1 + seed % 150);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(mix64(seed + i));
  return bytes;
}

void Node::enqueue(Caller& me, const Planned& op) {
  check::History& log = world_.log(Log::kQueue);
  const Value value = Value::integer(1 + std::int64_t{op.id});
  log.invoke(env_.now(), process(me), Function::kEnq, {}, value);
  const bool done = queue_.try_push(me, 1 + std::uint64_t{op.id});
  log.complete(env_.now(), process(me), done ? EventType::kOk : EventType::kFail, Function::kEnq,
               {}, {});
  ++(done ? world_.outcome.ok : world_.outcome.fail);
}

void Node::dequeue(Caller& me) {
  check::History& log = world_.log(Log::kQueue);
  log.invoke(env_.now(), process(me), Function::kDeq, {}, {});
  const std::optional<std::uint64_t> value = queue_.try_pop(me);
  log.complete(env_.now(), process(me), EventType::kOk, Function::kDeq, {},
               value ? Value::integer(static_cast<std::int64_t>(*value)) : Value::none());
  ++world_.outcome.ok;
}

void Node::broadcast(Caller& me, std::uint32_t ring) {
  for (int i = 0; i < 3; ++i) {
    env_.now();
    const bool done =
        rings_[ring]->try_broadcast(me, message(ring, world_.sent[ring] + 1)).has_value();
    world_.sent[ring] += done;
    ++(done ? world_.outcome.ok : world_.outcome.fail);
  }
}

// L6: the next message that is read is the next message that was sent. It is whole, and it stays
// unchanged until it is acknowledged.
void Node::receive(Caller& me, std::uint32_t ring, const Planned& op) {
  for (std::uint32_t tries = op.draw % 16; tries > 0; --tries) {
    env_.charge(Cost::kPredicate);
    env_.now();
    const auto got = rings_[ring]->next(me);
    if (!got) {
      env_.sleep_until(env_.now() + 300);
      continue;
    }
    // A reader that stops here (F18) must still have its message.
    const bool stops = world_.options.faults[Fault::pause].rate > 0;
    if (stops && tries % 4 == 0) env_.sleep_until(env_.now() + 5 * kMicrosecond);
    std::uint64_t& received = world_.received[{env_.node(), ring}];
    const std::vector<std::byte> want = message(ring, ++received);
    if (!std::equal(got->begin(), got->end(), want.begin(), want.end())) {
      world_.violation("ring", "node " + std::to_string(env_.node()) + " reads message " +
                                   std::to_string(received) + " of ring " + std::to_string(ring) +
                                   ", which differs from the message sent");
    }
    if (tries % 2 == 0) rings_[ring]->acknowledge(me);
    ++world_.outcome.ok;
  }
}

// L3, L4. For every other lock the record lies at the lock's host, so that the run uses both
// fences.
void Node::critical(Caller& me, const Planned& op) {
  check::History& log = world_.log(Log::kLocks);
  const std::uint32_t lock = op.object % kLocks;
  const NodeId host = (locks_.host_of(lock) + lock % 2) % env_.nodes();
  const Value key = Value::integer(lock);
  log.invoke(env_.now(), process(me), Function::kLock, key, {});
  const std::optional<std::uint64_t> ticket = locks_.acquire(me, lock);
  log.complete(env_.now(), process(me), EventType::kOk, Function::kLock, key,
               ticket ? Value::integer(static_cast<std::int64_t>(*ticket)) : Value::none());
  // Empty sections lead to more tickets at one time.
  if (!world_.locks_alone || op.draw % 8 < 2) use_record(me, lock, host);
  log.invoke(env_.now(), process(me), Function::kUnlock, key, {});
  const Fence fence = host == locks_.host_of(lock) ? Fence::kPair
                      : op.draw % 4 == 0           ? Fence::kGlobal
                                                   : Fence::kThread;
  locks_.release(me, lock, fence);
  log.complete(env_.now(), process(me), EventType::kOk, Function::kUnlock, key, {});
  ++world_.outcome.ok;
}

void Node::use_record(Caller& me, std::uint32_t lock, NodeId host) {
  constexpr std::uint32_t kBytes = kRecordWords * 8;
  auto block = me.block(kBytes);
  auto* words = block.as<std::uint64_t>();
  if (host == env_.node()) {
    const auto* here = reinterpret_cast<const std::uint64_t*>(records_.local() + lock * kBytes);
    for (std::uint32_t i = 0; i < kRecordWords; ++i) words[i] = load_acquire(here + i);
  } else {
    require(records_.read(me, host, lock * kBytes, block.sge(kBytes)).wait(), host, "a read");
  }
  const std::uint64_t stamp = world_.guarded[lock];
  if (!std::all_of(words, words + kRecordWords, [&](auto word) { return word == stamp; })) {
    world_.violation("lock", "client " + std::to_string(process(me)) + " holds lock " +
                                 std::to_string(lock) + " and finds " + std::to_string(words[0]) +
                                 " to " + std::to_string(words[kRecordWords - 1]) +
                                 " in the record; the last holder wrote " + std::to_string(stamp));
  }
  const std::uint64_t next = ++world_.stamps;
  world_.guarded[lock] = next;
  std::fill_n(words, kRecordWords, next);
  auto key = records_.write(me, host, lock * kBytes, block.sge(kBytes));
  key.keep(std::move(block));
  // A completion does not imply placement, so the fence is needed even here, unless memory is
  // strong.
  if (stamp % 2 == 0 || !world_.options.memory.is_weak()) {
    require(key.wait(), host, "a completion");
  }
}

}  // namespace pyrdma::loco::scenario
