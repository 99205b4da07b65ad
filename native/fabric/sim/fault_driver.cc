#include "fabric/sim/fault_driver.h"

#include <algorithm>
#include <cmath>

namespace pyrdma::fabric::sim {
namespace {

constexpr Picos kMilli = 1000 * kPicosPerMicro;
// Clocks of one rack differ by some microseconds and drift by up to 200 parts in a million.
constexpr std::uint64_t kMostOffset = 50'000'000, kMostDrift = 200;
constexpr std::uint32_t kLeastSlow = 3, kMostSlow = 10;  // factors 8 to 1024
constexpr std::uint32_t kMostSlowNic = 6;  // the backlog of a slow NIC must end after the heal

Crash crash_of(Fault fault) {
  return fault == Fault::crash        ? Crash::kProcess
         : fault == Fault::host_crash ? Crash::kHost
                                      : Crash::kHostBattery;
}

}  // namespace

FaultDriver::FaultDriver(SimCluster& cluster, Fabric& fabric,
                         std::vector<std::unique_ptr<SimEnv>>& envs, const SimOptions& options)
    : cluster_(cluster),
      fabric_(fabric),
      envs_(envs),
      options_(options),
      stream_(options.faults, options.seed, -1, fabric.fault_counters,
              fabric.scheduler.fingerprint_fold()),
      slow_(options.nodes) {
  if (!options.faults.any()) return;
  const auto ports = static_cast<std::uint32_t>(fabric.nics.size());
  for (std::uint32_t port = 0; port < ports; ++port) {
    fabric.nics[port]->set_faults(std::make_unique<NicFaults>(options.faults, options.seed, port,
                                                              ports, fabric.fault_counters,
                                                              fabric.scheduler.fingerprint_fold()));
    draw_for_the_run(port);
  }
  if (options.faults.at_once) {
    begun_ = true;
    schedule_windows();
  } else {
    stream_.hold();
    for (const auto& nic : fabric.nics) nic->faults()->stream.hold();
  }
  if (options.faults.heal_at == kForever) return;
  heal_at_ = to_picos(options.faults.heal_at);
  fabric.scheduler.schedule(timer(Timer::What::kHeal), heal_at_);
}

void FaultDriver::begin() {
  if (begun_) return;
  begun_ = true;
  if (!options_.faults.any()) return;
  stream_.begin();
  for (const auto& nic : fabric_.nics) nic->faults()->stream.begin();
  schedule_windows();
}

void FaultDriver::schedule_windows() {
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    const FaultOptions::Setting& setting = options_.faults[fault];
    if (fault_info(fault).draw != FaultDraw::kWindow || setting.rate <= 0 || setting.windows > 0)
      continue;
    Timer& window = timer(Timer::What::kWindow);
    window.fault = fault;
    schedule_window(window, fabric_.scheduler.clock());
  }
}

FaultDriver::Timer& FaultDriver::timer(Timer::What what) {
  timers_.push_back(std::make_unique<Timer>(*this));
  timers_.back()->what = what;
  return *timers_.back();
}

void FaultDriver::draw_for_the_run(std::uint32_t port) {
  Nic& nic = *fabric_.nics[port];
  NicFaults& faults = *nic.faults();
  if (nic.device() == 0 && faults.stream.fire(Fault::clock_skew)) {
    Rng& rng = faults.stream.stream(Fault::clock_skew);
    const auto offset = static_cast<Picos>(rng.below(kMostOffset));
    nic.env().skew_clock(
        offset, static_cast<Picos>(rng.below(2 * kMostDrift + 1)) - static_cast<Picos>(kMostDrift));
    faults.stream.reach(Fault::clock_skew);
  }
  if (faults.stream.fire(Fault::placement_reorder)) nic.weak_memory.place_in_any_order();
  if (faults.stream.fire(Fault::number_collision)) {
    faults.stream.reach(Fault::number_collision);
    nic.reseed_numbers(0);
  }
}

