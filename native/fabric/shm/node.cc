#include "fabric/shm/node.h"

#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "env/thread/thread_storage.h"
#include "fabric/shm/device.h"

namespace pyrdma::fabric::shm {

void WaitingList::add(Waiter& waiter) {
  const std::lock_guard lock(mutex_);
  waiters_.push_back(&waiter);
  count_.store(waiters_.size(), std::memory_order_relaxed);
}

void WaitingList::remove(Waiter& waiter) {
  const std::lock_guard lock(mutex_);
  std::erase(waiters_, &waiter);
  count_.store(waiters_.size(), std::memory_order_relaxed);
}

void WaitingList::retry(Time now) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // another thread is at it
  std::erase_if(waiters_, [now](Waiter* waiter) { return waiter->retry(now); });
  count_.store(waiters_.size(), std::memory_order_relaxed);
}

namespace {

ThreadEnvOptions env_options(const SessionBlock& session, NodeId self,
                             std::uint32_t threads_before) {
  ThreadEnvOptions options;
  options.node = self;
  options.nodes = session.nodes;
  options.seed = session.seed;
  options.clock = session.clock;
  options.threads_before = threads_before;
  return options;
}

}  // namespace

Node::Node(std::shared_ptr<Mapping> session, NodeId self, MappingTable& mappings,
           std::uint32_t threads_before)
    : session_(std::move(session)),
      self_(self),
      mappings_(mappings),
      env_(env_options(session_block(*session_), self, threads_before), *this) {
  SessionBlock& block = this->session();
  if (self >= block.nodes) {
    throw Error(ErrorCode::kInvalidArgument, "shm: node is " + std::to_string(self) +
                                                 "; the session's nodes are 0 to " +
                                                 std::to_string(block.nodes - 1));
  }
  control_ = Mapping::create(kControlBytes);
  mappings_.add(control_);
  control().header.magic = kControlMagic;
  control().header.node = self;
  control().header.epoch.store(1, std::memory_order_relaxed);
  NodeEntry& entry = block.entries[self];
  auto free = static_cast<std::uint32_t>(NodeState::kFree);
  if (!entry.state.compare_exchange_strong(free,
                                           static_cast<std::uint32_t>(NodeState::kAttaching))) {
    throw Error(ErrorCode::kInvalidArgument, "shm: node " + std::to_string(self) +
                                                 " of this session is taken; a node attaches once");
  }
  set_relaxed(entry.start, process_start(::getpid()));
  set_relaxed(entry.control_inode, control_->inode());
  set_relaxed(entry.control_descriptor, static_cast<std::uint32_t>(control_->descriptor()));
  set_relaxed(entry.pid, static_cast<std::uint32_t>(::getpid()));
  for (NodeId node = 0; node < block.nodes; ++node) {
    peers_.push_back(
        std::make_unique<Peer>(block, node, mappings_, node == self ? control_ : nullptr));
  }
  block.add_cores(usable_cores());
  device_ = std::make_unique<ShmDevice>(*this);
  env_.attach(*device_);
  entry.state.store(static_cast<std::uint32_t>(NodeState::kAttached), std::memory_order_release);
}

Node::~Node() { leave(NodeState::kLeft); }

void Node::kill() { leave(NodeState::kKilled); }

void Node::leave(NodeState state) {
  auto attached = static_cast<std::uint32_t>(NodeState::kAttached);
  session().entries[self_].state.compare_exchange_strong(attached,
                                                         static_cast<std::uint32_t>(state));
  peers_[self_]->mark_gone();
}

void Node::on_slow_turn() {
  if (!waiting_.empty()) waiting_.retry(env_.now());
  if (session().state(self_) == NodeState::kKilled) throw NodeKilled{};
  if (stop_.load(std::memory_order_acquire) ||
      session().stop.load(std::memory_order_acquire) != 0) {
    throw Error(ErrorCode::kUnavailable, "stopped");
  }
}

bool Node::crowded() const { return relaxed(session().running) > relaxed(session().cores); }

}  // namespace pyrdma::fabric::shm
