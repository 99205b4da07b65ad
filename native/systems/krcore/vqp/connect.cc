// Creation and connection of virtual queue pairs: algorithm 1 (section 4.3).
#include <algorithm>
#include <mutex>

#include "fabric/post_rules.h"
#include "systems/krcore/scopes.h"
#include "systems/krcore/service.h"

namespace pyrdma::krcore {

namespace {

// A place rests until so many others are free, so that a number comes again after 67 million queue
// pairs. More would not fit a cache.
constexpr std::size_t kRestingPlaces = 1024;
constexpr Time kReliableMade = 5 * kSecond;  // where there are no dynamic connections

}  // namespace

Service::SendLock::SendLock(Vqp& v) {
  for (;;) {
    pool = v.pool.load(std::memory_order_acquire);
    pool->mutex.lock();
    if (pool == v.pool.load(std::memory_order_acquire)) return;
    pool->mutex.unlock();
  }
}

Vqp* Service::find(VqpId id) {
  if (!id) return nullptr;
  const std::size_t most = table_.size() + (options_.bugs.has(Bug::kIdBoundOffByOne) ? 1 : 0);
  if (id.index >= most) return nullptr;
  Vqp* v = table_[id.index].load(std::memory_order_acquire);
  if (v == nullptr) return nullptr;
  return v->id == id || options_.bugs.has(Bug::kGenerationIgnored) ? v : nullptr;
}

Vqp* Service::take_place(const VqpOptions& options) {
  const std::lock_guard<Mutex> lock(table_mutex_);
  const bool is_fresh = used_places_ < table_.size() && free_places_.size() < kRestingPlaces;
  if (!is_fresh && free_places_.empty()) return nullptr;
  std::uint32_t& of_app = app_queues_[options.app];
  if (of_app >= options_.app_queues) return nullptr;
  ++of_app;
  const auto index = is_fresh ? static_cast<std::uint16_t>(used_places_++) : free_places_.front();
  if (!is_fresh) free_places_.pop_front();
  if (vqps_[index] == nullptr) {
    vqps_[index] = std::make_unique<Vqp>(env_);
    vqps_[index]->id.generation = static_cast<std::uint16_t>(options_.first_generation - 1);
    vqps_[index]->epoch = options_.first_epoch;
  }
  Vqp& v = *vqps_[index];
  auto generation = static_cast<std::uint16_t>(v.id.generation + 1);
  if (generation == 0) generation = 1;
  v.id = {index, generation};
  v.options = options;
  v.state.store(VqpState::kCreated, std::memory_order_relaxed);
  table_[index].store(&v, std::memory_order_release);
  return &v;
}

// Lines 1 to 6. The software queues grow with their use.
VqpId Service::create(const VqpOptions& options) {
  const Scope step(env_, scope::create);
  failure_.check();
  Vqp* v = take_place(options);
  if (v == nullptr) return {};
  v->pool.store(&local_pool(), std::memory_order_release);
  return v->id;
}

void Service::destroy(VqpId id) {
  Vqp* v = find(id);
  if (v == nullptr) return;
  unbind(id);
  {
    const SendLock lock(*v);
    leave(*v);
    v->end_sending();
    // The lists of the pool have its old id, which leads nowhere.
    v->is_waiting = v->is_asking = false;
    table_[id.index].store(nullptr, std::memory_order_release);
  }
  // After the end in the table: deliver() takes nothing for it from now on.
  std::vector<VqpId> replies;
  {
    const std::lock_guard<Mutex> lock(v->receive_mutex);
    for (const auto& [from, reply] : v->replies) replies.push_back(reply.vqp);
    v->replies.clear();
    v->end_receiving();
  }
  for (const VqpId reply : replies) destroy(reply);
  const std::lock_guard<Mutex> lock(table_mutex_);
  free_places_.push_back(id.index);
  if (const auto known = app_queues_.find(v->options.app);
      known != app_queues_.end() && --known->second == 0)
    app_queues_.erase(known);
}

std::uint32_t Service::queues_of(std::uint64_t app) {
  const std::lock_guard<Mutex> lock(table_mutex_);
  const auto known = app_queues_.find(app);
  return known == app_queues_.end() ? 0 : known->second;
}

void Service::end_app(std::uint64_t app) {
  std::vector<VqpId> ended;
  {
    const std::lock_guard<Mutex> lock(table_mutex_);
    for (const auto& place : table_) {
      const Vqp* v = place.load(std::memory_order_acquire);
      if (v != nullptr && v->options.app == app) ended.push_back(v->id);
    }
  }
  for (const VqpId id : ended) destroy(id);
}

void Service::adopt(Vqp& v, PhysicalQp* qp) {
  if (v.qp != nullptr && v.qp->has_failed)
    abandon(v);
  else
    leave(v);
  if (qp == nullptr) return;
  // A connection ends with the life of its peer: another life knows nothing of it.
  const std::uint32_t life = qp->is_dynamic() ? v.to.meta.incarnation : qp->life;
  if (v.life && *v.life != life) {
    env_.reached("krcore/peer_restarted");
    fail_vqp(v);
    return;
  }
  v.life = life;
  v.qp = qp;
  ++qp->users;
  const std::uint64_t way =
      qp->is_dynamic() ? v.to.meta.number : std::uint64_t{1} << 32 | qp->remote_number;
  const bool is_another = v.way && *v.way != way;
  v.way = way;
  go_another_way(v, is_another);
  if (!v.announced.empty()) want_answer(*v.pool.load(std::memory_order_relaxed), v);
}

void Service::leave(Vqp& v) {
  if (v.qp != nullptr) --v.qp->users;
  v.qp = nullptr;
}

// Leaves a queue pair that no fake request has emptied.
void Service::abandon(Vqp& v) {
  if (v.qp != nullptr) note_placement(v);
  leave(v);
}

// All requests before have ended, or wait to be posted again. The newest that has completed drained
// what was before it, if it was no WRITE.
void Service::note_placement(Vqp& v) {
  const CompletionEntry* newest = v.completions.newest_ready();
  const bool is_drained =
      newest != nullptr && (fabric::is_one_of(newest->opcode, fabric::kReturning) ||
                            newest->opcode == fabric::Opcode::kSend);
  if (!is_drained && v.completions.end() != 0) v.placed_at = env_.now() + kMostPlacement;
}

// Lines 9 to 16: a reliable queue pair if there is one, else the next dynamic one with the metadata
// of the node. Returns false if the node has no metadata in the cache.
bool Service::place_at_once(CorePool& pool, Vqp& v) {
  if (PhysicalQp* qp = pool.reliable_to(v.node, peers_->life_of(v.node))) {
    ++counters_.rc_hits;
    adopt(v, qp);
    return true;
  }
  Destination to;
  if (pool.dynamic.empty() || !has_cached(v.node, to.meta)) return false;
  to.node = v.node;
  to.handle = peers_->handle_of(v.node);
  if (to.handle == nullptr) return false;
  place_dynamic(pool, v, to);
  return true;
}

void Service::place_dynamic(CorePool& pool, Vqp& v, const Destination& to) {
  if (options_.rc_policy == RcPolicy::kAtOnce && v.node != env_.node())
    want_reliable(pool.core, v.node);
  v.to = to;
  // A queue pair that is free later may lead to the next life.
  if (!v.life) v.life = to.meta.incarnation;
  adopt(v, pool.next_dynamic(options_.bugs.has(Bug::kDeadQueuePairKept)));
}

ConnectResult Service::place(Vqp& v) {
  NodeId node = fabric::kNoNode;
  {
    const SendLock lock(v);
    node = v.node;
    // Another thread has reset the queue pair, or has placed it.
    if (node == fabric::kNoNode || v.qp != nullptr || place_at_once(*lock.pool, v))
      return ConnectResult::kConnected;
  }
  return place_after_asking(v, node);
}

ConnectResult Service::place_after_asking(Vqp& v, NodeId node) {
  if (!env_.device().capabilities().dc) {
    const Attempts& attempts = attempts_[node];
    const Time deadline = env_.now() + kReliableMade;
    // One that has failed needs no place, as one that turns out to be connected to an earlier life.
    const auto is_placed = [&] {
      const SendLock lock(v);
      const auto needs_none = [&] {
        return v.node != node || v.qp != nullptr || v.state.load() == VqpState::kError;
      };
      if (!needs_none()) adopt(v, lock.pool->reliable_to(node, peers_->life_of(node)));
      return needs_none();
    };
    bool is_made = true;
    while (is_made && env_.now() < deadline) {
      const std::uint32_t before = attempts.ended;
      want_reliable(v.pool.load(std::memory_order_acquire)->core, node);
      env_.poll_until([&] { return is_placed() || attempts.ended != before || has_ended(); },
                      deadline);
      failure_.check();
      if (is_placed()) return ConnectResult::kConnected;
      // A connection that was made may have failed before it was placed, or is another core's.
      is_made = attempts.ended != before && attempts.last == Made::kConnection;
    }
    return attempts.last == Made::kNoRoom ? ConnectResult::kNoRoom : ConnectResult::kUnknownNode;
  }
  Destination to;
  const ConnectResult result = resolve(node, to.meta);
  if (result != ConnectResult::kConnected) return result;
  to.node = node;
  to.handle = peers_->handle_of(node);
  if (to.handle == nullptr) {
    // This life of the node ended before it had a port; the next one has other metadata.
    env_.reached("krcore/no_port");
    peers_->find_next(node);
    const std::lock_guard<Mutex> lock(cache_mutex_);
    cache_[node].has_meta = false;
    return ConnectResult::kUnknownNode;
  }
  const SendLock lock(v);
  if (v.node == node && v.qp == nullptr) place_dynamic(*lock.pool, v, to);
  return ConnectResult::kConnected;
}

ConnectResult Service::connect(VqpId id, NodeId node, std::uint32_t port, VqpId peer,
                               std::uint16_t peer_epoch) {
  const Scope step(env_, scope::connect);
  failure_.check();
  Vqp* v = find(id);
  if (v == nullptr) return ConnectResult::kBadId;
  if (node >= env_.nodes()) return ConnectResult::kUnknownNode;
  ++counters_.connects;
  std::uint16_t epoch = 0;
  {
    const SendLock lock(*v);
    epoch = v->epoch;
    if (v->state.load() == VqpState::kConnected) return ConnectResult::kAlreadyConnected;
    v->node.store(node, std::memory_order_relaxed);
    v->port = port;
    v->peer = peer.number();
    v->peer_epoch = peer_epoch;
    if (place_at_once(*lock.pool, *v)) {
      v->state.store(VqpState::kConnected, std::memory_order_release);
      return ConnectResult::kConnected;
    }
  }
  const ConnectResult result = place_after_asking(*v, node);
  if (result != ConnectResult::kConnected) return result;
  const SendLock lock(*v);
  if (v->epoch != epoch) return ConnectResult::kBadId;  // another thread has ended it
  v->state.store(VqpState::kConnected, std::memory_order_release);
  return result;
}

bool Service::has_cached(NodeId node, DctMeta& meta) {
  if (node == env_.node()) {
    meta = pools_.front()->target();
    return true;
  }
  const std::lock_guard<Mutex> lock(cache_mutex_);
  return take_cached(node, meta);
}

// The caller holds the lock. A message of the next life may have come since.
bool Service::take_cached(NodeId node, DctMeta& meta) {
  if (!options_.dc_cache || !cache_[node].has_meta) return false;
  if (cache_[node].meta.incarnation < peers_->life_of(node) &&
      !options_.bugs.has(Bug::kStaleMetaKept))
    return false;
  ++counters_.cache_hits;
  if (!options_.bugs.has(Bug::kMetaOnMissOnly)) meta = cache_[node].meta;
  return true;
}

// Lines 13 to 15. Threads of a node that miss the same node together ask once.
ConnectResult Service::resolve(NodeId node, DctMeta& meta) {
  while (options_.dc_cache) {
    {
      const std::lock_guard<Mutex> lock(cache_mutex_);
      if (take_cached(node, meta)) return ConnectResult::kConnected;
      if (!cache_[node].is_asked) {
        cache_[node].is_asked = true;
        break;
      }
    }
    env_.poll_until(
        [&] {
          const std::lock_guard<Mutex> lock(cache_mutex_);
          return !cache_[node].is_asked;
        },
        kForever, &cache_watch_);
    env_.reached("krcore/shared_lookup");
  }
  // Those that wait for this look learn of its end, however it ends.
  struct Look {
    Service& service;
    NodeId node;
    ~Look() {
      {
        const std::lock_guard<Mutex> lock(service.cache_mutex_);
        service.cache_[node].is_asked = false;
      }
      service.env_.notify(service.cache_watch_);
    }
  } const look{*this, node};
  CoreState& state = *core_states_[local_pool().core];
  MetaClient::Answer answer = options_.metadata == Metadata::kRpc
                                  ? state.metadata->target_of(node, meta)
                                  : state.meta.target_of(node, meta);
  // A table that has lost the latest life does not lead back to an earlier one.
  if (answer == MetaClient::Answer::kFound) peers_->learn(node, meta.incarnation);
  if (answer == MetaClient::Answer::kFound && meta.incarnation < peers_->life_of(node)) {
    env_.reached("krcore/stale_meta");
    answer = MetaClient::Answer::kUnknown;
  }
  ConnectResult result = ConnectResult::kConnected;
  ValidMrRecord location;
  bool has_location = false;
  if (answer != MetaClient::Answer::kFound) {
    // The node itself knows, too.
    env_.reached("krcore/asked_node");
    ControlMessage reply;
    if (ask(node, own_metadata(ControlKind::kQuery), reply, kNodeAnswers)) {
      meta = reply.meta;
      location = location_in(reply);
      has_location = true;
    } else {
      result = answer == MetaClient::Answer::kNoServer ? ConnectResult::kNoServer
                                                       : ConnectResult::kUnknownNode;
    }
  }
  const std::lock_guard<Mutex> lock(cache_mutex_);
  Cached& cached = cache_[node];
  if (result == ConnectResult::kConnected && options_.dc_cache) {
    cached.meta = meta;
    cached.has_meta = true;
  }
  if (has_location) {
    cached.location = location;
    cached.has_location = true;
  }
  return result;
}

void Service::clear_caches() {
  {
    const std::lock_guard<Mutex> lock(cache_mutex_);
    for (Cached& cached : cache_) cached.has_meta = false;
  }
  forget_regions();
}

void Service::forget_regions() {
  const Scope step(env_, scope::forget_regions);
  for (const auto& state : core_states_) {
    const std::lock_guard<Mutex> lock(state->store_mutex);
    state->store.clear();
  }
  // Behind the clearing: a thread that has looked before it sees the change.
  forgotten_.fetch_add(1, std::memory_order_release);
}

std::uint64_t Service::meta_reads() {
  std::uint64_t reads = 0;
  for (const auto& state : core_states_) reads += state->meta.reads();
  return reads;
}

std::uint64_t Service::metadata_requests() {
  std::uint64_t requests = 0;
  for (const auto& state : core_states_)
    if (state->metadata != nullptr) requests += state->metadata->requests();
  return requests;
}

std::uint64_t Service::metadata_repeated() {
  std::uint64_t repeated = 0;
  for (const auto& state : core_states_)
    if (state->metadata != nullptr) repeated += state->metadata->repeated();
  return repeated;
}

}  // namespace pyrdma::krcore