// The windows of a fault begin as a Poisson process.
void FaultDriver::schedule_window(Timer& window, Picos now) {
  const double rate = options_.faults[window.fault].rate;
  const double wait = -std::log(1 - stream_.stream(window.fault).uniform()) / rate;
  fabric_.scheduler.schedule(window, now + static_cast<Picos>(wait * static_cast<double>(kMilli)));
}

void FaultDriver::due(Timer& timer, Picos now) {
  switch (timer.what) {
    case Timer::What::kWindow:
      if (stream_.healed()) return;
      open(timer.fault, now);
      return schedule_window(timer, now);
    case Timer::What::kOneWindow:
      if (!stream_.healed()) open(timer.fault, now);
      return;
    case Timer::What::kHeal:
      if (now < heal_at_) return fabric_.scheduler.schedule(timer, heal_at_);
      return cluster_.heal();
    case Timer::What::kKill:
      return cluster_.kill(timer.node, timer.how);
    case Timer::What::kRestart:
      return cluster_.restart(timer.node);
    case Timer::What::kNormalSpeed:
      return set_speed(timer.node);
  }
}

NodeId FaultDriver::any_node(Fault fault) {
  return static_cast<NodeId>(stream_.stream(fault).below(options_.nodes));
}

std::uint32_t FaultDriver::any_port(Fault fault) {
  return static_cast<std::uint32_t>(stream_.stream(fault).below(fabric_.nics.size()));
}

void FaultDriver::open_soon(Fault fault) {
  if (!is_on() || options_.faults[fault].rate <= 0) return;
  Timer& window = timer(Timer::What::kOneWindow);
  window.fault = fault;
  fabric_.scheduler.schedule(window, fabric_.scheduler.clock());
}

void FaultDriver::open(Fault fault, Picos now) {
  const Picos until = now + to_picos(stream_.duration(fault));
  if (!stream_.is_chosen()) return;
  stream_.count_fired(fault);
  switch (fault) {
    case Fault::partition:
    case Fault::partition_partial:
    case Fault::partition_one_way:
      return open_ways(fault, until);
    case Fault::crash:
    case Fault::host_crash:
    case Fault::battery_crash:
      return crash(fault, any_node(fault), until);
    case Fault::coordinator_down:
      return open_at(fault, std::min(options_.faults.coordinator, options_.nodes - 1), until);
    default:
      return open_at(fault, any_port(fault), until);
  }
}

// Opens a window of a fault that hits one NIC, or the node of that NIC.
void FaultDriver::open_at(Fault fault, std::uint32_t port, Picos until) {
  Nic& nic = *fabric_.nics[port];
  const NodeId node = nic.node();
  NicFaults& faults = *nic.faults();
  SimEnv& env = nic.env();
  const Picos now = fabric_.scheduler.clock();
  fabric_.mark(fault == Fault::pause_storm ? Fabric::kManyNodes : node, fault,
               fault == Fault::clock_jump ? now : until);
  const auto extend = [until](Picos& open) { open = std::max(open, until); };
  switch (fault) {
    case Fault::loss_burst:
      return extend(faults.lost_until);
    case Fault::clog:
      return extend(faults.clogged_until);
    case Fault::clock_jump:
      env.jump_clock(until - now);
      return stream_.reach(fault);
    case Fault::pause:
      fabric_.scheduler.pause(env.threads(), until);
      return stream_.reach(fault);
    case Fault::disk_full:
      return env.disk().set_full_until(until);
    case Fault::coordinator_down:
      fabric_.scheduler.pause(env.threads(), until);
      [[fallthrough]];
    case Fault::isolation:
      for (NodeId other = 0; other < options_.nodes; ++other) {
        fabric_.reachability.block(node, other, fault, until);
        fabric_.reachability.block(other, node, fault, until);
      }
      return;
    case Fault::partition_flapping:
      return extend(faults.flapping_until);
    case Fault::slow_node:
      stream_.reach(fault);
      return slow_down(node,
                       kLeastSlow + static_cast<std::uint32_t>(
                                        stream_.stream(fault).below(kMostSlow - kLeastSlow + 1)),
                       until);
    case Fault::buffer_overflow:
      return extend(faults.no_buffer_until);
    case Fault::pause_storm:
      for (const auto& each : fabric_.nics) each->transmitter.storm(until);
      return;
    case Fault::dc_storm:
      return extend(faults.dc_storm_until);
    case Fault::nic_failure:
      return nic.fail_until(until);
    case Fault::noisy_neighbour:
      return extend(faults.noisy_until);
    default:
      return;
  }
}

