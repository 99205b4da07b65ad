#include "env/sim/sim_env.h"

#include "env/sim/sim_storage.h"

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
      storage_(std::make_unique<SimStorage>(*this)),
      trace_(node, trace_lines) {
  threads_.cores.resize(cores);
  threads_.context_switch = context_switch;
  threads_.timeslice = timeslice;
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

bool SimEnv::poll_until_ref(FunctionRef<bool()> ready, Time deadline, Watch* only) {
  return scheduler_.poll_until(threads_, ready, to_global(to_picos(deadline)), only,
                               costs_.named[static_cast<std::size_t>(Cost::kPredicate)]);
}

void SimEnv::charge_copy_model(std::size_t bytes) {
  const double rate =
      bytes > costs_.copy_cache_bytes ? costs_.far_copy_picos_per_byte : costs_.copy_picos_per_byte;
  scheduler_.charge(costs_.copy_call + static_cast<Picos>(static_cast<double>(bytes) * rate));
}

std::unique_ptr<Thread> SimEnv::spawn(std::string name, std::function<void()> body) {
  SimThread* thread = scheduler_.spawn(threads_, std::move(name), std::move(body));
  return std::make_unique<SimThreadHandle>(scheduler_, *thread);
}

}  // namespace pyrdma
