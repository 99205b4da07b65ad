// Bindings of barrier, memory and variables.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "systems/loco/atomic_var.h"
#include "systems/loco/barrier.h"
#include "systems/loco/bindings/channel.h"
#include "systems/loco/owned_var.h"
#include "systems/loco/shared_region.h"

namespace pyrdma::loco::bindings {

namespace {

using Var = OwnedVar<std::int64_t>;

/// A barrier with one caller for all tasks of its node, which arrive one after the other.
class TasksBarrier final : public Barrier {
 public:
  using Barrier::Barrier;

  /// One step of the arrival of a task. `begin` is 0 before it arrives.
  bool arrive_step(Caller& me, Time& begin) {
    const Time now = me.env().now();
    if (begin == 0) {
      if (busy_) return false;
      enter(me);
      begin = now;
      busy_ = true;
    }
    const std::vector<NodeId> nodes = awaited();
    const Time limit = manager().options().wait_timeout;
    const bool late = !nodes.empty() && now - begin >= limit;
    if (!nodes.empty() && !late) return false;
    busy_ = false;
    if (late) {
      throw Error(ErrorCode::kTimeout,
                  "node " + std::to_string(self()) + " waited " +
                      std::to_string(limit / kMillisecond) + " ms at barrier '" + name() +
                      "' for the nodes" + text_of(nodes) +
                      "; check that they arrive too, or raise wait_timeout",
                  false)
          .blaming(nodes);
    }
    leave();
    return true;
  }

 private:
  bool busy_ = false;  // a task has arrived and waits
};

/// Waits for all nodes, and returns how long.
Time passed(Barrier& barrier, Caller& me) {
  const Time begin = me.env().now();
  barrier.wait(me);
  return me.env().now() - begin;
}

/// Lets a task arrive. Other tasks of its node go on meanwhile: another node may wait for them.
Time arrive(Channels<TasksBarrier>& self, NodeId node) {
  Time begin = 0, end = 0;
  self.in_steps(node, [&](TasksBarrier& barrier, Caller& me) {
    if (!barrier.arrive_step(me, begin)) return false;
    end = me.env().now();
    return true;
  });
  return end - begin;
}

std::vector<Time> barrier_wait(Channels<TasksBarrier>& self) {
  std::vector<Time> latencies(self.nodes());
  self.everywhere(
      [&](Barrier& barrier, Caller& me) { latencies[me.env().node()] = passed(barrier, me); });
  return latencies;
}

[[noreturn]] void throw_failed(NodeId peer, fabric::Status status) {
  throw Error(ErrorCode::kUnavailable,
              "a request to node " + std::to_string(peer) + " failed: " + to_string(status), false)
      .blaming({peer});
}

/// Waits until the writes of the caller to `peer` are placed. Unlike a thread fence it asks no
/// other node, so another node's failure does not end the call.
void place(Caller& me, NodeId peer) {
  AckKey key;
  me.order_of(me, peer, key);
  finish(key);
}

/// Returns the bytes that `post(block)` fetches into the block.
template <class Post>
std::uint64_t fetch(Caller& me, Post&& post) {
  InFlight word(me.block(8));
  word.key = post(word.block);
  finish(word.key);
  return *word.block.as<std::uint64_t>();
}

void check_span(const SharedRegion& region, std::uint64_t offset, std::uint64_t size, NodeId peer) {
  const auto& all = region.participants();
  if (std::find(all.begin(), all.end(), peer) == all.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                "node " + std::to_string(peer) + " does not take part in '" + region.name() + "'");
  }
  if (offset <= region.bytes() && size <= region.bytes() - offset) return;
  throw Error(ErrorCode::kInvalidArgument, "size or data of " + std::to_string(size) +
                                               " bytes at offset " + std::to_string(offset) +
                                               " do not fit into region '" + region.name() +
                                               "' of " + std::to_string(region.bytes()) + " bytes");
}

void region_write(SharedRegion& region, Caller& me, const std::string& data, NodeId peer,
                  std::uint64_t offset) {
  check_span(region, offset, data.size(), peer);
  const auto size = static_cast<std::uint32_t>(data.size());
  InFlight copy(me.block(size));
  std::memcpy(copy.block.data(), data.data(), size);
  copy.key = region.write(me, peer, offset, copy.block.sge(size));
  finish(copy.key);
  place(me, peer);  // the next read of a script expects to see it
}

std::vector<std::byte> region_read(SharedRegion& region, Caller& me, std::uint32_t size,
                                   NodeId peer, std::uint64_t offset) {
  check_span(region, offset, size, peer);
  InFlight copy(me.block(size));
  copy.key = region.read(me, peer, offset, copy.block.sge(size));
  finish(copy.key);
  return {copy.block.data(), copy.block.data() + size};
}

[[noreturn]] void throw_ended(NodeId owner) {
  throw Error(ErrorCode::kUnavailable,
              "node " + std::to_string(owner) + ", which owns the variable, has ended")
      .blaming({owner});
}

/// Runs `work(var, caller)` at the owner. Throws Error(kUnavailable) if the owner has ended.
template <class Work>
void at_owner(Channels<Var>& self, Work&& work) {
  pyrdma::bindings::Session& session = self.session();
  if (session.runs_programs()) {  // whose tasks use their own nodes
    const NodeId its_owner = self.end(0).owner();
    if (!session.world().is_up(its_owner)) throw_ended(its_owner);
    return self.on(its_owner, work);
  }
  std::atomic<NodeId> owner{0};
  std::atomic<bool> done{false};
  self.everywhere([&](Var& var, Caller& me) {
    owner = var.owner();
    if (owner != var.self()) return;
    work(var, me);
    done = true;
  });
  if (!done) throw_ended(owner);
}

void push(Channels<Var>& self) {
  at_owner(self, [](Var& var, Caller& me) {
    AckKey key = var.push(me);
    finish(key);
    for (const NodeId reader : var.participants()) {
      if (reader != var.self()) place(me, reader);
    }
  });
}

std::int64_t pull(Var& var, Caller& me) {
  const auto [status, value] = var.pull(me);
  if (status != fabric::Status::kSuccess) throw_failed(var.owner(), status);
  return value;
}

void store(Channels<Var>& self, std::int64_t value) {
  at_owner(self, [&](Var& var, Caller&) { var.store(value); });
}

template <class T, class... Arguments>
std::unique_ptr<T> make(Manager& manager, const std::string& name, Arguments... arguments) {
  return std::make_unique<T>(manager, name, arguments...);
}

std::unique_ptr<SharedRegion> make_region(Manager& manager, const std::string& name,
                                          std::uint64_t bytes) {
  return std::make_unique<SharedRegion>(manager, name, bytes, kReadWrite);
}

std::unique_ptr<Var> make_var(Manager& manager, const std::string& name, NodeId owner) {
  return std::make_unique<Var>(manager, name, owner, Updates::kEither);  // a script does either
}

}  // namespace