// Opens a window of a fault that blocks ways between nodes.
void FaultDriver::open_ways(Fault fault, Picos until) {
  fabric_.mark(Fabric::kManyNodes, fault, until);
  Reachability& ways = fabric_.reachability;
  Rng& rng = stream_.stream(fault);
  const NodeId a = any_node(fault), b = any_node(fault);
  if (fault == Fault::partition_partial) {
    ways.block(a, b, fault, until);
    return ways.block(b, a, fault, until);
  }
  if (fault == Fault::partition_one_way) return ways.block(a, b, fault, until);
  std::vector<bool> side(options_.nodes);
  for (NodeId node = 0; node < options_.nodes; ++node) side[node] = rng.below(2) == 0;
  for (NodeId from = 0; from < options_.nodes; ++from)
    for (NodeId to = 0; to < options_.nodes; ++to)
      if (side[from] != side[to]) ways.block(from, to, fault, until);
}

void FaultDriver::crash(Fault fault, NodeId node, Picos until) {
  if (envs_[node]->threads().killed) return;
  stream_.reach(fault);
  fabric_.mark(node, fault, until);
  restart_later(node, until - fabric_.scheduler.clock());
  cluster_.kill(node, crash_of(fault));
}

void FaultDriver::restart_later(NodeId node, Picos delay) {
  Timer& restart = timer(Timer::What::kRestart);
  restart.node = node;
  cluster_.expect_restart(node);
  fabric_.scheduler.schedule(restart, fabric_.scheduler.clock() + delay);
}

void FaultDriver::kill_later(NodeId node, Picos delay, Crash how) {
  Timer& kill = timer(Timer::What::kKill);
  kill.node = node;
  kill.how = how;
  fabric_.scheduler.schedule(kill, fabric_.scheduler.clock() + delay);
}

void FaultDriver::slow_down(NodeId node, std::uint32_t shift, Picos until) {
  slow_[node].push_back({until, shift});
  set_speed(node);
  Timer& normal = timer(Timer::What::kNormalSpeed);
  normal.node = node;
  fabric_.scheduler.schedule(normal, until);
}

void FaultDriver::set_speed(NodeId node) {
  std::erase_if(slow_[node], [now = fabric_.scheduler.clock()](const SlowWindow& window) {
    return window.until <= now;
  });
  std::uint32_t shift = 0;
  for (const SlowWindow& window : slow_[node]) shift = std::max(shift, window.shift);
  fabric_.scheduler.set_slow(envs_[node]->threads(), shift);
  for (std::uint32_t device = 0; device < fabric_.devices; ++device)
    fabric_.nic(node, device).set_slow(std::min(shift, kMostSlowNic));
}

void FaultDriver::heal() {
  begun_ = true;  // faults that were held back never begin
  stream_.heal();
  fabric_.mark(Fabric::kManyNodes, "all faults end");
  if (Timeline* timeline = fabric_.scheduler.timeline())
    timeline->end_faults(fabric_.scheduler.clock());
  fabric_.reachability.heal();
  fabric_.nic_has_failed = false;
  for (NodeId node = 0; node < options_.nodes; ++node) {
    SimEnv& env = *envs_[node];
    for (std::uint32_t device = 0; device < fabric_.devices; ++device) {
      Nic& nic = fabric_.nic(node, device);
      if (nic.faults() != nullptr) nic.faults()->heal();
      nic.heal();
    }
    fabric_.scheduler.resume(env.threads());
    slow_[node].clear();
    set_speed(node);
    for (std::uint32_t device = 0; device < fabric_.devices; ++device)
      fabric_.nic(node, device).transmitter.storm(0);
    env.disk().set_full_until(0);
    if (env.threads().killed) cluster_.restart(node);
  }
}

}  // namespace pyrdma::fabric::sim
