#include "fabric/sim/cluster.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "env/scopes.h"
#include "env/sim/disk_blocks.h"
#include "fabric/hooks/faulty_device.h"
#include "fabric/sim/device.h"
#include "fabric/sim/fault_driver.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {
namespace {

SimCpuCosts cpu_costs(const SimProfile& p, std::uint32_t cores) {
  SimCpuCosts costs;
  auto set = [&costs](Cost cost, double ns) {
    costs.named[static_cast<std::size_t>(cost)] = to_picos(ns);
  };
  set(Cost::kClockRead, p.cpu_clock_read_ns);
  set(Cost::kSystemCall, p.cpu_system_call_ns);
  set(Cost::kAtomic, p.cpu_atomic_ns);
  set(Cost::kProcessStart, p.cpu_process_start_ns);
  set(Cost::kLineTransfer, p.cpu_core_line_ns);
  const auto per_byte = [](double gbps) { return 8000.0 / gbps; };
  SimCpu& cpu = costs.cpu;
  cpu.instruction = 1000.0 / (p.cpu_ipc * p.cpu_clock_ghz);
  cpu.near = p.cpu_near_line_ns * 1000.0;
  cpu.llc = p.cpu_llc_line_ns * 1000.0;
  cpu.nic = p.cpu_nic_line_ns * 1000.0;
  cpu.own = p.cpu_own_line_ns * 1000.0;
  cpu.core = p.cpu_core_line_ns * 1000.0;
  cpu.memory = p.cpu_memory_line_ns * 1000.0;
  cpu.memory_loaded = std::max(p.cpu_memory_line_ns, p.cpu_memory_loaded_ns) * 1000.0;
  cpu.near_copy = per_byte(p.cpu_near_copy_gbps);
  cpu.llc_copy = per_byte(p.cpu_llc_copy_gbps);
  cpu.memory_copy = per_byte(p.cpu_memory_copy_gbps);
  cpu.memory_byte = per_byte(p.cpu_memory_gbps);
  cpu.near_bytes = p.cpu_near_bytes;
  cpu.llc_bytes = p.cpu_llc_bytes;
  cpu.nic_llc_bytes = p.cpu_nic_llc_bytes;
  cpu.numa_hop = p.cpu_numa_hop_ns * 1000.0;
  cpu.cores_per_socket = std::max(1U, cores / static_cast<std::uint32_t>(p.cpu_sockets));
  costs.poll_turn = std::max<Picos>(
      1, static_cast<Picos>(env_scope::poll_turn.instructions * cpu.instruction + 0.5));
  costs.storage_write = to_picos(p.storage_write_us * 1000.0);
  costs.storage_sync = to_picos(p.storage_sync_us * 1000.0);
  costs.storage_picos_per_byte = 8000.0 / p.storage_rate_gbps;
  return costs;
}

TimerTicks timer_ticks(const SimOptions& options, NodeId node) {
  return {to_picos(options.profile.variance_tick_period_us * 1000.0),
          to_picos(options.profile.variance_tick_us * 1000.0),
          Rng(options.seed, node, "timer ticks")};
}

StartOffsets start_offsets(const SimOptions& options, NodeId node) {
  return {to_picos(options.profile.variance_start_us * 1000.0),
          Rng(options.seed, node, "start offsets")};
}

}  // namespace

struct SimCluster::State {
  explicit State(SimOptions wanted)
      : options(std::move(wanted)),
        costs(cpu_costs(options.profile, options.cores_per_node)),
        scheduler(options.nodes),
        fabric(options, scheduler) {}
  // The nodes' threads end before the NICs that they use are destroyed.
  ~State() {
    scheduler.set_time_limit(kNever);
    for (auto& env : envs) scheduler.unwind(env->threads());
  }
  SimOptions options;
  SimCpuCosts costs;
  std::shared_ptr<Timeline> timeline;
  SimScheduler scheduler;
  std::vector<std::string> trace_lines;
  BranchCounts branches;
  std::vector<std::unique_ptr<SimEnv>> envs;
  Fabric fabric;
  RendezvousTable rendezvous;
  std::vector<std::unique_ptr<SimDevice>> devices;  // by port
  std::vector<std::unique_ptr<Device>> decorated;   // the devices with faults at the interface
  std::optional<FaultDriver> driver;
  // The next members belong to the running run().
  const FunctionRef<void(Env&)>* program = nullptr;
  std::vector<SimThread*> threads;
  std::vector<bool> restart_expected;
  std::uint32_t restarts_expected = 0;

