// PerNode holds one native object for each node of a cluster that lives in this process. Python
// sees the objects as one; each call names its node. Channels, endpoints and servers of all systems
// are bound this way.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bindings/session.h"

namespace pyrdma::bindings {

/// Keeps two calls from using the objects of one node at once: calls of Python threads, or of tasks
/// of a simulated node. Those share an OS thread, so a task waits in virtual time; the first that
/// waits goes first.
class NodeMutex {
 public:
  void lock(Env& env) {
    if (!env.is_simulated()) {
      ++wanted_;
      threads_.lock();
      --wanted_;
      return;
    }
    if (is_held_ || !waiters_.empty()) wait(env);
    is_held_ = true;
  }
  /// For a loop that tries again and again: returns false if a call uses the node, or waits for
  /// that. A task of a simulated node waits instead, because nothing would wake it to try again.
  bool try_lock(Env& env) {
    if (!env.is_simulated()) return wanted_ == 0 && threads_.try_lock();
    lock(env);
    return true;
  }
  void unlock(Env& env) {
    if (!env.is_simulated()) return threads_.unlock();
    is_held_ = false;
    wake_first(env);
  }

 private:
  /// A kill ends the wait; the next waiter then goes on.
  void wait(Env& env) {
    Watch watch;
    struct Waiter {
      ~Waiter() {
        const bool was_first = mutex.waiters_.front() == &watch;
        std::erase(mutex.waiters_, &watch);
        if (was_first && !mutex.is_held_) mutex.wake_first(env);
      }
      NodeMutex& mutex;
      Watch& watch;
      Env& env;
    } waiter{*this, watch, env};
    waiters_.push_back(&watch);
    env.poll_until([&] { return !is_held_ && waiters_.front() == &watch; }, kForever, &watch);
    is_held_ = true;
  }
  void wake_first(Env& env) {
    if (!waiters_.empty()) env.notify(*waiters_.front());
  }

  std::mutex threads_;
  std::atomic<int> wanted_{0};  // threads that wait in lock()
  bool is_held_ = false;
  std::deque<Watch*> waiters_;
};
using NodeLocks = std::vector<NodeMutex>;

template <class T>
class PerNode final : public Owned {
 public:
  using Part = T;
  using Make = std::function<std::unique_ptr<T>(Env&)>;

  /// Runs `make` on every node at once and returns when all calls have returned. The session drops
  /// objects of a lower `rank` first. Objects that share threads share `locks`; without `locks` the
  /// object gets its own. Ctrl-C interrupts the call.
  PerNode(std::shared_ptr<Session> session, const Make& make, int rank,
          std::shared_ptr<NodeLocks> locks = nullptr)
      : Owned(std::move(session)), rank_(rank), locks_(std::move(locks)) {
    const NodeId nodes = this->session().world().nodes();
    if (!locks_) locks_ = std::make_shared<NodeLocks>(nodes);
    objects_.resize(nodes);
    this->session().run_interruptibly(
        [&](World& world) { world.run([&](Env& env) { objects_[env.node()] = make(env); }); });
  }
  ~PerNode() override { leave(); }
  void drop() override { objects_.clear(); }
  int rank() const override { return rank_; }

  /// Runs `work(object)` on one node; no other call uses that node meanwhile. Throws
  /// Error(kInvalidArgument) for an unknown node.
  template <class Work>
  auto on(NodeId node, Work&& work) {
    return session().call([&] {
      T& object = at(node);
      Env& env = session().world().env(node);
      NodeMutex& mutex = (*locks_)[node];
      mutex.lock(env);
      const Unlock unlock{mutex, env};
      return work(object);
    });
  }
  /// What a step has done.
  enum class Step : std::uint8_t {
    kWaits,  // nothing
    kMoved,  // something that other waiting calls of the node must look at
    kDone
  };
  /// Runs `step(object)` on one node again and again until it is done. Other calls use the node
  /// between two steps: they may end what the steps wait for, as when one task of the node waits
  /// for a lock that another one holds. A step must not wait for that itself.
  template <class Work>
  void in_steps(NodeId node, Work&& step) {
    session().call([&] {
      T& object = at(node);
      Env& env = session().world().env(node);
      NodeMutex& mutex = (*locks_)[node];
      Step last = Step::kWaits;
      const auto turn = [&] {
        if (!mutex.try_lock(env)) return false;
        const Unlock unlock{mutex, env};
        last = step(object);
        return last != Step::kWaits;
      };
      constexpr Time kLook = 100 * kMillisecond;  // a step may find that its time is over
      while (last != Step::kDone) {
        last = Step::kWaits;
        env.poll_until(turn, env.now() + kLook);  // its begin wakes the others
      }
    });
  }
  /// Runs `work(object, env)` on every node at once. Ctrl-C interrupts the call.
  template <class Work>
  void everywhere(Work&& work) {
    session().run_interruptibly(
        [&](World& world) { world.run([&](Env& env) { work(at(env.node()), env); }); });
  }
  /// Returns the object of one node, for use inside on() and everywhere().
  T& at(NodeId node) {
    session().world();
    if (node >= objects_.size()) {
      throw Error(ErrorCode::kInvalidArgument, "node is " + std::to_string(node) +
                                                   "; the cluster's nodes are 0 to " +
                                                   std::to_string(locks_->size() - 1));
    }
    return *objects_[node];
  }
  const std::shared_ptr<NodeLocks>& locks() const { return locks_; }

 private:
  struct Unlock {
    ~Unlock() { mutex.unlock(env); }
    NodeMutex& mutex;
    Env& env;
  };
  int rank_;
  std::shared_ptr<NodeLocks> locks_;
  std::vector<std::unique_ptr<T>> objects_;  // by node
};

}  // namespace pyrdma::bindings
