// Looks remote regions up in the ValidMR table of their node by one-sided READs (section 4.2).
#include <algorithm>
#include <cstring>
#include <mutex>

#include "systems/krcore/service.h"

namespace pyrdma::krcore {

namespace {

constexpr std::uint32_t kScratchPlaces = 64, kScratchBytes = 64;

}  // namespace

Service::CoreState::CoreState(Env& env, fabric::ProtectionDomain& domain, const Options& options)
    : meta(env, domain, options), store_mutex(env) {
  scratch = env.device().allocate(domain, kScratchPlaces * kScratchBytes);
  for (std::uint32_t place = kScratchPlaces; place-- > 0;) free_scratch.push_back(place);
}

// Where the node's table is: asked once for each node.
bool Service::location_of(Vqp& v, ValidMrRecord& record) {
  const NodeId node = v.node;  // once: another thread may reset the queue pair
  if (node >= cache_.size()) return false;
  if (node == env_.node()) {
    record = {regions_->table().addr, regions_->table().rkey, regions_->shape().buckets,
              regions_->shape().entries, env_.incarnation()};
    return true;
  }
  {
    const std::lock_guard<Mutex> lock(cache_mutex_);
    const Cached& cached = cache_[node];
    if (cached.has_location) {
      record = cached.location;
      return true;
    }
  }
  const std::uint32_t core = v.pool.load(std::memory_order_acquire)->core;
  if (core_states_[core]->meta.location_of(node, record) != MetaClient::Answer::kFound) {
    ControlMessage reply;
    if (!ask(node, own_metadata(ControlKind::kQuery), reply, kNodeAnswers)) return false;
    record = location_in(reply);
  }
  const std::lock_guard<Mutex> lock(cache_mutex_);
  cache_[node].location = record;
  cache_[node].has_location = true;
  return true;
}

LookupResult Service::look_up_region(Vqp& v, std::uint32_t key, RegionRecord& record) {
  ValidMrRecord where;
  if (!location_of(v, where)) return LookupResult::kFailed;
  const HashShape shape{where.buckets, where.entries, sizeof(RegionRecord)};
  const fabric::RemoteRegion table{where.addr, shape.bytes(), where.rkey, v.node};
  return look_up(shape, key, std::as_writable_bytes(std::span(&record, 1)),
                 [&](std::uint64_t offset, std::span<std::byte> into) {
                   return read_for(v, table, offset, into);
                 });
}

// A queue pair whose physical one is gone may have no metadata for a dynamic one: then it asks for
// them. Returns false if nobody answers.
bool Service::has_place(Vqp& v) {
  failure_.check();
  {
    const SendLock lock(v);
    if (v.qp != nullptr || v.to.handle != nullptr) return true;
  }
  return place(v) == ConnectResult::kConnected;
}

// A READ of the service on the queue pair's own physical one. Its thread waits.
bool Service::read_for(Vqp& v, const fabric::RemoteRegion& from, std::uint64_t offset,
                       std::span<std::byte> into) {
  if (into.size() > kScratchBytes || offset + into.size() > from.length) return false;
  constexpr std::uint32_t kNone = ~0U;
  std::uint32_t slot = kNone;
  CorePool* home = nullptr;
  std::uint16_t epoch = 0;
  fabric::Sge sge;
  const auto posted = [&] {
    const SendLock lock(v);
    if (v.state.load() == VqpState::kError) return true;
    if (v.transfer.stage == Transfer::kRunning || v.qp == nullptr || v.qp->has_failed ||
        !v.pending.empty()) {
      if (v.qp != nullptr) poll_inner(*lock.pool, *v.qp);
      want_turn(*lock.pool, v);
      progress(*lock.pool);
      return false;
    }
    CoreState& core = *core_states_[lock.pool->core];
    if (v.qp->room() == 0) poll_inner(*lock.pool, *v.qp);
    // Completions may have ended a transfer: then it has no queue pair here any more.
    if (v.qp == nullptr || v.qp->has_failed || v.qp->room() == 0 || core.free_scratch.empty())
      return false;
    Prepared read;
    read.kind = Prepared::Kind::kInternal;
    read.owner = v.id;
    read.epoch = epoch = v.epoch;
    read.to = v.to;
    read.request.opcode = fabric::Opcode::kRead;
    read.request.remote_addr = from.addr + offset;
    read.request.rkey = from.rkey;
    sge = core.scratch->sge(std::size_t{core.free_scratch.back()} * kScratchBytes,
                            static_cast<std::uint32_t>(into.size()));
    read.sges[0] = sge;
    read.request.sge_count = 1;
    v.read_done = v.read_failed = false;
    if (post_physical(*lock.pool, *v.qp, {&read, 1}) == 0) return false;
    slot = core.free_scratch.back();
    core.free_scratch.pop_back();
    home = lock.pool;
    return true;
  };
  while (!env_.poll_until(posted, env_.now() + 20 * kMicrosecond))
    if (!has_place(v)) return false;
  if (slot == kNone) return false;
  const auto done = [&] {
    const SendLock lock(v);
    if (!v.read_done && v.qp != nullptr) poll_inner(*lock.pool, *v.qp);
    return v.read_done || v.epoch != epoch;
  };
  // Another thread may take the completion: then only the look counts.
  while (!env_.poll_until(done, env_.now() + 20 * kMicrosecond)) {
    if (!has_place(v)) fail(v.id);
    const SendLock lock(v);
    want_turn(*lock.pool, v);
    progress(*lock.pool);
  }
  // Another thread has reset the queue pair. The READ may still write, so its place is not given
  // back.
  if (!v.read_done) return false;
  std::memcpy(into.data(), reinterpret_cast<const std::byte*>(sge.addr), into.size());
  const std::lock_guard<Mutex> lock(home->mutex);
  core_states_[home->core]->free_scratch.push_back(slot);
  return !v.read_failed;
}

}  // namespace pyrdma::krcore
