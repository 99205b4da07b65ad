// Work that its owner has dropped before its end, and that its caller goes on with.
//
// Its errors are kept for those who begin something on the same object, and for the end of the
// node's part. They never leave from the middle of another call: that call may wait between a
// change of its own state and the request that tells others of it.
#pragma once
#include <atomic>
#include <exception>
#include <memory>
#include <vector>

#include "env/env.h"
#include "env/sync.h"

namespace pyrdma::runtime {

/// Work such as an acquisition whose ticket must be passed on. `object` is the object that it works
/// on. If `reported`, the owner has got an error of this work already, and further errors end it
/// silently; otherwise its error is kept.
class Unfinished {
 public:
  Unfinished(const void* object, bool reported) : object_(object), reported_(reported) {}
  virtual ~Unfinished() = default;
  /// Takes a step; returns true when nothing is left to do. May wait for room for a request only.
  /// After an Error(kTimeout) it is called again.
  virtual bool poll() = 0;
  /// The object is about to be destroyed, and no step is under way. Returns true if the work goes
  /// on without it; otherwise the work ends here.
  virtual bool outlive() { return false; }

 private:
  friend class DroppedWork;
  const void* object_;  // nullptr: it is gone, and so is the work
  bool reported_;
};

/// The dropped work of one caller, whose thread calls it where nothing else is said.
class DroppedWork {
 public:
  explicit DroppedWork(Env& env) : mutex_(env) {}

  void add(std::unique_ptr<Unfinished> work);
  /// Returns true while work goes on. Any thread may call.
  bool any() const { return count_.load(std::memory_order_acquire) != 0; }
  /// A step is under way: this call comes from within it.
  bool is_stepping() const { return stepping_; }
  /// Takes a step of all work; returns true when some of it has ended.
  bool step();
  /// Ends the work on `object`, which is about to be destroyed, unless the work outlives it. Any
  /// thread may call.
  void forget(const void* object);
  /// Gives up what goes on; returns false if nobody has been told of some of it.
  bool give_up();

  /// Returns true if an error is kept. Any thread may call.
  bool has_errors() const { return has_errors_.load(std::memory_order_acquire); }
  /// Throws the oldest error of work on `object`, which is then no longer kept.
  void report(const void* object);
  /// Throws the oldest error, and keeps none. Any thread may call.
  void report_all();

 private:
  struct Failure {
    const void* object;  // nullptr: it is gone
    std::exception_ptr error;
  };
  Mutex mutex_;  // held during a step
  std::vector<std::unique_ptr<Unfinished>> work_;
  std::vector<std::unique_ptr<Unfinished>> added_;  // during a step
  std::vector<Failure> failures_;
  std::atomic<std::size_t> count_{0};
  std::atomic<bool> has_errors_{false};
  bool stepping_ = false;
};

}  // namespace pyrdma::runtime
