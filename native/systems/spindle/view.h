// A view at one of its members: the shape, the table, the connections, the subgroups, and the
// machine that ends it.
#pragma once
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "systems/spindle/links.h"
#include "systems/spindle/membership/membership.h"
#include "systems/spindle/shape.h"
#include "systems/spindle/subgroup.h"
#include "systems/spindle/table.h"

namespace pyrdma::spindle {

struct View {
  View(Env& env, fabric::ProtectionDomain& domain, const Options& options, ViewShape of, Rank own,
       std::uint32_t first_joiner_rank, Bugs with)
      : shape(std::move(of)),
        self(own),
        first_joiner(first_joiner_rank),
        table(env, domain, shape, own),
        links(env, domain, options, shape.size(), own),
        membership(shape, own, options.partition_safety, with),
        rows_seen(shape.size()),
        heartbeats_seen(shape.size()),
        heard(shape.size()),
        has_new_time(shape.size()),
        hello_under_way(shape.size()),
        has_refused(shape.size()),
        has_state(shape.size()),
        knows_state(shape.size()),
        bugs(with) {
    for (Rank rank = 0; rank < shape.size(); ++rank) layouts.emplace_back(shape, rank);
    for_peers([this](Rank peer) { asleep.push_back(table.at(table.layout().asleep(peer))); });
    for (std::uint32_t g = 0; g < shape.subgroups.size(); ++g)
      subgroups.emplace_back(env, options, shape, g, own, table, layouts, links, with);
  }
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  /// Calls `act(rank)` for each other member.
  template <class Act>
  void for_peers(Act&& act) const {
    for (Rank rank = 0; rank < shape.size(); ++rank) {
      if (rank != self) act(rank);
    }
  }
  /// All others that this member does not suspect have their state and know that this member has
  /// its own, and it may write to them. So all members have agreed to a view that runs, and
  /// whatever was durable before it is so at each.
  bool is_complete() const {
    bool all = true;
    for_peers([&](Rank peer) {
      const bool has_all = (has_state[peer] || !bugs.awaits_state()) && knows_state[peer];
      all = all && (membership.is_suspected(peer) || (links.is_open(peer) && has_all));
    });
    return all;
  }
  /// All others that this member does not suspect get its rows, or have left the view.
  bool is_heard() const {
    bool all = true;
    for_peers([&](Rank peer) {
      all = all && (membership.is_suspected(peer) || links.is_open(peer) || has_refused[peer]);
    });
    return all;
  }
  /// The part of `rounds` that belongs to a subgroup.
  std::span<const std::uint64_t> of_subgroup(const Rounds& rounds, std::uint32_t subgroup) const {
    std::size_t begin = 0;
    for (std::uint32_t g = 0; g < subgroup; ++g) begin += shape.subgroups[g].senders.size();
    return std::span(rounds).subspan(begin, shape.subgroups[subgroup].senders.size());
  }
  /// What this member has received, for the control row.
  Rounds received_rounds() const {
    Rounds rounds;
    for (const Subgroup& subgroup : subgroups) {
      for (const std::uint64_t each : subgroup.received_rounds())
        rounds.push_back(subgroup.is_member() ? each : kNotCounted);
    }
    return rounds;
  }

  const ViewShape shape;
  const Rank self;
  const Rank first_joiner;  // members of this rank and above were not in the last view
  Table table;
  Links links;
  std::vector<Layout> layouts;  // of the members' tables
  std::deque<Subgroup> subgroups;
  Membership membership;
  std::vector<std::uint64_t> rows_seen, heartbeats_seen;  // of the members
  std::vector<Time> heard;                                // when the heartbeat last changed
  std::vector<bool> has_new_time;                         // since that change; see listen()
  std::vector<bool> hello_under_way;
  std::vector<bool> has_refused;  // the hello: it has left this view
  std::vector<bool> has_state;    // a joiner has none at first
  std::vector<bool> knows_state;  // it has heard that this member has its state
  const Bugs bugs;
  std::vector<const std::byte*> asleep;  // the word of each peer
  std::uint64_t heartbeats = 0;
  std::vector<Member> accepted;  // of the next view, as the host has been told last
  bool is_first = false;         // formed by found(), which waits for all
  bool is_running = false;       // all members were connected once: messages flow
  Time minority_since = kForever;
};

}  // namespace pyrdma::spindle