  void start(SimEnv& env) {
    threads.push_back(scheduler.spawn(env.threads(), "node" + std::to_string(env.node()),
                                      [this, &env] { (*program)(env); }));
  }
};

SimCluster::SimCluster(SimOptions options) {
  if (options.nodes == 0 || options.nodes > 100000)
    throw Error(ErrorCode::kInvalidArgument, "nodes is " + std::to_string(options.nodes) +
                                                 "; a simulated cluster has 1 to 100000");
  if (options.cores_per_node == 0 || options.cores_per_node > 4096)
    throw Error(ErrorCode::kInvalidArgument, "cores_per_node is " +
                                                 std::to_string(options.cores_per_node) +
                                                 "; a node has 1 to 4096 cores");
  if (options.devices_per_node == 0 || options.devices_per_node > 16)
    throw Error(ErrorCode::kInvalidArgument, "devices_per_node is " +
                                                 std::to_string(options.devices_per_node) +
                                                 "; a node has 1 to 16 devices");
  state_ = std::make_unique<State>(std::move(options));
  State& s = *state_;
  if (s.options.time_limit != kForever) s.scheduler.set_time_limit(to_picos(s.options.time_limit));
  for (NodeId node = 0; node < s.options.nodes; ++node) {
    s.envs.push_back(std::make_unique<SimEnv>(
        s.scheduler, node, s.options.nodes, s.options.cores_per_node, s.options.seed, s.costs,
        to_picos(s.options.profile.cpu_context_switch_ns),
        to_picos(s.options.profile.cpu_timeslice_us * 1000.0), s.trace_lines, s.branches));
    s.envs.back()->trace().enable(s.options.trace);
    if (s.options.variance) {
      SimNodeThreads& threads = s.envs.back()->threads();
      SimScheduler::start_timers(threads, timer_ticks(s.options, node));
      threads.starts = start_offsets(s.options, node);
    }
  }
  if (s.options.timeline) start_timeline(*s.options.timeline);
  const std::uint32_t ports = s.options.nodes * s.options.devices_per_node;
  for (std::uint32_t port = 0; port < ports; ++port) {
    SimEnv& env = *s.envs[port % s.options.nodes];
    s.fabric.nics.push_back(std::make_unique<Nic>(s.fabric, port, s.options, env));
    s.devices.push_back(std::make_unique<SimDevice>(*s.fabric.nics.back(), s.rendezvous));
  }
  s.restart_expected.resize(s.options.nodes);
  s.driver.emplace(*this, s.fabric, s.envs, s.options);
  bool decorate = false;
  for (std::size_t i = 0; i < kFaults; ++i)
    decorate = decorate || (kHookFaultsOfSim.has(static_cast<Fault>(i)) &&
                            s.options.faults.settings[i].rate > 0);
  for (std::uint32_t port = 0; decorate && port < ports; ++port) {
    Nic& nic = *s.fabric.nics[port];
    s.decorated.push_back(
        wrap_with_faults(*s.devices[port], nic.env(), nic.faults()->stream, kHookFaultsOfSim));
  }
  const auto blocks = std::make_shared<BlockPool>();
  for (const auto& env : s.envs) {
    env->disk().share_blocks(blocks);
    std::vector<Device*> devices;
    for (std::uint32_t port = env->node(); port < ports; port += s.options.nodes)
      devices.push_back(decorate ? s.decorated[port].get() : s.devices[port].get());
    env->set_devices(std::move(devices));
  }
}

SimCluster::~SimCluster() = default;

std::uint32_t SimCluster::nodes() const { return state_->options.nodes; }

