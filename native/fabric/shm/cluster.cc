#include "fabric/shm/cluster.h"

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "env/thread/thread_storage.h"
#include "fabric/shm/device.h"
#include "fabric/shm/monitor.h"
#include "fabric/shm/node.h"

namespace pyrdma::fabric::shm {

// ---- the controller's side ----

struct Session::State {
  std::shared_ptr<Mapping> mapping;
  std::uint32_t nodes = 0;
  Clock clock;
  std::string name, token;
  std::unique_ptr<Monitor> monitor;
  std::optional<RunLock> storage;  // of killed nodes
};

Session::Session(const SessionOptions& options) : state_(std::make_unique<State>()) {
  state_->mapping = create_session_block(options.nodes, options.seed);
  state_->nodes = options.nodes;
  state_->clock = session_block(*state_->mapping).clock;
  state_->name = session_name(*state_->mapping);
  state_->token = session_token(*state_->mapping);
  state_->monitor = std::make_unique<Monitor>(state_->mapping, std::vector<Node*>{}, false);
  state_->storage.emplace(session_block(*state_->mapping).run());
}

Session::~Session() {
  state_->storage.reset();
  remove_stale_storage(storage_parent());
}
const std::string& Session::name() const { return state_->name; }
const std::string& Session::token() const { return state_->token; }
std::uint32_t Session::nodes() const { return state_->nodes; }

std::vector<NodeId> Session::dead_nodes() const {
  std::vector<NodeId> dead;
  for (NodeId node = 0; node < nodes(); ++node) {
    if (session_block(*state_->mapping).is_dead(node)) dead.push_back(node);
  }
  return dead;
}

namespace {

void check_node(NodeId node, std::uint32_t nodes) {
  if (node < nodes) return;
  throw Error(ErrorCode::kInvalidArgument, "shm: node is " + std::to_string(node) +
                                               "; give a node of the session, 0 to " +
                                               std::to_string(nodes - 1));
}

}  // namespace

void Session::end(NodeId node) {
  check_node(node, nodes());
  SessionBlock& block = session_block(*state_->mapping);
  block.declare_dead(node, block.status(node).incarnation);
}

std::uint32_t Session::incarnation(NodeId node) const {
  check_node(node, nodes());
  return session_block(*state_->mapping).status(node).incarnation;
}

Time Session::now() const { return state_->clock.now(); }

bool Session::all_attached() const {
  for (NodeId node = 0; node < nodes(); ++node) {
    const NodeState state = session_block(*state_->mapping).state(node);
    if (state == NodeState::kFree || state == NodeState::kAttaching) return false;
  }
  return true;
}

void Session::request_stop() {
  session_block(*state_->mapping).stop.store(1, std::memory_order_release);
}

// ---- one node ----

struct ShmNode::State {
  State(const std::string& session, NodeId self, std::uint32_t nodes, const std::string& token,
        const FaultOptions& faults)
      : mapping(open_session_block(session, token, nodes)),
        node(mapping, self, mappings, 1, faults),
        monitor(mapping, {&node}, true) {
    node.thread_runs(1);
  }
  ~State() { node.thread_runs(-1); }
  MappingTable mappings;
  std::shared_ptr<Mapping> mapping;
  Node node;
  Monitor monitor;
};

ShmNode::ShmNode(const std::string& session_name, NodeId node, std::uint32_t nodes,
                 const std::string& token, const FaultOptions& faults)
    : state_(std::make_unique<State>(session_name, node, nodes, token, faults)) {}
ShmNode::~ShmNode() = default;
Env& ShmNode::env() { return state_->node.env(); }
const FaultCounters& ShmNode::fault_counters() const { return state_->node.fault_counters(); }
void ShmNode::request_stop() { state_->node.stop(); }

// ---- all nodes in one process ----

struct ShmCluster::State {
  explicit State(const ShmOptions& options)
      : session(create_session_block(options.nodes, options.seed)) {
    std::vector<Node*> local;
    for (NodeId node = 0; node < options.nodes; ++node) {
      nodes.push_back(std::make_unique<Node>(session, node, mappings, 0, options.faults));
      local.push_back(nodes.back().get());
    }
    monitor = std::make_unique<Monitor>(session, std::move(local), false);
  }
  void stop_all() {
    for (auto& node : nodes) node->stop();
  }

  MappingTable mappings;
  std::shared_ptr<Mapping> session;
  std::vector<std::unique_ptr<Node>> nodes;
  std::unique_ptr<Monitor> monitor;
};

ShmCluster::ShmCluster(const ShmOptions& options) : state_(std::make_unique<State>(options)) {}
ShmCluster::~ShmCluster() = default;
std::uint32_t ShmCluster::nodes() const { return static_cast<std::uint32_t>(state_->nodes.size()); }
Env& ShmCluster::env(NodeId node) { return state_->nodes.at(node)->env(); }
Time ShmCluster::now() const { return state_->nodes.front()->env().now(); }
void ShmCluster::kill(NodeId node) { state_->nodes.at(node)->kill(); }
const FaultCounters& ShmCluster::fault_counters(NodeId node) const {
  return state_->nodes.at(node)->fault_counters();
}
void ShmCluster::request_stop() {
  session_block(*state_->session).stop.store(1, std::memory_order_release);
}

bool ShmCluster::forget_stop() {
  for (auto& node : state_->nodes) node->clear_stop();
  return session_block(*state_->session).stop.exchange(0) != 0;
}

void ShmCluster::run(FunctionRef<void(Env&)> per_node) {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::unique_ptr<Thread>> threads;
  for (auto& node : state_->nodes) {
    if (session_block(*state_->session).state(node->self()) == NodeState::kKilled) continue;
    threads.push_back(
        node->env().spawn("node" + std::to_string(node->self()), [&, this, at = node.get()] {
          try {
            per_node(at->env());
          } catch (const NodeKilled&) {
            return;
          } catch (...) {  // NOLINT: rethrown below
            const std::lock_guard lock(mutex);
            if (!first) first = std::current_exception();
            state_->stop_all();
          }
        }));
  }
  Node& any = *state_->nodes.front();
  any.thread_runs(1);  // counts the caller, which a join counts out while it waits
  threads.clear();
  any.thread_runs(-1);
  const bool stopped = forget_stop();
  if (first) std::rethrow_exception(first);
  if (stopped) throw Error(ErrorCode::kUnavailable, "stopped");
}

}  // namespace pyrdma::fabric::shm
