#include "fabric/verbs/cluster.h"

#include <exception>
#include <mutex>

#include "base/error.h"
#include "env/thread/thread_storage.h"
#include "fabric/verbs/exchange.h"
#include "fabric/verbs/node.h"

namespace pyrdma::fabric::verbs {

// ---- the controller's side ----

struct Session::State {
  explicit State(const SessionOptions& options)
      : server(options), storage(storage_run(server.token())) {}
  ExchangeServer server;
  RunLock storage;  // of killed nodes
};

Session::Session(const SessionOptions& options) : state_(std::make_unique<State>(options)) {}
Session::~Session() {
  state_.reset();
  remove_stale_storage(storage_parent());
}
const std::string& Session::name() const { return state_->server.name(); }
const std::string& Session::token() const { return state_->server.token(); }
std::uint32_t Session::nodes() const { return state_->server.nodes(); }
std::vector<NodeId> Session::dead_nodes() const { return state_->server.dead_nodes(); }
bool Session::all_attached() const { return state_->server.all_attached(); }
std::uint32_t Session::incarnation(NodeId node) const { return state_->server.incarnation(node); }
void Session::end(NodeId node) { state_->server.declare_dead(node); }
Time Session::now() const { return state_->server.now(); }
void Session::request_stop() { state_->server.request_stop(); }

// ---- one node ----

struct VerbsNode::State {
  explicit State(const NodeOptions& options) : node(options) { node.thread_runs(1); }
  ~State() { node.thread_runs(-1); }
  Node node;
};

VerbsNode::VerbsNode(const std::string& session_name, NodeId node, std::uint32_t nodes,
                     const std::string& token, const Wish& wish,
                     const std::optional<Machine>& machine) {
  NodeOptions options;
  options.session = session_name;
  options.self = node;
  options.nodes = nodes;
  options.token = token;
  options.wish = wish;
  options.machine = machine;
  state_ = std::make_unique<State>(options);
}
VerbsNode::~VerbsNode() = default;
Env& VerbsNode::env() { return state_->node.env(); }
void VerbsNode::request_stop() { state_->node.stop(); }
const Choice& VerbsNode::choice() const { return state_->node.device().choice(); }

// ---- all nodes in one process ----

struct VerbsCluster::State {
  explicit State(const VerbsOptions& options)
      : session(SessionOptions{options.nodes, options.seed, "127.0.0.1"}) {
    for (NodeId self = 0; self < options.nodes; ++self) {
      NodeOptions node;
      node.session = session.name();
      node.self = self;
      node.nodes = options.nodes;
      node.token = session.token();
      node.wish = options.wish;
      node.running = &running;
      node.alone_in_process = false;
      nodes.push_back(std::make_unique<Node>(node));
    }
  }
  void stop_all() {
    for (auto& node : nodes) node->stop();
  }

  ExchangeServer session;
  std::atomic<int> running{0};
  std::atomic<bool> stopped{false};
  std::vector<std::unique_ptr<Node>> nodes;
};

VerbsCluster::VerbsCluster(const VerbsOptions& options)
    : state_(std::make_unique<State>(options)) {}
VerbsCluster::~VerbsCluster() = default;
std::uint32_t VerbsCluster::nodes() const {
  return static_cast<std::uint32_t>(state_->nodes.size());
}
Env& VerbsCluster::env(NodeId node) { return state_->nodes.at(node)->env(); }
Time VerbsCluster::now() { return state_->nodes.front()->env().now(); }
void VerbsCluster::kill(NodeId node) { state_->nodes.at(node)->kill(); }
void VerbsCluster::request_stop() {
  state_->stopped.store(true);
  state_->stop_all();
}

bool VerbsCluster::forget_stop() {
  for (auto& node : state_->nodes) node->clear_stop();
  return state_->stopped.exchange(false);
}

void VerbsCluster::run(FunctionRef<void(Env&)> per_node) {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::unique_ptr<Thread>> threads;
  for (auto& node : state_->nodes) {
    if (node->is_killed()) continue;
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
  state_->running.fetch_add(1);  // counts the caller, which a join counts out while it waits
  threads.clear();
  state_->running.fetch_sub(1);
  const bool stopped = forget_stop();
  if (first) std::rethrow_exception(first);
  if (stopped) throw Error(ErrorCode::kUnavailable, "stopped");
}

}  // namespace pyrdma::fabric::verbs
