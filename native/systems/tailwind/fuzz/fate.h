// The part of the Tailwind scenario that ends nodes, cuts them off, and watches whether the run can
// go on. Not part of the store.
#pragma once
#include <initializer_list>
#include <vector>

#include "fuzz/patience.h"
#include "systems/tailwind/fuzz/world.h"

namespace pyrdma::tailwind::scenario {

/// The kinds of faults whose windows Fate opens: each may cost a server, or several.
inline constexpr std::initializer_list<Fault> kCostly{
    Fault::crash,     Fault::host_crash,         Fault::battery_crash,     Fault::pause,
    Fault::partition, Fault::isolation,          Fault::partition_partial, Fault::partition_one_way,
    Fault::slow_node, Fault::partition_flapping, Fault::coordinator_down,  Fault::nic_failure,
    Fault::clock_jump};

/// Runs on the first client's node.
class Fate {
 public:
  Fate(World& world, Env& env);
  /// The world calls nothing of it any more.
  ~Fate();
  /// Until the world is over.
  void run();

 private:
  struct Dying {
    Time at = 0;
    Time silent_from = kForever;  // what it sends then does not reach all
    NodeId node = 0;
    Fault fault = Fault::crash;
  };
  /// Threads of all nodes may call it.
  Time now() const { return world_.cluster->now(); }
  void draw(Time now);
  bool may_begin(Time now, Fault fault) const;
  void begin(Fault fault);
  void crash_later(Fault fault);
  void await_cleaner(Fault fault);
  void end_at_head(NodeId server, Fault fault);
  bool awaits_moment() const { return world_.at_cleaning || world_.at_head || world_.at_roll; }
  void end_all();
  void cut_off(NodeId server);
  void end_soon(NodeId node, Fault fault);
  void end_dying();
  void kill(NodeId node, Fault fault, bool is_outage = false);
  bool kill_any(Fault fault);
  bool may_kill(NodeId server) const;
  void watch();
  void renew(Time now);
  bool is_lost() const { return world_.may_miss() && !world_.coordinator_problem.empty(); }
  void give_up(Time now);

  World& world_;
  Env& env_;
  Rng rng_;
  std::vector<Fault> waiting_;  // each kind once
  std::vector<Dying> dying_;
  std::uint32_t begun_ = 0;  // windows
  Time quiet_from_ = 0;      // the last window has shown by then what it costs
  Time again_ = kForever;    // a crash amid the recovery of the last one
  Fault again_as_ = Fault::crash;
  Time moment_until_ = kForever;    // a crash waits for a moment until then
  std::uint64_t outage_after_ = 0;  // operations; 0: none
  fuzz::Patience patience_, lost_patience_;
  bool has_crashed_ = false;  // the last crash
};

}  // namespace pyrdma::tailwind::scenario
