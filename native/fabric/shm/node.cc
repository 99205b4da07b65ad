#include "fabric/shm/node.h"

#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "env/thread/thread_storage.h"
#include "fabric/hooks/faulty_device.h"
#include "fabric/shm/device.h"
#include "fabric/shm/thread_order.h"

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
  if (!lock.owns_lock()) return;  // another thread retries already
  std::erase_if(waiters_, [now](Waiter* waiter) { return waiter->retry(now); });
  count_.store(waiters_.size(), std::memory_order_relaxed);
}

namespace {

/// Claims the place of `self` in the session.
std::uint32_t claim(SessionBlock& session, NodeId self, std::uint32_t nodes) {
  if (self >= nodes) {
    throw Error(ErrorCode::kInvalidArgument, "shm: node is " + std::to_string(self) +
                                                 "; give a node of the session, 0 to " +
                                                 std::to_string(nodes - 1));
  }
  return session.claim(self);
}

/// Throws for kinds that need a simulated network, disk or machine.
const FaultOptions& checked(const FaultOptions& faults) {
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    if (faults.settings[i].rate <= 0 || kHookFaults.has(fault)) continue;
    throw Error(
        ErrorCode::kInvalidArgument,
        "shm: fault " + std::string(fault_info(fault).key) +
            " needs the sim fabric; shm supports loss, duplicate, reorder, delay and corruption "
            "(datagrams), queue_full, malformed, qp_error and memory_pressure");
  }
  return faults;
}

ThreadEnvOptions env_options(const SessionBlock& session, NodeId self, std::uint32_t nodes,
                             std::uint32_t incarnation, std::uint32_t threads_before) {
  ThreadEnvOptions options;
  options.node = self;
  options.nodes = nodes;
  options.incarnation = incarnation;
  options.seed = incarnation == 0 ? session.seed : mix64(session.seed + incarnation);
  options.run = session.run();
  options.clock = session.clock;
  options.threads_before = threads_before;
  return options;
}

}  // namespace

Node::Node(std::shared_ptr<Mapping> session, NodeId self, MappingTable& mappings,
           std::uint32_t threads_before, const FaultOptions& faults)
    : session_(std::move(session)),
      self_(self),
      nodes_(session_block(*session_).node_count()),
      incarnation_(claim(session_block(*session_), self, nodes_)),
      mappings_(mappings),
      env_(env_options(session_block(*session_), self, nodes_, incarnation_, threads_before),
           *this) {
  SessionBlock& block = this->session();
  try {
    control_ = Mapping::create(kControlBytes);
    mappings_.add(control_);
    control().header.magic = kControlMagic;
    control().header.node = self;
    control().header.epoch.store(1, std::memory_order_relaxed);
    NodeEntry& entry = block.entries[self];
    set_relaxed(entry.start, process_start(::getpid()));
    set_relaxed(entry.control_inode, control_->inode());
    set_relaxed(entry.control_descriptor, static_cast<std::uint32_t>(control_->descriptor()));
    set_relaxed(entry.pid, static_cast<std::uint32_t>(::getpid()));
    join_thread_order();
    own_peer_ = std::make_shared<Peer>(block, self, incarnation_, mappings_, control_);
    peers_.resize(nodes_);
    peers_[self] = own_peer_;
    block.add_cores(usable_cores());
    device_ = std::make_unique<ShmDevice>(*this);
    faults_ = checked(faults);
  } catch (...) {
    block.declare_dead(self, incarnation_);
    throw;
  }
  attach_device();
  block.change(self, incarnation_, NodeState::kAttaching, NodeState::kAttached);
}

// A node without faults does not decorate its device.
void Node::attach_device() {
  env_.attach(*device_);
  if (!faults_.any()) return;
  fault_stream_ = std::make_unique<FaultStream>(faults_, mix64(session().seed + incarnation_),
                                                self_, fault_counters_);
  faulty_device_ = wrap_with_faults(*device_, env_, *fault_stream_, kHookFaults);
  env_.attach(*faulty_device_);
}

Node::~Node() { leave(NodeState::kLeft); }

void Node::kill() { leave(NodeState::kKilled); }

void Node::leave(NodeState state) {
  session().change(self_, incarnation_, NodeState::kAttached, state);
  own_peer_->mark_gone();
}

std::shared_ptr<Peer> Node::peer(NodeId node) {
  const std::lock_guard lock(peers_mutex_);
  std::shared_ptr<Peer>& known = peers_[node];
  const std::uint32_t incarnation = session().status(node).incarnation;
  if (known == nullptr || (node != self_ && known->incarnation() != incarnation)) {
    if (known != nullptr) known->mark_gone();  // some requesters may still consider it present
    known = std::make_shared<Peer>(session(), node, incarnation, mappings_);
  }
  return known;
}

void Node::mark_gone(NodeId node, std::uint32_t incarnation) {
  if (node >= nodes_) return;
  const std::lock_guard lock(peers_mutex_);
  if (const std::shared_ptr<Peer>& known = peers_[node];
      known != nullptr && known->incarnation() == incarnation) {
    known->mark_gone();
  }
}

void Node::on_slow_turn() {
  if (!waiting_.empty()) waiting_.retry(env_.now());
  const NodeStatus status = session().status(self_);
  if (status.state == NodeState::kKilled || status.has_ended(incarnation_)) throw NodeKilled{};
  if (stop_.load(std::memory_order_acquire) ||
      session().stop.load(std::memory_order_acquire) != 0) {
    throw Error(ErrorCode::kUnavailable, "stopped");
  }
}

bool Node::crowded() const { return relaxed(session().running) > relaxed(session().cores); }

}  // namespace pyrdma::fabric::shm
