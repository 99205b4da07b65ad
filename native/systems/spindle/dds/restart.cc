// A domain begins again from its logs (total restart). The logs of one view are prefixes of one
// sequence, because all members of a view deliver the same samples in the same order. So the
// longest one has all samples that any of them has logged. A node that was not in the last view may
// have others: the domain was restarted without it.
#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "runtime/caller.h"
#include "systems/spindle/dds/participant.h"

namespace pyrdma::spindle::dds {

DomainParticipant::Standing DomainParticipant::standing() const {
  Standing standing{before_, {}};
  for (const auto& reader : readers_) {
    standing.counts.push_back(reader && reader->is_logged() ? reader->count() : 0);
  }
  return standing;
}

void DomainParticipant::serve_restart() {
  group_->channel().serve(ControlType::kRestart, [this](NodeId, ByteView) {
    Bytes answer;
    if (has_lost_views_) return answer;
    const Standing own = standing();
    ByteWriter out(answer);
    put_views(out, own.views);
    for (const std::uint64_t count : own.counts) out.put(count);
    return answer;
  });
  // A topic, and a question to its reader.
  group_->channel().serve(ControlType::kRead, [this](NodeId, ByteView request) {
    ByteReader in(request);
    const auto t = in.get<std::uint32_t>();
    if (!in.ok() || t >= topics_.size() || !readers_[t] || !readers_[t]->is_logged())
      return Bytes();
    return readers_[t]->answer(in.bytes(in.left()));
  });
}

DomainParticipant::Standing DomainParticipant::standing_of(ByteView answer, std::size_t topics) {
  ByteReader in(answer);
  Standing standing;
  standing.views = get_views(in);
  for (std::size_t t = 0; t < topics; ++t) standing.counts.push_back(in.get<std::uint64_t>());
  if (!in.done()) {
    throw Error(ErrorCode::kInvalidArgument,
                "restart: a node has other topics; give all nodes the same ones");
  }
  return standing;
}

std::optional<Bytes> DomainParticipant::ask(NodeId node, ControlType type, const Bytes& request,
                                            Time deadline) {
  std::optional<Bytes> answer;
  bool is_done = false;
  while (env_.now() < deadline) {
    is_done = false;
    group_->channel().ask(node, type, request, [&](std::optional<ByteView> got) {
      is_done = true;
      if (got) answer = Bytes(got->begin(), got->end());
    });
    group_->channel().run_until([&] { return is_done; }, kForever);
    if (answer) return answer;
    env_.sleep_until(env_.now() + 10 * kMicrosecond);
  }
  return std::nullopt;
}

void DomainParticipant::catch_up(std::uint32_t t, NodeId source, bool cuts, Time deadline) {
  Reader& reader = *readers_[t];
  reader.begin_to_ask(cuts);
  while (const auto question = reader.ask()) {
    Bytes request;
    ByteWriter out(request);
    out.put(t);
    out.put(ByteView(*question));
    const auto answer = ask(source, ControlType::kRead, request, deadline);
    if (!answer || answer->empty()) {
      throw Error(ErrorCode::kTimeout, "restart: node " + std::to_string(source) +
                                           " did not send the log of topic '" + topics_[t].name +
                                           "'; is it up?")
          .blaming({source});
    }
    if (reader.take(*answer)) continue;
    throw Error(ErrorCode::kUnavailable,
                "restart: the logs of topic '" + topics_[t].name + "' at node " +
                    std::to_string(env_.node()) + " and node " + std::to_string(source) +
                    " disagree within the first " + std::to_string(reader.count()) +
                    " samples, or the next one is damaged; remove the wrong log")
        .blaming({source});
  }
}

void DomainParticipant::check_majority(const LoggedView& view, const std::vector<NodeId>& nodes) {
  std::vector<NodeId> absent = view.members;
  std::erase_if(absent, [&](NodeId node) { return std::ranges::count(nodes, node) != 0; });
  const std::size_t present = view.members.size() - absent.size();
  if (2 * present > view.members.size()) return;
  throw Error(ErrorCode::kUnavailable, "restart: " + std::to_string(present) + " of the " +
                                           std::to_string(view.members.size()) +
                                           " members of the last view, " + std::to_string(view.id) +
                                           ", are no majority; start the nodes" +
                                           runtime::text_of(absent) + " too")
      .blaming(absent);
}

void DomainParticipant::restart(const std::vector<NodeId>& nodes) {
  if (has_lost_views_) {
    throw Error(ErrorCode::kUnavailable,
                "restart: the log of views of node " + std::to_string(env_.node()) +
                    " was damaged, so it must not vouch for a view; restart the others, and let it "
                    "join()");
  }
  const Time deadline = env_.now() + options_.join_timeout;
  std::vector<std::pair<NodeId, Standing>> standings{{env_.node(), standing()}};
  std::vector<NodeId> missing;
  for (const NodeId node : nodes) {
    if (node == env_.node()) continue;
    const auto answer = ask(node, ControlType::kRestart, {}, deadline);
    if (answer && !answer->empty())
      standings.emplace_back(node, standing_of(*answer, topics_.size()));
    else
      missing.push_back(node);
  }
  if (!missing.empty()) {
    throw Error(ErrorCode::kTimeout, "restart: no answer from the nodes" +
                                         runtime::text_of(missing) +
                                         "; do they restart too, with whole logs of views?")
        .blaming(missing);
  }
  std::vector<NodeId> present;
  std::vector<LoggedViews> known;
  LoggedView ran;
  std::uint64_t newest = 0;
  for (const auto& [node, each] : standings) {
    present.push_back(node);
    known.push_back(each.views);
    newest = std::max(newest, each.views.accepted.id);
    if (each.views.ran.id > ran.id) ran = each.views.ran;
  }
  const std::vector<LoggedView> views = must_have_majority(present, known);
  if (views.empty()) {
    throw Error(ErrorCode::kUnavailable,
                "restart: no log of the nodes" + runtime::text_of(nodes) +
                    " names a view that may have run; create() the domain, or start those that "
                    "have logs too");
  }
  for (const LoggedView& view : views) check_majority(view, nodes);
  for (std::uint32_t t = 0; t < topics_.size(); ++t) {
    if (!readers_[t] || !readers_[t]->is_logged()) continue;
    // Of the subscribers in which the latest view ran, the one with the longest log.
    const auto source = std::ranges::max_element(standings, {}, [&](const auto& each) {
      const std::uint64_t count = each.second.counts[t];
      return std::tuple(topics_[t].has_subscriber(each.first), each.second.views.ran.id,
                        bugs_.copies_longest() ? count : ~count);
    });
    const auto& [node, found] = *source;
    if (node != env_.node()) catch_up(t, node, before_.ran.id < found.views.ran.id, deadline);
  }
  views_.ran = ran;  // its samples are here now
  group_->found(nodes, newest + 1);
}

}  // namespace pyrdma::spindle::dds
