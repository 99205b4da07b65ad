#include <algorithm>
#include <utility>

#include "base/error.h"
#include "bindings/program/program.h"

namespace pyrdma::bindings {

namespace {

// Cancelled waits that a task may take after the end of its program.
constexpr std::uint32_t kWaitsAfterEnd = 1000;

py::object cancelled_class() { return py::module_::import("pyrdma.errors").attr("Cancelled"); }

}  // namespace

CallingTask calling(Task& task) { return {task.shared_from_this()}; }

namespace {
// The Python thread that runs a task's code keeps it, in the dictionary that each of them has.
constexpr const char* kTaskHere = "pyrdma task";
Task* task_here() {
  PyObject* const address = PyDict_GetItemString(PyThreadState_GetDict(), kTaskHere);
  return address != nullptr ? static_cast<Task*>(PyLong_AsVoidPtr(address)) : nullptr;
}
void put_here(Task* task) {
  const auto address = py::reinterpret_steal<py::object>(PyLong_FromVoidPtr(task));
  if (PyDict_SetItemString(PyThreadState_GetDict(), kTaskHere, address.ptr()) != 0) PyErr_Clear();
}
}  // namespace

CallingTask running_here() {
  Task* const task = task_here();
  return task != nullptr ? calling(*task) : CallingTask();
}
RunsHere::RunsHere(Task& task) : before_(task_here()) { put_here(&task); }
RunsHere::~RunsHere() { put_here(before_); }

// ---- operations ----

void Operation::perform(Task& task) {
  if (started_.exchange(true)) return;  // take() says so
  try {
    task.check_time();
    if (!is_due()) task.check_cancelled();
    run(task);
  } catch (const NodeKilled&) {
    throw;
  } catch (...) {
    error_ = task.node().running_program().has_ended() ? std::make_exception_ptr(Cancelled{})
                                                       : std::current_exception();
  }
  done_ = true;
}

PySendResult Operation::send(PyObject* self, PyObject** result) {
  if (!started_) {
    *result = Py_NewRef(self);
    return PYGEN_NEXT;
  }
  try {
    // The bound method turns C++ exceptions into Python's, and takes longer.
    *result = has_failed() ? PyObject_CallMethod(self, "result", nullptr) : take().release().ptr();
  } catch (...) {  // of the conversion of the result
    return fail(self, result);
  }
  return *result != nullptr ? PYGEN_RETURN : PYGEN_ERROR;
}

PySendResult Operation::fail(PyObject* self, PyObject** result) {
  error_ = std::current_exception();
  done_ = true;
  taken_ = false;
  *result = PyObject_CallMethod(self, "result", nullptr);
  return PYGEN_ERROR;
}

py::object Operation::take() {
  if (!done_ || std::exchange(taken_, true))
    throw Error(ErrorCode::kInvalidArgument,
                "an operation of a node program is awaited once; call the function again for "
                "another one");
  if (error_) std::rethrow_exception(error_);
  return result();
}

// ---- tasks ----

Task::Task(std::shared_ptr<NodeRun> node, py::object coroutine)
    : node_(std::move(node)), coroutine_(std::move(coroutine)) {
  if (PyCoro_CheckExact(coroutine_.ptr()) == 0) {
    const py::object shown = py::module_::import("pyrdma.arguments").attr("shown")(coroutine_);
    throw Error(ErrorCode::kInvalidArgument,
                "coroutine is " + shown.cast<std::string>() +
                    "; give what a call of an `async def` function returns");
  }
  name_ = coroutine_.attr("__qualname__").cast<std::string>();
}

Task::~Task() = default;

Env& Task::env() const { return node_->running_env(); }

void Task::drive() {
  Program& program = node_->running_program();
  try {
    while (!finished_) {
      // What the coroutine changes must not come before what other tasks do until its clock.
      env().catch_up();
      bool goes_on = false;
      program.turn([&] { goes_on = step(); });
      if (!goes_on) break;
      waits_for_ = awaited_->waits_for();
      awaited_->perform(*this);
      waits_for_ = nullptr;
      if (program.has_ended() && ++waits_after_end_ > kWaitsAfterEnd) break;
    }
  } catch (const NodeKilled&) {
    program.turn([this] { close(); });
    throw;
  }
  program.turn([this] { close(); });
  finished_ = true;
  env().notify(finish_watch_);
}

// Runs the coroutine up to its next await. Returns false at its end.
bool Task::step() {
  struct Turn {
    explicit Turn(std::atomic<std::thread::id>& of) : turn(of) {
      turn = std::this_thread::get_id();
    }
    ~Turn() { turn = std::thread::id(); }
    std::atomic<std::thread::id>& turn;
  } turn(turn_);
  const RunsHere here(*this);
  PyObject* yielded = nullptr;
  PySendResult sent = PyIter_Send(coroutine_.ptr(), Py_None, &yielded);
  while (sent == PYGEN_NEXT) {
    const auto given = py::reinterpret_steal<py::object>(yielded);
    if (py::isinstance<Operation>(given)) {
      awaited_ = given.cast<std::shared_ptr<Operation>>();
      return true;
    }
    // Such as asyncio.sleep(). The coroutine gets the error at its await.
    const py::object shown = py::module_::import("pyrdma.arguments").attr("shown")(given);
    const py::str text = "a node program awaited " + shown.cast<std::string>() +
                         ", which is no operation of its node; await node.sleep(...), "
                         "node.do(...), a task or an operation of an object of the node";
    const auto name = py::reinterpret_steal<py::object>(PyUnicode_FromString("throw"));
    const py::object error = py::handle(PyExc_TypeError)(text);
    yielded = PyObject_CallMethodObjArgs(coroutine_.ptr(), name.ptr(), error.ptr(), nullptr);
    if (yielded == nullptr) sent = PYGEN_ERROR;
  }
  if (sent == PYGEN_RETURN) {
    result_ = py::reinterpret_steal<py::object>(yielded);
    return false;
  }
  py::error_already_set raised;
  if (raised.matches(PyExc_StopIteration)) {  // throw() reports a return so
    result_ = raised.value().attr("value");
    return false;
  }
  error_ = exception_of(raised);
  // That another task was cancelled, for which this one waits, is an error as any other.
  const bool cancelled = (was_cancelled_ || node_->running_program().has_ended()) &&
                         PyErr_GivenExceptionMatches(error_.ptr(), cancelled_class().ptr()) != 0;
  if (cancelled || joiners != 0) return false;
  try {
    if (py::hasattr(error_, "add_note"))
      error_.attr("add_note")("in " + name_ + " at node " + std::to_string(node_->node()));
  } catch (const py::error_already_set&) {  // an exception without room for notes
  }
  node_->running_program().fail(error_);
  return false;
}

// Drops the coroutine; a suspended one runs its `finally` blocks, which cannot wait any more.
void Task::close() {
  awaited_.reset();
  try {
    if (coroutine_) coroutine_.attr("close")();
  } catch (
      const py::error_already_set&) {  // it awaits in a `finally` block, which has no time left
  }
  coroutine_ = py::object();
}

py::object Task::result() {
  if (!error_) return result_ ? result_ : py::none();
  raise_again(error_);
}

void Task::forget() {
  close();
  result_ = py::object();
  error_ = py::object();
}

std::int32_t Task::process(bool anew) {
  if (process_ < 0 || anew) process_ = node_->program().next_process(node_->node());
  return process_;
}

void Task::check_cancelled() {
  if (node_->running_program().has_ended() || cancelled_.exchange(false)) throw Cancelled{};
}

void Task::check_time() {
  Program& program = node_->running_program();
  const NodeId node = node_->node();
  if (program.world().moment(node) >= program.last_moment()) program.check_time(node);
}

bool Task::wait(FunctionRef<bool()> ready, Time deadline, Watch& watch) {
  check_cancelled();
  Program& program = node_->running_program();
  Time last = program.last_moment();
  struct Parked {
    Parked(std::atomic<Watch*>& at, Watch& watch) : on(at) { on = &watch; }
    ~Parked() { on = nullptr; }
    std::atomic<Watch*>& on;
  };
  for (;;) {
    bool cancelled = false, is_ready = false;
    {
      const Parked parked(parked_on_, watch);
      env().poll_until(
          [&] {
            is_ready = ready();
            cancelled = !is_ready && (cancelled_ || program.has_ended());
            return is_ready || cancelled;
          },
          std::min(deadline, last), &watch);
    }
    if (is_ready) return true;
    if (!cancelled && deadline <= last) return false;
    program.check_time(node_->node());
    check_cancelled();
    // The node's clock is ahead of the others': by it, the program ends later.
    last = env().now() + program.last_moment() - program.world().moment(node_->node());
  }
}

void Task::sleep_until(Time deadline) {
  if (node_->running_program().simulated()) {
    wait([] { return false; }, deadline, own_watch_);
    return;
  }
  // A wait would keep a core busy.
  for (Time now = env().now(); now < deadline; now = env().now()) {
    check_cancelled();
    env().sleep_until(std::min(deadline, now + kMillisecond));
    if (env().now() >= node_->running_program().last_moment())
      node_->running_program().check_time(node_->node());
  }
  check_cancelled();
}

void Task::cancel() {
  cancelled_ = was_cancelled_ = true;
  nudge();
}

void Task::nudge() {
  if (Watch* watch = parked_on_) env().notify(*watch);
}

// ---- nodes ----

NodeRun::NodeRun(Program& program, Env& env) : program_(&program), env_(&env), node_(env.node()) {}

void NodeRun::run() {
  try {
    bool started = false;
    program_->turn([&] { started = start_main(); });
    if (started) main_->drive();
  } catch (const NodeKilled&) {
    end();
    program_->node_inactive();
    throw;
  }
  program_->node_inactive();
  try {
    // The other tasks of the node go on until the program ends.
    while (main_ && !program_->has_ended()) {
      const std::uint64_t activity = program_->activity();
      main_->sleep_until(program_->is_distributed() ? env_->now() + program_->options().grace
                                                    : kForever);
      program_->end_if_quiet(*env_, activity);
    }
  } catch (const Cancelled&) {
  } catch (const NodeKilled&) {
    end();
    throw;
  }
  end();
}

bool NodeRun::start_main() {
  try {
    const py::object function = program_->options().functions.at(node_);
    main_ = std::make_shared<Task>(shared_from_this(), function(shared_from_this()));
    return true;
  } catch (py::error_already_set& error) {
    program_->fail(exception_of(error));
  } catch (const Error& error) {
    program_->fail(py::module_::import("pyrdma.errors").attr("InvalidArgument")(error.what()));
  }
  return false;
}

std::shared_ptr<Task> NodeRun::spawn(py::object coroutine) {
  auto task = std::make_shared<Task>(shared_from_this(), std::move(coroutine));
  const bool simulated = program().simulated();
  auto thread = env().spawn(task->name(), [task, simulated] {
    std::optional<InterpreterThread> interpreter;
    if (!simulated) interpreter.emplace(task->node().running_program());
    task->drive();
  });
  const std::lock_guard<std::mutex> lock(mutex_);
  tasks_.push_back(task);
  threads_.push_back(std::move(thread));
  return task;
}

std::shared_ptr<Task> NodeRun::running_task() const {
  program();
  for (const auto& task : tasks())
    if (task->has_turn()) return task;
  throw Error(ErrorCode::kInvalidArgument, "no task of node " + std::to_string(node_) +
                                               " runs here; call it in the node's async functions");
}

std::vector<std::shared_ptr<Task>> NodeRun::tasks() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<Task>> all = tasks_;
  if (main_) all.push_back(main_);
  return all;
}

Program& NodeRun::program() const {
  if (over_)
    throw Error(ErrorCode::kUnavailable, "the program of node " + std::to_string(node_) +
                                             " has ended; its objects serve no longer");
  return *program_;
}

Env& NodeRun::env() const {
  program();
  return *env_;
}

void NodeRun::end() {
  std::vector<std::unique_ptr<Thread>> threads;
  for (;;) {  // a task may start another one
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      threads.swap(threads_);
    }
    if (threads.empty()) break;
    threads.clear();  // joins
  }
  over_ = true;
  program_->turn([this] {
    std::vector<std::shared_ptr<Task>> all = tasks();
    for (const auto& task : all) task->forget();
    random = py::object();
    const std::lock_guard<std::mutex> lock(mutex_);
    main_.reset();
    tasks_.clear();
  });
}

}  // namespace pyrdma::bindings
