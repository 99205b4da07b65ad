// The operations that a node program awaits. Each is one class; bind_program.cc makes them.
#pragma once
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bindings/objects.h"
#include "bindings/program/program.h"
#include "runtime/messages/messages.h"

namespace pyrdma::bindings {

class Sleep final : public Operation {
 public:
  explicit Sleep(Time duration) : duration_(duration) {}
  const char* waits_for() const override { return "a time (sleep)"; }

 protected:
  void run(Task& task) override { task.sleep_until(task.env().now() + duration_); }

 private:
  Time duration_;
};

class Work final : public Operation {
 public:
  explicit Work(Time duration) : duration_(duration) {}
  const char* waits_for() const override { return "its CPU (work)"; }

 protected:
  void run(Task& task) override;

 private:
  Time duration_;
};

/// Waits for the end of a task.
class Join final : public Operation {
 public:
  explicit Join(std::shared_ptr<Task> task) : joined_(std::move(task)) {}
  const char* waits_for() const override { return "the end of a task"; }

 protected:
  void run(Task& task) override;
  bool has_raised() const override { return true; }
  py::object result() override { return joined_->result(); }

 private:
  std::shared_ptr<Task> joined_;
};

/// Tasks of one node wait until another one sets it.
class NodeEvent {
 public:
  explicit NodeEvent(std::shared_ptr<NodeRun> node) : node_(std::move(node)) {}
  bool is_set() const { return set_; }
  void set() {
    set_ = true;
    node_->env().notify(watch_);
  }
  void clear() { set_ = false; }
  Watch& watch() { return watch_; }

 private:
  std::shared_ptr<NodeRun> node_;
  std::atomic<bool> set_{false};
  Watch watch_;
};

class EventWait final : public Operation {
 public:
  EventWait(std::shared_ptr<NodeEvent> event, std::optional<Time> timeout)
      : event_(std::move(event)), timeout_(timeout) {}
  const char* waits_for() const override { return "an event"; }

 protected:
  void run(Task& task) override;
  py::object result() override { return py::bool_(found_); }

 private:
  std::shared_ptr<NodeEvent> event_;
  std::optional<Time> timeout_;
  bool found_ = false;
};

/// Calls a Python function that may wait. In a simulated world a thread of its own runs the
/// function, while the task carries out the function's calls of the cluster, in virtual time. The
/// simulation stands still while the function is in Python, so that equal runs stay equal.
class Do final : public Operation, public CallForwarder {
 public:
  Do(py::object function, py::args arguments, py::kwargs keywords)
      : function_(std::move(function)),
        arguments_(std::move(arguments)),
        keywords_(std::move(keywords)),
        is_due_(gives_back(
            py::str(py::getattr(function_, "__name__", py::str())).cast<std::string>())) {}
  const char* waits_for() const override { return "a function (do)"; }
  void forward(FunctionRef<void()> work) override;

 protected:
  bool is_due() const override { return is_due_; }
  void run(Task& task) override;
  bool has_raised() const override { return true; }
  py::object result() override;

 private:
  void call(Task& task);
  py::object function_;
  py::args arguments_;
  py::kwargs keywords_;
  bool is_due_;
  py::object value_, raised_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const FunctionRef<void()>* request_ = nullptr;  // under mutex_, like the next two
  bool is_over_ = false;
  std::exception_ptr failure_;  // of the request
};

/// While it lives, native calls of the node's objects become operations (Session::await_calls).
class AwaitedCalls {
 public:
  explicit AwaitedCalls(const NodeRun& node)
      : session_(node.program().session()), before_(session_.await_calls(true)) {}
  ~AwaitedCalls() { session_.await_calls(before_); }
  AwaitedCalls(const AwaitedCalls&) = delete;
  AwaitedCalls& operator=(const AwaitedCalls&) = delete;

 private:
  Session& session_;
  bool before_;
};

/// A coroutine of a system's method. While it runs, its native calls become operations, which the
/// task awaits one after another.
class Steps final : public Operation {
 public:
  Steps(std::shared_ptr<NodeRun> node, py::object coroutine)
      : node_(std::move(node)), coroutine_(std::move(coroutine)) {}
  const char* waits_for() const override { return "a function (do)"; }
  PySendResult send(PyObject* self, PyObject** result) override;

 protected:
  void run(Task& /*task*/) override {}  // its coroutine yields other operations

