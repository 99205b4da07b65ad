// The operations of clients on the queue, the rings and the locks.
#include <algorithm>
#include <cstring>

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
  const bool done = queue_->try_push(me, 1 + std::uint64_t{op.id});
  log.complete(env_.now(), process(me), done ? EventType::kOk : EventType::kFail, Function::kEnq,
               {}, {});
  world_.queued += done;
  ++(done ? world_.outcome.ok : world_.outcome.fail);
}

// Blocking forms. A push precedes each pop, so no pop waits for ever.
void Node::exchange(Caller& me, const Planned& op) {
  check::History& log = world_.log(Log::kQueue);
  const Value value = Value::integer(1 + std::int64_t{op.id});
  log.invoke(env_.now(), process(me), Function::kEnq, {}, value);
  queue_->push(me, 1 + std::uint64_t{op.id});
  log.complete(env_.now(), process(me), EventType::kOk, Function::kEnq, {}, {});
  log.invoke(env_.now(), process(me), Function::kDeq, {}, {});
  const auto found = static_cast<std::int64_t>(queue_->pop(me));
  log.complete(env_.now(), process(me), EventType::kOk, Function::kDeq, {}, Value::integer(found));
  world_.outcome.ok += 2;
}

void Node::dequeue(Caller& me) {
  check::History& log = world_.log(Log::kQueue);
  log.invoke(env_.now(), process(me), Function::kDeq, {}, {});
  const std::optional<std::uint64_t> value = queue_->try_pop(me);
  world_.queued -= value.has_value();
  log.complete(env_.now(), process(me), EventType::kOk, Function::kDeq, {},
               value ? Value::integer(static_cast<std::int64_t>(*value)) : Value::none());
  ++world_.outcome.ok;
}

void Node::broadcast(Caller& me, std::uint32_t ring) {
  for (int i = 0; i < 3; ++i) {
    env_.now();
    const auto end = rings_[ring]->try_broadcast(me, message(ring, world_.sent[ring] + 1));
    ++(end ? world_.outcome.ok : world_.outcome.fail);
    if (!end) continue;
    ++world_.sent[ring];
    world_.sent_to[ring] = *end;
  }
}

void Node::receive(Caller& me, std::uint32_t ring, const Planned& op) {
  for (std::uint32_t tries = op.draw % 16; tries > 0; --tries) {
    if (!hear(me, ring, tries % 4 == 0)) {
      env_.sleep_until(env_.now() + 300);
      continue;
    }
    if (tries % 2 == 0) rings_[ring]->acknowledge(me);
  }
}

// L6: the next message that is read is the next message that was sent. It is whole, and it stays
// unchanged until it is acknowledged. Returns false if there is no message.
bool Node::hear(Caller& me, std::uint32_t ring, bool slowly) {
  env_.now();
  const auto got = rings_[ring]->next(me);
  if (!got) return false;
  // A reader that stops here (F18) must still have its message.
  if (slowly && world_.options.faults[Fault::pause].rate > 0)
    env_.sleep_until(env_.now() + 5 * kMicrosecond);
  std::uint64_t& received = world_.received[{env_.node(), ring}];
  const std::vector<std::byte> want = message(ring, ++received);
  if (!std::equal(got->begin(), got->end(), want.begin(), want.end())) {
    world_.violation("ring", "node " + std::to_string(env_.node()) + " reads message " +
                                 std::to_string(received) + " of ring " + std::to_string(ring) +
                                 ", which differs from the message sent");
  }
  ++world_.outcome.ok;
  return true;
}

// Returns the number of the ticket since the first one.
std::int64_t Node::ordinal_of(std::uint64_t ticket) const {
  return static_cast<std::int64_t>((ticket - locks_->options().first_ticket) &
                                   TicketLocks::kTickets);
}

