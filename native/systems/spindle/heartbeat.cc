// Heartbeats: a member says that it lives, and suspects those that do not. The thread that makes
// turns beats between its turns. An upcall may take as long as it likes, or block: meanwhile
// another thread beats in its place.
#include <algorithm>

#include "base/error.h"
#include "systems/spindle/group.h"

namespace pyrdma::spindle {

// Of some heartbeats at least, and of as many upcalls as a sample stands for, if there are any.
void Group::find_upcall_share(Time now) {
  constexpr Time kBeats = 16;
  const std::uint32_t upcalls = upcall_number_ - sampled_from_;
  if (now - sampled_since_ < kBeats * options_.heartbeat ||
      (upcalls != 0 && upcalls < kUpcallsPerSample))
    return;
  const Time all = sampled_upcalls_ * kUpcallsPerSample;
  upcall_percent_ =
      static_cast<std::uint32_t>(std::min<Time>(100, all * 100 / (now - sampled_since_)));
  sampled_upcalls_ = 0;
  sampled_since_ = now;
  sampled_from_ = upcall_number_;
}

// A member whose new view does not run yet is heard in the old one too: the others may be there
// still, or it may not write to all of them in the new one.
void Group::beat() {
  beat_in(*view_);
  if (!view_->is_running && !old_views_.empty()) beat_in(*old_views_.back());
}

void Group::beat_in(View& view) {
  const std::uint64_t at = view.table.layout().heartbeat(view.self);
  view.table.store(at, ++view.heartbeats << kPercentBits | upcall_percent_);
  push_word(view, at);
}

void Group::push_word(View& view, std::uint64_t offset) {
  const fabric::Sge piece = view.table.region().sge(offset, 8);
  view.for_peers([&](Rank peer) { view.links.write(peer, piece, offset, true); });
}

/// The heartbeats of a peer in this view, and in the one before it.
std::uint64_t Group::beats_of(Rank peer) const {
  const auto in = [](const View& view, Rank rank) {
    return view.table.load(view.table.layout().heartbeat(rank));
  };
  std::uint64_t beats = in(*view_, peer);
  if (!old_views_.empty()) {
    const View& last = *old_views_.back();
    if (const auto rank = last.shape.rank_of(view_->shape.members[peer])) beats += in(last, *rank);
  }
  return beats;
}

// How long a member may be silent. One that was not heard yet makes connections first. One that
// comes from the last view may be in an upcall there: a joiner cannot hear that, and leaves it to
// the others to suspect it.
Time Group::patience_with(Rank peer) const {
  constexpr Time kConnects = 3;
  const View& view = *view_;
  if (view.heartbeats_seen[peer] != 0) return options_.suspicion_timeout;
  const bool is_coming = view.self >= view.first_joiner && peer < view.first_joiner;
  return std::max(kConnects * options_.suspicion_timeout,
                  is_coming ? options_.join_timeout / 4 : Time{0});
}

// A member is silent when its heartbeat does not change. What made this thread stand still may have
// stopped the others too: the machine, or a device that waits for a dead peer. They get new time,
// once.
void Group::listen(Time now) {
  View& view = *view_;
  view.links.poll();
  if (!old_views_.empty()) drop_old_views();
  const bool stood_still = now - listened_ > options_.suspicion_timeout;
  listened_ = now;
  view.for_peers([&](Rank peer) {
    if (view.membership.is_certain(peer)) return;
    if (const std::uint64_t beats = beats_of(peer); beats != view.heartbeats_seen[peer]) {
      view.heartbeats_seen[peer] = beats;
      view.heard[peer] = now;
      view.has_new_time[peer] = false;
    } else if (stood_still && !view.has_new_time[peer]) {
      view.heard[peer] = now;
      view.has_new_time[peer] = true;
    }
    // Connections take their time. While the group forms, nobody is silent, unless it has lost a
    // founder: then the others may have gone on.
    if (view.is_first && !view.is_running && !view.membership.is_changing()) view.heard[peer] = now;
    const bool is_silent = now - view.heard[peer] > patience_with(peer) && bugs_.suspects_silence();
    if (!is_silent && !view.links.is_broken(peer)) return;
    env_.reached(is_silent ? "spindle/suspected_silent" : "spindle/suspected_broken");
    const Locked locked(lock_);
    view.membership.suspect(peer);
    has_news_.store(true, std::memory_order_relaxed);
  });
}

// Between two beats of this thread there is time for one that is late.
void Group::run_beats() {
  constexpr Time kLongestSleep = 10 * kMillisecond;  // the end of the group waits so long
  const Time interval = options_.suspicion_timeout / 4;
  Time next = env_.now() + interval;
  while (!is_stopping_.load(std::memory_order_acquire)) {
    env_.sleep_until(std::min(next, env_.now() + kLongestSleep));
    if (env_.now() < next) continue;
    next = env_.now() + interval;
    Poster upcall = Poster::kUpcall;
    if (!poster_.compare_exchange_strong(upcall, Poster::kBeats, std::memory_order_acquire))
      continue;
    try {
      if (standing() == Standing::kMember) beat();
    } catch (const Error&) {
      // The device has failed. The thread that makes turns meets the same error, and says so.
    }
    poster_.store(Poster::kUpcall, std::memory_order_release);
  }
}

void Group::end_upcall() {
  const auto ends = [this] {
    Poster upcall = Poster::kUpcall;
    return poster_.compare_exchange_strong(upcall, Poster::kTurns, std::memory_order_acquire);
  };
  env_.catch_up();
  if (!ends()) env_.poll_until(ends, kForever);
}

}  // namespace pyrdma::spindle
