#include "check/search.h"

#include <algorithm>
#include <bit>

namespace pyrdma::check {

namespace {

constexpr std::uint64_t bit(std::uint32_t n) { return std::uint64_t{1} << (n % 64); }

}  // namespace

bool ConfigurationSet::insert(std::span<const std::uint64_t> words) {
  if (size_ * 2 >= slots_.size()) grow();
  std::uint64_t hash = words.size();
  for (const std::uint64_t word : words) hash = mix64(hash ^ word);
  const auto short_hash = static_cast<std::uint32_t>(hash);
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = short_hash & mask;
  for (; slots_[at].length != 0; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.hash == short_hash && slot.length == words.size() &&
        std::equal(words.begin(), words.end(),
                   words_.begin() + static_cast<std::ptrdiff_t>(slot.offset)))
      return false;
  }
  slots_[at] = {words_.size(), short_hash, static_cast<std::uint32_t>(words.size())};
  words_.insert(words_.end(), words.begin(), words.end());
  ++size_;
  return true;
}

void ConfigurationSet::grow() {
  std::vector<Slot> old(std::max<std::size_t>(16, slots_.size() * 2));
  old.swap(slots_);
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.length == 0) continue;
    std::size_t at = slot.hash & mask;
    while (slots_[at].length != 0) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

Search::Search(std::unique_ptr<Model> model, const History& history, OperationsView ops,
               StateId start, bool keep_longest)
    : history_(history), model_(std::move(model)), state_(start), keep_longest_(keep_longest) {
  std::uint32_t classes = 0;
  for (std::uint32_t op = 0; op < ops.size(); ++op) {
    history_.poll();
    class_.push_back(model_->class_of(op));
    classes = std::max(classes, class_.back() + 1);
    if (ops[op].known()) {
      known_.push_back(op);
      call_.push_back(ops[op].call);
      ret_.push_back(ops[op].ret);
    } else {
      unknown_.push_back(op);
      unknown_call_.push_back(ops[op].call);
    }
  }
  class_seen_.resize(classes);
  const auto n = static_cast<std::uint32_t>(known_.size());
  next_.resize(n + 1);
  prev_.resize(n + 1);
  for (std::uint32_t k = 0; k <= n; ++k) {
    next_[k] = k == n ? 0 : k + 1;
    prev_[k] = k == 0 ? n : k - 1;
  }
  taken_bits_.resize((known_.size() + 63) / 64);
  unknown_bits_.resize((unknown_.size() + 63) / 64);
}

Search::Progress Search::run(std::uint64_t configurations, std::uint64_t steps) {
  if (!started_) {
    started_ = true;
    const std::uint32_t impossible = model_->impossible_end(state_);
    if (impossible == kNever || keep_longest_) open_frame();
    if (impossible != kNever) dead_end_ = impossible;
  }
  const std::size_t stop = met_.size() + configurations;
  const std::uint64_t last_step = steps > ~steps_ ? ~std::uint64_t{0} : steps_ + steps;
  for (;;) {
    history_.poll();
    if (known_taken_ == known_.size()) return Progress::kLegal;
    if (frames_.empty()) return Progress::kIllegal;
    if (met_.size() >= stop || steps_ >= last_step) return Progress::kOutOfBudget;
    if (advance()) {
      open_frame();
      continue;
    }
    keep_longest_sequence();
    candidates_.resize(frames_.back().first_candidate);
    frames_.pop_back();
    // The operations that led here belong to the parent's candidate.
    undo_to(frames_.empty() ? 0 : frames_.back().depth);
  }
}

void Search::open_frame() {
  take_forced();
  const std::size_t first = candidates_.size();
  gather();
  frames_.push_back({sequence_.size(), first, first});
}

bool Search::advance() {
  Frame& frame = frames_.back();
  while (frame.next_candidate < candidates_.size()) {
    const Candidate candidate = candidates_[frame.next_candidate++];
    const std::uint32_t op = op_of(candidate);
    const StateId from = state_;
    const StateId to = model_->step(from, op);
    if (to == kNoState || (!candidate.known && to == from)) continue;
    if (candidate.known)
      take_known(candidate.number, to);
    else
      take_unknown(candidate.number, to);
    const std::uint32_t end = model_->dead_end(from, op, to);
    if (end == kNever && is_new()) return true;
    if (end != kNever) dead_end_ = std::max(dead_end_, end);
    undo_to(frame.depth);
  }
  return false;
}

