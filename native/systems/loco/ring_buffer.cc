#include "systems/loco/ring_buffer.h"

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "base/error.h"
#include "base/remote_word.h"
#include "systems/loco/scopes.h"

namespace pyrdma::loco {

namespace {

std::uint64_t padded(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

std::uint64_t RingBuffer::size_of(std::uint64_t bytes) {
  return padded(kFrame + padded(bytes, 8), kUnit);
}

RingBuffer::RingBuffer(Manager& manager, std::string name, NodeId writer, std::uint64_t capacity,
                       std::vector<NodeId> participants, std::uint64_t first)
    : Channel(manager, std::move(name), std::move(participants)),
      writer_(writer),
      capacity_(capacity),
      bugs_(manager.bugs()),
      acks_(*this, "acks", first),
      end_(first),
      at_(first),
      told_(first) {
  make();
}

RingBuffer::RingBuffer(Channel& parent, std::string_view name, NodeId writer,
                       std::uint64_t capacity, std::uint64_t first)
    : Channel(parent, name),
      writer_(writer),
      capacity_(capacity),
      bugs_(manager().bugs()),
      acks_(*this, "acks", first),
      end_(first),
      at_(first),
      told_(first) {
  make();
}

void RingBuffer::make() {
  assign("writer", writer_);
  if (capacity_ < 4 * kUnit || capacity_ % kUnit != 0) {
    throw Error(ErrorCode::kInvalidArgument, "ring buffer '" + name() + "' has a capacity of " +
                                                 std::to_string(capacity_) +
                                                 " bytes; it must be a multiple of 16, from 64");
  }
  if (end_ % kUnit != 0) {
    throw Error(ErrorCode::kInvalidArgument, "ring buffer '" + name() + "' begins at position " +
                                                 std::to_string(end_) +
                                                 "; it must be a multiple of 16");
  }
  // The NIC reads the bytes of a write from the writer's copy. A message in flight stays there,
  // because its place is reused only after all readers have acknowledged it.
  const std::uint32_t rights = writer_ == self() ? 0U : std::uint32_t{fabric::kRemoteWrite};
  ring_ = add_region("ring", capacity_, rights);
  footprint_.emplace(manager().env(), ring_.data, capacity_);
  expect_region("ring", capacity_);
  join();
}

std::uint64_t RingBuffer::head_word(std::uint64_t position, std::uint32_t length) const {
  // The number is one more than the position's number, so that fresh memory holds no message.
  return (position / kUnit + 1) << 32 | length;
}

std::uint64_t RingBuffer::tail_word(std::uint64_t position, std::uint32_t length,
                                    std::span<const std::byte> bytes) const {
  return bugs_.tail_of_message(mix64(checksum(bytes) ^ mix64(position + 1) ^ length),
                               head_word(position, length));
}

std::uint64_t RingBuffer::frame(std::uint64_t position, std::uint32_t length,
                                std::span<const std::byte> bytes) {
  std::byte* at = ring_.data + position % capacity_;
  const std::uint64_t words = padded(bytes.size(), 8);
  const std::uint64_t head = head_word(position, length);
  std::memcpy(at, &head, sizeof head);
  at += sizeof head;
  if (words != 0) std::memset(at + words - 8, 0, 8);
  if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
  const std::uint64_t tail = tail_word(position, length, {at, words});
  std::memcpy(at + words, &tail, sizeof tail);
  return position + size_of(bytes.size());
}

// Returns where a message of that size begins: after the last message, or at the start of the ring.
std::uint64_t RingBuffer::begin_of(std::uint64_t bytes) const {
  const std::uint64_t left = capacity_ - end_ % capacity_;
  return left < size_of(bytes) ? end_ + left : end_;
}

// Returns the position that the readers must have reached for the bytes of the message to be free.
std::uint64_t RingBuffer::freed_by(std::uint64_t bytes) const {
  return begin_of(bytes) + size_of(bytes) - capacity_;
}

std::optional<std::uint64_t> RingBuffer::try_broadcast(Caller& me,
                                                       std::span<const std::byte> message) {
  PYRDMA_CHECK(writer_, ==, self());
  if (message.size() > max_message()) {
    throw Error(ErrorCode::kInvalidArgument,
                "message of " + std::to_string(message.size()) +
                    " bytes does not fit ring buffer '" + name() + "'; it takes up to " +
                    std::to_string(max_message()) + ": raise its capacity");
  }
  const Scope step(me.env(), scope::ring_broadcast);
  if (!turn_.take(me, participants())) [[unlikely]] {
    me.env().reached("ring/change of caller");
    return std::nullopt;
  }
  const std::uint64_t begin = begin_of(message.size());
  if (!acknowledged(freed_by(message.size()))) {
    me.env().reached("ring/full");
    return std::nullopt;
  }
  me.env().charge_copy(message.size(), &footprint_.value());
  if (begin != end_) {
    me.env().reached("ring/skip");
    frame(end_, kSkip, {});
  }
  const std::uint64_t end = frame(begin, static_cast<std::uint32_t>(message.size()), message);
  push(me, end_, begin, kFrame + padded(message.size(), 8));
  return end_ = end;
}

// Writes `bytes` at `begin`, and before them a mark at `from` if `from` differs from `begin`. Every
// byte written is one that a reader waits for: any other byte, placed late, would hit the next lap.
// Once a reader gets the message, the others get it too, however long the queue stays full: a
// message that only some have would be missed, or come twice, when the writer tries again.
void RingBuffer::push(Caller& me, std::uint64_t from, std::uint64_t begin, std::uint64_t bytes) {
  bool begun = false;
  for (const NodeId reader : participants()) {
    if (reader == self()) continue;
    const Scope step(me.env(), scope::ring_push);
    fabric::Sge sges[2];
    fabric::WorkRequest requests[2];
    std::size_t count = 0;
    const auto add = [&](std::uint64_t position, std::uint64_t length) {
      const std::uint64_t offset = position % capacity_;
      sges[count] = ring_.sge(offset, static_cast<std::uint32_t>(length));
      fabric::WorkRequest& request = requests[count];
      request.opcode = fabric::Opcode::kWrite;
      request.sges = &sges[count];
      request.sge_count = 1;
      request.remote_addr = remote(reader, 0).addr + offset;
      request.rkey = remote(reader, 0).rkey;
      ++count;
    };
    if (from != begin) add(from, kFrame);
    add(begin, bytes);
    while (true) {
      try {
        me.post(reader, {requests, count});
        break;
      } catch (const Error& error) {
        if (!begun || error.code() != ErrorCode::kTimeout) throw;
      }
    }
    begun = true;
  }
}

std::uint64_t RingBuffer::broadcast(Caller& me, std::span<const std::byte> message) {
  while (true) {
    if (const std::optional<std::uint64_t> end = try_broadcast(me, message)) return *end;
    wait_for_room(me, message.size());
  }
}

bool RingBuffer::acknowledged(std::uint64_t position) {
  const Scope step(manager().env(), scope::ring_acknowledged);
  for (const NodeId reader : participants()) {
    if (reader != writer_ && !has_acknowledged(reader, position)) return false;
  }
  return true;
}

std::vector<NodeId> RingBuffer::unacknowledged(std::uint64_t position) {
  std::vector<NodeId> readers;
  for (const NodeId reader : participants()) {
    if (reader != writer_ && !has_acknowledged(reader, position)) readers.push_back(reader);
  }
  return readers;
}

void RingBuffer::wait_for_room(Caller& me, std::uint64_t bytes) {
  const std::uint64_t position = freed_by(bytes);
  try {
    me.wait_until([&] { return turn_.take(me, participants()) && acknowledged(position); },
                  "free space in the ring buffer");
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    const std::vector<NodeId> readers = unacknowledged(position);
    throw Error(ErrorCode::kTimeout,
                std::string(error.what()) + "; ring buffer '" + name() +
                    "' has no acknowledgement from reader" + text_of(readers),
                false)
        .blaming(readers);
  }
}

std::optional<std::span<const std::byte>> RingBuffer::next(Caller& me) {
  Env& env = me.env();
  const Scope step(env, scope::ring_next);
  if (!acks_.mine().ready()) return std::nullopt;  // no peer can take the acknowledgement yet
  while (true) {
    const std::byte* at = ring_.data + at_ % capacity_;
    const std::uint64_t head = load_acquire(reinterpret_cast<const std::uint64_t*>(at));
    const auto length = static_cast<std::uint32_t>(head);
    if (head != head_word(at_, length)) return std::nullopt;
    const bool skip = length == kSkip;
    const std::uint64_t bytes = skip ? 0 : length;
    const std::uint64_t size = size_of(bytes);
    if (size > capacity_ - at_ % capacity_)
      return std::nullopt;  // a length from the payload of an earlier lap
    // The copy comes before the test, so that the test holds for the bytes that the caller gets.
    const std::uint64_t words = padded(bytes, 8);
    copy_.resize(words);
    copy_from_shared(copy_.data(), at + sizeof head, words);
    const std::uint64_t tail =
        load_acquire(reinterpret_cast<const std::uint64_t*>(at + sizeof head + words));
    if (tail != tail_word(at_, length, copy_)) {
      env.reached("ring/torn message");
      return std::nullopt;
    }
    at_ += skip ? capacity_ - at_ % capacity_ : size;
    if (skip) continue;
    env.charge_copy(bytes, &footprint_.value());
    return bugs_.received(*this, me, {at + sizeof head, bytes}, {copy_.data(), bytes});
  }
}

void RingBuffer::acknowledge(Caller& me) {
  if (told_ == at_) return;
  const Scope step(me.env(), scope::ring_acknowledge);
  acks_.store_mine(at_);
  acks_.mine().push_to(me, writer_);
  told_ = at_;  // not before: an acknowledgement that throws an error is tried again
}

}  // namespace pyrdma::loco
