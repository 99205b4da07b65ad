#include "bindings/program/operations.h"

#include <thread>

#include "base/error.h"
#include "bindings/requests.h"

namespace pyrdma::bindings {

namespace {

Time after(Task& task, const std::optional<Time>& timeout) {
  if (!timeout) return kForever;
  return task.env().now() + *timeout;
}

std::string service_name(const Program& program, const std::string& service) {
  return program.options().name + '/' + service;
}

}  // namespace

void Work::run(Task& task) {
  task.env().work(duration_);
  task.check_time();
  task.check_cancelled();
}

void Join::run(Task& task) {
  if (joined_.get() == &task)
    throw Error(ErrorCode::kInvalidArgument, "a task awaits itself; let another task await it");
  struct Joining {
    explicit Joining(Task& joined) : of(joined) { ++of.joiners; }
    ~Joining() { --of.joiners; }
    Task& of;
  } joining(*joined_);
  task.wait([&] { return joined_->is_finished(); }, kForever, joined_->finish_watch());
}

void EventWait::run(Task& task) {
  found_ = task.wait([&] { return event_->is_set(); }, after(task, timeout_), event_->watch());
}

// ---- do ----

void Do::run(Task& task) {
  Program& program = task.node().running_program();
  if (!program.simulated()) return program.turn([&] { call(task); });
  Session& session = program.session();
  bool killed = false;
  std::thread thread([&] {
    const InterpreterThread interpreter(program);
    const py::gil_scoped_acquire gil;
    session.forward_calls(this);
    call(task);
    session.forward_calls(nullptr);
    const std::lock_guard<std::mutex> lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  });
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_over_ || request_ != nullptr; });
    if (is_over_) break;
    const FunctionRef<void()>& work = *request_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      if (killed) throw NodeKilled{};
      work();
    } catch (const NodeKilled&) {
      killed = true;
      failure = std::current_exception();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    request_ = nullptr;
    changed_.notify_all();
  }
  lock.unlock();
  thread.join();
  if (killed) throw NodeKilled{};
}

void Do::forward(FunctionRef<void()> work) {
  std::unique_lock<std::mutex> lock(mutex_);
  request_ = &work;
  changed_.notify_all();
  changed_.wait(lock, [this] { return request_ == nullptr; });
  const std::exception_ptr failure = std::exchange(failure_, nullptr);
  lock.unlock();
  if (failure) std::rethrow_exception(failure);
}

void Do::call(Task& task) {
  const Program& program = task.node().running_program();
  const RunsHere here(task);
  try {
    value_ = function_(*arguments_, **keywords_);
  } catch (const py::error_already_set& error) {
    const py::module_ errors = py::module_::import("pyrdma.errors");
    raised_ = program.has_ended() && error.matches(errors.attr("Error"))
                  ? errors.attr("Cancelled")()
                  : exception_of(error);
  }
}

py::object Do::result() {
  if (!raised_) return std::move(value_);
  raise_again(raised_);
}

PySendResult Steps::send(PyObject* self, PyObject** result) {
  if (!coroutine_) {
    *result = PyObject_CallMethod(self, "result", nullptr);  // says that it was awaited
    return PYGEN_ERROR;
  }
  try {
    const AwaitedCalls awaited(*node_);
    const PySendResult sent = PyIter_Send(coroutine_.ptr(), Py_None, result);
    if (sent != PYGEN_NEXT) coroutine_ = py::object();
    return sent;
  } catch (...) {  // the node's program is over
    // Else Python warns that nobody has awaited it. A coroutine that goes on has an error of its
    // own.
    if (!py::reinterpret_steal<py::object>(PyObject_CallMethod(coroutine_.ptr(), "close", nullptr)))
      PyErr_Clear();
    return fail(self, result);
  }
}

// ---- verbs ----

void Poll::run(Task& task) {
  std::size_t count = 0;
  const PyCompletionQueue::Use use(*queue_);
  task.wait(
      [&] {
        const PyCompletionQueue::Call call(*queue_);
        fabric::CompletionQueue& queue = queue_->native();
        check_overrun(queue);
        return (count = queue.poll(found_)) != 0;
      },
      after(task, timeout_), queue_->native().watch());
  found_.resize(count);
}

py::object Poll::result() { return to_rows(found_, check_); }

// ---- messages ----

namespace {

auto waiter(Task& task) {
  return [&task](FunctionRef<bool()> ready, Time deadline, Watch& watch) {
    return task.wait(ready, deadline, watch);
  };
}

}  // namespace

void Bind::run(Task& task) {
  const auto node = task.node().shared_from_this();
  const std::string name = service_name(node->running_program(), service_);
  made_ = make_owned<PyInbox>(node, std::make_unique<runtime::Inbox>(task.env(), name, options_));
}

void Connect::run(Task& task) {
  const auto node = task.node().shared_from_this();
  const std::string name = service_name(node->running_program(), service_);
  made_ = make_owned<PyPeer>(
      node, std::make_unique<runtime::Peer>(task.env(), name, to_, task.env().now() + timeout_,
                                            waiter(task)));
}

void Next::run(Task& task) {
  try {
    if (task.node().is_main(task))
      serve(task);
    else
      found_ = inbox_->native().next(after(task, timeout_), waiter(task));
  } catch (const Cancelled&) {
    over_ = in_loop_ && task.node().running_program().has_ended();
    if (!over_) throw;
  }
}

// The node does not count as active while its main task waits here. The program ends when no node
// has been active for the grace time.
void Next::serve(Task& task) {
  Program& program = task.node().running_program();
  const Time deadline = after(task, timeout_), grace = program.options().grace;
  struct Serving {
    explicit Serving(Program& of) : program(of) {
      program.serving(1);
      program.node_inactive();
    }
    ~Serving() {
      program.node_active();
      program.serving(-1);
    }
    Program& program;
  } serving(program);
  for (;;) {
    const std::uint64_t activity = program.activity();
    const Time until = task.env().now() + grace;
    found_ = inbox_->native().next(std::min(deadline, until), waiter(task));
    if (found_) program.announce_active(task.env());
    if (found_ || until >= deadline) return;
    program.end_if_quiet(task.env(), activity);
  }
}

py::object Next::result() {
  if (found_) return py::cast(PyMessage{inbox_, std::move(*found_)});
  if (!over_ && !in_loop_) return py::none();
  PyErr_SetNone(PyExc_StopAsyncIteration);
  throw py::error_already_set();
}

void Reply::run(Task& task) { of_.inbox->native().reply(of_.request, data_, waiter(task)); }

void Call::run(Task& task) {
  const Time deadline = task.env().now() + timeout_;
  if (wants_reply_)
    reply_ = peer_->native().call(data_, deadline, waiter(task));
  else
    peer_->native().send(data_, deadline, waiter(task));
}

}  // namespace pyrdma::bindings
