// The larger channels: locks, queues, stores.
#include <pybind11/stl.h>

#include "bindings/bind.h"
#include "bindings/loco.h"
#include "systems/loco/shared_queue.h"
#include "systems/loco/ticket_lock.h"

namespace pyrdma::bindings {

namespace {

using loco::Caller;
using Managers = std::shared_ptr<PyManagers>;
using Queue = loco::SharedQueueOf<std::int64_t>;
using PySharedQueue = PyChannel<Queue>;
using PyTicketLock = PyChannel<loco::TicketLock>;

void bind_lock(py::module_& module) {
  py::class_<PyTicketLock, std::shared_ptr<PyTicketLock>>(module, "TicketLock")
      .def(py::init([](const Managers& managers, const std::string& name) {
        return make_channel<loco::TicketLock>(managers, [&](loco::Manager& manager) {
          return std::make_unique<loco::TicketLock>(manager, name);
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

}  // namespace

void bind_loco_objects(py::module_& loco_module) {
  bind_lock(loco_module);
  bind_queue(loco_module);
}

}  // namespace pyrdma::bindings
