// Slots and the send predicate (sections 2.3, 2.4 and 3.2).
#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "systems/spindle/scopes.h"
#include "systems/spindle/subgroup.h"

namespace pyrdma::spindle {

namespace {

// With Options::short_sends. So much payload goes to one member before the next one gets it too;
// a longer part makes the last member wait, and shorter parts cost more requests.
constexpr std::uint64_t kShortSendBytes = 8192;

}  // namespace

// A slot is free when all members have delivered its last message (section 2.3). Of an unordered
// subgroup, when all have consumed it.
bool Subgroup::is_free(std::uint64_t message) {
  const std::uint64_t before = message - shape_.window;
  const bool is_total = shape_.order == Order::kTotal;
  const std::uint64_t needed =
      is_total ? round_of_[before % shape_.window] * senders_ + sender_ : before;
  if (delivered_by_all_ > needed) return true;
  const Scope step(env_, scope::find_free);
  std::uint64_t least = ~std::uint64_t{0};
  for (const std::byte* freed : freed_by_) least = std::min(least, load(freed));
  delivered_by_all_ = least;
  return least > needed || !bugs_.waits_for_delivery();
}

// A slot that is used again was free.
std::uint64_t Subgroup::delivered_by_all() {
  if (queued() > shape_.window) freed_ = std::max(freed_, queued() - shape_.window);
  while (freed_ < pushed_ && is_free(freed_ + shape_.window)) ++freed_;
  return freed_;
}

// A member that has received less keeps the others from delivering, too.
Rank Subgroup::slowest_member() const {
  std::size_t slowest = 0;
  const auto progress = [this](std::size_t member) {
    return std::pair(load(freed_by_[member]), load(received_by_[member]));
  };
  for (std::size_t member = 1; member < freed_by_.size(); ++member) {
    if (progress(member) < progress(slowest)) slowest = member;
  }
  return shape_.members[slowest];
}

std::span<std::byte> Subgroup::acquire() {
  const Scope step(env_, scope::acquire);
  const std::uint64_t message = queued();
  if (message >= shape_.window && !is_free(message)) {
    env_.reached("spindle/window_full");
    if (options_.fixed_batch != 0) flush();  // the batch would never be full
    return {};
  }
  return {slot(sender_, message) + 8, shape_.max_message};
}

void Subgroup::commit(std::uint32_t bytes) {
  const Scope step(env_, scope::commit);
  PYRDMA_ASSERT(is_sender() && bytes <= shape_.max_message);
  const std::uint64_t message = queued();
  const std::uint64_t round = sent_rounds_++;
  round_of_[message % shape_.window] = round;
  store_release(reinterpret_cast<std::uint64_t*>(slot(sender_, message)),
                SlotHeader{tag_of(round), bytes}.word());
  queued_.store(message + 1, std::memory_order_release);
}

void Subgroup::send(Pushes& pushes) {
  const Scope step(env_, scope::send);
  const std::uint64_t queued = queued_.load(std::memory_order_acquire);
  if (queued == pushed_) return;
  if (options_.fixed_batch != 0 && queued - pushed_ >= options_.fixed_batch) flush();
  std::uint64_t last = options_.batch_send ? queued : pushed_ + 1;
  if (options_.short_sends) {
    const std::uint64_t most = kShortSendBytes / std::max(1U, shape_.max_message);
    last = std::min(last, pushed_ + std::max<std::uint64_t>(1, most));
  }
  pushes.first = pushed_;
  pushes.last = last;
  // The guard covers the nulls between the last message and the next one.
  pushes.guard = true;
  pushes.guard_value = last == queued ? sent_rounds_ : round_of_[last % shape_.window];
  if (last % shape_.window < pushed_ % shape_.window) env_.reached("spindle/ring_wraps");
  counters_.sends.add(last - pushed_);
  pushed_ = last;
  table_.store(layout_.guard(index_, self_), pushes.guard_value);
}

std::vector<Bytes> Subgroup::not_delivered(std::span<const std::uint64_t> trim) const {
  std::vector<Bytes> messages;
  if (!is_sender()) return messages;
  const std::uint64_t all = queued();
  // Members may have delivered an unordered message that another one lacks.
  std::uint64_t first =
      shape_.order == Order::kTotal ? (all > shape_.window ? all - shape_.window : 0) : pushed_;
  for (; first < all; ++first) {
    const bool is_lost = round_of_[first % shape_.window] >= trim[sender_];
    if (shape_.order == Order::kTotal && !is_lost && bugs_.sends_again_only_lost()) continue;
    const std::byte* at = slot(sender_, first);
    messages.emplace_back(at + 8, at + 8 + header(sender_, first).bytes);
  }
  return messages;
}

}  // namespace pyrdma::spindle