 private:
  std::shared_ptr<NodeRun> node_;
  py::object coroutine_;
};

/// Takes completions from a queue of the node.
class Poll final : public Operation {
 public:
  Poll(std::shared_ptr<PyCompletionQueue> queue, std::size_t most, std::optional<Time> timeout,
       bool check)
      : queue_(std::move(queue)), timeout_(timeout), check_(check), found_(most) {}
  const char* waits_for() const override { return "completions"; }

 protected:
  void run(Task& task) override;
  bool has_raised() const override { return true; }
  py::object result() override;

 private:
  std::shared_ptr<PyCompletionQueue> queue_;
  std::optional<Time> timeout_;
  bool check_;
  std::vector<fabric::Completion> found_;
};

// ---- messages ----

/// A native part of a node's messages, which Python holds.
template <class Native>
class Messages final : public Owned {
 public:
  Messages(std::shared_ptr<NodeRun> node, std::unique_ptr<Native> made)
      : Owned(node->running_program().session_pointer()),
        node_(std::move(node)),
        native_(std::move(made)) {}
  ~Messages() override { leave(); }
  void drop() override { native_.reset(); }
  int rank() const override { return -3; }
  Native& native() const {
    node_->program();
    if (!native_) throw Error(ErrorCode::kUnavailable, "this object is closed");
    return *native_;
  }
  const std::shared_ptr<NodeRun>& node() const { return node_; }

 private:
  std::shared_ptr<NodeRun> node_;
  std::unique_ptr<Native> native_;
};
using PyInbox = Messages<runtime::Inbox>;
using PyPeer = Messages<runtime::Peer>;

class Bind final : public Operation {
 public:
  Bind(std::string service, const runtime::InboxOptions& options)
      : service_(std::move(service)), options_(options) {}
  const char* waits_for() const override { return "an inbox to be bound"; }

 protected:
  void run(Task& task) override;
  py::object result() override { return py::cast(std::move(made_)); }

 private:
  std::string service_;
  runtime::InboxOptions options_;
  std::shared_ptr<PyInbox> made_;
};

class Connect final : public Operation {
 public:
  Connect(std::string service, NodeId to, Time timeout)
      : service_(std::move(service)), to_(to), timeout_(timeout) {}
  const char* waits_for() const override { return "a connection"; }

 protected:
  void run(Task& task) override;
  py::object result() override { return py::cast(std::move(made_)); }

 private:
  std::string service_;
  NodeId to_;
  Time timeout_;
  std::shared_ptr<PyPeer> made_;
};

struct PyMessage {
  std::shared_ptr<PyInbox> inbox;
  runtime::Request request;
};

/// The next request of an inbox. `in_loop`: the program's end is the end of an `async for`.
class Next final : public Operation {
 public:
  Next(std::shared_ptr<PyInbox> inbox, std::optional<Time> timeout, bool in_loop)
      : inbox_(std::move(inbox)), timeout_(timeout), in_loop_(in_loop) {}
  const char* waits_for() const override { return "a request"; }

 protected:
  void run(Task& task) override;
  bool has_raised() const override { return !found_; }
  py::object result() override;

 private:
  void serve(Task& task);
  std::shared_ptr<PyInbox> inbox_;
  std::optional<Time> timeout_;
  bool in_loop_;
  std::optional<runtime::Request> found_;
  bool over_ = false;
};

class Reply final : public Operation {
 public:
  Reply(PyMessage of, std::string data) : of_(std::move(of)), data_(std::move(data)) {}
  const char* waits_for() const override { return "room for a reply"; }

 protected:
  void run(Task& task) override;

 private:
  PyMessage of_;
  std::string data_;
};

/// A call, or a message without a reply.
class Call final : public Operation {
 public:
  Call(std::shared_ptr<PyPeer> peer, std::string data, Time timeout, bool wants_reply)
      : peer_(std::move(peer)),
        data_(std::move(data)),
        timeout_(timeout),
        wants_reply_(wants_reply) {}
  const char* waits_for() const override { return wants_reply_ ? "a reply" : "room to send"; }

 protected:
  void run(Task& task) override;
  py::object result() override {
    return wants_reply_ ? py::object(py::bytes(reply_)) : py::object(py::none());
  }

 private:
  std::shared_ptr<PyPeer> peer_;
  std::string data_, reply_;
  Time timeout_;
  bool wants_reply_;
};

}  // namespace pyrdma::bindings
