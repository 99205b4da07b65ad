#include "systems/loco/baselines/mpi_windows.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "base/error.h"
#include "systems/loco/scopes.h"

namespace pyrdma::loco {

namespace {

constexpr std::uint64_t kLock = 0, kData = 8;  // offsets in a part
constexpr std::uint64_t kFree = 0, kExclusive = 1;

}  // namespace

MpiWindows::MpiWindows(Manager& manager, std::string name, const MpiWindowsOptions& options)
    : Channel(manager, std::move(name)), options_(options) {
  const std::size_t count = std::size_t{per_node()} * options_.windows;
  const std::uint64_t table_bytes = count * sizeof(RemoteRegion);
  table_ = add_region("table", table_bytes, fabric::kRemoteRead);
  auto* entries = reinterpret_cast<RemoteRegion*>(table_.data);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bytes = kData + options_.bytes;
    if (options_.merged) {
      const LocalRegion part = manager.memory().allocate(bytes, fabric::kAllAccess);
      own_.push_back(part.data);
      entries[i] = part.remote();
    } else {
      const auto& part = *memory_.emplace_back(
          manager.env().device().allocate(manager.domain(), bytes, fabric::kAllAccess));
      own_.push_back(part.data());
      entries[i] = part.remote();
    }
  }
  expect_region("table", table_bytes);
  join();
}

MpiWindows::~MpiWindows() = default;

void MpiWindows::open(Caller& me) {
  const std::size_t count = std::size_t{per_node()} * options_.windows;
  const std::uint64_t bytes = count * sizeof(RemoteRegion);
  parts_.resize(participants().size() * count);
  const LocalRegion copy = manager().memory().allocate(bytes);
  for (std::size_t i = 0; i < participants().size(); ++i) {
    const NodeId node = participants()[i];
    const fabric::Status status =
        me.read(node, remote(node, 0), 0, copy.sge(0, static_cast<std::uint32_t>(bytes))).wait();
    if (status != fabric::Status::kSuccess) {
      throw_unreachable(0, static_cast<std::uint32_t>(i) * per_node(), status);
    }
    std::memcpy(static_cast<void*>(&parts_[i * count]), copy.data, bytes);
  }
}

void MpiWindows::lock(Caller& me, std::uint32_t window, std::uint32_t rank) {
  const Scope all(me.env(), scope::mpi_lock);
  const NodeId node = node_of(rank);
  InFlight old(me.block(8));
  const Time deadline = manager().env().now() + manager().options().wait_timeout;
  while (true) {
    const Scope step(me.env(), scope::mpi_lock_try);
    old.key = me.compare_swap(node, part(window, rank), kLock, kFree, kExclusive, old.block.sge(8));
    const fabric::Status status = old.key.wait();
    if (status != fabric::Status::kSuccess) throw_unreachable(window, rank, status);
    if (*old.block.as<std::uint64_t>() == kFree) return;
    if (manager().env().now() > deadline) {
      throw Error(ErrorCode::kTimeout,
                  "window " + std::to_string(window) + " of '" + name() + "' at rank " +
                      std::to_string(rank) + " stayed locked for " +
                      std::to_string(manager().options().wait_timeout / kMillisecond) + " ms",
                  false);
    }
  }
}

void MpiWindows::unlock(Caller& me, std::uint32_t window, std::uint32_t rank, AckKey&& pending) {
  const Scope step(me.env(), scope::mpi_unlock);
  const fabric::Status status = pending.wait();
  if (status != fabric::Status::kSuccess) throw_unreachable(window, rank, status);
  MemRef old = me.block(8);
  AckKey key = me.fetch_add(node_of(rank), part(window, rank), kLock, std::uint64_t{0} - kExclusive,
                            old.sge(8));
  key.keep(std::move(old));
}

AckKey MpiWindows::get(Caller& me, std::uint32_t window, std::uint32_t rank, std::uint64_t offset,
                       const MemRef& into) {
  return me.read(node_of(rank), part(window, rank), kData + offset, into.sge(8));
}

AckKey MpiWindows::put(Caller& me, std::uint32_t window, std::uint32_t rank, std::uint64_t offset,
                       const MemRef& from) {
  return me.write(node_of(rank), part(window, rank), kData + offset, from.sge(8));
}

const std::byte* MpiWindows::local(std::uint32_t window, std::uint32_t caller) const {
  return own_[std::size_t{caller} * options_.windows + window] + kData;
}

void MpiWindows::throw_unreachable(std::uint32_t window, std::uint32_t rank,
                                   fabric::Status status) const {
  throw Error(ErrorCode::kUnavailable,
              "window " + std::to_string(window) + " of '" + name() + "': rank " +
                  std::to_string(rank) + " at node " + std::to_string(node_of(rank)) +
                  " does not answer (" + to_string(status) + ")",
              false)
      .blaming({node_of(rank)});
}

}  // namespace pyrdma::loco
