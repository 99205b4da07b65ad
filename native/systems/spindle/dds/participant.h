// A participant of a domain: its publishers and subscribers of topics (section 4.6). A domain is
// one group, and a topic is a subgroup of just its participants. README.md maps the names of the
// OMG's standard.
//
//   participant.cc   publishing, late joiners
//   restart.cc       a domain begins again from its logs
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "systems/spindle/dds/reader.h"
#include "systems/spindle/dds/topic.h"
#include "systems/spindle/dds/view_log.h"
#include "systems/spindle/group.h"

namespace pyrdma::spindle::dds {

class DomainParticipant {
 public:
  /// Gets the samples of a topic at a subscriber, in place. The thread that makes turns calls it.
  using Listener = std::function<void(std::uint32_t topic, std::span<const Message>)>;

  /// All nodes give the same topics. Opens the logs of this node's topics. Throws
  /// Error(kInvalidArgument) for a topic that cannot be, and as SampleLog does.
  DomainParticipant(Env& env, const Options& options, std::vector<Topic> topics,
                    Listener listener = {}, bool cut_damage = false, Bugs bugs = {});

  Group& group() { return *group_; }
  const std::vector<Topic>& topics() const { return topics_; }
  /// Returns the number of a topic. Throws Error(kInvalidArgument) that lists the names.
  std::uint32_t topic(std::string_view name) const;

  /// Begins the domain with these nodes, whose logs are empty, or which all agree on them. Throws
  /// like Group::found; see restart().
  void create(const std::vector<NodeId>& nodes) {
    views_ = {};
    group_->found(nodes);
  }
  /// Begins the domain again after all participants have ended, with these nodes. Each one first
  /// gets the samples that its logs lack and that others have in whose logs the last view ran. A
  /// log of an older view loses what those lack. Throws Error(kUnavailable), naming the nodes, if
  /// they are no majority of the last view that a log names, if no log names one, or if two logs
  /// disagree. Throws Error(kTimeout), naming the nodes that did not come.
  void restart(const std::vector<NodeId>& nodes);
  /// Joins a domain. Subscribers of volatile and logged topics catch up first.
  void join(const std::vector<NodeId>& contacts) { group_->join(contacts); }

  /// Returns the memory of a sample, to be filled in place; empty after `deadline`. Throws like
  /// Group::reserve.
  std::span<std::byte> loan(std::uint32_t topic, Time deadline = kForever) {
    return group_->reserve(topic, deadline);
  }
  void publish(std::uint32_t topic, std::uint32_t bytes) { group_->send(topic, bytes); }

  /// Takes samples of a volatile or logged topic from the history of this subscriber, from number
  /// `from` on. Samples that the history no longer has are left out.
  std::vector<Sample> read(std::uint32_t topic, std::uint64_t from, std::size_t most);
  /// Number of samples that this subscriber has had.
  std::uint64_t count(std::uint32_t topic);
  /// Makes the logs durable.
  void sync();

 private:
  bool keeps(std::uint32_t topic) const;
  void take(std::uint32_t topic, std::span<const Message> messages);
  void log_view(const ViewShape& shape, bool runs);
  void serve_clients();

  // restart.cc
  struct Standing {
    LoggedViews views;
    std::vector<std::uint64_t> counts;  // of each topic's log
  };
  void serve_restart();
  static void check_majority(const LoggedView& view, const std::vector<NodeId>& nodes);
  Standing standing() const;
  std::optional<Bytes> ask(NodeId node, ControlType type, const Bytes& request, Time deadline);
  void catch_up(std::uint32_t topic, NodeId source, bool cuts, Time deadline);
  static Standing standing_of(ByteView answer, std::size_t topics);

  Env& env_;
  const Options options_;
  const std::vector<Topic> topics_;
  Listener listener_;
  const Bugs bugs_;
  std::vector<std::unique_ptr<Reader>> readers_;  // by topic; null where nothing is kept
  std::unique_ptr<ViewLog> view_log_;             // if any topic is logged
  LoggedViews views_;
  LoggedViews before_;            // this start: others that restart too may ask when it has begun
  bool has_lost_views_ = false;   // at this start
  std::unique_ptr<Group> group_;  // last: no upcall comes after its end
};

}  // namespace pyrdma::spindle::dds
