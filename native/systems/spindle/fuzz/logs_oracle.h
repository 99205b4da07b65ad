// What logs must have while hosts lose power (V5 and V6 of the properties):
// - what was durable at a node is in its log when it starts, and in all logs after a restart with
//   this node;
// - what a member had before a view ran is in all logs after every restart and every join, with
//   this member or without it: all members had it on their disks before the view ran;
// - a joiner has what anyone has delivered in the views before;
// - nodes that begin again are a majority of the last view that ran, or have all that was delivered
//   up to its end: then they are a majority of a later view, which may have run;
// - what a client was told to be delivered has been delivered by all subscribers in the view;
// - all logs are equal in the end: of nodes that restart together, and of one that comes later;
// - a log has only samples that were published, each once, in the order of their publisher;
//   those of a client may come twice.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "env/env.h"
#include "systems/spindle/dds/topic.h"
#include "systems/spindle/subgroup.h"

namespace pyrdma::spindle::scenario {

class LogsOracle {
 public:
  using Texts = std::vector<std::string>;
  using Report = std::function<void(const char* kind, const std::string& text)>;

  /// Only subscribers have logs.
  LogsOracle(NodeId nodes, const dds::Topic& topic, Report report)
      : topic_(topic), report_(std::move(report)), nodes_(nodes) {}

  void published(std::string text) { published_.insert(std::move(text)); }

  /// A node starts, and finds this log.
  void started(NodeId node, const Texts& log);
  /// The domain has begun, or begun again, with these nodes. This one has this log.
  void began(NodeId node, const std::vector<NodeId>& nodes, const Texts& log);
  /// The node has joined, is in this view, and has this log. It may have delivered the last samples
  /// itself.
  void joined(NodeId node, std::uint64_t view, const Texts& log);
  void delivered(NodeId node, std::uint64_t view, std::span<const Message> messages);
  /// The view runs at some member, and these are members.
  void runs(std::uint64_t view, const std::vector<NodeId>& members);
  /// A member has entered a view that runs.
  void entered(NodeId node, std::uint64_t view);
  /// A client has heard that all members have delivered its sample. This subscriber is one.
  void acknowledged(NodeId node, const std::string& text);
  /// Makes the log of a node durable, by `sync`.
  void sync(NodeId node, const std::function<void()>& sync);
  /// A damaged log was cut, and this is left. If its node begins the domain again, the others lose
  /// what it lacks, and nothing else.
  void damaged(const Texts& left);
  /// A domain may have begun without what only the disks of these nodes have.
  void forfeit(const std::vector<NodeId>& nodes, bool value = true);
  void all_have_crashed();
  /// Judges the logs of all nodes at the end. `has_gaps`: some samples were not published.
  void end(const std::vector<Texts>& logs, bool has_gaps);

  std::size_t durable(NodeId node) const { return nodes_[node].durable.size(); }
  std::uint64_t judged() const { return judged_; }  // durable samples
  /// How often each check had something to judge.
  const std::map<std::string_view, std::uint64_t>& checks() const { return checks_; }

 private:
  struct Node {
    Texts durable;
    bool is_forfeit = false;
    // Of this start.
    Texts known;    // its log at the begin, and what it has delivered
    Texts pending;  // delivered since the last sync
    std::uint64_t view = 0;
    Texts joined;  // its log when it had joined, in the view
    std::uint64_t joined_view = 0;
  };
  void expect(NodeId node, const Texts& log, const Texts& wanted, const char* check,
              const std::string& when);
  void agree(const Node& node, std::uint64_t view, const Texts& but);

  const dds::Topic& topic_;
  const Report report_;
  std::vector<Node> nodes_;
  std::set<std::string> published_;
  std::map<std::uint64_t, std::set<std::string>> before_;             // each view that ran
  Texts agreed_;                                                      // all of these
  using Deliveries = std::map<std::uint64_t, std::set<std::string>>;  // by view
  Deliveries delivered_, delivered_before_;      // since all have crashed, and before that
  std::vector<NodeId> ran_;                      // members of the newest view that ran
  std::uint64_t ran_view_ = 0, ran_before_ = 0;  // ran_before_: when all crashed
  std::uint64_t judged_ = 0;
  std::map<std::string_view, std::uint64_t> checks_;
};

}  // namespace pyrdma::spindle::scenario
