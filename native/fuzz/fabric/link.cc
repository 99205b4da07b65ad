#include "fuzz/fabric/link.h"

#include <algorithm>

#include "runtime/handshake.h"

namespace pyrdma::fuzz {

using fabric::Completion;
using fabric::Opcode;
using fabric::QpState;
using fabric::Status;

namespace {

constexpr Time kLinkIdle = 200 * kMicrosecond;

std::string handshake_name(std::uint32_t generation) {
  return "link, generation " + std::to_string(generation);
}

}  // namespace

Link::Link(Node& node, NodeId peer)
    : node_(node),
      world_(node.world),
      env_(node.env),
      peer_(peer),
      state_(node.world.client(node.id, peer)),
      peer_state_(node.world.client(peer, node.id)),
      buffers_(node.buffers(peer)),
      reliable_channel_(node.world, "RC " + std::to_string(node.id) + " to " + std::to_string(peer),
                        kReliableTag, kReliableWindow, buffers_, node.local->lkey()),
      unreliable_channel_(node.world,
                          "UC " + std::to_string(node.id) + " to " + std::to_string(peer),
                          kUnreliableTag, kUnreliableWindow,
                          buffers_ + kReliableWindow * kMostBytes, node.local->lkey()),
      last_seen_(node.world.layout.words) {
  reliable_channel_.set_max_inline(node.queue_pair_options(fabric::Transport::kRc).max_inline);
  unreliable_channel_.set_max_inline(node.queue_pair_options(fabric::Transport::kUc).max_inline);
}

std::byte* Link::receive_buffer(bool reliable, std::uint32_t index) {
  return buffers_ + (kReliableWindow + kUnreliableWindow) * kMostBytes +
         ((reliable ? 0 : kReliableReceives) + index) * kReceiveBytes;
}

Link::~Link() {  // a crashed node may still have outstanding requests
  state_.queue = nullptr;
  const auto lost = [this](const Pending& pending, bool, const std::byte*) {
    ended(pending, false, nullptr);
  };
  reliable_channel_.abandon(lost);
  unreliable_channel_.abandon(lost);
}

void Link::run() {
  state_.env = &env_;
  PairState& pair = world_.pair(node_.id, peer_);
  // The addresses that an earlier incarnation of this node published are gone.
  const std::int64_t published = world_.side(node_.id, peer_).published;
  if (published >= pair.generation) world_.renew(node_.id, peer_, pair.generation);
  while (!world_.finished()) {
    if (!connect()) continue;
    serve();
    if (!world_.finished()) world_.renew(node_.id, peer_, generation_);
    hang_up();
  }
}

// Returns false when the peer has moved on, or the run is over.
bool Link::connect() {
  PairState& pair = world_.pair(node_.id, peer_);
  generation_ = pair.generation;
  queue_ = node_.persist([&] { return node_.device.create_completion_queue(kQueueEntries); });
  auto make = [&](fabric::Transport transport) {
    return node_.persist([&] {
      return node_.device.create_queue_pair(*node_.pd, *queue_, *queue_,
                                            node_.queue_pair_options(transport));
    });
  };
  reliable_ = make(fabric::Transport::kRc);
  unreliable_ = make(fabric::Transport::kUc);
  reliable_channel_.use(reliable_.get());
  unreliable_channel_.use(unreliable_.get());
  broken_ = false;

  runtime::Handshake handshake(env_, handshake_name(generation_), peer_);
  handshake.add(*reliable_);
  handshake.add(*unreliable_);
  PairState::Side& mine = world_.side(node_.id, peer_);
  PairState::Side& theirs = world_.side(peer_, node_.id);
  node_.persist([&] {
    handshake.offer();
    return true;
  });
  mine.published = generation_;
  mine.published_at = world_.now();
  mine.shared = node_.shared->remote();
  mine.incarnation = node_.incarnation;
  World::wake(peer_state_);
  auto wait_for = [&](const std::int64_t& stage) {
    env_.poll_until(
        [&] { return stage >= generation_ || pair.generation != generation_ || world_.finished(); },
        kForever, &state_.control);
    return stage >= generation_ && pair.generation == generation_ && !world_.finished();
  };
  bool connected = wait_for(theirs.published);
  if (connected) {
    there_ = theirs;
    handshake.await(env_.now() + kSecond);
    try {
      handshake.connect();
    } catch (const Error& error) {  // the queue pair failed meanwhile
      if (reliable_->state() != QpState::kError && unreliable_->state() != QpState::kError &&
          error.code() != ErrorCode::kExhausted)
        throw;
      world_.renew(node_.id, peer_, generation_);
      connected = false;
    }
  }
  if (connected) {
    for (Stream* stream : {&sent(true), &sent(false)}) {
      stream->generation = generation_;
      stream->sent.clear();
      stream->delivered = stream->acknowledged = 0;
    }
    for (std::uint32_t i = 0; i < kReliableReceives; ++i) post_receive(true, i);
    for (std::uint32_t i = 0; i < kUnreliableReceives; ++i) post_receive(false, i);
    mine.ready = generation_;
    World::wake(peer_state_);
    connected = wait_for(theirs.ready);
  }
  if (!connected) {
    hang_up();
    return false;
  }
  forget_earlier();
  if (generation_ > 0) ++world_.outcome.reconnects;
  if (node_.tracing())
    node_.trace("connects",
                "to node " + std::to_string(peer_) + ", generation " + std::to_string(generation_));
  return true;
}

// Writes of earlier connections are placed or lost: both ends closed before this connection began,
// and packets in flight have had time to arrive. A new incarnation of the peer holds none of them.
void Link::forget_earlier() {
  env_.sleep_until(env_.now() + world_.options.memory.max_delay_ns + kMicrosecond);
  for (std::uint32_t r = 0; r < kFirstDc; ++r) {
    RecordState& record = world_.record(peer_, node_.id, r);
    if (record.incarnation != there_.incarnation) {
      record = RecordState{};
      record.incarnation = there_.incarnation;
      std::fill(last_seen_.begin(), last_seen_.end(), 0);
    }
    record.here = 0;
  }
  last_written_ = {};
}

void Link::serve() {
  PairState& pair = world_.pair(node_.id, peer_);
  state_.queue = queue_.get();
  next_batch_at_ =
      env_.now() +
      (state_.next < state_.plan.size() ? Time{state_.plan[state_.next].pause_ns} : Time{0});
  while (!world_.finished() && pair.generation == generation_ && !broken_) {
    const Time now = env_.now();
    Time wake_at = now + kLinkIdle;
    if (state_.next < state_.plan.size()) {
      if (now >= next_batch_at_ && batch_is_due()) post_batch();
      // Completions make more room.
      if (next_batch_at_ > now) wake_at = std::min(wake_at, next_batch_at_);
    }
    env_.poll_until(
        [&] {
          return take_completions() || pair.generation != generation_ || world_.finished() ||
                 broken_;
        },
        wake_at, &queue_->watch());
  }
  state_.queue = nullptr;
}

bool Link::batch_is_due() {
  if (!state_.plan[state_.next].probe) return true;
  // Probes wait for the end of the faults, and each probe waits for the one before.
  if (world_.healed() && reliable_channel_.idle() && unreliable_channel_.idle()) return true;
  next_batch_at_ = env_.now() + kRetryAfter;
  return false;
}

void Link::post_batch() {
  next_version_ = state_.version;
  const Route route = route_of(state_.plan[state_.next].kind);
  Channel& channel = route == Route::kUc ? unreliable_channel_ : reliable_channel_;
  std::size_t end = state_.next;
  Time pause = 0;
  for (; end < state_.plan.size() && channel.room() > 0; ++end) {
    const PlannedOperation& op = state_.plan[end];
    if (end > state_.next && (op.pause_ns > 0 || op.probe || route_of(op.kind) != route)) {
      pause = op.pause_ns;
      break;
    }
    prepare(channel, op, end);
  }
  const std::size_t wanted = end - state_.next;
  std::size_t taken = 0;
  const bool alive = channel.post([&](Pending& pending) {
    accepted(pending);
    ++taken;
  });
  if (!alive) broken_ = true;
  state_.next += taken;
  const bool more_of_batch = taken < wanted || (end < state_.plan.size() && pause == 0);
  next_batch_at_ = env_.now() + (more_of_batch || world_.healed() ? kRetry : pause);
}

// Ends the connection: all outstanding requests are flushed and counted.
void Link::hang_up() {
  state_.queue = nullptr;
  for (fabric::QueuePair* qp : {reliable_.get(), unreliable_.get()}) qp->fail();
  const Time deadline = env_.now() + kMillisecond;
  env_.poll_until(
      [&] {
        while (!queue_->overrun() && take_completions()) {
        }
        return queue_->overrun() || (reliable_channel_.idle() && unreliable_channel_.idle());
      },
      deadline, &queue_->watch());
  if (!queue_->overrun()) {
    reliable_channel_.expect_idle("although the queue pair has failed");
    unreliable_channel_.expect_idle("although the queue pair has failed");
    const Stream& stream = peer_state_.reliable[generation_ % 2];
    if (stream.generation == generation_ && stream.acknowledged > stream.delivered)
      world_.violation("send", reliable_channel_.name() + ": the peer knows of " +
                                   std::to_string(stream.acknowledged) + " sends as delivered; " +
                                   std::to_string(stream.delivered) + " were");
  }
  const auto lost = [this](const Pending& pending, bool, const std::byte*) {
    ended(pending, false, nullptr);
  };
  reliable_channel_.abandon(lost);
  unreliable_channel_.abandon(lost);
  reliable_.reset();
  unreliable_.reset();
  queue_.reset();
}

}  // namespace pyrdma::fuzz
