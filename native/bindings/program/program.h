// Node programs: Python coroutines that run as tasks of nodes. A task is a thread of its node, in
// virtual time a fiber with a clock and a CPU of its own. Its Python code runs in turns, each up to
// the next await; what it awaits, an Operation, runs between the turns in native code.
//
//   Program   the functions of all nodes of this process, their measurements, their end
//   NodeRun   a node's tasks between its start and its end; Python sees it as Node
//   Task      one coroutine
//
// In a simulated world all turns run on one stack, that of the thread that runs the simulation: an
// interpreter's frames must not be interleaved on fibers. A turn therefore cannot wait; a call that
// would wait throws (Session::begin_turn).
#pragma once
#include <pybind11/pybind11.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/program/agreement.h"
#include "bindings/program/operation.h"
#include "bindings/session.h"
#include "measure/recorder.h"

namespace pyrdma::bindings {

class NodeRun;
class Program;

/// Keeps the interpreter's state of an OS thread while the thread runs Python code of a program.
class InterpreterThread {
 public:
  explicit InterpreterThread(Program& program);
  ~InterpreterThread();

 private:
  Program& program_;
  py::gil_scoped_acquire attached_;
  py::gil_scoped_release released_;
};

/// A coroutine that runs on a thread of its node.
class Task : public std::enable_shared_from_this<Task> {
 public:
  /// Called in a turn. Throws Error(kInvalidArgument) unless `coroutine` is one.
  Task(std::shared_ptr<NodeRun> node, py::object coroutine);
  ~Task();
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  /// Runs the coroutine to its end, on the calling thread.
  void drive();
  Env& env() const;
  NodeRun& node() const { return *node_; }
  const std::string& name() const { return name_; }
  bool is_finished() const { return finished_; }
  /// With the GIL, after the end: returns what the coroutine has returned, or throws what it has
  /// raised.
  py::object result();
  /// The number of the task among the processes of a history.
  std::int32_t process(bool anew);

  // Waiting, for operations. All throw Cancelled when the task is cancelled or the program ends.
  /// Returns true when `ready()`, false after `deadline`.
  bool wait(FunctionRef<bool()> ready, Time deadline, Watch& watch);
  void sleep_until(Time deadline);
  void check_cancelled();
  /// Ends the program if its time is over, for a task that never waits.
  void check_time();

  /// Ends the wait that is under way, or the next one. Any thread of the world may call.
  void cancel();
  /// Wakes the task from its wait, so that it looks whether it goes on.
  void nudge();
  Watch& finish_watch() { return finish_watch_; }
  /// What the task waits for; null while it runs.
  const char* waits_for() const { return waits_for_; }
  /// With the GIL: drops all of Python that it holds.
  void forget();
  /// Whether the calling thread runs a turn of the task.
  bool has_turn() const { return turn_ == std::this_thread::get_id(); }
  std::atomic<int> joiners{0};

 private:
  bool step();
  void close();

  std::shared_ptr<NodeRun> node_;
  std::string name_;
  py::object coroutine_, result_, error_;  // used with the GIL
  std::shared_ptr<Operation> awaited_;
  std::atomic<bool> cancelled_{false}, was_cancelled_{false}, finished_{false};
  std::atomic<Watch*> parked_on_{nullptr};
  std::atomic<std::thread::id> turn_{};
  std::atomic<const char*> waits_for_{nullptr};
  std::int32_t process_ = -1;
  std::uint32_t waits_after_end_ = 0;
  Watch finish_watch_, own_watch_;
};

/// One node between its start and its end by return, kill or the program's end.
class NodeRun : public std::enable_shared_from_this<NodeRun> {
 public:
  NodeRun(Program& program, Env& env);

  /// Runs the node's function, on the calling thread, and its tasks.
  void run();
  /// With the GIL. Both throw Error(kUnavailable) after the end of the node's program.
  Program& program() const;
  Env& env() const;
  /// The tasks read these without a check.
  Program& running_program() const { return *program_; }
  Env& running_env() const { return *env_; }

