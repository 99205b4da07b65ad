// Logged topics while hosts lose power, again and again; logs_oracle.h says what they must keep. A
// log of which a bit has changed is refused, or has lost nothing, and so is that of the views.
//
//   logs_world.cc    a node: its log, and what it does in a round
//   logs_driver.cc   who loses power when; a client of the domain
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fuzz/fault_phase.h"
#include "fuzz/scenario.h"
#include "systems/spindle/dds/participant.h"
#include "systems/spindle/fuzz/logs_oracle.h"

namespace pyrdma::spindle::scenario {

/// One run: rounds that end with the crash of all nodes, and a last one in which all catch up. The
/// last two nodes of the simulation are outside of the domain: the driver and a client.
class LogsWorld {
 public:
  /// `options.nodes` counts the nodes of the domain.
  LogsWorld(const fuzz::Options& options, fuzz::Outcome& outcome, fuzz::FaultPhase& phase);

  void run(fabric::sim::SimCluster& cluster);
  const LogsOracle& oracle() const { return oracle_; }

 private:
  using Texts = LogsOracle::Texts;

  static Options group_options();
  NodeId count() const { return static_cast<NodeId>(all_.size()); }
  bool is_founder(NodeId node) const;
  bool is_late(NodeId node) const;
  bool is_last() const { return round_ + 1 == rounds_; }
  void violation(const char* kind, const std::string& text);
  void drive(Env& env);
  void be_client(Env& env);
  void acknowledged(const std::string& text);
  void pass(Env& env, std::uint64_t most_us);
  void fail_disk(Env& env);
  void tell_what_runs();
  bool wait_for_joiner(Env& env);
  void wait_for_view(Env& env);
  void rot(Env& env);
  void rot_views(Env& env);
  void fill_log(Env& env);
  std::unique_ptr<dds::DomainParticipant> open(Env& env);
  void live(Env& env);
  void look_at_view(NodeId node, Group& group);
  void begin(Env& env, dds::DomainParticipant& participant);
  void join(NodeId node, dds::DomainParticipant& participant, const std::vector<NodeId>& contacts);
  void begin_first(Env& env, dds::DomainParticipant& participant);
  void restart_all(Env& env, dds::DomainParticipant& participant);
  void begin_split(NodeId node, dds::DomainParticipant& participant);
  void publish(Env& env, dds::DomainParticipant& participant);
  void wait(Env& env, dds::DomainParticipant& participant, const char* what,
            const std::function<bool()>& ready);
  void finish(Env& env, dds::DomainParticipant& participant);

  const fuzz::Options& options_;
  fuzz::Outcome& outcome_;
  fuzz::FaultPhase& phase_;
  Rng rng_;
  const Bugs bugs_;
  dds::Topic topic_;
  std::vector<NodeId> all_;       // of the domain
  std::vector<NodeId> founders_;  // the others join in the first round
  LogsOracle oracle_;
  std::uint32_t rounds_ = 0, round_ = 0;
  bool rots_ = false, joins_at_once_ = false;
  bool grows_ = false;  // one subscriber begins, and the power fails while the others join
  bool has_published_ = false, had_published_ = false;  // had: before this round
  bool is_filled_ = false;                              // the logs of the founders, at the begin
  fabric::sim::SimCluster* cluster_ = nullptr;
  std::vector<bool> is_rotten_;     // by node: its log may be refused
  std::vector<bool> is_cut_;        // by node: its log was cut, of which the oracle has not heard
  std::vector<Bytes> views_files_;  // by node: as it is to be again
  std::vector<bool> has_begun_;     // by node: in this round
  std::vector<bool> fails_;         // by node: its next sync of a file
  std::vector<bool> comes_back_;    // by node: in this round, behind a failure of its disk
  /// A view that ran at a node when the node last looked.
  struct Running {
    std::uint64_t view = 0;
    std::vector<NodeId> members;
  };
  std::vector<Running> running_;         // by node
  std::vector<Group*> groups_;           // of the nodes that live
  std::uint32_t operations_ = 0;         // samples so far
  std::vector<NodeId> starters_, late_;  // who starts first in this round, and the others
  bool is_split_ = false;                // both sides restart, each without the other
  bool has_formed_[2] = {};
  bool is_refused_ = false;
  bool is_client_over_ = false;
  std::uint32_t formed_ = 0, finished_ = 0, ended_ = 0;
  std::vector<Texts> logs_;  // at the end
};

}  // namespace pyrdma::spindle::scenario
