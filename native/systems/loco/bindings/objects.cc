// The larger channels: locks, queues, stores.
#include <memory>
#include <optional>

#include "bindings/program/program.h"
#include "systems/loco/bindings/channel.h"
#include "systems/loco/kvstore/store.h"
#include "systems/loco/shared_queue.h"
#include "systems/loco/ticket_lock.h"

namespace pyrdma::loco::bindings {

namespace {

using pyrdma::bindings::CallingTask;
using Queue = SharedQueueOf<std::int64_t>;

TicketLockOptions lock_options(bool paper) {
  return TicketLockOptions::of(paper ? Preset::kPaper : Preset::kBest);
}

/// A lock with one caller for all tasks of its node. So it knows which task holds it.
class TasksLock final : public TicketLock {
 public:
  using TicketLock::TicketLock;

  /// One step of an acquisition that `op` keeps.
  bool acquire_step(Caller& me, const CallingTask& caller, std::optional<AcquireOp>& op) {
    try {
      if (!op) op.emplace(start_acquire(me, 0));
      if (!op->poll()) return false;
    } catch (...) {
      op.reset();  // here, where no other task uses the caller
      throw;
    }
    hold(caller);
    return true;
  }
  bool try_acquire_by(Caller& me, const CallingTask& caller) {
    const bool held = try_acquire(me);
    if (held) hold(caller);
    return held;
  }
  void release_by(Caller& me, const CallingTask& caller) {
    check_holder(caller);
    AckKey key = release(me, Fence::kThread);
    by_ = By::kNobody;
    finish(key);
  }

 private:
  enum class By : std::uint8_t { kNobody, kScript, kTask };
  void hold(const CallingTask& caller) {
    by_ = caller.task ? By::kTask : By::kScript;
    holder_ = caller.task;
  }
  // Anybody may release the lock of a task that has ended.
  void check_holder(const CallingTask& caller) const {
    const std::shared_ptr<pyrdma::bindings::Task> holder = holder_.lock();
    const bool by_script = by_ == By::kScript && caller.task;
    const bool by_other =
        by_ == By::kTask && holder && !holder->is_finished() && holder != caller.task;
    if (!by_script && !by_other) return;
    throw Error(ErrorCode::kInvalidArgument,
                "lock '" + name() + "' on node " + std::to_string(self()) + " is held by " +
                    (by_script ? "the script" : "the task " + holder->name()) +
                    ", and another task releases it; the one that acquired it releases it");
  }

  By by_ = By::kNobody;
  std::weak_ptr<pyrdma::bindings::Task> holder_;
};
using TasksLocks = Channels<TasksLock>;

std::unique_ptr<TasksLock> make_lock(Manager& manager, const std::string& name, bool paper) {
  return std::make_unique<TasksLock>(manager, name, lock_options(paper));
}

std::unique_ptr<Queue> make_queue(Manager& manager, const std::string& name,
                                  std::uint64_t capacity) {
  return std::make_unique<Queue>(manager, name, capacity);
}

std::unique_ptr<KvStore> make_store(Manager& manager, const std::string& name, std::uint64_t keys,
                                    std::uint64_t filled, bool paper) {
  KvOptions options;
  options.keys = keys;
  options.lock = lock_options(paper);
  auto store = std::make_unique<KvStore>(manager, name, options);
  store->load(filled);
  return store;
}

/// Returns true when the store was changed. Returns false when the key exists (insert) or does not
/// exist (the others). Throws Error for a full store.
bool done(const KvStore& store, Outcome outcome) {
  if (outcome == Outcome::kFull || outcome == Outcome::kTooBig) {
    throw Error(ErrorCode::kExhausted, store.describe(outcome));
  }
  return outcome == Outcome::kOk;
}

std::span<const std::byte> bytes_of(const std::uint64_t& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

void bind_objects(const py::object& scope) {
  ChannelClass<TasksLock>(scope, "TicketLock", &make_lock)
      .of_all("acquire",
              [](TasksLocks& self, CallingTask caller, NodeId node) {
                std::optional<AcquireOp> op;
                self.in_steps(node, [&](TasksLock& lock, Caller& me) {
                  return lock.acquire_step(me, caller, op);
                });
              })
      .of_all("try_acquire",
              [](TasksLocks& self, CallingTask caller, NodeId node) {
                return self.on(node, [&](TasksLock& lock, Caller& me) {
                  return lock.try_acquire_by(me, caller);
                });
              })
      .of_all("release", [](TasksLocks& self, CallingTask caller, NodeId node) {
        self.on(node, [&](TasksLock& lock, Caller& me) { lock.release_by(me, caller); });
      });
  ChannelClass<Queue>(scope, "SharedQueue", &make_queue)
      .on("push",
          [](Queue& queue, Caller& me, std::int64_t value) { return queue.try_push(me, value); })
      .on("pop", [](Queue& queue, Caller& me) { return queue.try_pop(me); });
  ChannelClass<KvStore>(scope, "KvStore", &make_store)
      .on("insert",
          [](KvStore& store, Caller& me, std::uint64_t key, std::uint64_t value) {
            return done(store, store.insert(me, key, bytes_of(value)));
          })
      .on("update",
          [](KvStore& store, Caller& me, std::uint64_t key, std::uint64_t value) {
            return done(store, store.update(me, key, bytes_of(value)));
          })
      .on("remove", [](KvStore& store, Caller& me,
                       std::uint64_t key) { return done(store, store.remove(me, key)); })
      .on("lookup",
          [](KvStore& store, Caller& me, std::uint64_t key) -> std::optional<std::uint64_t> {
            std::uint64_t value = 0;
            if (!done(store, store.lookup(me, key, std::as_writable_bytes(std::span(&value, 1)))))
              return {};
            return value;
          });
}

}  // namespace pyrdma::loco::bindings
