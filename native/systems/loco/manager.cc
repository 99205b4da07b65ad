#include "systems/loco/manager.h"

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>

#include "base/assert.h"
#include "base/error.h"
#include "systems/loco/channel.h"

namespace pyrdma::loco {

namespace {

constexpr std::uint32_t kMaxCallers = 64;

void check(const char* option, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string("manager option ") + option + " is " + std::to_string(value) +
                  "; it must be " + std::to_string(least) + " to " + std::to_string(most));
}

}  // namespace

Manager::Manager(Env& env, const ManagerOptions& options)
    : env_(env),
      options_(options),
      alone_(options.callers == 1 && options.polling == Polling::kCallers),
      channels_mutex_(env) {
  fabric::Device& device = env.device();
  device.open();
  const fabric::Capabilities& can = device.capabilities();
  check("callers", options_.callers, 1, kMaxCallers);
  check("max_in_flight", options_.max_in_flight, 64, can.max_queue_entries);
  check("block_bytes", options_.block_bytes, 8, 64 * kMiB);
  check("blocks", options_.blocks, 1, 1U << 20);
  options_.max_inline = std::min(options_.max_inline, can.max_inline);
  if (!can.atomics) {
    throw Error(ErrorCode::kUnavailable, "device " + device.name() +
                                             " has no remote atomics, which locks, barriers and "
                                             "counters need; choose another device");
  }
  pd_ = device.create_protection_domain();
  memory_ = std::make_unique<NetworkMemory>(env, *pd_, options_.page_bytes);
  make_queues();
  connect();
  if (options_.polling == Polling::kThread) {
    poller_ = env.spawn("loco/poll", [this] {
      while (!stopping_.load(std::memory_order_acquire)) {
        env_.poll_until(
            [this] {
              const bool any = progress();
              serve();
              return any || stopping_.load(std::memory_order_acquire);
            },
            kForever, &completions_->watch());
      }
    });
  }
}

Manager::~Manager() {
  stopping_.store(true, std::memory_order_release);
  env_.notify(completions_->watch());
}

void Manager::make_queues() {
  const std::uint64_t peers = nodes();
  const std::uint64_t entries =
      std::uint64_t{options_.callers} * options_.max_in_flight + peers * 2 * Control::kSlots;
  const std::uint32_t most = env_.device().capabilities().max_completions;
  if (entries > most) {
    throw Error(ErrorCode::kInvalidArgument,
                "one completion queue for " + std::to_string(options_.callers) + " callers with " +
                    std::to_string(options_.max_in_flight) + " requests in flight each needs " +
                    std::to_string(entries) + " entries; the device has " + std::to_string(most) +
                    ": lower max_in_flight or callers");
  }
  completions_ = env_.device().create_completion_queue(static_cast<std::uint32_t>(entries));
  const std::uint64_t lanes = peers * (options_.callers + 1);
  std::size_t slots = 2;
  while (slots < 2 * lanes) slots *= 2;
  lanes_.assign(slots, {0, nullptr});
  for (std::uint32_t i = 0; i < options_.callers; ++i) {
    Caller& caller = *callers_.emplace_back(std::make_unique<Caller>(*this, i));
    for (NodeId peer = 0; peer < nodes(); ++peer) {
      Lane& lane = *caller.lanes_.emplace_back(std::make_unique<Lane>());
      lane.caller = &caller;
      lane.peer = peer;
      lane.sizes.resize(std::bit_ceil(options_.max_in_flight));
      lane.qp = make_queue_pair(options_.max_in_flight, 1);
      learn(lane);
    }
  }
  control_ = std::make_unique<Control>(*this);
  for (NodeId peer = 0; peer < nodes(); ++peer) {
    if (peer != self()) learn(control_->lane(peer));
  }
}

std::unique_ptr<fabric::QueuePair> Manager::make_queue_pair(std::uint32_t send_entries,
                                                            std::uint32_t receive_entries) {
  fabric::QpOptions options;
  options.send_entries = send_entries;
  options.receive_entries = receive_entries;
  options.max_inline = options_.max_inline;
  options.timeout_us = options_.timeout_us;
  return env_.device().create_queue_pair(*pd_, *completions_, *completions_, options);
}

