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
  make();
}

HierarchicalLocks::HierarchicalLocks(Manager& manager, std::string name, std::uint64_t count,
                                     const HierarchicalOptions& options)
    : Channel(manager, std::move(name)),
      options_(options),
      global_(*this, "global", count, Placement::kDevice, options.grant),
      locals_(std::make_unique<Local[]>(count)) {
  make();
}

void HierarchicalLocks::make() {
  for (std::uint64_t i = 0; i < count(); ++i)
    locals_[i].next = locals_[i].serving = options_.first_place;
  join();
}

HierarchicalLocks::~HierarchicalLocks() { manager().caller(0).runtime().forget(this); }

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

// The delegation makes an error in this constructor run the destructor.
HierarchicalOp::HierarchicalOp(HierarchicalLocks& locks, Caller& me, std::uint64_t index)
    : HierarchicalOp() {
  PYRDMA_CHECK(index, <, locks.count());
  me.report_dropped(&locks);
  locks_ = &locks;
  me_ = &me;
  index_ = index;
  Env& env = locks.manager().env();
  const Scope step(env, scope::hierarchical_begin);
  env.charge(Cost::kAtomic);
  if (locks.options_.local_queues) {
    place_ = locks.locals_[index].next.fetch_add(1, std::memory_order_relaxed);
    stage_ = Stage::kQueue;
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
  if (stage_ == Stage::kGlobal && take_global()) {
    stage_ = Stage::kHeld;
    if (locks_->options_.local_queues) locks_->locals_[index_].acquirer = me_->index();
  }
  return held();
}

bool HierarchicalOp::take_global() {
  try {
    return global_.poll();
  } catch (const Error& error) {
    overdue_ = true;
    if (error.code() != ErrorCode::kTimeout) pass_turn();
    throw;
  }
}

// This acquisition ends. The next thread of the node tries for itself.
void HierarchicalOp::pass_turn() {
  stage_ = Stage::kNone;
  locks_->end_release(index_);
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
  overdue_ = true;
  throw Error(ErrorCode::kTimeout,
              "lock " + std::to_string(index_) + " of '" + locks_->name() + "': caller " +
                  std::to_string(me_->index()) + " of node " + std::to_string(locks_->self()) +
                  " waited " + std::to_string(manager.options().wait_timeout / kMillisecond) +
                  " ms in the queue of its node; raise wait_timeout",
              false)
      .blaming(me_->silent_peers());
}

/// Waits for its turn, and gives back what it has got.
class HierarchicalOp::Dropped final : public runtime::Unfinished {
 public:
  explicit Dropped(HierarchicalOp&& op)
      : runtime::Unfinished(op.locks_, op.overdue_), op_(std::move(op)) {
    op_.deadline_ = kForever;
    op_.global_.dropped_ = true;
  }
  ~Dropped() override {  // the locks may be gone
    op_.stage_ = Stage::kNone;
    op_.global_.may_get_ = false;
  }
  bool poll() override {
    HierarchicalLocks& locks = *op_.locks_;
    const HierarchicalLocks::Local& local = locks.locals_[op_.index_];
    if (op_.stage_ == Stage::kQueue &&
        local.serving.load(std::memory_order_acquire) != op_.place_) {
      return false;
    }
    if (op_.stage_ != Stage::kQueue || local.has_global) {
      if (op_.poll()) {
        locks.start_release(*op_.me_, op_.index_, {});
      } else if (op_.global_.may_get_) {
        return false;
      }
    }
    op_.pass_turn();
    return true;
  }

 private:
  HierarchicalOp op_;
};

void HierarchicalOp::drop() { me_->finish_later(std::make_unique<Dropped>(std::move(*this))); }

}  // namespace pyrdma::loco
