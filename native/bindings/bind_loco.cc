#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "bindings/bind.h"
#include "bindings/loco.h"
#include "systems/loco/atomic_var.h"
#include "systems/loco/barrier.h"
#include "systems/loco/owned_var.h"
#include "systems/loco/shared_region.h"

namespace pyrdma::bindings {

namespace {

using loco::Caller;
using loco::MemRef;
using Managers = std::shared_ptr<PyManagers>;
using PyBarrier = PyChannel<loco::Barrier>;
using PyAtomicVar = PyChannel<loco::AtomicVar>;
using PyOwnedVar = PyChannel<loco::OwnedVar<std::int64_t>>;
using PySharedRegion = PyChannel<loco::SharedRegion>;

/// Waits for the key; a failed request is an Error that names the peer.
void finish(loco::AckKey& key, NodeId peer) {
  const fabric::Status status = key.wait();
  if (status == fabric::Status::kSuccess) return;
  throw Error(ErrorCode::kUnavailable,
              "a request to node " + std::to_string(peer) + " failed: " + to_string(status), false);
}

std::vector<Time> barrier_wait(PyBarrier& self) {
  std::vector<Time> latencies(self.session().world().nodes());
  self.everywhere([&](loco::Barrier& barrier, Caller& me) {
    Env& env = me.env();
    const Time begin = env.now();
    barrier.wait(me);
    latencies[env.node()] = env.now() - begin;
  });
  return latencies;
}

template <class Post>
std::uint64_t old_value(PyAtomicVar& self, NodeId node, Post&& post) {
  return self.on(node, [&](loco::AtomicVar& var, Caller& me) {
    MemRef block = me.block(8);
    loco::AckKey key = post(var, me, block);
    finish(key, var.host());
    return *block.as<std::uint64_t>();
  });
}

void check_span(const loco::SharedRegion& region, std::uint64_t offset, std::uint64_t size,
                NodeId peer) {
  const auto& all = region.participants();
  if (std::find(all.begin(), all.end(), peer) == all.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                "node " + std::to_string(peer) + " does not take part in '" + region.name() + "'");
  }
  if (offset <= region.bytes() && size <= region.bytes() - offset) return;
  throw Error(ErrorCode::kInvalidArgument, std::to_string(size) + " bytes at offset " +
                                               std::to_string(offset) +
                                               " do not fit into region '" + region.name() +
                                               "' of " + std::to_string(region.bytes()) + " bytes");
}

void region_write(PySharedRegion& self, NodeId node, NodeId peer, std::uint64_t offset,
                  const std::string& data) {
  self.on(node, [&](loco::SharedRegion& region, Caller& me) {
    check_span(region, offset, data.size(), peer);
    const auto size = static_cast<std::uint32_t>(data.size());
    MemRef block = me.block(size);
    std::memcpy(block.data(), data.data(), size);
    loco::AckKey key = region.write(me, peer, offset, block.sge(size));
    finish(key, peer);
    me.fence_thread();  // a script that reads next expects to see it
  });
}

std::string region_read(PySharedRegion& self, NodeId node, NodeId peer, std::uint64_t offset,
                        std::uint32_t size) {
  return self.on(node, [&](loco::SharedRegion& region, Caller& me) {
    check_span(region, offset, size, peer);
    MemRef block = me.block(size);
    loco::AckKey key = region.read(me, peer, offset, block.sge(size));
    finish(key, peer);
    return std::string(reinterpret_cast<const char*>(block.data()), size);
  });
}

void bind_words(py::module_& module) {
  using Var = loco::OwnedVar<std::int64_t>;
  py::class_<PyOwnedVar, std::shared_ptr<PyOwnedVar>>(module, "OwnedVar")
      .def(py::init([](const Managers& managers, const std::string& name, NodeId owner) {
        return make_channel<Var>(managers, [&](loco::Manager& manager) {
          return std::make_unique<Var>(manager, name, owner);
        });
      }))
      .def("store",
           [](PyOwnedVar& self, std::int64_t value) {
             self.everywhere([&](Var& var, Caller&) {
               if (var.owner() == var.self()) var.store(value);
             });
           })
      .def("push",
           [](PyOwnedVar& self) {
             self.everywhere([&](Var& var, Caller& me) {
               if (var.owner() != var.self()) return;
               loco::AckKey key = var.push(me);
               finish(key, var.owner());
               me.fence_thread();
             });
           })
      .def("pull",
           [](PyOwnedVar& self, NodeId node) {
             return self.on(node, [&](Var& var, Caller& me) { return var.pull(me).second; });
           })
      .def("load", [](PyOwnedVar& self, NodeId node) {
        return self.on(node, [&](Var& var, Caller& me) { return var.load(me); });
      });
  py::class_<PyAtomicVar, std::shared_ptr<PyAtomicVar>>(module, "AtomicVar")
      .def(py::init([](const Managers& managers, const std::string& name, NodeId host) {
        return make_channel<loco::AtomicVar>(managers, [&](loco::Manager& manager) {
          return std::make_unique<loco::AtomicVar>(manager, name, host);
        });
      }))
      .def("fetch_add",
           [](PyAtomicVar& self, NodeId node, std::uint64_t addend) {
             return old_value(self, node, [&](auto& var, Caller& me, const MemRef& block) {
               return var.fetch_add(me, addend, block);
             });
           })
      .def("compare_swap",
           [](PyAtomicVar& self, NodeId node, std::uint64_t expected, std::uint64_t desired) {
             return old_value(self, node, [&](auto& var, Caller& me, const MemRef& block) {
               return var.compare_swap(me, expected, desired, block);
             });
           })
      .def("load", [](PyAtomicVar& self, NodeId node) {
        return old_value(self, node, [&](auto& var, Caller& me, const MemRef& block) {
          return var.load(me, block);
        });
      });
}

}  // namespace

