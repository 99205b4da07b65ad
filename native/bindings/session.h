// Sessions keep Python from crashing the native side: they control the lifetime of objects and the
// calls to them.
//
// A Session owns a cluster (or one node of it). Every Python object of the fabric holds its
// Session, and the Session knows the object. Closing the Session destroys the native parts, and
// later calls raise an Error. Memory that NumPy arrays still use outlives the close.
#pragma once
#include <pybind11/pybind11.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <thread>
#include <type_traits>
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
  virtual NodeId nodes() const = 0;  // number of nodes of the whole cluster
  virtual std::vector<NodeId> local_nodes() const = 0;
  virtual Env& env(NodeId node) = 0;
  virtual void run(FunctionRef<void(Env&)> per_node) = 0;
  virtual void request_stop() = 0;
  /// Takes back a request that has ended nothing.
  virtual void forget_stop() {}
  virtual void kill(NodeId node) = 0;
  virtual bool is_up(NodeId /*node*/) const { return true; }
  /// Returns the time that all nodes agree on; env(node).now() where the nodes' clocks do.
  virtual Time moment(NodeId node) { return env(node).now(); }
  /// Runs a part of a node's thread in which Python code runs. `work` throws nothing. In a
  /// simulated world it runs on the stack of the caller of run(), and must not wait.
  virtual void on_interpreter_stack(FunctionRef<void()> work) { work(); }
  /// True if one virtual clock drives all nodes; the calling thread advances it, one call at a
  /// time.
  virtual bool simulated() const = 0;
};

class Session;

/// A native object that a Python object holds. make_owned makes it, inside Session::call.
class Owned {
 public:
  explicit Owned(std::shared_ptr<Session> session) : session_(std::move(session)) {}
  virtual ~Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  /// Destroys the native part; the object then answers with errors. Called under the session's
  /// exclusive lock.
  virtual void drop() = 0;
  /// The session drops objects of lower rank first, so that an object goes before the objects that
  /// it uses.
  virtual int rank() const = 0;
  /// Returns true if these bytes lie in one open memory region of `node`.
  virtual bool covers(NodeId /*node*/, std::uint64_t /*addr*/, std::uint64_t /*length*/) const {
    return false;
  }
  Session& session() const { return *session_; }
  const std::shared_ptr<Session>& session_pointer() const { return session_; }

 protected:
  /// The destructor of each final class calls it first: it drops the native part and leaves the
  /// session, with the GIL released.
  void leave() noexcept;

 private:
  std::shared_ptr<Session> session_;
};

/// Carries out the calls of one Python thread on another thread.
class CallForwarder {
 public:
  virtual ~CallForwarder() = default;
  /// Returns when `work()` has returned, or throws what it has thrown.
  virtual void forward(FunctionRef<void()> work) = 0;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  explicit Session(std::unique_ptr<World> world)
      : world_(std::move(world)), simulated_(world_->simulated()) {}
  virtual ~Session();

  bool closed() const { return closed_; }
  bool simulated() const { return simulated_; }
  /// Throws Error when the session is closed. The reference is valid only inside call().
  World& world();
  /// Returns the Env of a node of this process. Throws Error for any other node.
  Env& env(NodeId node);

  /// Runs `work()` with the GIL released. The session cannot close meanwhile. In a simulated world
  /// no other call runs meanwhile, and only the Python thread that opened it may call. Inside a
  /// turn `work()` runs at once and must not wait. The calls of a thread with a forwarder run where
  /// that puts them. An operation of a simulated task calls without the GIL, and may wait.
  template <class Work>
  decltype(auto) call(Work&& work) {
    if (in_turn()) return guarded(work);
    if (runs_tasks()) return work();
    const py::gil_scoped_release release;
    if (CallForwarder* forwarder = forwarder_of_caller()) return forwarded(*forwarder, work);
    if (simulated_) check_owner();
    // The lock prefers shared holders; a waiter for exclusive access goes first.
    while (waiting_ != 0) std::this_thread::yield();
    if (simulated_) {
      const std::unique_lock<std::shared_mutex> alone(mutex_);
      return guarded(work);
    }
    // A closing session waits for handlers, and a handler may be about to call.
    std::shared_lock<std::shared_mutex> together(mutex_, std::defer_lock);
    while (!together.try_lock()) {
      if (closed_) world();
      std::this_thread::yield();
    }
    return guarded(work);
  }
  /// Runs `work()` on a thread of its own, with exclusive access to the session. The calling thread
  /// waits for Ctrl-C meanwhile; Ctrl-C stops the world and raises KeyboardInterrupt.
  void run_interruptibly(FunctionRef<void(World&)> work) { run_on_thread(work, true, {}); }
  /// The same for node programs, whose threads call the session: in a real world the access is not
  /// exclusive. `interrupt()` is called with the GIL at Ctrl-C, again and again until the end.
  void run_programs(FunctionRef<void(World&)> work, const std::function<void()>& interrupt);

