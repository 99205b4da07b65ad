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

namespace {

constexpr std::size_t kMostPart = ControlChannel::kMostResponse - 64;  // bytes of records

}  // namespace

DomainParticipant::Standing DomainParticipant::standing() const {
  Standing standing{before_, {}};
  for (const auto& reader : readers_) {
    std::uint64_t& count = standing.counts.emplace_back();
    if (!reader || !reader->log) continue;
    const std::lock_guard<Mutex> lock(reader->mutex);
    count = reader->log->samples();
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
  // Topic, number of the first sample, the asker's chain there, the bytes of later samples that the
  // asker has. The answer: whether the chains agree, then the next bytes of samples.
  group_->channel().serve(ControlType::kRead, [this](NodeId, ByteView request) {
    Bytes answer;
    ByteWriter out(answer);
    ByteReader in(request);
    const auto t = in.get<std::uint32_t>();
    const auto from = in.get<std::uint64_t>();
    const auto chain = in.get<std::uint64_t>();
    const auto has = in.get<std::uint64_t>();
    if (!in.done() || t >= topics_.size() || !readers_[t] || !readers_[t]->log) return answer;
    const std::lock_guard<Mutex> lock(readers_[t]->mutex);
    SampleLog& log = *readers_[t]->log;
    if (from > log.samples()) return answer;
    out.put(static_cast<std::uint8_t>(log.chain(from) == chain));
    Bytes samples;
    ByteWriter all(samples);
    log.read(from, [&](const Sample& sample) {
      put_sample(all, sample.publisher, sample.bytes);
      return samples.size() < has || samples.size() - has < kMostPart;
    });
    const ByteView rest = ByteView(samples).subspan(std::min<std::size_t>(has, samples.size()));
    out.put(rest.first(std::min(rest.size(), kMostPart)));
    return answer;
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

// Returns the answer of another node's log: a byte that says whether the logs agree up to sample
// `from`, then bytes of later samples, after the first `has` ones.
Bytes DomainParticipant::ask_for_samples(std::uint32_t t, NodeId source, std::uint64_t from,
                                         std::uint64_t has, Time deadline) {
  Bytes request;
  ByteWriter out(request);
  out.put(t);
  out.put(from);
  out.put(readers_[t]->log->chain(from));
  out.put(has);
  auto answer = ask(source, ControlType::kRead, request, deadline);
  if (!answer || answer->empty()) {
    throw Error(ErrorCode::kTimeout, "restart: node " + std::to_string(source) +
                                         " did not send the log of topic '" + topics_[t].name +
                                         "'; is it up?")
        .blaming({source});
  }
  return *std::move(answer);
}

void DomainParticipant::catch_up(std::uint32_t t, NodeId source, std::uint64_t count,
                                 Time deadline) {
  Reader& reader = *readers_[t];
  Bytes part;  // of the next sample
  while (reader.log->samples() < count) {
    const Bytes answer = ask_for_samples(t, source, reader.log->samples(), part.size(), deadline);
    ByteReader in(answer);
    if (in.get<std::uint8_t>() == 0) {
      throw Error(ErrorCode::kUnavailable,
                  "restart: the logs of topic '" + topics_[t].name + "' at node " +
                      std::to_string(env_.node()) + " and node " + std::to_string(source) +
                      " disagree within the first " + std::to_string(reader.log->samples()) +
                      " samples; remove the wrong one")
          .blaming({source});
    }
    const ByteView more = in.bytes(in.left());
    if (more.empty() && env_.now() >= deadline) {
      throw Error(ErrorCode::kTimeout, "restart: node " + std::to_string(source) +
                                           " has fewer samples of topic '" + topics_[t].name +
                                           "' than it said; start all nodes again")
          .blaming({source});
    }
    part.insert(part.end(), more.begin(), more.end());
    ByteReader samples(part);
    std::size_t taken = 0;
    while (const auto sample = get_sample(samples)) {
      keep(reader, topics_[t], sample->publisher, sample->bytes);
      taken = part.size() - samples.left();
    }
    part.erase(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(taken));
    reader.log->write();
  }
  reader.log->sync();
}

// The logs agree up to some sample, and from there on in none.
void DomainParticipant::cut_what_others_lack(std::uint32_t t, NodeId source, std::uint64_t count,
                                             Time deadline) {
  Reader& reader = *readers_[t];
  std::uint64_t agree = 0, beyond = std::min(reader.log->samples(), count) + 1;
  while (agree + 1 < beyond) {
    const std::uint64_t middle = agree + (beyond - agree) / 2;
    const Bytes answer = ask_for_samples(t, source, middle, 0, deadline);
    (answer[0] != std::byte{0} ? agree : beyond) = middle;
  }
  const std::lock_guard<Mutex> lock(reader.mutex);
  cut_to(reader, agree);
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
    if (!readers_[t] || !readers_[t]->log) continue;
    // Of the subscribers in which the latest view ran, the one with the longest log.
    const auto source = std::ranges::max_element(standings, {}, [&](const auto& each) {
      const std::uint64_t count = each.second.counts[t];
      return std::tuple(topics_[t].has_subscriber(each.first), each.second.views.ran.id,
                        bugs_.copies_longest() ? count : ~count);
    });
    const auto& [node, found] = *source;
    if (before_.ran.id < found.views.ran.id)
      cut_what_others_lack(t, node, found.counts[t], deadline);
    catch_up(t, node, found.counts[t], deadline);
  }
  views_.ran = ran;  // its samples are here now
  group_->found(nodes, newest + 1);
}

}  // namespace pyrdma::spindle::dds
