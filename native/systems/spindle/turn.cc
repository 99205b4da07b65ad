// Turns of the predicate thread (section 2.4): the predicates of all subgroups, one after the
// other; then, now and then, what has a time.
#include <algorithm>
#include <mutex>

#include "base/held_flag.h"
#include "systems/spindle/group.h"
#include "systems/spindle/scopes.h"

namespace pyrdma::spindle {

namespace {

constexpr std::uint64_t kTurnsPerLook = 32;  // at the clock and the rows of members, while busy
// With Options::skip_quiet: after so many turns without an event a subgroup is looked at in every
// eighth turn.
constexpr std::uint32_t kQuietTurns = 64, kQuietPeriod = 8;
// With Options::short_sends. More parts delay the acknowledgements of this member; fewer ones make
// a batch wait for the turns of all subgroups.
constexpr int kPartsPerTurn = 4;

}  // namespace

// A busy turn ends the wait: in virtual time the turns of a wait are as long as its last one, which
// must be an idle turn.
void Group::run() {
  const auto makes_turn = [this] {
    return make_turn() || is_stopping_.load(std::memory_order_acquire);
  };
  try {
    while (!is_stopping_.load(std::memory_order_acquire)) {
      env_.poll_until(makes_turn, std::min(next_beat_, env_.now() + options_.heartbeat));
      if (is_asleep_) doze();
    }
  } catch (const Error& error) {  // an upcall has thrown, or the device has failed
    has_failed_.store(true, std::memory_order_release);
    exclude(error.what());
  }
}

bool Group::turn() {
  if (has_own_thread() || is_turning_.exchange(true, std::memory_order_acquire)) return false;
  const HeldFlag turning(&is_turning_);
  return make_turn();
}

bool Group::make_turn() {
  const Scope step(env_, scope::turn);
  ++turn_number_;
  ++past_.turns;
  bool is_busy = run_predicates(options_.skip_quiet);
  // The thread may wait only after a look at everything.
  if (!is_busy && options_.skip_quiet) is_busy = run_predicates(false);
  // A turn that has waited for room in a queue may have been as long as a heartbeat.
  const bool has_waited = view_ && view_->links.take_waited();
  if (is_busy && !has_waited && turn_number_ % kTurnsPerLook != 0) return true;
  const Time now = env_.now();
  if (is_busy) last_event_ = now;
  const bool is_urgent = has_news_.exchange(false, std::memory_order_acquire);
  if (wants_counters_.load(std::memory_order_acquire)) [[unlikely]] {
    count();
    wants_counters_.store(false, std::memory_order_release);
    env_.notify(space_);
  }
  is_busy = change_view(is_urgent) || is_busy;
  if (now >= next_beat_ || standing() != Standing::kMember || !view_->is_running ||
      view_->membership.is_changing()) {
    run_timers();
  }
  if (!is_busy && has_own_thread() && now - last_event_ > options_.idle_after &&
      standing() == Standing::kMember && view_->is_running && !view_->membership.is_changing()) {
    is_asleep_ = true;
    return true;
  }
  return is_busy;
}

bool Group::run_predicates(bool skips_quiet) {
  if (standing() != Standing::kMember || !view_->is_running) return false;
  bool is_busy = false;
  if (has_carried_.load(std::memory_order_acquire)) [[unlikely]] {
    const Locked locked(lock_);
    if (!view_->membership.row().wedged) queue_carried();
  }
  const auto count = static_cast<std::uint32_t>(view_->subgroups.size());
  for (std::uint32_t g = 0; g < count; ++g) {
    if (!view_->subgroups[g].is_member()) continue;
    if (skips_quiet && quiet_[g] > kQuietTurns && (turn_number_ + g) % kQuietPeriod != 0 &&
        !is_waiting_[g].load(std::memory_order_relaxed))
      continue;
    const Time begin = options_.timed ? env_.now() : 0;
    const bool had_event = run_subgroup(g);
    if (options_.timed) view_->subgroups[g].counters().predicate_time += env_.now() - begin;
    quiet_[g] = had_event ? 0 : quiet_[g] + 1;
    is_busy = is_busy || had_event;
  }
  if (is_busy) ring_sleepers();
  return is_busy;
}

// Each predicate is tested without the lock; its trigger runs with it. With post_unlocked the
// trigger posts after it has released the lock (section 3.4).
bool Group::run_subgroup(std::uint32_t index) {
  env_.catch_up();
  const Scope step(env_, scope::look);
  Subgroup& subgroup = view_->subgroups[index];
  const bool is_wedged = view_->membership.row().wedged;
  const auto upcall = [&](std::span<const Message> messages) { call_deliver(index, messages); };
  bool is_busy = false;
  const auto trigger = [&](auto&& act, bool is_locked) {
    is_busy = true;
    env_.catch_up();
    std::unique_lock<Mutex> locked(lock_, std::defer_lock);
    if (is_locked) locked.lock();
    Pushes pushes;
    act(pushes);  // an upcall may throw
    if (is_locked && options_.post_unlocked) locked.unlock();
    subgroup.push(pushes);
  };
  const bool is_open = !is_wedged || !bugs_.stops_at_wedge();
  if (is_open && subgroup.has_received())
    trigger([&](Pushes& pushes) { subgroup.receive(pushes, upcall); }, true);
  if (subgroup.has_stable())
    trigger([&](Pushes& pushes) { subgroup.deliver(pushes, upcall); }, !options_.unlocked_upcalls);
  if (is_open && subgroup.is_sender() && subgroup.has_queued()) {
    const std::uint64_t end = subgroup.queued();
    int parts = kPartsPerTurn;
    do {
      trigger([&](Pushes& pushes) { subgroup.send(pushes); }, true);
    } while (options_.short_sends && subgroup.pushed() < end && --parts != 0);
  }
  if (is_waiting_[index].load(std::memory_order_acquire)) wake_sender(index);
  return is_busy;
}

// The deliveries of other members free slots, without an event here.
void Group::wake_sender(std::uint32_t index) {
  const Locked locked(lock_);
  if (view_->subgroups[index].has_free_slot()) env_.notify(space_);
}

void Group::call_deliver(std::uint32_t subgroup, std::span<const Message> messages) {
  if (!upcalls_.deliver) return;
  const bool is_sample = upcall_number_++ % kUpcallsPerSample == 0;
  const Time begin = options_.timed || is_sample ? env_.now() : 0;
  call_out([&] { upcalls_.deliver(subgroup, messages); });
  const Time spent = begin != 0 ? env_.now() - begin : 0;
  if (options_.timed) past_.upcalls += spent;
  if (is_sample) sampled_upcalls_ += spent;
}

// A view that changed, and upcalls, may have taken long.
void Group::run_timers() {
  const Scope step(env_, scope::timers);
  const Time now = env_.now();
  channel_.poll();
  if (gives_up_.load(std::memory_order_acquire)) give_up();
  if (standing() == Standing::kOutside) ask_to_join(now);
  if (standing() != Standing::kMember) {
    next_beat_ = now + options_.heartbeat;
    return;
  }
  if (!view_->is_running) {
    say_hellos(now);
    ask_for_state();
    if (standing() != Standing::kMember) return;
    if (has_state_ && view_->is_complete() && !view_->membership.is_changing()) start_running();
  } else if (view_->first_joiner < view_->shape.size()) {
    say_hellos(now);  // a joiner may have lost the first one
  }
  if (now < next_beat_) return;
  next_beat_ = now + options_.heartbeat;
  find_upcall_share(now);
  beat();
  listen(now);
}

// The thread tells the others that it sleeps, and looks at the doorbells and the own queues alone.
// Whoever pushes to a sleeping member rings its doorbell. A ring that crosses the announcement is
// found at the next heartbeat, when the thread looks at everything.
void Group::doze() {
  View& view = *view_;
  const Layout& layout = view.table.layout();
  env_.reached("spindle/sleep");
  ++past_.sleeps;
  std::vector<std::uint64_t> bells(view.shape.size());
  for (Rank rank = 0; rank < view.shape.size(); ++rank)
    bells[rank] = view.table.load(layout.doorbell(rank));
  view.table.store(layout.asleep(view.self), 1);
  push_word(view, layout.asleep(view.self));
  while (!is_stopping_.load(std::memory_order_acquire)) {
    env_.sleep_until(std::min(env_.now() + options_.idle_sleep, next_beat_));
    bool is_rung = has_news_.load(std::memory_order_acquire);
    for (Rank rank = 0; rank < view.shape.size(); ++rank)
      is_rung = is_rung || view.table.load(layout.doorbell(rank)) != bells[rank];
    for (const Subgroup& subgroup : view.subgroups)
      is_rung = is_rung || (subgroup.is_sender() && subgroup.has_queued());
    if (is_rung) break;
    const Time now = env_.now();
    if (now < next_beat_) continue;
    if (run_predicates(false) || change_view(true)) break;
    if (view_.get() != &view) break;  // a view without this one's table
    run_timers();
    if (view.membership.is_changing()) break;
  }
  is_asleep_ = false;
  last_event_ = env_.now();
  if (view_.get() != &view) return;
  view.table.store(layout.asleep(view.self), 0);
  push_word(view, layout.asleep(view.self));
}

void Group::ring_sleepers() {
  View& view = *view_;
  std::uint64_t sleepers = 0;
  for (const std::byte* asleep : view.asleep)
    sleepers |= load_acquire(reinterpret_cast<const std::uint64_t*>(asleep));
  if (sleepers == 0) return;
  env_.reached("spindle/doorbell");
  const std::uint64_t at = view.table.layout().doorbell(view.self);
  view.table.store(at, view.table.load(at) + 1);
  push_word(view, at);
}

}  // namespace pyrdma::spindle
