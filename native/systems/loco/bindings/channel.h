// ChannelClass binds a channel of LOCO for Python. One block says how an endpoint is made and what
// each method does at an endpoint. The Python class of the same name is in
// pyrdma/systems/loco/channels.py.
#pragma once
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/per_node.h"
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
  Channels(std::shared_ptr<Managers> managers, const typename PerNode<T>::Make& make)
      : managers_(std::move(managers)),
        ends_(make_owned<PerNode<T>>(managers_->session_pointer(), make, -2, managers_->locks())) {}

  /// Runs `work(endpoint, caller)` on one node.
  template <class Work>
  auto on(NodeId node, Work&& work) {
    return ends_->on(node, [&](T& end) { return work(end, end.manager().caller(0)); });
  }
  /// Runs `work(endpoint, caller)` on every node at once.
  template <class Work>
  void everywhere(Work&& work) {
    ends_->everywhere([&](T& end, Env&) { work(end, end.manager().caller(0)); });
  }
  NodeId nodes() const { return static_cast<NodeId>(managers_->locks()->size()); }

 private:
  std::shared_ptr<Managers> managers_;  // outlives the endpoints
  std::shared_ptr<PerNode<T>> ends_;
};

template <class T>
class ChannelClass {
 public:
  /// `make(manager, name, arguments...)` makes an endpoint. The Python constructor takes the
  /// managers and the same arguments. It returns when the endpoints of all nodes have connected.
  template <class... Arguments>
  ChannelClass(const py::object& scope, const char* name,
               std::unique_ptr<T> (*make)(Manager&, const std::string&, Arguments...))
      : class_(scope, name) {
    class_.def(py::init([make](std::shared_ptr<Managers> managers, const std::string& channel,
                               Arguments... arguments) {
      const auto make_end = [&](Env& env) {
        Manager& manager = managers->at(env.node());
        auto end = make(manager, channel, arguments...);
        manager.wait_for_ready();
        return end;
      };
      return std::make_shared<Channels<T>>(managers, make_end);
    }));
  }

  /// Binds a method of one node: `work(endpoint, caller, arguments...)`. The Python method takes
  /// the node and the same arguments. Bytes arrive as std::string and leave as
  /// std::vector<std::byte>.
  template <class Work>
  ChannelClass& on(const char* name, Work work) {
    return on_as(name, work, &Work::operator());
  }
  /// Binds a method of all nodes at once: `work(channels, arguments...)`.
  template <class Work>
  ChannelClass& of_all(const char* name, Work work) {
    class_.def(name, work);
    return *this;
  }

 private:
  template <class Work, class Result, class... Arguments>
  ChannelClass& on_as(const char* name, Work work,
                      Result (Work::*)(T&, Caller&, Arguments...) const) {
    class_.def(name, [work](Channels<T>& self, NodeId node, Arguments... arguments) {
      const auto call = [&] {
        return self.on(node, [&](T& end, Caller& me) { return work(end, me, arguments...); });
      };
      if constexpr (std::is_same_v<Result, std::vector<std::byte>>) {
        const Result bytes = call();
        return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      } else {
        return call();
      }
    });
    return *this;
  }

  py::class_<Channels<T>, std::shared_ptr<Channels<T>>> class_;
};

/// Waits for the key. Throws Error, naming the peer, for a failed request.
void finish(AckKey& key, NodeId peer);

void bind_variables(const py::object& scope);  // barrier, region, variables
void bind_objects(const py::object& scope);    // locks, queues, stores

}  // namespace pyrdma::loco::bindings