/// Takes the operations that may come now as well as later. An unknown state forbids it: the look
/// of such an operation would be lost.
void Search::take_forced() {
  const auto end = static_cast<std::uint32_t>(known_.size());
  bool again = state_ != kAnyState;
  while (again) {
    again = false;
    std::uint32_t first_ret = kNever;
    for (std::uint32_t k = next_[end]; k != end && call_[k] < first_ret; k = next_[k]) {
      ++steps_;
      first_ret = std::min(first_ret, ret_[k]);
      const StateId from = state_;
      const StateId to = model_->step(from, known_[k]);
      if (to == kNoState || !model_->is_free(from, known_[k], to)) continue;
      take_known(k, to);  // the links of k stay, so the walk goes on from it
      again = true;
      if (to != from) break;
    }
  }
}

void Search::gather() {
  const auto end = static_cast<std::uint32_t>(known_.size());
  const std::size_t first = candidates_.size();
  std::uint32_t first_ret = kNever;
  for (std::uint32_t k = next_[end]; k != end && call_[k] < first_ret; k = next_[k]) {
    first_ret = std::min(first_ret, ret_[k]);
    candidates_.push_back({ret_[k], k, true});
    ++steps_;
  }
  if (first_ret != kNever) furthest_ = std::max(furthest_, first_ret);
  std::sort(candidates_.begin() + static_cast<std::ptrdiff_t>(first), candidates_.end(),
            [](const Candidate& x, const Candidate& y) { return x.ret < y.ret; });
  for (std::uint32_t u = 0; u < unknown_.size() && unknown_call_[u] < first_ret; ++u, ++steps_)
    if ((unknown_bits_[u / 64] & bit(u)) == 0) candidates_.push_back({kNever, u, false});
  ++class_stamp_;
  std::size_t kept = first;
  for (std::size_t i = first; i < candidates_.size(); ++i) {
    std::uint32_t& seen = class_seen_[class_[op_of(candidates_[i])]];
    if (seen == class_stamp_) continue;
    seen = class_stamp_;
    candidates_[kept++] = candidates_[i];
  }
  candidates_.resize(kept);
}

void Search::take_known(std::uint32_t k, StateId to) {
  history_.poll();
  sequence_.push_back({k, kNever, state_});
  next_[prev_[k]] = next_[k];
  prev_[next_[k]] = prev_[k];
  taken_bits_[k / 64] |= bit(k);
  ++known_taken_;
  model_->take(known_[k]);
  state_ = to;
}

void Search::take_unknown(std::uint32_t u, StateId to) {
  sequence_.push_back({kNever, u, state_});
  unknown_bits_[u / 64] |= bit(u);
  model_->take(unknown_[u]);
  state_ = to;
}

void Search::undo_to(std::size_t depth) {
  while (sequence_.size() > depth) {
    const Taken taken = sequence_.back();
    sequence_.pop_back();
    state_ = taken.before;
    model_->give_back(op_of(taken));
    if (taken.known == kNever) {
      unknown_bits_[taken.unknown / 64] &= ~bit(taken.unknown);
      continue;
    }
    const std::uint32_t k = taken.known;
    next_[prev_[k]] = k;
    prev_[next_[k]] = k;
    taken_bits_[k / 64] &= ~bit(k);
    --known_taken_;
  }
}

/// Remembers (operations taken, state). All known operations before the first untaken one are
/// taken, so only the words from there on distinguish configurations. Memory thus grows with the
/// overlap of operations, not with the length of the history.
bool Search::is_new() {
  const std::uint32_t head = next_[known_.size()];
  words_.clear();
  words_.push_back(std::uint64_t{head} << 32 | state_);
  words_.insert(words_.end(), unknown_bits_.begin(), unknown_bits_.end());
  std::size_t word = head / 64;
  std::size_t left = known_taken_ - std::min<std::size_t>(known_taken_, word * 64);
  if (head == known_.size()) left = 0;
  for (; left > 0; ++word) {
    words_.push_back(taken_bits_[word]);
    left -= static_cast<std::size_t>(std::popcount(taken_bits_[word]));
  }
  return met_.insert(words_);
}

void Search::keep_longest_sequence() {
  if (!keep_longest_ || (known_taken_ <= longest_known_ && stuck_ != kNever)) return;
  longest_known_ = known_taken_;
  longest_.clear();
  for (const Taken& taken : sequence_) longest_.push_back(op_of(taken));
  const auto end = static_cast<std::uint32_t>(known_.size());
  std::uint32_t first = next_[end];
  for (std::uint32_t k = first; k != end; k = next_[k])
    if (ret_[k] < ret_[first]) first = k;
  if (first != end) stuck_ = known_[first];
}

}  // namespace pyrdma::check
