#include "systems/loco/baselines/hierarchical_lock.h"

#include "base/assert.h"
#include "base/error.h"
#include "systems/loco/scopes.h"

namespace pyrdma::loco {

HierarchicalLocks::HierarchicalLocks(Channel& parent, std::string_view name, std::uint64_t count,
                                     const HierarchicalOptions& options)
    : Channel(parent, name),
      options_(options),
      global_(*this, "global", count, Placement::kDevice, options.grant),
      locals_(std::make_unique<Local[]>(count)) {
  join();
}

HierarchicalLocks::HierarchicalLocks(Manager& manager, std::string name, std::uint64_t count,
                                     const HierarchicalOptions& options)
    : Channel(manager, std::move(name)),
      options_(options),
      global_(*this, "global", count, Placement::kDevice, options.grant),
      locals_(std::make_unique<Local[]>(count)) {
  join();
}

AckKey HierarchicalLocks::start_release(Caller& me, std::uint64_t i,
                                        std::span<fabric::WorkRequest> before) {
  const Scope step(me.env(), scope::hierarchical_release);
  PYRDMA_CHECK(i, <, count());
  if (!options_.local_queues) return global_.release_for(me, me.index(), i, before);
  Local& local = locals_[i];
  const std::uint32_t place = local.serving.load(std::memory_order_relaxed);
  const bool waited_for = local.next.load(std::memory_order_relaxed) != place + 1;
  const bool hands_over = waited_for && local.handovers < options_.max_handovers;
  AckKey key;
  if (!hands_over) {
    key = global_.release_for(me, local.acquirer, i, before);
  } else if (!before.empty()) {
    key = me.post(host_of(i), before);
  }
  // A post may throw; then the caller releases again.
  local.has_global = hands_over;
  local.handovers = hands_over ? local.handovers + 1 : 0;
  return key;
}

void HierarchicalLocks::end_release(std::uint64_t i) {
  if (!options_.local_queues) return;
  std::atomic<std::uint32_t>& serving = locals_[i].serving;
  serving.store(serving.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

HierarchicalOp::HierarchicalOp(HierarchicalLocks& locks, Caller& me, std::uint64_t index)
    : locks_(&locks), me_(&me), index_(index) {
  PYRDMA_CHECK(index, <, locks.count());
  Env& env = locks.manager().env();
  const Scope step(env, scope::hierarchical_begin);
  env.charge(Cost::kAtomic);
  if (locks.options_.local_queues) {
    place_ = locks.locals_[index].next.fetch_add(1, std::memory_order_relaxed);
    deadline_ = env.now() + locks.manager().options().wait_timeout;
    poll();
  } else {
    global_ = locks.global_.start_acquire(me, index);
    stage_ = Stage::kGlobal;
  }
}

bool HierarchicalOp::poll() {
  const Scope step(locks_->manager().env(), scope::hierarchical_poll);
  if (stage_ == Stage::kQueue) return enter();
  if (stage_ == Stage::kGlobal && global_.poll()) {
    stage_ = Stage::kHeld;
    if (locks_->options_.local_queues) locks_->locals_[index_].acquirer = me_->index();
  }
  return held();
}

bool HierarchicalOp::enter() {
  HierarchicalLocks::Local& local = locks_->locals_[index_];
  Manager& manager = locks_->manager();
  if (local.serving.load(std::memory_order_acquire) == place_) {
    handed_over_ = local.has_global;
    if (handed_over_) {
      stage_ = Stage::kHeld;
      return true;
    }
    global_ = locks_->global_.start_acquire(*me_, index_);
    stage_ = Stage::kGlobal;
    return false;
  }
  if (manager.env().now() < deadline_) return false;
  throw Error(ErrorCode::kTimeout,
              "lock " + std::to_string(index_) + " of '" + locks_->name() + "': caller " +
                  std::to_string(me_->index()) + " of node " + std::to_string(locks_->self()) +
                  " waited " + std::to_string(manager.options().wait_timeout / kMillisecond) +
                  " ms in the queue of its node; raise wait_timeout",
              false);
}

}  // namespace pyrdma::loco
