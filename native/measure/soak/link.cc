#include "measure/soak/link.h"

#include <cstring>

#include "base/error.h"
#include "base/remote_word.h"
#include "base/rng.h"

namespace pyrdma::measure::soak {

namespace {

using fabric::Completion;
using fabric::RemoteRegion;
using fabric::Status;

constexpr Time kLook = 5 * kMillisecond;  // pause between two looks for a peer
constexpr std::uint32_t kPeerSilent = 1'000'000;

// A link's room: the peer's payload, the peer's counter, the own payload, the bytes read back, old
// values, messages.
struct Room {
  explicit Room(std::uint32_t bytes)
      : inbox(0),
        counter(bytes),
        outbox(counter + 64),
        back(outbox + bytes),
        old(back + bytes),
        message(old + 64),
        receives(message + Link::kMessage),
        end(receives + std::size_t{Link::kReceives} * Link::kMessage) {}
  std::size_t inbox, counter, outbox, back, old, message, receives, end;
};

}  // namespace

std::string name_of(NodeId node, std::uint32_t incarnation) {
  return std::to_string(node) + "." + std::to_string(incarnation);
}

std::size_t Link::room(std::uint32_t bytes) { return (Room(bytes).end + 63) / 64 * 64; }

Link::Link(Shared& shared, NodeId peer)
    : shared_(shared), peer_(peer), begin_(peer * room(shared.bytes)) {}

std::uint64_t Link::wr_id(Kind kind, std::uint32_t slot) const {
  return std::uint64_t{connection_} << 32 | std::uint64_t{slot} << 24 | std::uint64_t{peer_} << 8 |
         static_cast<std::uint64_t>(kind);
}

// A word holds its writer, round and place, so a check recognises words of other nodes.
std::uint64_t Link::word(NodeId from, std::uint32_t incarnation, std::uint64_t round,
                         std::uint32_t at) const {
  const std::uint64_t tag =
      mix64(std::uint64_t{from} << 40 ^ std::uint64_t{incarnation} << 16 ^ at);
  return (tag & ~0xffffffffULL) | (round & 0xffffffffULL);
}

std::uint64_t* Link::words(std::size_t offset) const {
  return reinterpret_cast<std::uint64_t*>(shared_.region->data() + begin_ + offset);
}

fabric::Sge Link::sge(std::size_t offset, std::uint32_t bytes) const {
  return shared_.region->sge(begin_ + offset, bytes);
}

Time Link::turn(Time now) {
  if (now < due_) return due_;
  if (state_ == State::kUp) {
    if (pending_ != 0) return kForever;
    begin_round();
    return pending_ != 0 ? kForever : now + kMicrosecond;
  }
  look_for_peer();
  due_ = now + kLook;
  return due_;
}

void Link::look_for_peer() {
  Env& env = shared_.env;
  const std::uint32_t wanted = incarnation_ + (state_ == State::kMeeting ? 1 : 0);
  if (const auto hello = shared_.find<RemoteRegion>("hello/" + name_of(peer_, wanted))) {
    remote_ = *hello;
    incarnation_ = wanted;
    state_ = State::kMeeting;
    ++connection_;
    fabric::QpOptions options;
    options.timeout_us = kPeerSilent;
    qp_ = nullptr;
    qp_ = env.device().create_queue_pair(*shared_.pd, *shared_.completions, *shared_.completions,
                                         options);
    const std::string both = runtime::incarnation_pair(env, env.incarnation(), peer_, incarnation_);
    handshake_.emplace(env, shared_.params.key("soak/meet/" + both), peer_);
    handshake_->add(*qp_);
    handshake_->offer();
  }
  if (state_ == State::kMeeting && handshake_->find()) connect();
}

void Link::connect() {
  handshake_->connect();
  handshake_.reset();
  state_ = State::kUp;
  ++counts_.met;
  pending_ = 0;
  sent_ = received_ = 0;
  counter_.reset();
  for (std::uint32_t slot = 0; slot < kReceives; ++slot) receive(slot);
}

void Link::receive(std::uint32_t slot) {
  const Room room(shared_.bytes);
  qp_->receive(sge(room.receives + slot * std::size_t{kMessage}, kMessage),
               wr_id(Kind::kReceive, slot));
}

void Link::lose() {
  Env& env = shared_.env;
  ++counts_.lost;
  shared_.publish(
      "lost/" + name_of(peer_, incarnation_) + "/" + name_of(env.node(), env.incarnation()),
      env.now());
  qp_ = nullptr;
  state_ = State::kAbsent;
  ++connection_;
  ++incarnation_;
  pending_ = 0;
  due_ = 0;
}

// A round is a write, a read of the written bytes, an addition and a message, in this order at the
// peer.
void Link::begin_round() {
  const Room room(shared_.bytes);
  Env& env = shared_.env;
  const std::uint64_t round = ++sent_;
  const std::uint32_t count = shared_.bytes / 8;
  for (std::uint32_t i = 0; i < count; ++i) {
    words(room.outbox)[i] = word(env.node(), env.incarnation(), round, i);
  }
  for (std::uint32_t i = 0; i < kMessage / 8; ++i) {
    words(room.message)[i] = word(env.node(), env.incarnation(), round, 1000 + i);
  }
  env.charge_copy(shared_.bytes);
  const std::size_t there = env.node() * Link::room(shared_.bytes);
  const RemoteRegion& to = remote_;
  bool posted = qp_->write(sge(room.outbox, shared_.bytes), to, there + room.inbox,
                           wr_id(Kind::kWrite, 0), 0);
  posted &= qp_->read(sge(room.back, shared_.bytes), to, there + room.inbox, wr_id(Kind::kRead, 0));
  posted &= qp_->fetch_add(sge(room.old, 8), to, there + room.counter, 1, wr_id(Kind::kAdd, 0));
  posted &= qp_->send(sge(room.message, kMessage), wr_id(Kind::kSend, 0));
  expect(posted);
  pending_ = 3;
}

void Link::complete(const Completion& completion) {
  if (completion.wr_id >> 32 != connection_) return;  // an earlier connection's
  if (completion.status != Status::kSuccess) {
    expect(completion.status == Status::kRetryExceeded || completion.status == Status::kFlushed);
    return lose();
  }
  switch (static_cast<Kind>(completion.wr_id & 0xff)) {
    case Kind::kRead:
      check_read();
      break;
    case Kind::kAdd:
      check_add();
      break;
    case Kind::kSend:
      break;
    case Kind::kWrite:
      return expect(false);  // the write is unsignaled
    case Kind::kReceive:
      return check_message(static_cast<std::uint32_t>(completion.wr_id >> 24 & 0xff));
  }
  if (--pending_ != 0) return;
  ++counts_.rounds;
  due_ = shared_.env.now() + shared_.interval;
}

void Link::check_read() {
  const Room room(shared_.bytes);
  expect(std::memcmp(words(room.back), words(room.outbox), shared_.bytes) == 0);
}

// Only this link adds to the counter, so each addition adds one to the last value.
void Link::check_add() {
  const std::uint64_t old = *words(Room(shared_.bytes).old);
  expect(!counter_ || old == *counter_ + 1);
  counter_ = old;
}

// Messages come in order, each once. The peer's writes before a message are visible.
void Link::check_message(std::uint32_t slot) {
  const Room room(shared_.bytes);
  const std::uint64_t round = ++received_;
  const std::uint64_t* message = words(room.receives + slot * std::size_t{kMessage});
  for (std::uint32_t i = 0; i < kMessage / 8; ++i) {
    expect(message[i] == word(peer_, incarnation_, round, 1000 + i));
  }
  for (std::uint32_t i = 0; i < shared_.bytes / 8; ++i) {
    const std::uint64_t seen = load_acquire(&words(room.inbox)[i]);
    const std::uint64_t of = seen & 0xffffffffULL;
    expect(seen == word(peer_, incarnation_, of, i) && of >= round && of <= round + kReceives + 1);
  }
  receive(slot);
}

}  // namespace pyrdma::measure::soak
