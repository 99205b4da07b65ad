#include "bindings/program/program.h"

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "runtime/node_barrier.h"

namespace pyrdma::bindings {

namespace {

std::string seconds(Time time) {
  std::ostringstream text;
  text << static_cast<double>(time) * 1e-9;
  return text.str();
}

}  // namespace

Program::Program(std::shared_ptr<Session> session, ProgramOptions options)
    : session_(std::move(session)), options_(std::move(options)) {}

void Program::run() {
  std::exception_ptr error;
  try {
    session_->run_programs(
        [this](World& world) {
          const InterpreterThread interpreter(*this);
          world_ = &world;
          std::vector<NodeId> started;
          for (const NodeId node : world.local_nodes()) {
            recorders_[node].prepare_threads(1);
            if (options_.functions.count(node) != 0 && world.is_up(node)) started.push_back(node);
          }
          active_ = static_cast<int>(started.size());
          if (world.local_nodes().size() < world.nodes())
            agreement_.emplace(options_.name, options_.members);
          first_starts_ = {started.begin(), started.end()};
          begin(world.moment(world.local_nodes().front()));
          struct Tasks {
            explicit Tasks(Session& of) : session(of) { session.run_tasks(session.simulated()); }
            ~Tasks() { session.run_tasks(false); }
            Session& session;
          } tasks(*session_);
          world.run([this](Env& env) { run_node(env); });
        },
        [this] { interrupt(); });
  } catch (...) {
    error = std::current_exception();
  }
  runs_.clear();
  for (const auto& [of, count] : counts_)
    recorders_[of.first].add(of.second, count.first, count.second);
  // A table shows that a latency was recorded; its percentiles are in the histogram.
  for (auto& [node, recorder] : recorders_)
    for (const auto& [name, histogram] : recorder.histograms())
      if (counts_.count({node, name}) == 0)
        recorder.add(name, "op", static_cast<double>(histogram.total()));
  // What tasks raise after the deadline follows from it.
  if (failure_ && !overdue_) raise_again(failure_);
  if (error) std::rethrow_exception(error);
  if (overdue_) throw Error(ErrorCode::kTimeout, *overdue_, false);
}

void Program::begin(Time now) {
  if (options_.deadline < kForever - now) last_moment_ = now + options_.deadline;
}

// Waits end, and so does Python code that never waits. The waits of a simulated world end on the
// thread that runs them: the session stops it.
void Program::interrupt() {
  if (!simulated()) end();
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const unsigned long thread : threads_)
    PyThreadState_SetAsyncExc(thread, PyExc_KeyboardInterrupt);
}

void Program::add_thread(unsigned long number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  threads_.insert(number);
}

void Program::remove_thread(unsigned long number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  threads_.erase(number);
}

InterpreterThread::InterpreterThread(Program& program) : program_(program) {
  program_.add_thread(PyThread_get_thread_ident());
}

InterpreterThread::~InterpreterThread() { program_.remove_thread(PyThread_get_thread_ident()); }

void Program::run_node(Env& env) {
  if (options_.functions.count(env.node()) == 0) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // A node that was killed runs its function anew.
    if (first_starts_.erase(env.node()) == 0) node_active();
  }
  if (agreement_) {  // each process has loaded its function, which takes its time
    runtime::node_barrier(env, options_.name, runtime::kSetupTimeout, options_.members);
    begin(env.now());
  }
  std::optional<InterpreterThread> interpreter;
  if (!simulated()) interpreter.emplace(*this);
  const auto run = std::make_shared<NodeRun>(*this, env);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    runs_.push_back(run);
  }
  run->run();
}

std::vector<std::shared_ptr<NodeRun>> Program::runs() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return runs_;
}

void Program::turn(FunctionRef<void()> python) {
  world_->on_interpreter_stack([&] {
    const py::gil_scoped_acquire gil;
    if (simulated()) session_->begin_turn();
    python();
    if (simulated()) session_->end_turn();
  });
}

void Program::end() {
  if (ended_.exchange(true)) return;
  for (const auto& run : runs())
    for (const auto& task : run->tasks()) task->nudge();
}

void Program::fail(py::object error) {
  if (!failure_) failure_ = std::move(error);
  end();
}

void Program::check_time(NodeId node) {
  if (world_->moment(node) < last_moment_) return;
  std::string waiting;
  for (const auto& run : runs()) {
    for (const auto& task : run->tasks()) {
      const char* what = task->waits_for();
      if (task->is_finished() || what == nullptr) continue;
      if (waiting.size() > 400) {
        waiting += " ...";
        break;
      }
      waiting += (waiting.empty() ? " node " : "; node ") + std::to_string(run->node()) + ' ' +
                 task->name() + " waits for " + what;
    }
  }
  if (options_.deadline_fails) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!overdue_ && !ended_)
      overdue_ =
          "the node programs have not ended within deadline_s = " + seconds(options_.deadline) +
          "; give a longer one, or duration_s for programs without an end:" + waiting;
  }
  end();
}

void Program::node_inactive() {
  if (--active_ == 0 && serving_ == 0 && !agreement_) end();
}

void Program::end_if_quiet(Env& env, std::uint64_t activity) {
  if (active_ != 0 || activity_ != activity) return;
  if (!agreement_ || agreement_->is_quiet(env)) end();
}

void Program::count(NodeId node, const std::string& metric, const std::string& unit, double value) {
  auto& [its_unit, sum] = counts_[{node, metric}];
  if (!its_unit.empty() && its_unit != unit)
    throw Error(ErrorCode::kInvalidArgument, "unit of " + metric + " is '" + unit + "' and was '" +
                                                 its_unit + "' before; give one unit to one name");
  its_unit = unit;
  sum += value;
}

// Numbers differ between the nodes, also of different processes.
std::int32_t Program::next_process(NodeId node) {
  const auto nodes = static_cast<std::int32_t>(world_->nodes());
  return static_cast<std::int32_t>(node) + nodes * processes_[node]++;
}

}  // namespace pyrdma::bindings
