#include "systems/loco/manager.h"

#include <mutex>
#include <set>

#include "base/error.h"
#include "base/held_flag.h"
#include "systems/loco/channel.h"

namespace pyrdma::loco {

namespace {

runtime::Options runtime_options(const ManagerOptions& options) {
  runtime::Options all = options;
  all.name = "loco/" + options.name;
  all.message_entries = Control::kSlots;
  return all;
}

void check_atomics(fabric::Device& device) {
  if (device.capabilities().atomics) return;
  throw Error(ErrorCode::kUnavailable, "device " + device.name() +
                                           " has no remote atomics, which locks, barriers and "
                                           "counters need; choose another device");
}

}  // namespace

Manager::Manager(Env& env, const ManagerOptions& options)
    : options_(options), runtime_(env, runtime_options(options)), channels_mutex_(env) {
  check_atomics(env.device());
  control_ = std::make_unique<Control>(*this);
  runtime_.connect(this);
  if (runtime_.is_restarted()) {
    runtime_.stop();
    throw Error(ErrorCode::kUnavailable,
                "node " + std::to_string(self()) + " restarted during the run '" + options_.name +
                    "'. LOCO cannot continue without the state of that node. Start a run with "
                    "another name on all nodes")
        .blaming({self()});
  }
}

Manager::~Manager() { runtime_.stop(); }

void Manager::connected(runtime::Connection& messages) { control_->post_receives(messages); }

void Manager::completed(runtime::Connection& messages, const fabric::Completion& completion) {
  control_->complete(messages, completion);
}

void Manager::serve() {
  if (serving_.load(std::memory_order_relaxed) ||
      serving_.exchange(true, std::memory_order_acquire)) {
    return;
  }
  const HeldFlag serving(&serving_);
  ControlMessage message;
  while (control_->receive(message)) handle(message);
}

void Manager::peer_down(NodeId peer, fabric::Status /*why*/) {
  const std::lock_guard lock(channels_mutex_);
  for (const auto& [name, channel] : channels_) {
    if (channel->peers_[peer].takes_part) channel->lost(peer);
  }
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
  throw Error(ErrorCode::kInvalidArgument, "node " + std::to_string(self()) +
                                               " already has a channel '" + name +
                                               "'; choose another name");
}

void Manager::add(Channel& channel) {
  check_free(channel.name());
  const std::lock_guard lock(channels_mutex_);
  channels_.emplace(channel.name(), &channel);
  // From now on peers hear of this generation. A constructor that fails earlier does not count.
  made_[{channel.name_, channel.participants_sum_}] = channel.generation_;
}

void Manager::remove(Channel& channel) {
  {
    const std::lock_guard lock(channels_mutex_);
    const auto found = channels_.find(channel.name());
    if (found == channels_.end() || found->second != &channel) return;
    channels_.erase(found);
  }
  // Another thread may be serving a message to it.
  const auto is_free = [&] { return handling_.load(std::memory_order_acquire) != &channel; };
  if (is_free()) return;
  env().poll_until([&] { return is_free(); }, kForever);
}

Channel* Manager::find(const std::string& name) {
  const std::lock_guard lock(channels_mutex_);
  const auto found = channels_.find(name);
  return found == channels_.end() ? nullptr : found->second;
}

bool Manager::all_ready() {
  const std::lock_guard lock(channels_mutex_);
  for (const auto& [name, channel] : channels_) {
    channel->check_problem();
    if (!channel->ready()) return false;
  }
  return true;
}

std::uint32_t Manager::made(const std::string& name, std::uint64_t participants) {
  const std::lock_guard lock(channels_mutex_);
  const auto found = made_.find({name, participants});
  return found == made_.end() ? 0 : found->second;
}

void Manager::throw_missing() {
  std::string text, again;
  std::set<NodeId> nodes;
  {
    const std::lock_guard lock(channels_mutex_);
    for (const auto& [name, channel] : channels_) {
      if (channel->ready()) continue;
      channel->check_problem(true);
      text += "; channel '" + name + "'";
      if (channel->generation() > 1) {
        text += " of generation " + std::to_string(channel->generation());
        again = ", as often as on this node, which counts the generations of a channel";
      }
      const std::vector<NodeId> missing = channel->missing();
      text += " misses node" + text_of(missing);
      nodes.insert(missing.begin(), missing.end());
    }
  }
  throw Error(ErrorCode::kTimeout, "node " + std::to_string(self()) + " waited " +
                                       std::to_string(options_.wait_timeout / kMillisecond) +
                                       " ms for its channels to connect with their peers" + text +
                                       ". Make the channel on those nodes too" + again +
                                       ", name the participants, or raise wait_timeout")
      .blaming({nodes.begin(), nodes.end()});
}

void Manager::wait_for_ready() {
  const Time deadline = env().now() + options_.wait_timeout;
  const bool met = env().poll_until(
      [this] {
        turn();
        // The node may take no turn after this call: what its peers need must have left.
        return all_ready() && !control_->any_waiting();
      },
      deadline);
  if (!met && !all_ready()) throw_missing();
}

}  // namespace pyrdma::loco
