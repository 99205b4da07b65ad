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
    : meta(env, domain, options), store_mutex(env), lookups(kScratchPlaces) {
  scratch = env.device().allocate(domain, kScratchPlaces * kScratchBytes);
}

Service::Connection Service::connection_of(Vqp& v) {
  const SendLock lock(v);
  return {v.node, v.epoch, v.life};
}

// Where the node's table is: asked once for each life of a node.
bool Service::location_of(const Connection& of, ValidMrRecord& record) {
  if (of.node == env_.node()) {
    record = {regions_->table().addr, regions_->table().rkey, regions_->shape().buckets,
              regions_->shape().entries, env_.incarnation()};
    return true;
  }
  {
    const std::lock_guard<Mutex> lock(cache_mutex_);
    const Cached& cached = cache_[of.node];
    if (cached.has_location && cached.location.incarnation == of.life) {
      record = cached.location;
      return true;
    }
  }
  MetaClient& meta = core_states_[local_pool().core]->meta;
  if (meta.location_of(of.node, record) != MetaClient::Answer::kFound ||
      record.incarnation != of.life) {
    ControlMessage reply;
    if (!ask(of.node, own_metadata(ControlKind::kQuery), reply, kNodeAnswers)) return false;
    record = location_in(reply);
  }
  if (record.incarnation > of.life) {
    // A later connect must not meet what leads to the life that has ended.
    peers_->learn(of.node, record.incarnation);
    for (const auto& pool : pools_) leave_earlier_lives(*pool);
  }
  const std::lock_guard<Mutex> lock(cache_mutex_);
  Cached& cached = cache_[of.node];
  cached.location = record;
  cached.has_location = true;
  // The next connect asks for the metadata of the life that has answered.
  if (cached.meta.incarnation < record.incarnation) cached.has_meta = false;
  return record.incarnation == of.life;
}

LookupResult Service::look_up_region(Vqp& v, const Connection& of, std::uint32_t key,
                                     RegionRecord& record) {
  ValidMrRecord where;
  if (!location_of(of, where)) return LookupResult::kFailed;
  const HashShape shape{where.buckets, where.entries, sizeof(RegionRecord)};
  const fabric::RemoteRegion table{where.addr, shape.bytes(), where.rkey, of.node};
  return look_up(shape, key, std::as_writable_bytes(std::span(&record, 1)),
                 [&](std::uint64_t offset, std::span<std::byte> into) {
                   return read_for(v, of, table, offset, into);
                 });
}

// A queue pair whose physical one is gone may have no metadata for a dynamic one: then it asks for
// them. Returns false if nobody answers.
bool Service::has_place(Vqp& v) {
  failure_.check();
  {
    const SendLock lock(v);
    if (v.qp != nullptr || v.to.is_dynamic()) return true;
  }
  return place(v) == ConnectResult::kConnected;
}

// Waits until a physical queue pair carries the connection. Returns false if it has ended, or none
// will.
bool Service::has_way(Vqp& v, Connection& of) {
  bool has_ended = false;
  const auto has_news = [&] {
    const SendLock lock(v);
    const auto look = [&] {
      has_ended = v.epoch != of.epoch || v.state.load() == VqpState::kError;
      of.life = v.life;
      return has_ended || (v.qp != nullptr && !v.qp->has_failed);
    };
    if (look()) return true;
    if (v.qp != nullptr) poll_inner(*lock.pool, *v.qp);
    want_turn(*lock.pool, v);
    progress(*lock.pool);
    // A transfer may have ended: another lock guards it then.
    return v.pool.load(std::memory_order_relaxed) == lock.pool && look();
  };
  while (!env_.poll_until(has_news, env_.now() + 20 * kMicrosecond))
    if (!has_place(v)) return false;
  return !has_ended;
}

/// A READ of a table that is under way, and its place in the memory of a core.
struct Service::Look {
  LookupRead* read = nullptr;
  CorePool* home = nullptr;
  PhysicalQp* carrier = nullptr;  // lives as long as the READ is under way
  const std::byte* bytes = nullptr;
};

// Posts the READ on the queue pair's own physical one, if there is room.
bool Service::has_begun(Vqp& v, std::uint16_t epoch, const fabric::WorkRequest& request,
                        Look& look) {
  const SendLock lock(v);
  if (v.epoch != epoch || v.qp == nullptr || v.qp->has_failed) return false;
  if (v.qp->room() == 0) poll_inner(*lock.pool, *v.qp);
  // Completions may have ended a transfer: then it has no queue pair here any more.
  if (v.qp == nullptr || v.qp->has_failed || v.qp->room() == 0) return false;
  CoreState& core = *core_states_[lock.pool->core];
  const auto place = std::ranges::find(core.lookups, LookupRead::kFree, &LookupRead::state);
  if (place == core.lookups.end()) return false;
  const std::size_t at = static_cast<std::size_t>(place - core.lookups.begin()) * kScratchBytes;
  Prepared read;
  read.kind = Prepared::Kind::kLookup;
  read.owner = v.id;
  read.epoch = epoch;
  read.to = v.to;
  read.lookup = &*place;
  read.request.opcode = fabric::Opcode::kRead;
  read.request.remote_addr = request.remote_addr;
  read.request.rkey = request.rkey;
  read.request.sge_count = 1;
  read.sges[0] = core.scratch->sge(at, request.sges->length);
  place->state = LookupRead::kUnderWay;
  if (post_physical(*lock.pool, *v.qp, {&read, 1}) == 0) {
    place->state = LookupRead::kFree;
    return false;
  }
  look.read = &*place;
  look.home = lock.pool;
  look.carrier = v.qp;
  look.bytes = core.scratch->data() + at;
  return true;
}

// A READ of the service for a thread that waits. The READ goes on if the thread leaves it, as at a
// reset of the queue pair. One that has not run, since its queue pair has failed, is posted again.
bool Service::read_for(Vqp& v, const Connection& of, const fabric::RemoteRegion& from,
                       std::uint64_t offset, std::span<std::byte> into) {
  if (into.size() > kScratchBytes || offset + into.size() > from.length) return false;
  fabric::Sge size;
  size.length = static_cast<std::uint32_t>(into.size());
  fabric::WorkRequest request;
  request.sges = &size;
  request.remote_addr = from.addr + offset;
  request.rkey = from.rkey;
  for (Connection way = of; has_way(v, way);) {
    Look look;
    if (!env_.poll_until([&] { return has_begun(v, of.epoch, request, look); },
                         env_.now() + 20 * kMicrosecond))
      continue;
    const auto has_ended = [&] {
      const std::lock_guard<Mutex> lock(look.home->mutex);
      if (look.read->state == LookupRead::kUnderWay) poll_inner(*look.home, *look.carrier);
      return look.read->state != LookupRead::kUnderWay || v.epoch != of.epoch;
    };
    while (!env_.poll_until(has_ended, env_.now() + 20 * kMicrosecond)) failure_.check();
    const std::lock_guard<Mutex> lock(look.home->mutex);
    const LookupRead::State state = look.read->state;
    look.read->is_left = state == LookupRead::kUnderWay;
    if (state == LookupRead::kUnderWay) return false;
    look.read->state = LookupRead::kFree;
    if (state == LookupRead::kAgain) continue;
    if (state == LookupRead::kDone) std::memcpy(into.data(), look.bytes, into.size());
    return state == LookupRead::kDone;
  }
  return false;
}

}  // namespace pyrdma::krcore
