// The fault driver opens the windows of the faults: it draws the time, the duration and the place
// of each window. All windows end at FaultOptions::heal_at. The parts that a fault hits hold the
// effect of an open window: NicFaults, Reachability, the scheduler and the simulated disk.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "fabric/sim/cluster.h"
#include "fabric/sim/nic.h"

namespace pyrdma::fabric::sim {

class FaultDriver {
 public:
  /// Draws the faults that last the whole run, and schedules the first window of each other fault.
  /// All arguments outlive the driver.
  FaultDriver(SimCluster& cluster, Fabric& fabric, std::vector<std::unique_ptr<SimEnv>>& envs,
              const SimOptions& options);
  /// Restarts the node after `delay`.
  void restart_later(NodeId node, Picos delay);
  void kill_later(NodeId node, Picos delay, Crash how);
  void slow_down(NodeId node, std::uint32_t shift, Picos until);
  /// Begins faults that were held back; see FaultOptions::at_once.
  void begin();
  bool is_on() const { return options_.faults.any() && !stream_.healed(); }
  /// Opens a window now, at a place and for a time that are drawn. This is an event of its own,
  /// since the caller may be a thread of the node that a crash hits.
  void open_soon(Fault fault);
  /// The faults end at `at` instead of FaultOptions::heal_at, if that is later.
  void heal_not_before(Picos at) { heal_at_ = std::max(heal_at_, at); }
  void heal();

 private:
  /// An event of the driver.
  struct Timer final : SimEvent {
    explicit Timer(FaultDriver& owner) : driver(owner) {}
    void fire(Picos now) override { driver.due(*this, now); }
    FaultDriver& driver;
    enum class What : std::uint8_t {
      kWindow,
      kOneWindow,
      kHeal,
      kKill,
      kRestart,
      kNormalSpeed
    } what = What::kWindow;
    Fault fault = Fault::kCount;
    NodeId node = 0;
    Crash how = Crash::kProcess;
  };
  void due(Timer& timer, Picos now);
  Timer& timer(Timer::What what);
  void schedule_windows();
  void schedule_window(Timer& timer, Picos now);
  void draw_for_the_run(std::uint32_t port);
  void open(Fault fault, Picos now);
  void open_at(Fault fault, std::uint32_t port, Picos until);
  void open_ways(Fault fault, Picos until);
  void crash(Fault fault, NodeId node, Picos until);
  NodeId any_node(Fault fault);
  std::uint32_t any_port(Fault fault);
  /// Sets the node's speed to that of the slowest of its open windows.
  void set_speed(NodeId node);

  SimCluster& cluster_;
  Fabric& fabric_;
  std::vector<std::unique_ptr<SimEnv>>& envs_;
  const SimOptions& options_;
  struct SlowWindow {
    Picos until;
    std::uint32_t shift;
  };
  FaultStream stream_;
  bool begun_ = false;
  Picos heal_at_ = 0;
  std::vector<std::vector<SlowWindow>> slow_;  // one list per node
  std::vector<std::unique_ptr<Timer>> timers_;
};

}  // namespace pyrdma::fabric::sim
