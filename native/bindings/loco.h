// LOCO's managers and channels as Python holds them: all endpoints of the nodes in this process
// behind one object, each call naming its node.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bindings/session.h"
#include "systems/loco/channel.h"
#include "systems/loco/manager.h"

namespace pyrdma::bindings {

/// A manager per node, with one caller each.
class PyManagers final : public Owned {
 public:
  PyManagers(std::shared_ptr<Session> session, const loco::ManagerOptions& options);
  ~PyManagers() override { leave(); }
  void drop() override { managers_.clear(); }
  int rank() const override { return -1; }

  /// Runs `work(manager)` on every node at once. Hears Ctrl-C.
  void run(const std::function<void(loco::Manager&)>& work);
  /// Runs `work(caller)` on one node, alone there. Throws Error for an unknown node.
  template <class Work>
  auto on(NodeId node, Work&& work) {
    return session().call([&] {
      loco::Manager& manager = at(node);
      const std::lock_guard<std::mutex> lock(*mutexes_[node]);
      return work(manager.caller(0));
    });
  }
  loco::Manager& at(NodeId node);

 private:
  std::vector<std::unique_ptr<loco::Manager>> managers_;  // by node
  std::vector<std::unique_ptr<std::mutex>> mutexes_;
};

/// The endpoints of one channel.
template <class T>
class PyChannel final : public Owned {
 public:
  /// `make(manager)` makes an endpoint; all meet before this returns.
  template <class Make>
  PyChannel(std::shared_ptr<PyManagers> managers, Make&& make)
      : Owned(managers->session_pointer()), managers_(std::move(managers)) {
    ends_.resize(session().world().nodes());
    managers_->run([&](loco::Manager& manager) {
      ends_[manager.self()] = make(manager);
      manager.wait_for_ready();
    });
  }
  ~PyChannel() override { leave(); }
  void drop() override { ends_.clear(); }
  int rank() const override { return -2; }

  /// Runs `work(endpoint, caller)` on one node.
  template <class Work>
  auto on(NodeId node, Work&& work) {
    return managers_->on(node, [&](loco::Caller& me) { return work(*ends_.at(node), me); });
  }
  /// Runs `work(endpoint, caller)` on every node at once.
  template <class Work>
  void everywhere(Work&& work) {
    managers_->run(
        [&](loco::Manager& manager) { work(*ends_.at(manager.self()), manager.caller(0)); });
  }

 private:
  std::shared_ptr<PyManagers> managers_;
  std::vector<std::unique_ptr<T>> ends_;  // by node
};

template <class T, class Make>
std::shared_ptr<PyChannel<T>> make_channel(std::shared_ptr<PyManagers> managers, Make&& make) {
  return make_owned<PyChannel<T>>(std::move(managers), std::forward<Make>(make));
}

}  // namespace pyrdma::bindings
