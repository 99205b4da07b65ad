// A view ends, and the next one begins. membership/membership.h has the protocol; here are the
// effects of its steps.
#include <algorithm>
#include <utility>

#include "systems/spindle/group.h"
#include "systems/spindle/scopes.h"

namespace pyrdma::spindle {

// Returns whether anything happened. `is_urgent`: something local has changed.
bool Group::change_view(bool is_urgent) {
  if (standing() != Standing::kMember) return false;
  const Scope step(env_, scope::change);
  Membership& membership = view_->membership;
  if (is_leaving_.load(std::memory_order_acquire)) {
    if (view_->shape.size() == 1) {
      standing_.store(Standing::kLeft, std::memory_order_release);
      env_.notify(space_);
      return true;
    }
    const Locked locked(lock_);
    membership.ask_to_leave();
    is_urgent = true;
  }
  if (!take_rows() && !is_urgent && !membership.is_changing()) return false;
  bool has_changed = false;
  {
    const Locked locked(lock_);
    has_changed = membership.step();
    if (membership.is_to_wedge()) {
      wedge();
      has_changed = membership.step() || has_changed;
    }
  }
  if (has_changed) {
    tell_accepted();
    push_control_row();
  }
  const Time now = env_.now();
  if (!membership.lacks_majority()) {
    view_->minority_since = kForever;
  } else if (view_->minority_since == kForever) {
    view_->minority_since = now;
  } else if (now - view_->minority_since > 4 * options_.suspicion_timeout) {
    exclude(
        "fewer than a majority of the last view answer, so that this node may not install "
        "another one (partition_safety): join() again when the others are reachable, or "
        "restart the group from its logs");
    return true;
  }
  // The others wait for the row that says so.
  if (membership.is_agreed() && view_->is_heard()) {
    install();
    return true;
  }
  return has_changed;
}

// The others may enter the next view when they see that this member accepts it. A later leader may
// propose another one. A joiner without state accepts nothing yet.
void Group::tell_accepted() {
  const Membership& membership = view_->membership;
  if (!membership.row().accepted || !has_state_) return;
  const std::vector<Member> next = membership.next_members();
  if (next == view_->accepted) return;
  view_->accepted = next;
  if (!upcalls_.accept) return;
  call_out([&] { upcalls_.accept(ViewShape::of(view_->shape.id + 1, next, specs_)); });
}

bool Group::take_rows() {
  View& view = *view_;
  bool has_new = false;
  view.for_peers([&](Rank peer) {
    const std::uint64_t at = view.table.layout().control(peer);
    const std::uint64_t version = version_of(view.table.at(at));
    if (version == view.rows_seen[peer]) return;
    Bytes bytes(view.table.layout().control_bytes());
    copy_from_shared(bytes.data(), view.table.at(at), bytes.size());
    auto row = decode(bytes, view.shape, env_.nodes(), bugs_);
    if (!row) {
      env_.reached("spindle/torn_row");
      return;
    }
    view.rows_seen[peer] = row->version;
    view.membership.take_row(peer, std::move(*row));
    has_new = true;
  });
  return has_new;
}

// The NIC may read the row while a newer one is written: the reader then waits for that one.
void Group::push_control_row(const Rank* only) {
  View& view = *view_;
  const Bytes bytes = encode(view.membership.row());
  const std::uint64_t at = view.table.layout().control(view.self);
  copy_to_shared(view.table.at(at), bytes.data(), bytes.size());
  const fabric::Sge piece = view.table.region().sge(at, static_cast<std::uint32_t>(bytes.size()));
  view.for_peers([&](Rank peer) {
    if (only == nullptr || peer == *only) view.links.write(peer, piece, at, false);
  });
}

void Group::wedge() {
  env_.reached("spindle/wedge");
  view_->membership.wedged(view_->received_rounds());
}

// The last deliveries of the view, then the next view.
void Group::install() {
  View& view = *view_;
  const Membership& membership = view.membership;
  std::vector<Carried> again;
  std::vector<std::uint64_t> delivered(specs_.size());  // own messages
  // A member that the others took for dead may lack messages that they deliver.
  for (std::uint32_t g = 0; g < view.subgroups.size() && membership.has_trim(); ++g) {
    Subgroup& subgroup = view.subgroups[g];
    if (!subgroup.is_member()) continue;
    const auto trim = view.of_subgroup(membership.trim(), g);
    subgroup.deliver_to(trim,
                        [&](std::span<const Message> messages) { call_deliver(g, messages); });
    delivered[g] = subgroup.queued();
    for (Bytes& message : subgroup.not_delivered(trim)) {
      again.push_back({g, std::move(message)});
      --delivered[g];
    }
  }
  if (upcalls_.persist) call_out(upcalls_.persist);
  if (!membership.stays()) {
    view.links.drain(env_.now() + options_.suspicion_timeout);
    const Locked locked(lock_);
    standing_.store(
        is_leaving_.load(std::memory_order_acquire) ? Standing::kLeft : Standing::kExcluded,
        std::memory_order_release);
    why_excluded_ = "the others took it for dead: join() again";
    env_.notify(space_);
    return;
  }
  const std::vector<Member> members = membership.next_members();
  const auto survivors = static_cast<Rank>(std::ranges::count_if(
      members, [&](const Member& member) { return view.shape.rank_of(member).has_value(); }));
  ViewShape shape = ViewShape::of(view.shape.id + 1, members, specs_);
  const Rank self = *shape.rank_of(self_);
  std::unique_ptr<View> next;
  call_out([&] {  // the NIC makes connections
    next =
        std::make_unique<View>(env_, *domain_, options_, std::move(shape), self, survivors, bugs_);
  });
  {
    const Locked locked(lock_);
    // Messages that were reserved before the view ended, and messages of a view that never ran,
    // come after those that the view has queued.
    if (bugs_.sends_again())
      carried_.insert(carried_.begin(), std::make_move_iterator(again.begin()),
                      std::make_move_iterator(again.end()));
    if (!again.empty()) env_.reached("spindle/sent_again");
    for (std::uint32_t g = 0; g < view.subgroups.size(); ++g) {
      past_.subgroups[g].add(view.subgroups[g].counters());
      sent_before_[g] += delivered[g];
    }
    past_.requests += view.links.posted();
    past_.doorbells += view.links.doorbells();
    view.is_running = false;  // its deliveries are in sent_before_
  }
  view.links.signal_last();
  note_lost_state(next->shape);
  if (whole_state_ && has_state_ && survivors < members.size()) save_whole_state();
  enter(std::move(next));
}

void Group::enter(std::unique_ptr<View> next) {
  {
    const Locked locked(lock_);
    is_running_.store(false, std::memory_order_release);
    if (view_) old_views_.push_back(std::move(view_));
    view_ = std::move(next);
    ++past_.views;
    view_id_.store(view_->shape.id, std::memory_order_release);
    standing_.store(Standing::kMember, std::memory_order_release);
  }
  coming_.assign(specs_.size(), {});
  state_under_way_ = false;
  std::ranges::fill(quiet_, 0);
  next_hello_ = next_beat_ = 0;
  last_event_ = env_.now();
  std::ranges::fill(view_->heard, last_event_);
  if (has_state_ && upcalls_.view) call_out([&] { upcalls_.view(view_->shape); });
}

// The effect of the messages so far, without what the upcall of the next view makes of it: a joiner
// has that upcall, too.
void Group::save_whole_state() {
  for (std::uint32_t g = 0; g < view_->subgroups.size(); ++g)
    if (view_->subgroups[g].is_member()) call_out([&] { whole_state_->save(g); });
}

void Group::start_running() {
  if (whole_state_) whole_state_->drop();
  if (upcalls_.run) call_out([&] { upcalls_.run(view_->shape); });
  {
    const Locked locked(lock_);
    view_->is_running = true;
    is_running_.store(true, std::memory_order_release);
    queue_carried();
  }
  env_.notify(space_);
}

// Once this member hears all others in the view, nobody needs the old ones but those who build a
// message there, and members that have left and wait for the last row.
void Group::drop_old_views() {
  const View& view = *view_;
  bool hears_all = view.is_running;
  view.for_peers([&](Rank peer) {
    hears_all = hears_all && view.table.load(view.table.layout().heartbeat(peer)) != 0;
  });
  if (!hears_all) return;
  const Locked locked(lock_);
  std::erase_if(old_views_, [&](const std::unique_ptr<View>& old) {
    return old->links.is_drained() && std::ranges::none_of(reserved_, [&](const Reserved& each) {
             return each.view == old.get();
           });
  });
}

// A ring that was full, and a message that was reserved, are more than a ring: the last one waits
// for a slot, and new messages wait for it. Under the lock.
void Group::queue_carried() {
  std::vector<bool> is_full(specs_.size());
  std::erase_if(carried_, [&](const Carried& carried) {
    Subgroup& subgroup = view_->subgroups[carried.subgroup];
    if (!subgroup.is_sender()) return true;
    if (is_full[carried.subgroup]) return false;
    const std::span<std::byte> slot = subgroup.acquire();
    if (slot.empty()) {
      is_full[carried.subgroup] = true;
      return false;
    }
    std::ranges::copy(carried.message, slot.begin());
    subgroup.commit(static_cast<std::uint32_t>(carried.message.size()));
    subgroup.flush();  // it was on its way
    return true;
  });
  has_carried_.store(!carried_.empty(), std::memory_order_release);
}

void Group::exclude(const char* why) {
  env_.reached("spindle/excluded");
  if (view_) view_->for_peers([this](Rank peer) { view_->links.close(peer); });
  {
    const Locked locked(lock_);
    why_excluded_ = why;
    carried_.clear();
    has_carried_.store(false, std::memory_order_release);
    standing_.store(Standing::kExcluded, std::memory_order_release);
  }
  env_.notify(space_);
}

}  // namespace pyrdma::spindle