// Meets the peers: every pair of callers of equal number, and the control lanes, exchange
// addresses.
void Manager::connect() {
  fabric::Rendezvous& rendezvous = env_.device().rendezvous();
  const Time deadline = env_.now() + options_.patience;
  const auto key = [&](NodeId from, NodeId to, const std::string& lane) {
    return "loco/" + options_.name + '/' + std::to_string(from) + '-' + std::to_string(to) + '/' +
           lane;
  };
  const auto each = [&](auto&& use) {
    for (NodeId peer = 0; peer < nodes(); ++peer) {
      for (const auto& caller : callers_) {
        use(peer, *caller->lanes_[peer]->qp, std::to_string(caller->index()));
      }
      if (peer != self()) use(peer, *control_->lane(peer).qp, "c");
    }
  };
  each([&](NodeId peer, fabric::QueuePair& qp, const std::string& lane) {
    if (peer != self()) rendezvous.publish_value(key(self(), peer, lane), qp.address());
  });
  each([&](NodeId peer, fabric::QueuePair& qp, const std::string& lane) {
    qp.connect(peer == self()
                   ? qp.address()
                   : rendezvous.await_value<fabric::QpAddress>(key(peer, self(), lane), deadline));
  });
  control_->post_receives();
  meet("connected", deadline);  // nobody sends before everybody can receive
}

void Manager::meet(const std::string& place, Time deadline) {
  fabric::Rendezvous& rendezvous = env_.device().rendezvous();
  const std::string key = "loco/" + options_.name + '/' + place + '/';
  rendezvous.publish_value(key + std::to_string(self()), std::uint8_t{1});
  for (NodeId peer = 0; peer < nodes(); ++peer) {
    rendezvous.await_value<std::uint8_t>(key + std::to_string(peer), deadline);
  }
}

void Manager::leave() {
  for (const auto& caller : callers_) {
    const auto idle = [&] {
      return caller->completed_.load(std::memory_order_acquire) == caller->posted_;
    };
    wait_until(*caller, idle, "its requests to end");
  }
  meet("left", env_.now() + options_.patience);
}

void Manager::learn(Lane& lane) {
  std::size_t at = lane.qp->qp_num() & (lanes_.size() - 1);
  while (lanes_[at].second != nullptr) at = (at + 1) & (lanes_.size() - 1);
  lanes_[at] = {lane.qp->qp_num(), &lane};
}

inline Lane& Manager::lane_of(std::uint32_t qp_num) {
  std::size_t at = qp_num & (lanes_.size() - 1);
  while (lanes_[at].first != qp_num || lanes_[at].second == nullptr) {
    PYRDMA_ASSERT(lanes_[at].second != nullptr);
    at = (at + 1) & (lanes_.size() - 1);
  }
  return *lanes_[at].second;
}

inline void Manager::complete(const fabric::Completion& completion) {
  Lane& lane = lane_of(completion.qp_num);
  if (lane.caller == nullptr) return control_->complete(lane, completion);
  if (AckBits::ends_post(completion.wr_id)) [[likely]] {
    // Each is written by the one thread that polls now.
    const std::uint64_t requests = lane.size_of(lane.ended++);
    lane.completed.store(lane.completed.load(std::memory_order_relaxed) + requests,
                         std::memory_order_release);
    std::atomic<std::uint64_t>& all = lane.caller->completed_;
    all.store(all.load(std::memory_order_relaxed) + requests, std::memory_order_release);
  }
  AckBits::complete(completion.wr_id, completion.status);
}

bool Manager::progress() {
  // A single caller that polls by itself has nobody to keep away.
  if (!alone_ && (polling_.load(std::memory_order_relaxed) ||
                  polling_.exchange(true, std::memory_order_acquire))) {
    return false;
  }
  std::size_t count = 0, all = 0;
  do {  // until the queue is empty: no completion that is there already wakes a waiter again
    count = completions_->poll(polled_);
    for (std::size_t i = 0; i < count; ++i) complete(polled_[i]);
    all += count;
  } while (count == polled_.size());
  if (!alone_) polling_.store(false, std::memory_order_release);
  return all != 0;
}