PyManagers::PyManagers(std::shared_ptr<Session> session, const loco::ManagerOptions& options)
    : Owned(std::move(session)) {
  this->session().run_interruptibly([&](World& world) {
    managers_.resize(world.nodes());
    for (NodeId node = 0; node < world.nodes(); ++node) {
      mutexes_.push_back(std::make_unique<std::mutex>());
    }
    world.run(
        [&](Env& env) { managers_[env.node()] = std::make_unique<loco::Manager>(env, options); });
  });
}

loco::Manager& PyManagers::at(NodeId node) {
  session().world();
  if (node >= managers_.size()) {
    throw Error(ErrorCode::kInvalidArgument, "node is " + std::to_string(node) +
                                                 "; the channel's nodes are 0 to " +
                                                 std::to_string(mutexes_.size() - 1));
  }
  return *managers_[node];
}

void PyManagers::run(const std::function<void(loco::Manager&)>& work) {
  session().run_interruptibly(
      [&](World& world) { world.run([&](Env& env) { work(at(env.node())); }); });
}

void bind_loco(py::module_& module) {
  py::module_ loco_module = module.def_submodule("loco", "Channel objects, after the LOCO paper.");
  py::class_<PyManagers, Managers>(loco_module, "Managers")
      .def(py::init([](std::shared_ptr<Session> session, std::uint32_t callers,
                       std::uint32_t block_bytes, double wait_timeout_s) {
             loco::ManagerOptions options;
             options.name = "python/" + std::to_string(session->next_run());
             options.callers = callers;
             options.block_bytes = block_bytes;
             options.wait_timeout = static_cast<Time>(wait_timeout_s * 1e9);
             return make_owned<PyManagers>(std::move(session), options);
           }),
           py::arg("cluster"), py::arg("callers") = 1, py::arg("block_bytes") = 4096,
           py::arg("wait_timeout_s") = 10.0);
  py::class_<PyBarrier, std::shared_ptr<PyBarrier>>(loco_module, "Barrier")
      .def(py::init([](const Managers& managers, const std::string& name) {
        return make_channel<loco::Barrier>(managers, [&](loco::Manager& manager) {
          return std::make_unique<loco::Barrier>(manager, name);
        });
      }))
      .def("wait", &barrier_wait);
  py::class_<PySharedRegion, std::shared_ptr<PySharedRegion>>(loco_module, "SharedRegion")
      .def(py::init([](const Managers& managers, const std::string& name, std::uint64_t bytes) {
        return make_channel<loco::SharedRegion>(managers, [&](loco::Manager& manager) {
          return std::make_unique<loco::SharedRegion>(manager, name, bytes);
        });
      }))
      .def("write", [](PySharedRegion& self, NodeId node, NodeId peer, std::uint64_t offset,
                       const py::bytes& data) { region_write(self, node, peer, offset, data); })
      .def("read", [](PySharedRegion& self, NodeId node, NodeId peer, std::uint64_t offset,
                      std::uint32_t size) {
        return py::bytes(region_read(self, node, peer, offset, size));
      });
  bind_words(loco_module);
  bind_loco_objects(loco_module);
}

}  // namespace pyrdma::bindings
