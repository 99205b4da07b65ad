// What a node program awaits.
#pragma once
#include <pybind11/pybind11.h>

#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

namespace pyrdma::bindings {

namespace py = pybind11;

class Task;

/// The task that calls a method; null: a script calls it.
struct CallingTask {
  std::shared_ptr<Task> task;
};
CallingTask calling(Task& task);
/// The task whose Python code the calling thread runs: its turn, or a function that it awaits by
/// Node.do.
CallingTask running_here();
/// Says so for the time of a block.
class RunsHere {
 public:
  explicit RunsHere(Task& task);
  ~RunsHere();
  RunsHere(const RunsHere&) = delete;
  RunsHere& operator=(const RunsHere&) = delete;

 private:
  Task* before_;
};

/// Returns the exception with its traceback. With the GIL.
inline py::object exception_of(const py::error_already_set& raised) {
  if (raised.trace()) PyException_SetTraceback(raised.value().ptr(), raised.trace().ptr());
  return raised.value();
}
/// Raises what exception_of() has returned.
[[noreturn]] inline void raise_again(const py::object& exception) {
  PyErr_SetObject(py::type::handle_of(exception).ptr(), exception.ptr());
  throw py::error_already_set();
}

/// A program was cancelled while it waited. Becomes pyrdma.Cancelled.
struct Cancelled {};

/// Whether a method of this name gives back what a task holds, such as a lock. A task awaits it
/// also after the program's end, in a `finally`.
inline bool gives_back(std::string_view method) {
  return method == "release" || method == "close" || method == "disconnect" || method == "destroy";
}

/// An awaitable. A task yields it to its driver, which carries it out without the GIL; then the
/// task takes the result. It is awaited once.
class Operation {
 public:
  Operation() = default;
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Called once, on the task's thread, without the GIL. Keeps every error but NodeKilled for
  /// take(); after the program's end it is Cancelled.
  void perform(Task& task);
  /// Called with the GIL after perform(), once: returns the result, or throws the error.
  py::object take();
  /// With the GIL, as the slot am_send of Python's `self`: yields the operation to the driver, and
  /// returns its result when the task runs again.
  virtual PySendResult send(PyObject* self, PyObject** result);
  /// What a task waits for, for errors, such as "a request".
  virtual const char* waits_for() const = 0;

 protected:
  /// In a slot of Python, while a C++ exception is handled: lets Python raise it.
  PySendResult fail(PyObject* self, PyObject** result);
  virtual void run(Task& task) = 0;
  virtual py::object result() { return py::none(); }
  /// Whether it runs although its task is cancelled, or the program has ended.
  virtual bool is_due() const { return false; }
  /// Returns true if result() throws.
  virtual bool has_raised() const { return false; }

 private:
  bool has_failed() const { return error_ != nullptr || !done_ || taken_ || has_raised(); }
  std::atomic<bool> started_{false};
  bool done_ = false, taken_ = false;
  std::exception_ptr error_;
};

}  // namespace pyrdma::bindings

// All operations are of one Python class.
template <>
struct pybind11::polymorphic_type_hook<pyrdma::bindings::Operation> {
  static const void* get(const pyrdma::bindings::Operation* source, const std::type_info*& type) {
    type = nullptr;
    return source;
  }
};
