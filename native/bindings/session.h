// What keeps Python from crashing the native side: who lives how long, and who may call when.
//
// A Session owns a cluster (or one node of it). Every Python object of the fabric holds its Session
// and is known to it; closing the Session takes the native parts away, and later calls raise an
// Error. Memory that NumPy arrays still show outlives the close.
#pragma once
#include <pybind11/pybind11.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/function_ref.h"
#include "env/env.h"

namespace pyrdma::bindings {

namespace py = pybind11;

/// The nodes of one cluster that live in this process.
class World {
 public:
  virtual ~World() = default;
  virtual const char* fabric() const = 0;
  virtual NodeId nodes() const = 0;  // of the whole cluster
  virtual std::vector<NodeId> local_nodes() const = 0;
  virtual Env& env(NodeId node) = 0;
  virtual void run(FunctionRef<void(Env&)> per_node) = 0;
  virtual void request_stop() = 0;
  virtual void kill(NodeId node) = 0;
  /// One virtual clock, driven by whoever calls: one call at a time.
  virtual bool simulated() const = 0;
};

class Session;

/// A native object that Python holds. Made by make_owned, inside Session::call.
class Owned {
 public:
  explicit Owned(std::shared_ptr<Session> session) : session_(std::move(session)) {}
  virtual ~Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  /// Takes the native part away; the object then answers with errors. Called under the session's
  /// exclusive lock.
  virtual void drop() = 0;
  /// Objects of lower rank are dropped first: what others use goes last.
  virtual int rank() const = 0;
  /// True for open memory of `node` that holds all of these bytes.
  virtual bool covers(NodeId /*node*/, std::uint64_t /*addr*/, std::uint64_t /*length*/) const {
    return false;
  }
  Session& session() const { return *session_; }
  const std::shared_ptr<Session>& session_pointer() const { return session_; }

 protected:
  /// The first thing in the destructor of each final class: drops and leaves the session, GIL
  /// released.
  void leave() noexcept;

 private:
  std::shared_ptr<Session> session_;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  explicit Session(std::unique_ptr<World> world)
      : world_(std::move(world)), simulated_(world_->simulated()) {}
  virtual ~Session();

  bool closed() const { return closed_; }
  bool simulated() const { return simulated_; }
  /// Throws Error when closed. The reference is good inside call() only.
  World& world();
  /// Env of a node of this process. Throws Error for any other.
  Env& env(NodeId node);

  /// Runs `work()` with the GIL released, while the session cannot close; alone, when the world is
  /// simulated.
  template <class Work>
  decltype(auto) call(Work&& work) {
    const py::gil_scoped_release release;
    while (waiting_ != 0)
      std::this_thread::yield();  // the lock prefers sharers; who wants it alone goes first
    if (simulated_) {
      const std::unique_lock<std::shared_mutex> alone(mutex_);
      return guarded(work);
    }
    const std::shared_lock<std::shared_mutex> together(mutex_);
    return guarded(work);
  }
  /// Runs `work()` on a thread of its own, alone in the session, while the calling thread watches
  /// for Ctrl-C, which stops the world and raises KeyboardInterrupt.
  void run_interruptibly(FunctionRef<void(World&)> work);

  /// Drops all objects, then the world. Memory shown by arrays stays, and the world with it, until
  /// they go.
  void close();
  /// One more or one less array that shows memory of this session.
  void add_export() { ++exports_; }
  void remove_export();

  void add(Owned* object);
  void remove(Owned* object);
  /// True when one open memory region of `node` holds these bytes.
  bool covered(NodeId node, std::uint64_t addr, std::uint64_t length);
  /// Runs `work()` while nobody else calls. Without the GIL only.
  void exclusively(FunctionRef<void()> work);
  /// A number that is new for each run of a workload.
  std::int64_t next_run() { return ++runs_; }

 private:
  template <class Work>
  static decltype(auto) guarded(Work&& work) {
    try {
      return work();
    } catch (const NodeKilled&) {
      throw Error(ErrorCode::kUnavailable, "the node was killed; its objects are gone");
    }
  }

  std::shared_ptr<World> world_;
  bool simulated_;
  std::shared_mutex mutex_;
  std::mutex objects_mutex_;
  std::vector<Owned*> objects_;
  std::atomic<bool> closed_{false};
  std::atomic<int> exports_{0};
  std::atomic<std::int64_t> runs_{0};
  std::atomic<int> waiting_{0};
};

template <class T, class... Args>
std::shared_ptr<T> make_owned(Args&&... args) {
  auto made = std::make_shared<T>(std::forward<Args>(args)...);
  made->session().add(made.get());
  return made;
}

}  // namespace pyrdma::bindings