void Manager::turn() {
  if (poller_ == nullptr) progress();
  serve();
}

void Manager::serve() {
  if (!control_->has_mail()) [[likely]]
    return;
  if (serving_.load(std::memory_order_relaxed) ||
      serving_.exchange(true, std::memory_order_acquire)) {
    return;
  }
  ControlMessage message;
  while (control_->receive(message)) handle(message);
  serving_.store(false, std::memory_order_release);
}

void Manager::handle(const ControlMessage& message) {
  Channel* channel = nullptr;
  {
    const std::lock_guard lock(channels_mutex_);
    const auto found = channels_.find(message.name);
    if (found == channels_.end()) return;
    channel = found->second;
    handling_.store(channel, std::memory_order_relaxed);
  }
  struct Done {
    std::atomic<Channel*>& handling;
    ~Done() { handling.store(nullptr, std::memory_order_release); }
  } const done{handling_};
  channel->handle(message);
}

void Manager::check_free(const std::string& name) {
  if (find(name) == nullptr) return;
  throw Error(ErrorCode::kInvalidArgument, "node " + std::to_string(self()) + " has a channel '" +
                                               name + "' already; give the second another name");
}

void Manager::add(Channel& channel) {
  check_free(channel.name());
  const std::lock_guard lock(channels_mutex_);
  channels_.emplace(channel.name(), &channel);
}

void Manager::remove(Channel& channel) {
  {
    const std::lock_guard lock(channels_mutex_);
    const auto found = channels_.find(channel.name());
    if (found == channels_.end() || found->second != &channel) return;
    channels_.erase(found);
  }
  // Another thread may be at a message to it.
  const auto is_free = [&] { return handling_.load(std::memory_order_acquire) != &channel; };
  if (is_free()) return;
  env_.poll_until(
      [&] {
        env_.charge(Cost::kPredicate);
        return is_free();
      },
      kForever);
}

Channel* Manager::find(const std::string& name) {
  const std::lock_guard lock(channels_mutex_);
  const auto found = channels_.find(name);
  return found == channels_.end() ? nullptr : found->second;
}

bool Manager::all_ready() {
  const std::lock_guard lock(channels_mutex_);
  for (const auto& [name, channel] : channels_) {
    if (!channel->problem().empty()) throw Error(ErrorCode::kInvalidArgument, channel->problem());
    if (!channel->ready()) return false;
  }
  return true;
}

std::string Manager::missing() {
  const std::lock_guard lock(channels_mutex_);
  std::string text;
  for (const auto& [name, channel] : channels_) {
    if (!channel->ready()) text += "; channel '" + name + "' misses node" + channel->missing();
  }
  return text;
}

void Manager::wait_for_ready() {
  const Time deadline = env_.now() + options_.patience;
  const bool met = env_.poll_until(
      [this] {
        env_.charge(Cost::kPredicate);
        turn();
        return all_ready();
      },
      deadline);
  if (!met) {
    throw Error(
        ErrorCode::kTimeout,
        "node " + std::to_string(self()) + " waited " +
            std::to_string(options_.patience / kMillisecond) +
            " ms for its channels to meet their peers" + missing() +
            ". Make the channel on those nodes too, name the participants, or raise patience");
  }
}

void Manager::wait_until(Caller& caller, FunctionRef<bool()> ready, const char* what) {
  const bool done = env_.poll_until(
      [&] {
        env_.charge(Cost::kPredicate);
        if (ready()) return true;
        turn();
        return ready();
      },
      env_.now() + options_.patience);
  if (done) return;
  std::string silent;
  for (const NodeId peer : caller.silent_peers()) silent += ' ' + std::to_string(peer);
  throw Error(ErrorCode::kTimeout,
              "node " + std::to_string(self()) + " waited " +
                  std::to_string(options_.patience / kMillisecond) + " ms for " + what +
                  (silent.empty() ? "; all nodes answer: one of them does not do its part"
                                  : "; no answer from node" + silent),
              false);
}

}  // namespace pyrdma::loco
