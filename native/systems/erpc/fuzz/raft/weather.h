// Weather draws the faults of a World that last for a while: partitions, pauses, crashes, full
// disks, clocks that jump. A kind comes at random times, as often as the options say.
#pragma once
#include <functional>
#include <vector>

#include "systems/erpc/fuzz/raft/world.h"

namespace pyrdma::erpc::raft {

class Weather {
 public:
  /// What happens to a member is the owner's business.
  struct Hooks {
    std::function<void(NodeId n, bool power)> crash;
    std::function<void(NodeId n)> restart;
    std::function<void(const std::string& what)> note;
  };
  /// All arguments outlive the weather, but for the hooks, which it keeps.
  Weather(World& world, const FaultOptions& faults, std::uint64_t seed, FaultCounters& counters,
          Hooks hooks);
  /// From now on faults happen. Clocks are off from now on, if they are at all.
  void begin();
  /// No fault begins any more. Those that go on end by World::heal().
  void end() { over_ = true; }

 private:
  void wait_for(Fault kind);
  void open(Fault kind);
  void cut(const std::vector<std::pair<NodeId, NodeId>>& links, Time duration);
  void flap(NodeId n, Time end);
  void fail_power_of_all(Time duration);
  std::vector<std::pair<NodeId, NodeId>> links_between(const std::vector<NodeId>& side) const;
  NodeId some_node() { return static_cast<NodeId>(rng_.below(world_.nodes())); }
  /// A member, often the one that leads.
  NodeId target();
  /// Runs `what` after the duration, unless the world is healed by then.
  void after(Time duration, std::function<void()> what);

  World& world_;
  const FaultOptions& faults_;
  FaultStream stream_;
  Rng rng_;
  Hooks hooks_;
  bool over_ = false;
};

}  // namespace pyrdma::erpc::raft
