// ChannelClass binds a channel of LOCO for Python. The Python class of the same name is in
// pyrdma/systems/loco/channels.py.
#pragma once
#include <memory>
#include <string>
#include <utility>

#include "bindings/per_node_class.h"
#include "systems/loco/manager.h"

namespace pyrdma::loco::bindings {

namespace py = pybind11;
using pyrdma::bindings::make_owned;
using pyrdma::bindings::PerNode;

/// Holds a manager for each node, with one caller for Python.
using Managers = PerNode<Manager>;

/// Holds the endpoints of one channel. The calls of one node take turns over all channels of its
/// manager.
template <class T>
class Channels {
 public:
  using Part = T;
  Channels(std::shared_ptr<Managers> managers, const typename PerNode<T>::Make& make)
      : managers_(std::move(managers)),
        ends_(make_owned<PerNode<T>>(managers_->session_pointer(), make, -2, managers_->locks())) {}

  /// Runs `work(endpoint, caller)` on one node.
  template <class Work>
  auto on(NodeId node, Work&& work) {
    return ends_->on(node, [&](T& end) { return work(end, end.manager().caller(0)); });
  }
  /// Runs `step(endpoint, caller)` on one node until it returns true; see PerNode::in_steps. Goes
  /// on with the network and with dropped work before each step.
  template <class Work>
  void in_steps(NodeId node, Work&& step) {
    using Step = typename PerNode<T>::Step;
    ends_->in_steps(node, [&](T& end) {
      Caller& me = end.manager().caller(0);
      bool moved = me.runtime().progress();
      if (me.runtime().service_wanted()) {
        end.manager().turn();
        moved = true;  // it may have taken completions too
      }
      moved |= me.go_on();
      return step(end, me) ? Step::kDone : moved ? Step::kMoved : Step::kWaits;
    });
  }
  /// Runs `work(endpoint, caller)` on every node at once.
  template <class Work>
  void everywhere(Work&& work) {
    ends_->everywhere([&](T& end, Env&) { work(end, end.manager().caller(0)); });
  }
  pyrdma::bindings::Session& session() const { return managers_->session(); }
  /// Returns the endpoint of one node, for what never changes.
  T& end(NodeId node) { return ends_->at(node); }
  NodeId nodes() const { return static_cast<NodeId>(managers_->locks()->size()); }

 private:
  std::shared_ptr<Managers> managers_;  // outlives the endpoints
  std::shared_ptr<PerNode<T>> ends_;
};

/// Binds a channel. A method is `work(endpoint, caller, arguments...)`.
template <class T>
class ChannelClass : public pyrdma::bindings::PerNodeClass<Channels<T>, Caller&> {
 public:
  /// `make(manager, name, arguments...)` makes an endpoint. The Python constructor takes the
  /// managers and the same arguments. It returns when the endpoints of all nodes have connected.
  template <class... Arguments>
  ChannelClass(const py::object& scope, const char* name,
               std::unique_ptr<T> (*make)(Manager&, const std::string&, Arguments...))
      : pyrdma::bindings::PerNodeClass<Channels<T>, Caller&>(
            scope, name,
            [make](std::shared_ptr<Managers> managers, const std::string& channel,
                   Arguments... arguments) {
              const auto make_end = [&](Env& env) {
                Manager& manager = managers->at(env.node());
                auto end = make(manager, channel, arguments...);
                manager.wait_for_ready();
                return end;
              };
              return std::make_shared<Channels<T>>(managers, make_end);
            }) {}
};

/// Waits for the key. Throws Error(kUnavailable), naming the peer, for a failed request.
void finish(AckKey& key);

void bind_variables(const py::object& scope);  // barrier, region, variables
void bind_objects(const py::object& scope);    // locks, queues, stores

}  // namespace pyrdma::loco::bindings
