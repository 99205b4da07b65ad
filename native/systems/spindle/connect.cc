// Joins, the connections of a new view, and state for joiners. Each member asks each other one for
// the address of its end, and gives its own; the other one connects before it answers. So a member
// that has an answer may write.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "systems/spindle/group.h"

namespace pyrdma::spindle {

namespace {

constexpr std::uint8_t kNotYet = 0, kReady = 1, kRefused = 2, kNoState = 3;

void put_member(ByteWriter& out, Member member) {
  out.put(member.node);
  out.put(member.incarnation);
}

Member get_member(ByteReader& in) {
  Member member;
  member.node = in.get<std::uint32_t>();
  member.incarnation = in.get<std::uint32_t>();
  return member;
}

/// The end of a connection: how to connect to it, and the table that it leads to.
struct End {
  fabric::QpAddress address;
  fabric::RemoteRegion table;
};
static_assert(std::is_trivially_copyable_v<End>);

void put_end(ByteWriter& out, const End& end) {
  out.put(ByteView(reinterpret_cast<const std::byte*>(&end), sizeof end));
}

std::optional<End> get_end(ByteReader& in) {
  End end;
  const ByteView bytes = in.bytes(sizeof end);
  if (bytes.empty()) return std::nullopt;
  std::memcpy(&end, bytes.data(), sizeof end);
  return end;
}

}  // namespace

void Group::serve_requests() {
  // Join: the joiner. The answer is empty; the joiner is in when it gets a hello.
  channel_.serve(ControlType::kJoin, [this](NodeId from, ByteView request) {
    ByteReader in(request);
    const Member joiner = get_member(in);
    if (in.done() && joiner.node == from && standing() == Standing::kMember) {
      const Locked locked(lock_);
      view_->membership.ask_to_join(joiner);
      has_news_.store(true, std::memory_order_release);
    }
    return Bytes();
  });
  channel_.serve(ControlType::kHello,
                 [this](NodeId from, ByteView request) { return take_hello(from, request); });
  channel_.serve(ControlType::kState, [this](NodeId from, ByteView request) {
    return take_state_request(from, request);
  });
  channel_.serve(ControlType::kLastRow, [this](NodeId from, ByteView request) {
    take_last_row(from, request);
    return Bytes();
  });
}

// Every contact hears of the joiner, since any of them may lead the view.
void Group::ask_to_join(Time now) {
  if (contacts_.empty() || now < next_join_) return;
  next_join_ = now + options_.suspicion_timeout / 4;
  Bytes request;
  ByteWriter out(request);
  put_member(out, self_);
  if (channel_.under_way() > 4 * contacts_.size()) return;
  for (const NodeId contact : contacts_)
    channel_.ask(contact, ControlType::kJoin, request, [](std::optional<ByteView>) {});
}

// The time of found() or join() is over, and its view does not run.
void Group::give_up() {
  gives_up_.store(false, std::memory_order_release);
  if (standing() == Standing::kOutside)
    exclude("is one of them a member, and has its view a majority?");
  else if (standing() == Standing::kMember && !view_->is_running)
    exclude("its view does not begin: a member of it does not answer, or changes it; join() again");
}

// View, its members, the first joiner, the rank of the sender, its end.
Bytes Group::hello_to(Rank peer) const {
  Bytes request;
  ByteWriter out(request);
  out.put(view_->shape.id);
  out.put(view_->shape.size());
  for (const Member& member : view_->shape.members) put_member(out, member);
  out.put(view_->first_joiner);
  out.put(view_->self);
  put_end(out, {view_->links.address(peer), view_->table.region().remote()});
  return request;
}

void Group::say_hellos(Time now) {
  if (now < next_hello_) return;
  next_hello_ = now + std::max<Time>(options_.heartbeat / 4, 10 * kMicrosecond);
  View& view = *view_;
  view.for_peers([&](Rank peer) {
    if (view.links.is_open(peer) || view.membership.is_suspected(peer) ||
        view.hello_under_way[peer])
      return;
    view.hello_under_way[peer] = true;
    channel_.ask(view.shape.members[peer].node, ControlType::kHello, hello_to(peer),
                 [this, id = view.shape.id, peer](std::optional<ByteView> answer) {
                   if (standing() != Standing::kMember || view_->shape.id != id) return;
                   view_->hello_under_way[peer] = false;
                   if (answer) take_answer(peer, *answer);
                 });
  });
}

Bytes Group::take_hello(NodeId from, ByteView request) {
  Bytes answer;
  ByteWriter out(answer);
  ByteReader in(request);
  const auto id = in.get<std::uint64_t>();
  const auto size = in.get<std::uint32_t>();
  if (!in.ok() || size == 0 || size > kMostMembers) return answer;
  std::vector<Member> members;
  for (std::uint32_t i = 0; i < size; ++i) {
    const Member member = get_member(in);
    if (member.node >= env_.nodes() ||
        std::ranges::find(members, member.node, &Member::node) != members.end())
      return answer;
    members.push_back(member);
  }
  const auto first_joiner = in.get<std::uint32_t>();
  const auto peer = in.get<std::uint32_t>();
  const auto end = get_end(in);
  if (!end || !in.done() || peer >= size || members[peer].node != from || first_joiner > size)
    return answer;
  if (standing() == Standing::kOutside && !contacts_.empty() && rank_in(members)) {
    enter_first(members, id, first_joiner);
  }
  const bool is_member = standing() == Standing::kMember;
  const bool is_same = is_member && view_->shape.id == id && view_->shape.members == members;
  if (!is_same) {
    const bool is_late = view_ && view_->shape.id >= id;
    out.put(is_late ? kRefused : kNotYet);
    return answer;
  }
  if (peer == view_->self || view_->membership.is_suspected(peer)) {
    out.put(kRefused);
    return answer;
  }
  view_->links.connect(peer, end->address, end->table);
  out.put(kReady);
  put_end(out, {view_->links.address(peer), view_->table.region().remote()});
  return answer;
}

// The first rows go at once: the peer may have waited for this member alone.
void Group::take_answer(Rank peer, ByteView answer) {
  View& view = *view_;
  ByteReader in(answer);
  const auto kind = in.get<std::uint8_t>();
  if (kind == kRefused) view.has_refused[peer] = true;
  if (kind == kNotYet) tell_last_row(peer);
  if (kind != kReady || view.membership.is_suspected(peer)) return;
  const auto end = get_end(in);
  if (!end) return;
  view.links.connect(peer, end->address, end->table);
  if (view.links.is_broken(peer)) return;
  view.links.open(peer);
  view.heard[peer] = env_.now();
  push_control_row(&peer);
}

// The peer is still in the last view: the row that told it of the end may have been lost with its
// connection. The row: the view, the rank in it, the bytes.
void Group::tell_last_row(Rank peer) {
  if (old_views_.empty() || old_views_.back()->shape.id + 1 != view_->shape.id) return;
  const View& last = *old_views_.back();
  if (!last.shape.rank_of(view_->shape.members[peer])) return;
  Bytes request;
  ByteWriter out(request);
  out.put(last.shape.id);
  out.put(last.self);
  out.put(ByteView(encode(last.membership.row())));
  channel_.ask(view_->shape.members[peer].node, ControlType::kLastRow, request,
               [](std::optional<ByteView>) {});
}

void Group::take_last_row(NodeId from, ByteView request) {
  ByteReader in(request);
  const auto id = in.get<std::uint64_t>();
  const auto rank = in.get<std::uint32_t>();
  if (!in.ok() || standing() != Standing::kMember || view_->shape.id != id ||
      rank >= view_->shape.size() || view_->shape.members[rank].node != from)
    return;
  auto row = decode(in.bytes(in.left()), view_->shape, env_.nodes(), bugs_);
  if (!row) return;
  env_.reached("spindle/last_row_by_channel");
  const Locked locked(lock_);
  view_->membership.take_row(rank, std::move(*row));
  has_news_.store(true, std::memory_order_release);
}

/// The place of this start of this node.
std::optional<Rank> Group::rank_in(const std::vector<Member>& members) const {
  const auto found = std::ranges::find(members, self_);
  if (found == members.end()) return std::nullopt;
  return static_cast<Rank>(found - members.begin());
}

void Group::enter_first(std::vector<Member> members, std::uint64_t id, Rank first_joiner) {
  const Rank self = *rank_in(members);
  ViewShape shape = ViewShape::of(id, std::move(members), specs_);
  has_state_ = self < first_joiner || !upcalls_.load || specs_.empty();
  if (upcalls_.accept) call_out([&] { upcalls_.accept(shape); });
  enter(std::make_unique<View>(env_, *domain_, options_, std::move(shape), self, first_joiner,
                               bugs_));
}

// State: the view, the subgroup, the place in its state. The answer: what is ready, the length of
// the state, the next bytes.
void Group::save_states() {
  states_.clear();
  for (std::uint32_t g = 0; g < specs_.size(); ++g)
    call_out([&] { states_.push_back(upcalls_.save ? upcalls_.save(g) : std::nullopt); });
}

Bytes Group::take_state_request(NodeId asker, ByteView request) {
  Bytes answer;
  ByteWriter out(answer);
  ByteReader in(request);
  const auto id = in.get<std::uint64_t>();
  const auto subgroup = in.get<std::uint32_t>();
  const auto from = in.get<std::uint64_t>();
  const bool is_here = standing() == Standing::kMember && view_->shape.id == id &&
                       view_->self < view_->first_joiner && view_->shape.rank_of_node(asker);
  if (is_here && !has_state_) {
    out.put(kNoState);
    return answer;
  }
  if (!in.done() || !is_here || subgroup >= states_.size()) {
    out.put(kNotYet);
    return answer;
  }
  if (!states_[subgroup] || from > states_[subgroup]->size()) {
    out.put(kRefused);
    return answer;
  }
  const ByteView state = *states_[subgroup];
  constexpr std::size_t kMost = ControlChannel::kMostResponse - 64;
  out.put(kReady);
  out.put(static_cast<std::uint64_t>(state.size()));
  out.put(state.subspan(from, std::min(kMost, state.size() - from)));
  return answer;
}

// The joiner asks for one subgroup after the other, each time the oldest member that it does not
// suspect and that keeps state. Nothing is delivered in a view whose joiner has no state, so the
// state of an older view serves. A view that consists of joiners alone has lost the state: who had
// it at the begin of a view says so when it is asked.
void Group::ask_for_state() {
  if (has_state_ || state_under_way_) return;
  View& view = *view_;
  auto missing = std::ranges::find(coming_, false, &Coming::is_whole);
  for (; missing != coming_.end(); missing = std::ranges::find(coming_, false, &Coming::is_whole)) {
    while (missing->source < view.first_joiner &&
           (missing->source == view.self || view.membership.is_suspected(missing->source))) {
      ++missing->source;
      missing->bytes.clear();
    }
    if (missing->source < view.first_joiner) break;
    if (!missing->is_refused) {
      const Rank asked = view.first_joiner - (view.self < view.first_joiner ? 1 : 0);
      if (missing->without_state == asked)
        exclude(
            "no member of the view has the state of the group: its last holder has died, or "
            "is cut off, before it could hand it on; restart the group, from its logs if it "
            "has some");
      return;  // else the next view is without the others
    }
    missing->is_whole = true;  // nobody keeps state of this subgroup
  }
  if (missing == coming_.end()) return load_states();
  const auto subgroup = static_cast<std::uint32_t>(missing - coming_.begin());
  Bytes request;
  ByteWriter out(request);
  out.put(view.shape.id);
  out.put(subgroup);
  out.put(static_cast<std::uint64_t>(missing->bytes.size()));
  state_under_way_ = true;
  channel_.ask(view.shape.members[missing->source].node, ControlType::kState, request,
               [this, id = view.shape.id, subgroup](std::optional<ByteView> answer) {
                 if (standing() != Standing::kMember || view_->shape.id != id) return;
                 state_under_way_ = false;
                 if (answer) take_state(subgroup, *answer);
               });
}

void Group::take_state(std::uint32_t subgroup, ByteView answer) {
  ByteReader in(answer);
  const auto kind = in.get<std::uint8_t>();
  Coming& coming = coming_[subgroup];
  if (kind == kRefused || kind == kNoState) {
    coming.is_refused = coming.is_refused || kind == kRefused;
    coming.without_state += kind == kNoState;
    ++coming.source;
    return coming.bytes.clear();
  }
  if (kind != kReady) return;
  const auto whole = in.get<std::uint64_t>();
  const ByteView more = in.bytes(in.left());
  coming.bytes.insert(coming.bytes.end(), more.begin(), more.end());
  coming.is_whole = coming.has_state = coming.bytes.size() >= whole;
}

void Group::load_states() {
  env_.reached("spindle/state_transferred");
  for (std::uint32_t g = 0; g < specs_.size(); ++g) {
    if (!coming_[g].has_state || !view_->subgroups[g].is_member()) continue;
    call_out([&] { upcalls_.load(g, coming_[g].bytes); });
  }
  coming_.assign(specs_.size(), {});
  has_state_ = true;
  if (view_->first_joiner < view_->shape.size()) save_states();
  if (upcalls_.view) call_out([&] { upcalls_.view(view_->shape); });
}

}  // namespace pyrdma::spindle