  /// In a turn: starts a task on a thread of its own.
  std::shared_ptr<Task> spawn(py::object coroutine);
  /// A main task that waits for requests does not keep the program from ending.
  bool is_main(const Task& task) const { return main_.get() == &task; }
  std::vector<std::shared_ptr<Task>> tasks() const;
  NodeId node() const { return node_; }
  /// The task whose turn it is. Throws Error(kInvalidArgument) outside of turns.
  std::shared_ptr<Task> running_task() const;
  py::object random;  // random.Random of the node; made when first asked for

 private:
  bool start_main();
  void end();
  Program* program_;
  Env* env_;
  NodeId node_;
  mutable std::mutex mutex_;
  std::shared_ptr<Task> main_;
  std::vector<std::shared_ptr<Task>> tasks_;  // the spawned ones
  std::vector<std::unique_ptr<Thread>> threads_;
  std::atomic<bool> over_{false};
};

struct ProgramOptions {
  std::map<NodeId, py::object> functions;  // async; of the nodes of this process that have one
  std::vector<NodeId> members;             // all nodes that have one
  Time deadline = 0;                       // from the start
  bool deadline_fails = true;              // else the program ends there
  Time grace = 0;                          // for which the last nodes must wait for requests
  std::string name;                        // of this run, for the rendezvous
  std::string model;                       // of the histories
};

class Program {
 public:
  Program(std::shared_ptr<Session> session, ProgramOptions options);

  /// Runs all functions to their end; throws the error of the first that failed. With the GIL.
  void run();

  // For tasks.

  /// Runs Python code as a turn; `python` throws nothing.
  void turn(FunctionRef<void()> python);
  bool has_ended() const { return ended_; }
  /// Ends all waits.
  void end();
  /// With the GIL: the first error of a task; ends the program.
  void fail(py::object error);
  /// Ends the program if its time is over.
  void check_time(NodeId node);
  Time last_moment() const { return last_moment_; }

  // A node counts as active until its function has returned, or while it serves a request.
  void node_active() {
    ++active_;
    ++activity_;
  }
  /// Tells the other processes that the node is active, if it has told that it is quiet.
  void announce_active(Env& env) {
    if (agreement_) agreement_->is_active(env);
  }
  void node_inactive();
  std::uint64_t activity() const { return activity_; }
  /// Ends the program if no node has been active since `activity` was read, a grace time ago.
  void end_if_quiet(Env& env, std::uint64_t activity);
  /// Whether the other nodes are in other processes.
  bool is_distributed() const { return agreement_.has_value(); }
  void serving(int change) { serving_ += change; }

  const ProgramOptions& options() const { return options_; }
  Session& session() const { return *session_; }
  const std::shared_ptr<Session>& session_pointer() const { return session_; }
  bool simulated() const { return session_->simulated(); }
  measure::Recorder& recorder(NodeId node) { return recorders_.at(node); }
  const std::map<NodeId, measure::Recorder>& recorders() const { return recorders_; }
  void count(NodeId node, const std::string& metric, const std::string& unit, double value);
  World& world() const { return *world_; }
  /// Counts the OS threads that run Python code, by Python's numbers: Ctrl-C interrupts them.
  void add_thread(unsigned long number);
  void remove_thread(unsigned long number);
  std::int32_t next_process(NodeId node);

 private:
  void run_node(Env& env);
  void begin(Time now);
  void interrupt();
  std::vector<std::shared_ptr<NodeRun>> runs() const;

  std::shared_ptr<Session> session_;
  ProgramOptions options_;
  World* world_ = nullptr;
  std::map<NodeId, measure::Recorder> recorders_;
  std::map<std::pair<NodeId, std::string>, std::pair<std::string, double>> counts_;
  std::map<NodeId, std::int32_t> processes_;
  std::atomic<bool> ended_{false};
  std::atomic<int> active_{0}, serving_{0};
  std::atomic<std::uint64_t> activity_{0};
  std::atomic<Time> last_moment_{kForever};
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<NodeRun>> runs_;
  std::set<unsigned long> threads_;  // under mutex_
  std::optional<Agreement> agreement_;
  std::set<NodeId> first_starts_;       // nodes whose first start is still to come
  py::object failure_;                  // used with the GIL
  std::optional<std::string> overdue_;  // under mutex_
};

}  // namespace pyrdma::bindings
