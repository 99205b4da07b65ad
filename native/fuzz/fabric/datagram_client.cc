#include "fuzz/fabric/datagram_client.h"

#include <algorithm>

namespace pyrdma::fuzz {

using fabric::QpState;
using fabric::Status;
using fabric::Transport;

namespace {

constexpr Time kDatagramClientIdle = 50 * kMicrosecond;

std::string address_key(NodeId node, std::uint32_t version) {
  return "node " + std::to_string(node) + ", " + std::to_string(version);
}

}  // namespace

DatagramClient::DatagramClient(Node& node)
    : node_(node),
      world_(node.world),
      env_(node.env),
      state_(node.world.client(node.id, node.id)),
      buffers_(node.buffers(node.id)),
      has_dc_(node.device.capabilities().dc),
      datagrams_(node.world, "UD of " + std::to_string(node.id), kDatagramTag, kUnreliableWindow,
                 buffers_, node.local->lkey()),
      dc_(node.world, "DC of " + std::to_string(node.id), kDcTag, kReliableWindow,
          buffers_ + kUnreliableWindow * kMostBytes, node.local->lkey()),
      log_(node),
      peers_(node.world.options.nodes) {
  const std::uint32_t max_inline = node.queue_pair_options(Transport::kUd).max_inline;
  datagrams_.set_max_inline(max_inline);
  dc_.set_max_inline(max_inline);
}

DatagramClient::~DatagramClient() {  // a crashed node may still have outstanding requests
  state_.queue = nullptr;
  const auto lost = [this](const Pending& pending, bool, const std::byte*) {
    ended(pending, false, nullptr);
  };
  datagrams_.abandon(lost);
  dc_.abandon(lost);
}

void DatagramClient::run() {
  state_.env = &env_;
  set_up();
  next_batch_at_ = env_.now();
  while (!world_.finished()) {
    repair();
    const Time now = env_.now();
    Time wake_at = now + kDatagramClientIdle;
    if (state_.next < state_.plan.size()) {
      if (now >= next_batch_at_ && batch_is_due()) post_batch();
      if (next_batch_at_ > now) wake_at = std::min(wake_at, next_batch_at_);
    }
    env_.poll_until([&] { return take_completions() || world_.finished(); }, wake_at,
                    &queue_->watch());
  }
  tear_down();
}

// Earlier posts of a failed connection may not have happened.
void DatagramClient::forget_connection() {
  for (NodeId target = 0; target < world_.options.nodes; ++target)
    for (std::uint32_t r = kFirstDc; r < kRecords; ++r) world_.record(target, node_.id, r).here = 0;
}

void DatagramClient::set_up() {
  forget_connection();
  queue_ = node_.persist([&] { return node_.device.create_completion_queue(kQueueEntries); });
  auto make = [&](const fabric::QpOptions& options, fabric::SharedReceiveQueue* shared) {
    return node_.persist([&] {
      return node_.device.create_queue_pair(*node_.pd, *queue_, *queue_, options, shared);
    });
  };
  ud_ = make(node_.queue_pair_options(Transport::kUd), nullptr);
  datagrams_.use(ud_.get());
  if (has_dc_) {
    shared_receives_ = node_.persist(
        [&] { return node_.device.create_shared_receive_queue(*node_.pd, kSharedReceives); });
    fabric::QpOptions options = node_.queue_pair_options(Transport::kDc);
    dc_initiator_ = make(options, nullptr);
    options.dc_target = true;
    dc_target_ = make(options, shared_receives_.get());
    dc_.use(dc_initiator_.get());
  }
  for (fabric::QueuePair* qp : {ud_.get(), dc_initiator_.get(), dc_target_.get()})
    if (qp != nullptr) revive(*qp);
  posted_.fill(false);
  shared_posted_.fill(false);
  fill_receives();
  overrun_ = false;
  state_.queue = queue_.get();
  publish();
}

void DatagramClient::publish() {
  NodeAddress address;
  address.shared = node_.shared->remote();
  address.datagrams = ud_->address();
  if (has_dc_) address.dc_target = dc_target_->address();
  address.incarnation = node_.incarnation;
  const std::uint32_t version = world_.nodes[node_.id].version + 1;
  node_.persist([&] {
    node_.device.rendezvous().publish_value(address_key(node_.id, version), address);
    return true;
  });
  world_.nodes[node_.id].version = version;
}

void DatagramClient::tear_down() {
  state_.queue = nullptr;
  for (fabric::QueuePair* qp : {ud_.get(), dc_initiator_.get(), dc_target_.get()})
    if (qp != nullptr) qp->fail();
  env_.poll_until(
      [&] {
        while (!queue_->overrun() && take_completions()) {
        }
        return queue_->overrun() || (datagrams_.idle() && dc_.idle());
      },
      env_.now() + kMillisecond, &queue_->watch());
  if (!queue_->overrun()) {
    datagrams_.expect_idle("although the queue pair has failed");
    dc_.expect_idle("although the queue pair has failed");
  }
  const auto lost = [this](const Pending& pending, bool, const std::byte*) {
    ended(pending, false, nullptr);
  };
  datagrams_.abandon(lost);
  dc_.abandon(lost);
  for (auto* qp : {&ud_, &dc_initiator_, &dc_target_}) qp->reset();
  shared_receives_.reset();
  queue_.reset();
}

// Failed queue pairs are used again once all their requests are flushed. An overrun completion
// queue takes all its queue pairs with it.
void DatagramClient::repair() {
  if (overrun_) {
    tear_down();
    set_up();
    ++world_.outcome.reconnects;
    return;
  }
  auto failed = [](const std::unique_ptr<fabric::QueuePair>& qp) {
    return qp && (qp->state() == QpState::kError || qp->state() == QpState::kSendQueueError);
  };
  bool repaired = false;
  if (failed(ud_) && datagrams_.idle()) {
    revive(*ud_);
    datagrams_.use(ud_.get());
    posted_.fill(false);
    repaired = true;
  }
  if (failed(dc_initiator_) && dc_.idle()) {
    revive(*dc_initiator_);
    dc_.use(dc_initiator_.get());
    for (NodeId target = 0; target < world_.options.nodes; ++target)
      for (std::uint32_t r = kFirstDc; r < kRecords; ++r)
        world_.record(target, node_.id, r).here = 0;
    repaired = true;
  }
  if (failed(dc_target_)) {
    revive(*dc_target_);
    repaired = true;
  }
  world_.outcome.reconnects += repaired;
  fill_receives();
}

void DatagramClient::revive(fabric::QueuePair& qp) {
  for (;;) {
    try {
      if (qp.state() != QpState::kReset) qp.modify(QpState::kReset);
      qp.connect({});
      return;
    } catch (const Error& error) {  // the queue pair failed meanwhile, or there was no memory
      if (error.code() != ErrorCode::kExhausted && qp.state() != QpState::kError) throw;
    }
    env_.sleep_until(env_.now() + kRetryAfter);
  }
}

// Brings the knowledge of `target` up to date; returns null while the target has published nothing.
DatagramClient::Peer* DatagramClient::reach(NodeId target) {
  Peer& peer = peers_[target];
  const std::uint32_t version = world_.nodes[target].version;
  if (version == 0) return nullptr;
  if (version == peer.version) return &peer;
  peer.address = node_.device.rendezvous().await_value<NodeAddress>(address_key(target, version),
                                                                    env_.now() + kSecond);
  if (peer.handle) old_handles_.push_back(std::move(peer.handle));
  peer.handle = node_.persist(
      [&] { return node_.device.create_address_handle(*node_.pd, peer.address.datagrams); });
  peer.version = version;
  for (std::uint32_t r = kFirstDc; r < kRecords; ++r) {
    RecordState& record = world_.record(target, node_.id, r);
    if (record.incarnation == peer.address.incarnation) continue;
    record = RecordState{};
    record.incarnation = peer.address.incarnation;
  }
  return &peer;
}

bool DatagramClient::batch_is_due() {
  if (!state_.plan[state_.next].probe) return true;
  if (world_.healed() && datagrams_.idle() && dc_.idle()) return true;
  next_batch_at_ = env_.now() + kRetryAfter;
  return false;
}

void DatagramClient::post_batch() {
  next_version_ = state_.version;
  const PlannedOperation& first = state_.plan[state_.next];
  const Route route = route_of(first.kind);
  std::size_t end = state_.next, taken = 0;
  Time pause = 0;
  Channel& channel = route == Route::kUd ? datagrams_ : dc_;
  const bool usable = !channel.broken();
  auto next_is_of_batch = [&] {
    if (end == state_.plan.size()) return false;
    const PlannedOperation& op = state_.plan[end];
    if (end == state_.next || (op.pause_ns == 0 && !op.probe && route_of(op.kind) == route))
      return true;
    pause = op.pause_ns;
    return false;
  };
  if (route == Route::kDisk) {
    append_to_log(first);
    ++end;
    next_is_of_batch();
    next_batch_at_ = env_.now() + (world_.healed() ? 0 : pause);
    return;
  }
  if (usable)
    for (; channel.room() > 0 && next_is_of_batch(); ++end)
      if (!prepare(channel, state_.plan[end], end)) break;
  const std::size_t wanted = end - state_.next;
  channel.post([&](Pending& pending) {
    accepted(pending);
    ++taken;
  });
  state_.next += taken;
  const bool more_of_batch = taken == 0 || taken < wanted || pause == 0;
  next_batch_at_ = env_.now() + (more_of_batch || world_.healed() ? kRetry : pause);
}

void DatagramClient::append_to_log(const PlannedOperation& op) {
  if (!op.probe) world_.begins();
  const bool done = log_.append();
  ++(done ? world_.outcome.ok : world_.outcome.info);
  if (op.probe && !done) {
    world_.violation("liveness", "node " + std::to_string(node_.id) +
                                     ": its disk failed after all faults had ended");
  }
  if (op.probe) log_.finish();
  ++state_.next;
  if (state_.next == state_.plan.size() && !state_.done) world_.finish(state_);
}

}  // namespace pyrdma::fuzz
