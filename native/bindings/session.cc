#include "bindings/session.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <thread>

namespace pyrdma::bindings {

void Owned::leave() noexcept {
  try {
    const py::gil_scoped_release release;
    session_->exclusively([this] {
      session_->remove(this);
      drop();
    });
  } catch (const NodeKilled&) {      // the object's memory is gone already
  } catch (const std::exception&) {  // a destructor has no caller to report to
  }
}

Session::~Session() = default;

World& Session::world() {
  if (closed_) throw Error(ErrorCode::kUnavailable, "the cluster is closed; open another one");
  return *world_;
}

Env& Session::env(NodeId node) {
  World& open = world();
  const std::vector<NodeId> local = open.local_nodes();
  if (std::find(local.begin(), local.end(), node) == local.end()) {
    throw Error(ErrorCode::kInvalidArgument, "node is " + std::to_string(node) +
                                                 "; give a node of this process, up to " +
                                                 std::to_string(local.back()));
  }
  return open.env(node);
}

void Session::add(Owned* object) {
  const std::lock_guard<std::mutex> lock(objects_mutex_);
  objects_.push_back(object);
}

void Session::remove(Owned* object) {
  const std::lock_guard<std::mutex> lock(objects_mutex_);
  objects_.erase(std::remove(objects_.begin(), objects_.end(), object), objects_.end());
}

bool Session::covered(NodeId node, std::uint64_t addr, std::uint64_t length) {
  const std::lock_guard<std::mutex> lock(objects_mutex_);
  return std::any_of(objects_.begin(), objects_.end(),
                     [&](const Owned* o) { return o->covers(node, addr, length); });
}

void Session::exclusively(FunctionRef<void()> work) {
  if (in_turn()) return work();
  if (CallForwarder* forwarder = forwarder_of_caller()) return forwarder->forward(work);
  ++waiting_;
  const std::unique_lock<std::shared_mutex> alone(mutex_);
  --waiting_;
  work();
}

void Session::forward_calls(CallForwarder* forwarder) {
  const std::lock_guard<std::mutex> lock(objects_mutex_);
  if (forwarder != nullptr)
    forwarders_[std::this_thread::get_id()] = forwarder;
  else
    forwarders_.erase(std::this_thread::get_id());
  forwarders_count_ = static_cast<int>(forwarders_.size());
}

CallForwarder* Session::forwarder_of_caller() {
  if (forwarders_count_ == 0) return nullptr;
  const std::lock_guard<std::mutex> lock(objects_mutex_);
  const auto found = forwarders_.find(std::this_thread::get_id());
  return found == forwarders_.end() ? nullptr : found->second;
}

void Session::check_owner() const {
  if (std::this_thread::get_id() == owner_) return;
  throw Error(ErrorCode::kInvalidArgument,
              "a second Python thread calls a simulated cluster: each call advances the clock of "
              "all nodes, so one thread makes all calls, the one that made the cluster; for nodes "
              "that run at the same time write node programs, see Cluster.program");
}

void Session::destroy(Owned* object) {
  if (!in_turn()) {
    delete object;
    return;
  }
  const std::lock_guard<std::mutex> lock(objects_mutex_);
  dropped_.push_back(object);
}

void Session::close() {
  if (programs_ != 0)
    throw Error(ErrorCode::kInvalidArgument,
                "the cluster's node programs still run; close the cluster when they have ended");
  const py::gil_scoped_release release;
  exclusively([this] {
    if (closed_.exchange(true)) return;
    std::vector<Owned*> objects;
    {
      const std::lock_guard<std::mutex> lock(objects_mutex_);
      objects = objects_;
    }
    std::stable_sort(objects.begin(), objects.end(),
                     [](const Owned* a, const Owned* b) { return a->rank() < b->rank(); });
    for (Owned* object : objects) {
      try {
        object->drop();
      } catch (const NodeKilled&) {  // the object is gone with its node
      }
    }
    if (exports_ == 0) world_.reset();
  });
}

void Session::remove_export() {
  if (--exports_ != 0 || !closed_) return;
  const py::gil_scoped_release release;
  exclusively([this] { world_.reset(); });
}

void Session::run_programs(FunctionRef<void(World&)> work, const std::function<void()>& interrupt) {
  struct Running {
    explicit Running(Session& of) : session(of) { ++session.programs_; }
    ~Running() {
      --session.programs_;
      std::vector<Owned*> dropped;
      {
        const std::lock_guard<std::mutex> lock(session.objects_mutex_);
        dropped.swap(session.dropped_);
      }
      for (Owned* object : dropped) delete object;
    }
    Session& session;
  } running(*this);
  run_on_thread(work, simulated_, interrupt);
}

void Session::run_on_thread(FunctionRef<void(World&)> work, bool exclusive,
                            const std::function<void()>& on_interrupt) {
  if (in_turn() || runs_tasks() || forwarder_of_caller() != nullptr)
    throw Error(ErrorCode::kInvalidArgument,
                "this call runs on all nodes at once, which a node program cannot do; make it "
                "before the programs, or after them");
  std::exception_ptr failure, interrupt;
  const std::shared_ptr<World> kept = call([this] {
    world();
    return world_;
  });  // keeps the world even if the session closes meanwhile
  {
    const py::gil_scoped_release release;
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::thread runner([&] {
      try {
        if (exclusive)
          exclusively([&] { guarded([&] { work(world()); }); });
        else
          guarded([&] { work(*kept); });
      } catch (...) {
        failure = std::current_exception();
      }
      const std::lock_guard<std::mutex> lock(mutex);
      done = true;
      changed.notify_one();
    });
    std::unique_lock<std::mutex> lock(mutex);
    while (!changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return done; })) {
      lock.unlock();
      {
        const py::gil_scoped_acquire acquire;
        if (!interrupt && PyErr_CheckSignals() != 0) {
          interrupt = std::make_exception_ptr(py::error_already_set());
        }
        if (interrupt && on_interrupt) on_interrupt();
      }
      // The request is repeated: the work may not have begun at the first request to stop.
      if (interrupt) kept->request_stop();
      lock.lock();
    }
    lock.unlock();
    runner.join();
    // The program may have ended by itself after the request, which must not end the next one.
    if (interrupt) kept->forget_stop();
  }
  if (interrupt) std::rethrow_exception(interrupt);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace pyrdma::bindings