void finish(AckKey& key) {
  const fabric::Status status = key.wait();
  if (status != fabric::Status::kSuccess) throw_failed(key.failed_peer(), status);
}

void bind_variables(const py::object& scope) {
  ChannelClass<TasksBarrier>(scope, "Barrier", &make<TasksBarrier>)
      .of_all("wait", [](Channels<TasksBarrier>& self) { return barrier_wait(self); })
      .of_all("arrive",
              [](Channels<TasksBarrier>& self, NodeId node) { return arrive(self, node); });
  ChannelClass<SharedRegion>(scope, "SharedRegion", &make_region)
      .on("write", [](SharedRegion& region, Caller& me, const std::string& data, NodeId peer,
                      std::uint64_t offset) { region_write(region, me, data, peer, offset); })
      .on("read", [](SharedRegion& region, Caller& me, std::uint32_t size, NodeId peer,
                     std::uint64_t offset) { return region_read(region, me, size, peer, offset); });
  ChannelClass<Var>(scope, "OwnedVar", &make_var)
      .of_all("store", [](Channels<Var>& self, std::int64_t value) { store(self, value); })
      .of_all("push", [](Channels<Var>& self) { push(self); })
      .on("pull", [](Var& var, Caller& me) { return pull(var, me); })
      .on("load", [](Var& var, Caller& me) { return var.load(me); });
  ChannelClass<AtomicVar>(scope, "AtomicVar", &make<AtomicVar, NodeId>)
      .on("fetch_add",
          [](AtomicVar& var, Caller& me, std::uint64_t addend) {
            return fetch(me, [&](const MemRef& block) { return var.fetch_add(me, addend, block); });
          })
      .on("compare_swap",
          [](AtomicVar& var, Caller& me, std::uint64_t expected, std::uint64_t desired) {
            return fetch(me, [&](const MemRef& block) {
              return var.compare_swap(me, expected, desired, block);
            });
          })
      .on("load", [](AtomicVar& var, Caller& me) {
        return fetch(me, [&](const MemRef& block) { return var.load(me, block); });
      });
}

}  // namespace pyrdma::loco::bindings