// L3, L4. For every other lock the record lies at the lock's host, so that the run uses both
// fences.
void Node::critical(Caller& me, const Planned& op) {
  if (op.draw / 64 % 8 == 0) return drop_acquisition(me, op);
  check::History& log = world_.log(Log::kLocks);
  const std::uint32_t lock = op.object % kLocks;
  const NodeId host = (locks_->host_of(lock) + lock % 2) % env_.nodes();
  const Value key = Value::integer(lock);
  const Time since = world_.cluster->now();
  world_.lock_use.begun(env_.node(), lock);
  log.invoke(env_.now(), process(me), Function::kLock, key, {});
  const std::optional<std::uint64_t> ticket = locks_->acquire(me, lock);
  held_[me.index()] = lock;
  log.complete(env_.now(), process(me), EventType::kOk, Function::kLock, key,
               ticket ? Value::integer(ordinal_of(*ticket)) : Value::none());
  check_grant(lock, ticket.has_value());
  // Empty sections lead to more tickets at one time.
  const Fence fence = host == locks_->host_of(lock) ? Fence::kPair
                      : op.draw % 4 == 0            ? Fence::kGlobal
                                                    : Fence::kThread;
  Caller& writer = fence == Fence::kGlobal ? manager_.caller(kOutsider) : me;
  if (!world_.locks_alone || op.draw % 8 < 2) use_record(me, writer, lock, host);
  // A read in flight at the release returns what this section sees, if it follows the write.
  const bool reads = op.draw / 8 % 4 == 0 && &writer == &me;
  const std::uint64_t stamp = world_.guarded[lock];
  InFlight read(me.block(kRecordWords * 8));
  if (reads)
    read.key = records_.read(me, host, lock * kRecordWords * 8, read.block.sge(kRecordWords * 8));
  log.invoke(env_.now(), process(me), Function::kUnlock, key, {});
  locks_->release(me, lock, fence);
  held_[me.index()].reset();
  world_.lock_use.ended(env_.node(), lock, since, world_.cluster->now());
  const bool fenced =
      (fence == Fence::kPair && locks_->options().unawaited_fence) || read.key.query();
  log.complete(env_.now(), process(me), EventType::kOk, Function::kUnlock, key, {});
  ++world_.outcome.ok;
  if (!fenced) world_.violation("fence", "a fence has not waited for a read in flight");
  if (reads) require(read.key, host, "a read");
  const auto* words = read.block.as<std::uint64_t>();
  if (reads &&
      !std::all_of(words, words + kRecordWords, [&](auto word) { return word == stamp; })) {
    world_.violation(
        "fence", "client " + std::to_string(process(me)) + " has read " + std::to_string(words[0]) +
                     " to " + std::to_string(words[kRecordWords - 1]) + " under lock " +
                     std::to_string(lock) + ", whose record held " + std::to_string(stamp));
  }
}

// An acquisition that is dropped passes its ticket on.
void Node::drop_acquisition(Caller& me, const Planned& op) {
  AcquireOp dropped = locks_->start_acquire(me, kDroppedLock);
  for (std::uint32_t polls = op.draw % 8; polls > 0 && !dropped.held(); --polls) {
    manager_.turn();
    env_.now();
    dropped.poll();
  }
  if (dropped.held()) locks_->release(me, kDroppedLock, Fence::kNone);
}

// A node passes its ticket on to its own threads a bounded number of times.
void Node::check_grant(std::uint32_t lock, bool by_ticket) {
  std::uint32_t& handovers = world_.handovers[lock];
  handovers = by_ticket ? 0 : handovers + 1;
  if (handovers > kMostHandovers) {
    world_.violation("hand-over", "lock " + std::to_string(lock) + " was handed over " +
                                      std::to_string(handovers) + " times; the limit is " +
                                      std::to_string(kMostHandovers));
  }
}

void Node::use_record(Caller& me, Caller& writer, std::uint32_t lock, NodeId host) {
  constexpr std::uint32_t kBytes = kRecordWords * 8;
  InFlight read(me.block(kBytes));
  auto* words = read.block.as<std::uint64_t>();
  if (host == env_.node()) {
    const auto* here = reinterpret_cast<const std::uint64_t*>(records_.local() + lock * kBytes);
    for (std::uint32_t i = 0; i < kRecordWords; ++i) words[i] = load_acquire(here + i);
  } else {
    read.key = records_.read(me, host, lock * kBytes, read.block.sge(kBytes));
    require(read.key, host, "a read");
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
  auto copy = writer.block(kBytes);
  std::memcpy(copy.data(), words, kBytes);
  auto key = records_.write(writer, host, lock * kBytes, copy.sge(kBytes));
  key.keep(std::move(copy));
  // A completion does not imply placement, so the fence is needed even here, unless memory is
  // strong.
  if (stamp % 2 == 0 || !world_.options.memory.is_weak()) {
    require(key, host, "a completion");
  }
}

}  // namespace pyrdma::loco::scenario
