#include "systems/tailwind/replication/replicated_log.h"

#include <algorithm>

namespace pyrdma::tailwind {

void ReplicatedLog::begin(std::uint64_t segment, std::uint32_t bytes) {
  Segment& made = segments_[segment];
  made.first_bytes = made.end = bytes;
  made.replicas.resize(replicas_);
}

void ReplicatedLog::begin_side(std::uint64_t segment, std::uint32_t bytes, std::uint32_t end) {
  begin(segment, bytes);
  Segment& made = segments_.at(segment);
  made.end = end;
  made.is_side = made.is_complete = true;
  for (Replica& replica : made.replicas) replica.is_copy = true;
  settled_ = std::min(settled_, segment);
}

void ReplicatedLog::compact(std::uint64_t number, std::uint32_t end) {
  Segment& segment = segments_.at(number);
  segment.end = segment.committed = end;
  ++segment.version;
}

void ReplicatedLog::forget(std::uint64_t segment, std::uint64_t head) {
  forgotten_.emplace(segment, head);
}

void ReplicatedLog::skip(std::uint64_t number) {
  Segment& segment = segments_.at(number);
  for (Replica& replica : segment.replicas) {
    replica.state = State::kClosed;
    replica.sent = replica.done = segment.end;
  }
  segment.committed = segment.end;
  segment.was_open = segment.was_closed = true;
}

ReplicatedLog::Replica* ReplicatedLog::expected(ReplicaId id, State state) {
  const auto found = segments_.find(id.segment);
  if (found == segments_.end()) return nullptr;
  Replica& replica = found->second.replicas[id.index];
  return replica.state == state ? &replica : nullptr;
}

void ReplicatedLog::opened(ReplicaId id) {
  Replica* replica = expected(id, State::kOpening);
  if (replica == nullptr) return;
  replica->state = State::kOpen;
  replica->sent = replica->done = segments_.at(id.segment).first_bytes;
  replica->version = replica->is_copy ? kNoVersion : replica->asked_for;
}

void ReplicatedLog::refused(ReplicaId id) {
  Replica* replica = expected(id, State::kOpening);
  if (replica == nullptr) return;
  replica->state = State::kNone;
  replica->backup = kNoBackup;
}

void ReplicatedLog::written(ReplicaId id, std::uint32_t to) {
  if (Replica* replica = expected(id, State::kOpen)) replica->done = to;
}

void ReplicatedLog::versioned(ReplicaId id, std::uint64_t version) {
  if (Replica* replica = expected(id, State::kOpen)) replica->version = version;
}

void ReplicatedLog::closed(ReplicaId id) {
  Replica* replica = expected(id, State::kClosing);
  if (replica == nullptr) return;
  replica->state = State::kClosed;
  replica->is_copy = false;
}

void ReplicatedLog::consented(std::uint64_t number, std::uint64_t version) {
  const auto found = segments_.find(number);
  if (found == segments_.end() || found->second.version != version) return;
  found->second.is_frozen = false;
  for (Replica& replica : found->second.replicas) replica.is_copy = false;
}

// A closed replica is whole, so its loss concerns nobody who recovers the log. An open one that
// comes back may lack what is committed from now on, even if its backup never said that it is open.
// When all replicas were closed once, those that were opened later are copies that only their close
// makes valid.
void ReplicatedLog::lose(Segment& segment, Replica& replica) {
  const bool was_closed = replica.state == State::kClosed;
  const bool is_whole = segment.was_closed || segment.is_side;
  const bool rises = !was_closed && !is_whole && bugs_.raises_version();
  replica = {};
  replica.is_copy = was_closed || is_whole || rises;
  if (!rises) return;
  ++segment.version;
  segment.is_frozen = true;
  segment.has_asked = false;
}

void ReplicatedLog::lost(NodeId backup) {
  settled_ = 0;
  for (auto& [number, segment] : segments_)
    for (Replica& replica : segment.replicas)
      if (replica.backup == backup) lose(segment, replica);
}

void ReplicatedLog::lost(ReplicaId id) {
  const auto found = segments_.find(id.segment);
  if (found == segments_.end() || found->second.replicas[id.index].state == State::kNone) return;
  settled_ = std::min(settled_, id.segment);
  lose(found->second, found->second.replicas[id.index]);
}

bool ReplicatedLog::is_closed(std::uint64_t segment) const {
  return std::ranges::all_of(segments_.at(segment).replicas, [](const Replica& replica) {
    return replica.state == State::kClosed;
  });
}

bool ReplicatedLog::is_at_rest(std::uint64_t segment) const {
  return std::ranges::all_of(segments_.at(segment).replicas, [](const Replica& replica) {
    return replica.state == State::kClosed || replica.state == State::kNone;
  });
}

bool ReplicatedLog::is_mending() const {
  return std::ranges::any_of(segments_, [](const auto& entry) {
    const Segment& segment = entry.second;
    if (segment.is_side && !segment.was_closed) return false;  // nobody needs it yet
    return segment.is_frozen || std::ranges::any_of(segment.replicas, [&](const Replica& replica) {
             return replica.is_copy || (segment.was_open && !replica.is_there());
           });
  });
}

// What one segment has reached lets the one before it go on.
void ReplicatedLog::step() {
  do {
    has_moved_ = false;
    pass();
  } while (has_moved_);
  if (!forgotten_.empty()) free_forgotten();
}

void ReplicatedLog::free_forgotten() {
  std::erase_if(forgotten_, [this](const auto& entry) {
    const auto& [segment, head] = entry;
    if (!is_found_first(head) && bugs_.waits_to_free()) return false;
    requests_.free(segment);
    segments_.erase(segment);
    return true;
  });
}

// The segments before the last one are closed since that was opened. What is forgotten was closed.
bool ReplicatedLog::is_found_first(std::uint64_t head) const {
  auto at = segments_.find(head);
  if (at == segments_.end()) return true;
  if (!at->second.was_open) return false;
  while (at != segments_.begin()) {
    --at;
    if (!at->second.is_side) return at->second.was_closed;
  }
  return true;
}

void ReplicatedLog::pass() {
  bool was_last_closed = true, may_open = true, is_settled = true;
  for (auto at = segments_.lower_bound(settled_); at != segments_.end(); ++at) {
    auto& [number, segment] = *at;
    if (segment.is_side) {
      if (number < newest_open_) step(number, segment, true, true);
    } else {
      if (!segment.was_open && !may_open) return;
      step(number, segment, was_last_closed || !bugs_.waits_for_last(),
           segment.is_complete && (number < newest_open_ || !bugs_.waits_for_next()));
      may_open = was_last_closed && segment.was_open;
      was_last_closed = segment.was_closed;
      if (segment.was_open) newest_open_ = std::max(newest_open_, number);
    }
    is_settled = is_settled && segment.is_complete && segment.was_closed && is_closed(number);
    if (is_settled) settled_ = number + 1;
  }
}

void ReplicatedLog::step(std::uint64_t number, Segment& segment, bool takes_data, bool may_close) {
  bool are_all_there = true, are_all_valid = !segment.is_frozen,
       are_all_closed = segment.is_complete;
  // A frozen segment gets no new data. All its replicas get what a valid one may have.
  const std::uint32_t end = segment.is_frozen ? most_sent(segment)
                            : takes_data      ? segment.end
                                              : segment.first_bytes;
  for (std::uint32_t index = 0; index < replicas_; ++index) {
    Replica& replica = segment.replicas[index];
    const ReplicaId id{number, index};
    if (replica.state == State::kNone) {
      replica.backup = requests_.open(id, segment.version, segment.first_bytes,
                                      replica.is_copy && bugs_.marks_copies());
      replica.asked_for = replica.is_copy ? kNoVersion : segment.version;
      if (replica.backup != kNoBackup) replica.state = State::kOpening;
    }
    if (replica.is_open() && replica.sent < end) {
      requests_.write(id, replica.sent, end);
      replica.sent = end;
    }
    if (may_close && replica.is_open() && replica.done == segment.end && !segment.is_frozen) {
      replica.state = State::kClosing;
      requests_.close(id);
    }
    are_all_there = are_all_there && replica.is_there();
    are_all_valid = are_all_valid && replica.is_there() && !replica.is_copy;
    are_all_closed = are_all_closed && replica.state == State::kClosed;
  }
  has_moved_ =
      has_moved_ || are_all_valid > segment.was_open || are_all_closed > segment.was_closed;
  segment.was_open = segment.was_open || are_all_valid;
  segment.was_closed = segment.was_closed || are_all_closed;
  if (segment.is_frozen && are_all_there) mend(number, segment);
  commit(segment);
}

std::uint32_t ReplicatedLog::most_sent(const Segment& segment) {
  std::uint32_t most = std::max(segment.first_bytes, segment.committed);
  for (const Replica& replica : segment.replicas)
    if (!replica.is_copy) most = std::max(most, replica.sent);
  return most;
}

// All replicas are open or closed again. First they get all that any of them may have; then those
// that are open get the new version; then the coordinator does.
void ReplicatedLog::mend(std::uint64_t number, Segment& segment) {
  bool know_all = true;
  for (const Replica& replica : segment.replicas)
    if (replica.done < most_sent(segment)) return;
  for (std::uint32_t index = 0; index < replicas_; ++index) {
    Replica& replica = segment.replicas[index];
    if (!replica.is_open() || replica.version == segment.version) continue;
    know_all = false;
    if (replica.asked_for == segment.version) continue;
    replica.asked_for = segment.version;
    requests_.set_version({number, index}, segment.version);
  }
  if (!know_all || segment.has_asked) return;
  segment.has_asked = true;
  requests_.ask_coordinator(number, segment.version);
}

void ReplicatedLog::commit(Segment& segment) {
  if (segment.is_frozen && bugs_.waits_for_consent()) return;
  std::uint32_t least = segment.end;
  for (const Replica& replica : segment.replicas) {
    if (!bugs_.waits_for_all() && &replica == &segment.replicas.back()) break;
    if (!replica.is_there() || (replica.is_copy && !segment.is_frozen)) return;
    least = std::min(least, replica.done);
  }
  segment.committed = std::max(segment.committed, least);
}

}  // namespace pyrdma::tailwind
