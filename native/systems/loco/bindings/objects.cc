// The larger channels: locks, queues, stores.
#include "systems/loco/bindings/channel.h"
#include "systems/loco/kvstore/store.h"
#include "systems/loco/shared_queue.h"
#include "systems/loco/ticket_lock.h"

namespace pyrdma::loco::bindings {

namespace {

using Queue = SharedQueueOf<std::int64_t>;

TicketLockOptions lock_options(bool paper) {
  return TicketLockOptions::of(paper ? Preset::kPaper : Preset::kBest);
}

std::unique_ptr<TicketLock> make_lock(Manager& manager, const std::string& name, bool paper) {
  return std::make_unique<TicketLock>(manager, name, lock_options(paper));
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
  ChannelClass<TicketLock>(scope, "TicketLock", &make_lock)
      .on("acquire", [](TicketLock& lock, Caller& me) { lock.acquire(me); })
      .on("release", [](TicketLock& lock, Caller& me) {
        AckKey key = lock.release(me, Fence::kThread);
        finish(key);
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