Env& SimCluster::env(NodeId node) {
  if (node >= state_->envs.size())
    throw Error(ErrorCode::kInvalidArgument, "node " + std::to_string(node) +
                                                 "; this cluster has nodes 0 to " +
                                                 std::to_string(state_->envs.size() - 1));
  return *state_->envs[node];
}

bool SimCluster::is_up(NodeId node) const { return !state_->envs[node]->threads().killed; }

void SimCluster::run(FunctionRef<void(Env&)> per_node) {
  State& s = *state_;
  if (s.program != nullptr)
    throw Error(
        ErrorCode::kInvalidArgument,
        "the nodes of this cluster run already: what runs on all nodes at once, such as the "
        "set-up of a system's objects, goes before or after that run");
  s.threads.clear();
  s.program = &per_node;
  auto end_all = [&s] {  // the run stopped, deadlocked or failed: all nodes end
    s.program = nullptr;
    s.scheduler.set_time_limit(kNever);
    for (auto& env : s.envs) s.scheduler.unwind(env->threads());
  };
  try {
    for (auto& env : s.envs)
      if (!env->threads().killed) s.start(*env);
    s.scheduler.await_all(s.threads, s.restarts_expected);
  } catch (...) {
    end_all();
    throw;
  }
  s.program = nullptr;
  for (SimThread* thread : s.threads)
    if (thread->failure) {
      const std::exception_ptr failure = std::exchange(thread->failure, nullptr);
      end_all();
      std::rethrow_exception(failure);
    }
}

void SimCluster::on_caller_stack(FunctionRef<void()> work) {
  state_->scheduler.on_external_stack(work);
}

void SimCluster::kill(NodeId node, Crash crash) {
  env(node);
  SimEnv& dying = *state_->envs[node];
  if (dying.threads().killed) return;
  const Fabric& fabric = state_->fabric;
  for (std::uint32_t device = 0; device < fabric.devices; ++device)
    fabric.nic(node, device).die(crash == Crash::kHostBattery);
  if (crash == Crash::kHostBattery) {
    fabric.nic(node, 0).save_memory();
    dying.disk().save();
  }
  dying.disk().crash(crash == Crash::kHost);
  fabric.mark(node, "killed");
  if (Timeline* timeline = state_->scheduler.timeline())
    timeline->end_faults(state_->scheduler.clock(), node, "pause");
  state_->scheduler.resume(dying.threads());
  state_->scheduler.kill(dying.threads());
}

void SimCluster::kill_later(NodeId node, Time after, Crash crash) {
  env(node);
  state_->driver->kill_later(node, to_picos(after), crash);
}

void SimCluster::restart_later(NodeId node, Time after) {
  env(node);
  state_->driver->restart_later(node, to_picos(after));
}

void SimCluster::expect_restart(NodeId node) {
  State& s = *state_;
  if (s.restart_expected[node]) return;
  s.restart_expected[node] = true;
  ++s.restarts_expected;
}

void SimCluster::restart(NodeId node) {
  env(node);
  State& s = *state_;
  SimEnv& env = *s.envs[node];
  if (!env.threads().killed) return;
  for (const auto& thread : env.threads().threads)
    if (!thread->finished) return s.driver->restart_later(node, kPicosPerMicro);
  env.threads().killed = false;
  env.restarted();
  s.fabric.mark(node, "restarted");
  for (std::uint32_t device = 0; device < s.fabric.devices; ++device)
    s.fabric.nic(node, device).revive();
  if (s.program != nullptr) s.start(env);
  if (s.restart_expected[node]) {
    s.restart_expected[node] = false;
    --s.restarts_expected;
  }
}

void SimCluster::pause(NodeId node, Time duration) {
  env(node);
  State& s = *state_;
  const Picos until = s.scheduler.clock() + to_picos(duration);
  s.fabric.mark(node, Fault::pause, until);
  s.scheduler.pause(s.envs[node]->threads(), until);
}

void SimCluster::slow_down(NodeId node, std::uint32_t shift, Time duration) {
  env(node);
  if (shift > 20)
    throw Error(ErrorCode::kInvalidArgument,
                "slow_down by 2^" + std::to_string(shift) + "; give a shift of at most 20");
  const Picos until = state_->scheduler.clock() + to_picos(duration);
  state_->fabric.mark(node, Fault::slow_node, until);
  state_->driver->slow_down(node, shift, until);
}