  // Node programs. A turn is a stretch of Python code of one task, which cannot wait, since it runs
  // on the stack that all tasks of a simulated world share.

  void begin_turn() { turn_ = std::this_thread::get_id(); }
  void end_turn() { turn_ = std::thread::id(); }
  bool in_turn() const { return turn_ == std::this_thread::get_id(); }
  /// In a turn: whether methods that wait (def_waiting) return operations instead. Returns whether
  /// they did before.
  bool await_calls(bool whether) { return std::exchange(awaits_calls_, whether); }
  bool awaits_calls() const { return in_turn() && awaits_calls_; }
  /// The calling thread runs the tasks of a simulated world from now on, or does no longer. Between
  /// the turns it then runs their operations.
  void run_tasks(bool whether) {
    tasks_ = whether ? std::this_thread::get_id() : std::thread::id();
  }
  bool runs_programs() const { return programs_ != 0; }
  /// Sends the calls of the calling thread to `forwarder`; null ends that.
  void forward_calls(CallForwarder* forwarder);
  /// Destroys an object. In a turn it is kept until the programs end, since that may have to wait.
  void destroy(Owned* object);

  /// Drops all objects, then the world. Memory that arrays use stays until the arrays are gone, and
  /// the world stays with it.
  void close();
  /// Counts the arrays that use memory of this session, up or down.
  void add_export() { ++exports_; }
  void remove_export();

  void add(Owned* object);
  void remove(Owned* object);
  /// Returns true if one open memory region of `node` holds these bytes.
  bool covered(NodeId node, std::uint64_t addr, std::uint64_t length);
  /// Runs `work()` while no other call runs. Called only without the GIL.
  void exclusively(FunctionRef<void()> work);
  /// Returns a number that is new for each run of a workload.
  std::int64_t next_run() { return ++runs_; }

 private:
  void run_on_thread(FunctionRef<void(World&)> work, bool exclusive,
                     const std::function<void()>& on_interrupt);
  CallForwarder* forwarder_of_caller();
  bool runs_tasks() const { return tasks_ == std::this_thread::get_id(); }
  void check_owner() const;
  template <class Work>
  static auto forwarded(CallForwarder& forwarder, Work& work) {
    using Result = std::invoke_result_t<Work&>;
    return guarded([&] {
      if constexpr (std::is_void_v<Result>) {
        forwarder.forward(work);
      } else {
        std::optional<std::decay_t<Result>> result;
        forwarder.forward([&] { result.emplace(work()); });
        return std::move(*result);
      }
    });
  }
  template <class Work>
  static decltype(auto) guarded(Work&& work) {
    try {
      return work();
    } catch (const NodeKilled&) {
      throw Error(ErrorCode::kUnavailable,
                  "the node was killed and its objects were destroyed; restart the node and create "
                  "them again");
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
  const std::thread::id owner_ = std::this_thread::get_id();
  std::atomic<std::thread::id> turn_{}, tasks_{};
  bool awaits_calls_ = false;     // in a turn
  std::atomic<int> programs_{0};  // running
  std::atomic<int> forwarders_count_{0};
  std::map<std::thread::id, CallForwarder*> forwarders_;  // under objects_mutex_
  std::vector<Owned*> dropped_;                           // in turns; under objects_mutex_
};

template <class T, class... Args>
std::shared_ptr<T> make_owned(Args&&... args) {
  const std::shared_ptr<T> made(new T(std::forward<Args>(args)...), [](T* object) {
    const std::shared_ptr<Session> session = object->session_pointer();
    session->destroy(object);
  });
  made->session().add(made.get());
  return made;
}

}  // namespace pyrdma::bindings
