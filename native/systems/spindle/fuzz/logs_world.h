// Logged topics while hosts lose power, again and again (V5 and V6 of the properties):
// - what was durable at a node is in all logs after a restart with this node;
// - all logs are equal in the end: of nodes that restart together, and of one that comes later;
// - a log has only samples that were published, each once, in the order of their publisher;
// - a log of which a bit has changed is refused, or has lost nothing, and so is that of the views.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "fuzz/fault_phase.h"
#include "fuzz/scenario.h"
#include "systems/spindle/dds/participant.h"

namespace pyrdma::spindle::scenario {

/// One run: rounds that end with the crash of all nodes, and a last one in which all catch up. The
/// last node of the simulation is the driver, outside of the domain.
class LogsWorld {
 public:
  /// `options.nodes` counts the driver.
  LogsWorld(const fuzz::Options& options, fuzz::Outcome& outcome, fuzz::FaultPhase& phase);

  void run(fabric::sim::SimCluster& cluster);

 private:
  using Texts = std::vector<std::string>;
  /// The oracle of one start of one node: it notes what becomes durable.
  struct Life {
    Texts delivered;  // since the last sync
    std::uint64_t view = 0;
    dds::DomainParticipant* participant = nullptr;
  };

  NodeId count() const { return static_cast<NodeId>(all_.size()); }
  bool is_late(NodeId node) const;
  bool is_last() const { return round_ + 1 == rounds_; }
  void violation(const char* kind, const std::string& text);
  void drive(Env& env);
  void pass(Env& env, std::uint64_t most_us);
  void wait_for_view(Env& env);
  void rot(Env& env);
  void rot_views(Env& env);
  std::unique_ptr<dds::DomainParticipant> open(Env& env, Life& life);
  void live(Env& env);
  void take(NodeId node, Life& life, std::span<const Message> messages);
  void expect_kept(NodeId node, dds::DomainParticipant& participant, const char* when);
  void begin(Env& env, dds::DomainParticipant& participant);
  void restart_all(dds::DomainParticipant& participant);
  void forfeit(const std::vector<NodeId>& nodes, bool value = true);
  void begin_split(NodeId node, dds::DomainParticipant& participant);
  void publish(Env& env, dds::DomainParticipant& participant);
  void wait(Env& env, dds::DomainParticipant& participant, const char* what,
            const std::function<bool()>& ready);
  void finish(Env& env, dds::DomainParticipant& participant);
  void check();

  const fuzz::Options& options_;
  fuzz::Outcome& outcome_;
  fuzz::FaultPhase& phase_;
  Rng rng_;
  const Bugs bugs_;
  dds::Topic topic_;
  std::vector<NodeId> all_;  // of the domain
  std::uint32_t rounds_ = 0, round_ = 0;
  bool rots_ = false;
  fabric::sim::SimCluster* cluster_ = nullptr;
  std::vector<Texts> durable_;  // by node
  // By node: a domain may have begun without what only this node's disk has.
  std::vector<bool> is_forfeit_;
  std::vector<bool> is_rotten_;     // by node: its log may be refused
  std::vector<Bytes> views_files_;  // by node: as it is to be again
  std::set<std::string> published_;
  std::vector<Group*> groups_;           // of the nodes that live
  std::uint32_t operations_ = 0;         // samples so far
  std::vector<NodeId> starters_, late_;  // who starts first in this round, and the others
  bool is_split_ = false;                // both sides restart, each without the other
  bool has_formed_[2] = {};
  bool is_refused_ = false;
  std::uint32_t formed_ = 0, finished_ = 0, ended_ = 0;
  std::vector<Texts> logs_;  // at the end
};

}  // namespace pyrdma::spindle::scenario
