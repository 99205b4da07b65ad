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

// Answers. To a hello both kReady and kNoState say that the members are connected.
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

// View, its members, the first joiner, the rank of the sender, whether it has its state, its end.
Bytes Group::hello_to(Rank peer) const {
  Bytes request;
  ByteWriter out(request);
  out.put(view_->shape.id);
  out.put(view_->shape.size());
  for (const Member& member : view_->shape.members) put_member(out, member);
  out.put(view_->first_joiner);
  out.put(view_->self);
  out.put(static_cast<std::uint8_t>(has_state_));
  put_end(out, {view_->links.address(peer), view_->table.region().remote()});
  return request;
}

void Group::say_hellos(Time now) {
  if (now < next_hello_) return;
  next_hello_ = now + std::max<Time>(options_.heartbeat / 4, 10 * kMicrosecond);
  View& view = *view_;
  view.for_peers([&](Rank peer) {
    const bool is_done = view.links.is_open(peer) && (view.knows_state[peer] || !has_state_);
    if (is_done || view.membership.is_suspected(peer) || view.hello_under_way[peer]) return;
    view.hello_under_way[peer] = true;
    channel_.ask(
        view.shape.members[peer].node, ControlType::kHello, hello_to(peer),
        [this, id = view.shape.id, peer, had_state = has_state_](std::optional<ByteView> answer) {
          if (standing() != Standing::kMember || view_->shape.id != id) return;
          view_->hello_under_way[peer] = false;
          if (!answer || !take_answer(peer, *answer)) return;
          view_->knows_state[peer] = view_->knows_state[peer] || had_state;
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
  const bool has_state = in.get<std::uint8_t>() != 0;
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
  // A hello from before may come late.
  view_->has_state[peer] = view_->has_state[peer] || has_state;
  out.put(has_state_ ? kReady : kNoState);
  put_end(out, {view_->links.address(peer), view_->table.region().remote()});
  return answer;
}

// The first rows go at once: the peer may have waited for this member alone. Returns whether it is
// connected.
bool Group::take_answer(Rank peer, ByteView answer) {
  View& view = *view_;
  ByteReader in(answer);
  const auto kind = in.get<std::uint8_t>();
  if (kind == kRefused) view.has_refused[peer] = true;
  if (kind == kNotYet) tell_last_row(peer);
  if ((kind != kReady && kind != kNoState) || view.membership.is_suspected(peer)) return false;
  const auto end = get_end(in);
  if (!end) return false;
  view.has_state[peer] = view.has_state[peer] || kind == kReady;
  if (view.links.is_open(peer)) return true;
  view.links.connect(peer, end->address, end->table);
  if (view.links.is_broken(peer)) return false;
  view.links.open(peer);
  view.heard[peer] = env_.now();
  push_control_row(&peer);
  return true;
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
  has_state_ = self < first_joiner || !upcalls_.take_state || specs_.empty();
  has_asked_state_.assign(specs_.size(), false);
  may_be_lost_.assign(specs_.size(), false);
  if (upcalls_.accept && (has_state_ || !bugs_.accepts_with_state()))
    call_out([&] { upcalls_.accept(shape); });
  enter(std::make_unique<View>(env_, *domain_, options_, std::move(shape), self, first_joiner,
                               bugs_));
}

// State: the view, the subgroup, the request of the upcall. The answer: what is ready, then the
// answer of the upcall, or of a member without state whether the last copy may be gone.
Bytes Group::take_state_request(NodeId asker, ByteView request) {
  Bytes answer;
  ByteWriter out(answer);
  ByteReader in(request);
  const auto id = in.get<std::uint64_t>();
  const auto subgroup = in.get<std::uint32_t>();
  const bool is_here = in.ok() && standing() == Standing::kMember && view_->shape.id == id &&
                       view_->self < view_->first_joiner && view_->shape.rank_of_node(asker);
  // A view runs when no joiner lacks state. From then on messages change it.
  if (!is_here || (view_->is_running && bugs_.awaits_state()) || subgroup >= specs_.size()) {
    out.put(kNotYet);
    return answer;
  }
  if (!has_state_) {
    out.put(kNoState);
    out.put(static_cast<std::uint8_t>(may_be_lost_[subgroup]));
    return answer;
  }
  std::optional<Bytes> part;
  if (upcalls_.give_state)
    call_out([&] { part = upcalls_.give_state(subgroup, in.bytes(in.left())); });
  out.put(part ? kReady : kRefused);
  if (part) out.put(ByteView(*part));
  return answer;
}

// The joiner asks for one subgroup after the other, each time its oldest member that it does not
// suspect and that keeps state. Nothing is delivered in a view whose joiner has no state, so the
// state of an older view serves.
void Group::ask_for_state() {
  if (has_state_ || state_under_way_) return;
  const View& view = *view_;
  for (std::uint32_t g = 0; g < specs_.size(); ++g) {
    Coming& coming = coming_[g];
    if (coming.is_whole) continue;
    std::optional<Bytes> asked;
    if (view.subgroups[g].is_member())
      call_out([&] { asked = upcalls_.ask_state(g, !has_asked_state_[g]); });
    has_asked_state_[g] = true;
    while (coming.source < view.first_joiner &&
           (!is_source(g, coming.source) || view.membership.is_suspected(coming.source)))
      ++coming.source;
    coming.is_whole = !asked || (coming.source == view.first_joiner && is_without_state(g));
    if (coming.is_whole) continue;
    if (standing() == Standing::kMember && coming.source < view.first_joiner)
      send_state_request(g, *asked);
    return;
  }
  begin_with_state();
}

/// An older member of the subgroup.
bool Group::is_source(std::uint32_t subgroup, Rank rank) const {
  return rank < view_->first_joiner && rank != view_->self &&
         view_->shape.subgroups[subgroup].member_index(rank) != kNotHere;
}

// Nobody is left to ask. A subgroup has no state if all of its older members say so, and none of
// them has gone without a word. A view that consists of joiners alone has lost the state: who had
// it at the begin of a view says so when it is asked.
bool Group::is_without_state(std::uint32_t subgroup) {
  const Coming& coming = coming_[subgroup];
  Rank sources = 0, silent = 0;
  for (Rank rank = 0; rank < view_->first_joiner; ++rank) {
    if (!is_source(subgroup, rank)) continue;
    ++sources;
    silent += (coming.without & bit_of(rank)) == 0 ? 1 : 0;
  }
  if (coming.is_wrong) {
    exclude(
        "the state that the members of the view have does not verify: is a log damaged? Open it "
        "again at its node");
    return false;
  }
  if (!bugs_.knows_lost_state() && coming.without != 0 && coming.stateless < sources) return true;
  if (silent != 0) return false;  // the next view is without them
  const bool is_lost = may_be_lost_[subgroup] || (sources != 0 && coming.stateless == sources);
  if (!is_lost) return true;
  exclude(
      "no member of the view has the state of the group: its last holder has died, or is cut off, "
      "before it could hand it on; restart the group, from its logs if it has some");
  return false;
}

// A view ends while this joiner has no state. Who leaves it may have had the last copy.
void Group::note_lost_state(const ViewShape& next) {
  if (has_state_) return;
  for (std::uint32_t g = 0; g < specs_.size(); ++g) {
    for (Rank rank = 0; rank < view_->first_joiner; ++rank) {
      const bool may_keep = is_source(g, rank) && (coming_[g].without & bit_of(rank)) == 0;
      if (may_keep && !next.rank_of(view_->shape.members[rank])) may_be_lost_[g] = true;
    }
  }
}

void Group::send_state_request(std::uint32_t subgroup, ByteView asked) {
  Bytes request;
  ByteWriter out(request);
  out.put(view_->shape.id);
  out.put(subgroup);
  out.put(asked);
  state_under_way_ = true;
  channel_.ask(view_->shape.members[coming_[subgroup].source].node, ControlType::kState, request,
               [this, id = view_->shape.id, subgroup](std::optional<ByteView> answer) {
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
    coming.without |= bit_of(coming.source);
    coming.stateless += kind == kNoState ? 1 : 0;
    if (kind == kNoState && in.get<std::uint8_t>() != 0) may_be_lost_[subgroup] = true;
    ++coming.source;
  }
  if (kind != kReady) return;
  bool is_right = false;
  call_out([&] { is_right = upcalls_.take_state(subgroup, in.bytes(in.left())); });
  if (is_right) return;
  coming.is_wrong = true;
  ++coming.source;
}

// The others wait for a hello that says so.
void Group::begin_with_state() {
  env_.reached("spindle/state_transferred");
  has_state_ = true;
  // Joiners of a later view than this member's first one may ask it.
  if (whole_state_ && view_->self < view_->first_joiner) save_whole_state();
  if (upcalls_.accept) call_out([&] { upcalls_.accept(view_->shape); });
  tell_accepted();
  next_hello_ = 0;
  if (upcalls_.view) call_out([&] { upcalls_.view(view_->shape); });
}

}  // namespace pyrdma::spindle
