#include "env/sim/sim_env.h"

#include <algorithm>

#include "base/error.h"
#include "env/sim/sim_storage.h"
#include "env/sim/timeline.h"

namespace pyrdma {
namespace {

class SimThreadHandle final : public Thread {
 public:
  SimThreadHandle(SimScheduler& scheduler, SimThread& thread)
      : scheduler_(scheduler), thread_(thread) {}
  ~SimThreadHandle() override { scheduler_.await_finish_unthrown(thread_); }
  void join() override {
    scheduler_.await_finish(thread_);
    if (thread_.failure) std::rethrow_exception(std::exchange(thread_.failure, nullptr));
  }

 private:
  SimScheduler& scheduler_;
  SimThread& thread_;
};

}  // namespace

void SimTrace::event(Time when, std::string_view what, std::string_view details) {
  std::string line = std::to_string(when) + " ns  node " + std::to_string(node_) + "  ";
  line.append(what).append("  ").append(details);
  lines_.push_back(std::move(line));
}

SimEnv::SimEnv(SimScheduler& scheduler, NodeId node, NodeId nodes, std::uint32_t cores,
               std::uint64_t seed, const SimCpuCosts& costs, Picos context_switch, Picos timeslice,
               std::vector<std::string>& trace_lines, BranchCounts& branches)
    : Env(true),
      scheduler_(scheduler),
      node_(node),
      nodes_(nodes),
      seed_(seed),
      costs_(costs),
      memory_(costs.cpu),
      storage_(std::make_unique<SimStorage>(*this)),
      trace_(node, trace_lines) {
  threads_.cores.resize(cores);
  threads_.context_switch = context_switch;
  threads_.timeslice = timeslice;
  threads_.cores_per_socket = costs.cpu.cores_per_socket;
  count_branches(&branches);
}

SimEnv::~SimEnv() = default;

void SimEnv::set_faults(FaultStream* faults) {
  faults_ = faults;
  storage_->set_faults(faults);
}

// A step that a thread charges for is a step in which another thread may overtake it.
void SimEnv::maybe_preempt() {
  if (!faults_->fire(Fault::preemption)) return;
  if (scheduler_.preempt(to_picos(faults_->duration(Fault::preemption))))
    faults_->reach(Fault::preemption);
}

Time SimEnv::now() {
  charge(Cost::kClockRead, 1);
  scheduler_.sync();
  return to_local(scheduler_.clock()) / kPicosPerNano;
}

// Returns the first moment at which the node's clock shows `local`.
Picos SimEnv::to_global(Picos local) const {
  if ((clock_offset_ == 0 && clock_drift_ == 0) || local == kNever) [[likely]]
    return local;
  const Picos behind = local - clock_offset_;
  Picos global = static_cast<Picos>(static_cast<__int128>(behind) * kPicosPerMicro /
                                    (kPicosPerMicro + clock_drift_));
  while (to_local(global) < local) global += local - to_local(global);
  return global;
}

Rng SimEnv::rng(std::string_view purpose) {
  Rng stream(incarnation_ == 0 ? seed_ : mix64(seed_ + incarnation_), node_, purpose);
  stream.fold_into(scheduler_.fingerprint_fold());
  return stream;
}

// The caller of a simulation counts as a thread of the first core.
std::uint32_t SimEnv::core() {
  const SimCore* core = scheduler_.running().core;
  const auto number = static_cast<std::size_t>(core - threads_.cores.data());
  return core == nullptr || number >= threads_.cores.size() ? 0
                                                            : static_cast<std::uint32_t>(number);
}

bool SimEnv::poll_until_ref(FunctionRef<bool()> ready, Time deadline, Watch* only) {
  return scheduler_.poll_until(threads_, ready, to_global(to_picos(deadline)), only,
                               costs_.poll_turn);
}

// ---- the CPU ----

double SimEnv::line_from_nic() {
  SimThread& thread = scheduler_.running();
  const std::uint64_t since = memory_.placed() - thread.placed_seen;
  if (since != 0) {
    thread.own_share =
        static_cast<double>(memory_.own() - thread.own_seen) / static_cast<double>(since);
    thread.placed_seen = memory_.placed();
    thread.own_seen = memory_.own();
  }
  return memory_.nic_line(scheduler_.clock(), since, thread.own_share) +
         (thread.remote ? costs_.cpu.numa_hop : 0);
}

Env* SimEnv::enter_model(const CpuScope& step) {
  const SimCpu& cpu = costs_.cpu;
  double time = step.instructions * cpu.instruction + step.near * cpu.near + step.llc * cpu.llc;
  // Without a thread on another core these lines are in the first-level cache.
  const double shared = threads_.used_cores > 1 ? step.core : 0;
  time += shared * cpu.core;
  if (step.nic != 0) time += step.nic * line_from_nic();
  if (step.memory != 0) time += memory_.memory_lines(scheduler_.clock(), step.memory);
  if (shared != 0 && threads_.remote_threads != 0) [[unlikely]] {
    // The other core may be on another socket.
    const auto all = static_cast<double>(threads_.threads.size());
    const auto there = static_cast<double>(threads_.remote_threads);
    const double other = scheduler_.running().remote ? all - there : there;
    time += shared * cpu.numa_hop * other / all;
  }
  const Picos from = scheduler_.clock();
  charge_time(time);
  if (Timeline* timeline = scheduler_.timeline()) [[unlikely]]
    timeline->slice(timeline->place_of(scheduler_.running()), from, scheduler_.clock(),
                    {.name = step.name.data()});
  // The rate of preemptions is per step of a coarser kind, about two of these.
  if (faults_ != nullptr && (++steps_ & 1) == 0) [[unlikely]]
    maybe_preempt();
  return nullptr;
}

void SimEnv::footprint_model(const void* /*data*/, std::uint64_t bytes, bool exists) {
  if (exists)
    memory_.add_footprint(bytes);
  else
    memory_.remove_footprint(bytes);
}

void SimEnv::charge_copy_model(std::size_t bytes, const Footprint* of) {
  const double footprint = of == nullptr ? 0 : static_cast<double>(of->bytes());
  charge_time(memory_.copy(scheduler_.clock(), static_cast<double>(bytes), footprint));
}

void SimEnv::prefetch_model(const Footprint& of, const void* at) {
  SimThread& thread = scheduler_.running();
  const double time = memory_.walk(scheduler_.clock(), of.bytes());
  thread.fetches[thread.next_fetch++ % thread.fetches.size()] = {
      at, scheduler_.clock() + static_cast<Picos>(time)};
}

void SimEnv::charge_walk_model(const Footprint& of, const void* at) {
  SimThread& thread = scheduler_.running();
  for (SimThread::Fetch& fetch : thread.fetches) {
    if (fetch.at != at) continue;
    fetch.at = nullptr;
    const Picos wait = std::max<Picos>(0, fetch.ready - scheduler_.clock());
    return charge_time(static_cast<double>(wait) + costs_.cpu.near);
  }
  charge_time(memory_.walk(scheduler_.clock(), of.bytes()));
}

std::unique_ptr<Thread> SimEnv::spawn_on(std::uint32_t core, std::string name,
                                         std::function<void()> body) {
  if (core != kNextCore && core >= threads_.cores.size()) {
    throw Error(ErrorCode::kInvalidArgument, "spawn: core " + std::to_string(core) + " of node " +
                                                 std::to_string(node_) + ", which has " +
                                                 std::to_string(threads_.cores.size()) +
                                                 "; take a lower one, or raise cores_per_node");
  }
  SimThread* thread = scheduler_.spawn(threads_, std::move(name), std::move(body), core);
  return std::make_unique<SimThreadHandle>(scheduler_, *thread);
}

}  // namespace pyrdma