void SimCluster::fail_device(NodeId node, std::uint32_t device, Time duration) {
  env(node);
  State& s = *state_;
  if (device >= s.fabric.devices)
    throw Error(ErrorCode::kInvalidArgument, "device is " + std::to_string(device) + "; node " +
                                                 std::to_string(node) + " has devices 0 to " +
                                                 std::to_string(s.fabric.devices - 1));
  const Picos until = s.scheduler.clock() + to_picos(duration);
  s.fabric.count_fired(Fault::nic_failure);
  s.fabric.mark(node, Fault::nic_failure, until);
  s.fabric.nic(node, device).fail_until(until);
}

void SimCluster::block(NodeId from, NodeId to, Time duration) {
  env(from);
  env(to);
  const Picos until = state_->scheduler.clock() + to_picos(duration);
  state_->fabric.mark(Fabric::kManyNodes, Fault::partition_one_way, until);
  state_->fabric.reachability.block(from, to, Fault::partition_one_way, until);
}

bool SimCluster::faults_are_on() const { return state_->driver->is_on(); }

void SimCluster::begin_faults() { state_->driver->begin(); }

void SimCluster::open_fault(Fault fault) { state_->driver->open_soon(fault); }

void SimCluster::postpone_heal(Time at) { state_->driver->heal_not_before(to_picos(at)); }

void SimCluster::postpone_time_limit(Time at) {
  SimScheduler& scheduler = state_->scheduler;
  scheduler.set_time_limit(std::max(scheduler.time_limit(), to_picos(at)));
}

void SimCluster::heal() { state_->driver->heal(); }

const FaultCounters& SimCluster::fault_counters() const { return state_->fabric.fault_counters; }

const BranchCounts& SimCluster::branches() const { return state_->branches; }

void SimCluster::request_stop() { state_->scheduler.request_stop(); }

void SimCluster::forget_stop() { state_->scheduler.forget_stop(); }
Time SimCluster::now() const { return state_->scheduler.clock() / kPicosPerNano; }
std::uint64_t SimCluster::events() const { return state_->scheduler.events(); }
std::uint64_t SimCluster::fingerprint() const { return state_->scheduler.fingerprint(); }
void SimCluster::record_events(std::vector<SimEventRecord>* into) {
  state_->scheduler.record_events(into);
}

void SimCluster::start_timeline(const TimelineOptions& options) {
  State& s = *state_;
  if (s.scheduler.timeline() != nullptr)
    throw Error(ErrorCode::kInvalidArgument,
                "a timeline of this cluster is being recorded; end it before the next one begins");
  std::vector<const SimNodeThreads*> threads;
  for (const auto& env : s.envs) threads.push_back(&env->threads());
  s.timeline = std::make_shared<Timeline>(options, threads, s.options.devices_per_node);
  s.scheduler.start_timeline(*s.timeline);
  for (const auto& nic : s.fabric.nics) nic->set_timeline(s.timeline.get());
}

std::shared_ptr<Timeline> SimCluster::stop_timeline() {
  State& s = *state_;
  if (s.scheduler.timeline() == nullptr) return nullptr;
  s.scheduler.stop_timeline();
  for (const auto& nic : s.fabric.nics) nic->set_timeline(nullptr);
  s.timeline->finish();
  return std::exchange(s.timeline, nullptr);
}

DiskUse SimCluster::disk_use(NodeId node) const {
  const SimStorage& disk = state_->envs.at(node)->disk();
  return {disk.files(), disk.bytes()};
}

NicCounters SimCluster::counters(NodeId node, std::uint32_t device) const {
  return state_->fabric.nics.at(std::size_t{device} * nodes() + node)->counters();
}
const NetworkCounters& SimCluster::network_counters() const {
  return state_->fabric.network.counters();
}
const std::vector<std::string>& SimCluster::trace() const { return state_->trace_lines; }

}  // namespace pyrdma::fabric::sim
