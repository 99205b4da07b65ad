// The larger channels: locks, queues, stores.
#include <pybind11/stl.h>

#include "bindings/bind.h"
#include "bindings/loco.h"
#include "systems/loco/kvstore/store.h"
#include "systems/loco/shared_queue.h"
#include "systems/loco/ticket_lock.h"

namespace pyrdma::bindings {

namespace {

using loco::Caller;
using Managers = std::shared_ptr<PyManagers>;
using Queue = loco::SharedQueueOf<std::int64_t>;
using PyKvStore = PyChannel<loco::KvStore>;
using PySharedQueue = PyChannel<Queue>;
using PyTicketLock = PyChannel<loco::TicketLock>;

loco::TicketLockOptions lock_options(bool paper) {
  return loco::TicketLockOptions::of(paper ? loco::Preset::kPaper : loco::Preset::kBest);
}

void bind_lock(py::module_& module) {
  py::class_<PyTicketLock, std::shared_ptr<PyTicketLock>>(module, "TicketLock")
      .def(py::init([](const Managers& managers, const std::string& name, bool paper) {
        return make_channel<loco::TicketLock>(managers, [&](loco::Manager& manager) {
          return std::make_unique<loco::TicketLock>(manager, name, lock_options(paper));
        });
      }))
      .def("acquire",
           [](PyTicketLock& self, NodeId node) {
             self.on(node, [](loco::TicketLock& lock, Caller& me) { lock.acquire(me); });
           })
      .def("release", [](PyTicketLock& self, NodeId node) {
        self.on(node, [](loco::TicketLock& lock, Caller& me) {
          lock.release(me, loco::Fence::kThread).wait();
        });
      });
}

void bind_queue(py::module_& module) {
  py::class_<PySharedQueue, std::shared_ptr<PySharedQueue>>(module, "SharedQueue")
      .def(py::init([](const Managers& managers, const std::string& name, std::uint64_t capacity) {
        return make_channel<Queue>(managers, [&](loco::Manager& manager) {
          return std::make_unique<Queue>(manager, name, capacity);
        });
      }))
      .def("push",
           [](PySharedQueue& self, NodeId node, std::int64_t value) {
             return self.on(node,
                            [&](Queue& queue, Caller& me) { return queue.try_push(me, value); });
           })
      .def("pop", [](PySharedQueue& self, NodeId node) {
        return self.on(node, [](Queue& queue, Caller& me) { return queue.try_pop(me); });
      });
}

using Change = loco::Outcome (loco::KvStore::*)(Caller&, loco::Key, std::span<const std::byte>);

/// True when it was done, false when the key is there already (insert) or not (the others). Throws
/// Error for a full store.
bool done(const loco::KvStore& store, loco::Outcome outcome) {
  if (outcome == loco::Outcome::kFull || outcome == loco::Outcome::kTooBig) {
    throw Error(ErrorCode::kExhausted, store.describe(outcome));
  }
  return outcome == loco::Outcome::kOk;
}

bool change(PyKvStore& self, NodeId node, Change how, loco::Key key, std::uint64_t value) {
  return self.on(node, [&](loco::KvStore& store, Caller& me) {
    return done(store, (store.*how)(me, key, std::as_bytes(std::span(&value, 1))));
  });
}

void bind_store(py::module_& module) {
  py::class_<PyKvStore, std::shared_ptr<PyKvStore>>(module, "KvStore")
      .def(py::init([](const Managers& managers, const std::string& name, std::uint64_t keys,
                       std::uint64_t filled, bool paper) {
        loco::KvOptions options;
        options.keys = keys;
        options.lock = lock_options(paper);
        return make_channel<loco::KvStore>(managers, [&](loco::Manager& manager) {
          auto store = std::make_unique<loco::KvStore>(manager, name, options);
          store->load(filled);
          return store;
        });
      }))
      .def("insert",
           [](PyKvStore& self, NodeId node, std::uint64_t key, std::uint64_t value) {
             return change(self, node, &loco::KvStore::insert, key, value);
           })
      .def("update",
           [](PyKvStore& self, NodeId node, std::uint64_t key, std::uint64_t value) {
             return change(self, node, &loco::KvStore::update, key, value);
           })
      .def("remove",
           [](PyKvStore& self, NodeId node, std::uint64_t key) {
             return self.on(node, [&](loco::KvStore& store, Caller& me) {
               return done(store, store.remove(me, key));
             });
           })
      .def("lookup", [](PyKvStore& self, NodeId node, std::uint64_t key) {
        return self.on(node, [&](loco::KvStore& store, Caller& me) -> std::optional<std::uint64_t> {
          std::uint64_t value = 0;
          if (!done(store, store.lookup(me, key, std::as_writable_bytes(std::span(&value, 1)))))
            return {};
          return value;
        });
      });
}

}  // namespace

void bind_loco_objects(py::module_& loco_module) {
  bind_lock(loco_module);
  bind_store(loco_module);
  bind_queue(loco_module);
}

}  // namespace pyrdma::bindings
