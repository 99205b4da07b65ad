// The outside view of a run on a store, what its seed draws, and the two stores.
#pragma once
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "check/history.h"
#include "fuzz/fault_phase.h"
#include "systems/loco/baselines/sherman.h"
#include "systems/loco/fuzz/fates.h"
#include "systems/loco/fuzz/first_numbers.h"
#include "systems/loco/fuzz/kinds.h"
#include "systems/loco/fuzz/lock_use.h"
#include "systems/loco/fuzz/places.h"
#include "systems/loco/fuzz/presets.h"
#include "systems/loco/kvstore/store.h"

namespace pyrdma::loco::stores {

using check::Function;

inline constexpr std::uint32_t kCallers = 3;  // per node

/// What the clients do. They fill slots again often, or change values often. Where they are
/// watched, one client of each node does so and the others read: who waits for a change sees
/// nothing, so it takes readers to see one that is not placed or not announced.
enum class Load : std::uint8_t { kRefills, kUpdates, kWatchedRefills, kWatchedUpdates };

/// What a seed draws. One key or few keys make clients contend; many keys let announcements fill
/// the tracker's ring.
struct Shape {
  explicit Shape(const fuzz::Options& options) : first(options) {
    Rng rng(options.seed, -1, "fuzz loco store shape");
    const auto one_of = [&](auto... values) {
      const std::array all{static_cast<std::uint32_t>(values)...};
      return all[rng.below(all.size())];
    };
    keys = one_of(2, 4, 4, 4, 4, 12, 12, 40);
    if (options.nodes <= 3 && rng.below(4) == 0) keys = 1;  // more clients: the checker gives up
    locks = one_of(1, std::max(1U, keys / 2), keys, 2 * keys);
    window = one_of(1, 1, 2);
    value_words = one_of(1, 1, 1, 1, 12, 100);
    loaded = rng.below(2) == 0;
    stored = rng.below(2) == 0;
    slots = one_of(1, 2, 3) + (keys > 4 || loaded ? keys / options.nodes : 0);
    tracker_bytes = one_of(128, 128, 256, 2048);
    tracker_hold = one_of(0, 100, 400, 400) * kMicrosecond;
    tracker_pause = one_of(5, 10, 40) * kMicrosecond;
    const Preset drawn = rng.below(2) == 0 ? Preset::kPaper : Preset::kBest;
    lock = TicketLockOptions::of(preset_of(options, drawn));
    lock.max_handovers = one_of(1, 16);
    if (rng.below(3) == 0) lock.placement = Placement::kDevice;  // its words begin with 0
    if (lock.placement == Placement::kHost) lock.first_ticket = first.lock_ticket;
    load = std::array{
        Load::kRefills,        Load::kRefills,        Load::kUpdates,
        Load::kWatchedRefills, Load::kWatchedRefills, Load::kWatchedUpdates}[rng.below(6)];
    // An insertion that waits for a slot fills it as soon as its removal is heard.
    if (load == Load::kWatchedRefills && !loaded && keys <= 4) slots = 1;
    if (watched() && rng.below(2) == 0) tracker_hold = 0;
    local_queues = rng.below(4) != 0;
    grant = rng.below(4) != 0 ? Grant::kTestAndSet : Grant::kTicket;
  }
  std::uint32_t keys = 0, locks = 0, value_words = 0, tracker_bytes = 0;
  /// Operations of a caller at once. The next request of a connection places late writes, so one
  /// operation at a time leaves writes late for longer.
  std::uint32_t window = 0;
  bool loaded = false, stored = false;  // the keys have values at first, in the table or computed
  std::uint64_t slots = 0;              // of each node; few, so that they are filled again
  Time tracker_hold = 0, tracker_pause = 0;
  TicketLockOptions lock;
  Load load = Load::kRefills;
  bool watched() const { return load >= Load::kWatchedRefills; }
  bool only_reads(std::uint32_t caller) const { return watched() && caller != 0; }
  /// How long a client waits: as long as the retries of a connection (8 ms) and a report, and for
  /// all who may have its lock before it. A change takes half a millisecond on a slow network.
  Time patience(NodeId nodes) const {
    const std::uint64_t turns = std::max<std::uint64_t>(kCallers * window, lock.max_handovers);
    return 20 * kMillisecond + static_cast<Time>(nodes * turns / locks) * kMillisecond / 2;
  }
  /// Returns the first operation of a client, and the first one after its last. A client that only
  /// reads has more: a lookup takes a small part of the time of a change.
  std::pair<std::uint32_t, std::uint32_t> operations_of(const fuzz::Options& options,
                                                        std::uint32_t client) const {
    const auto weight = [&](std::uint32_t i) {
      return only_reads(i / window % kCallers) ? 8U : 1U;
    };
    std::uint64_t before = 0, all = 0;
    for (std::uint32_t i = 0; i < options.nodes * kCallers * window; ++i) {
      if (i < client) before += weight(i);
      all += weight(i);
    }
    const auto place = [&](std::uint64_t weights) {
      return static_cast<std::uint32_t>(options.operations * weights / all);
    };
    return {place(before), place(before + weight(client))};
  }
  bool local_queues = false;  // of Sherman, as grant
  Grant grant = Grant::kTestAndSet;
  FirstNumbers first;
};

struct World {
  const fuzz::Options& options;
  fuzz::Outcome& outcome;
  fuzz::FaultPhase& phase;
  Crashes& crashes;
  fabric::sim::SimCluster* cluster = nullptr;
  const Shape shape{options};
  Fates fates{options.nodes};
  check::History history{};
  Places places{};
  std::int32_t processes = 0;
  std::uint64_t values = 0;               // written or tried
  std::map<Key, std::uint32_t> unsure{};  // changes that have not ended well, by key
  LockUse locks{};
  std::vector<bool> usable = std::vector<bool>(options.nodes);  // nodes that have joined all others
  std::uint32_t finished = 0, looked = 0, left = 0;             // numbers of nodes

  void violation(const char* kind, const std::string& text) {
    outcome.report(kind, cluster->now(), text);
  }
};

struct Request {
  Function f = Function::kGet;
  Key key = 0;
  std::uint64_t value = 0;
  bool changes() const { return f != Function::kGet; }
};

/// LOCO's store.
class LocoSide {
 public:
  static constexpr Function kFirst = Function::kInsert;
  LocoSide(Manager& manager, World& world)
      : world_(world), store_(manager, "store", options(world)) {}
  void load() {
    if (world_.shape.loaded) store_.load(world_.shape.keys, world_.shape.stored, &loaded_value);
  }
  static std::uint64_t loaded_value(Key key) { return 1'000'000'000 + key; }
  std::optional<std::uint64_t> first_value(Key key) const {
    return world_.shape.loaded ? std::optional(loaded_value(key)) : std::nullopt;
  }
  /// Every operation is over: notes this node's index, and tests that no slot is lost.
  void finish() {
    const bool computed = world_.shape.loaded && !world_.shape.stored;
    const std::string lost = world_.places.note(store_, world_.shape.keys, computed);
    if (!lost.empty()) world_.violation("lost slot", lost);
  }
  Function draw(Rng& rng) const {
    constexpr std::array kUpdates{Function::kGet, Function::kGet,    Function::kGet,
                                  Function::kPut, Function::kPut,    Function::kPut,
                                  Function::kPut, Function::kInsert, Function::kDelete};
    constexpr std::array kRefills{Function::kGet,    Function::kGet,    Function::kGet,
                                  Function::kGet,    Function::kGet,    Function::kGet,
                                  Function::kPut,    Function::kInsert, Function::kInsert,
                                  Function::kInsert, Function::kDelete, Function::kDelete};
    constexpr std::array kWatchedRefills{Function::kInsert, Function::kInsert, Function::kInsert,
                                         Function::kDelete, Function::kDelete};
    constexpr std::array kWatchedUpdates{Function::kPut, Function::kPut,    Function::kPut,
                                         Function::kPut, Function::kInsert, Function::kDelete};
    switch (world_.shape.load) {
      case Load::kRefills:
        return kRefills[rng.below(kRefills.size())];
      case Load::kUpdates:
        return kUpdates[rng.below(kUpdates.size())];
      case Load::kWatchedRefills:
        return kWatchedRefills[rng.below(kWatchedRefills.size())];
      case Load::kWatchedUpdates:
        break;
    }
    return kWatchedUpdates[rng.below(kWatchedUpdates.size())];
  }
  /// The node that has the key's value; nothing if this node knows of no value.
  std::optional<NodeId> place_of(Key key) {
    const std::optional<Location> at = store_.locate(key);
    return at ? std::optional(at->node) : std::nullopt;
  }
  std::uint64_t lock_of(Key key) const { return hash_of(key) % world_.shape.locks; }
  NodeId host_of(std::uint64_t lock) const {
    return static_cast<NodeId>(lock % world_.options.nodes);
  }

  struct Operation {
    Operation(LocoSide& side, Caller& me)
        : side(side), state(side.store_, me), words(side.world_.shape.value_words) {}
    void begin(const Request& request) {
      std::ranges::fill(words, request.value);
      const auto bytes = std::as_bytes(std::span(words));
      if (request.f == Function::kGet) state.lookup(request.key);
      if (request.f == Function::kPut) state.update(request.key, bytes);
      if (request.f == Function::kInsert) state.insert(request.key, bytes);
      if (request.f == Function::kDelete) state.remove(request.key);
    }
    /// Returns the value that a lookup has found. All its words are equal; load() sets the first.
    std::uint64_t value() {
      std::memcpy(words.data(), state.value().data(), words.size() * 8);
      const std::uint64_t rest = words[0] >= loaded_value(0) ? 0 : words[0];
      if (std::any_of(words.begin() + 1, words.end(), [&](auto word) { return word != rest; }))
        side.world_.violation("torn",
                              "a lookup finds a value that no client wrote, beginning with " +
                                  std::to_string(words[0]));
      return words[0];
    }
    LocoSide& side;
    KvOperation state;
    std::vector<std::uint64_t> words;
  };

 private:
  static KvOptions options(const World& world) {
    const Shape& shape = world.shape;
    KvOptions options;
    options.slots = shape.slots;
    options.value_bytes = shape.value_words * 8;
    options.locks = shape.locks;
    options.lock = shape.lock;
    options.tracker_bytes = shape.tracker_bytes;
    options.tracker_hold = shape.tracker_hold;
    options.tracker_pause = shape.tracker_pause;
    options.first_counter = shape.first.slot_counter;
    options.first_position = shape.first.position;
    return options;
  }
  World& world_;
  KvStore store_;
};

/// The model of Sherman, which has only updates and lookups of existing keys. The keys lie in
/// different leaves.
class ShermanSide {
 public:
  static constexpr Function kFirst = Function::kPut;
  static constexpr Key kApart = 64;
  ShermanSide(Manager& manager, World& world)
      : tree_(manager, "tree",
              {.keys = world.shape.keys * kApart,
               .locks = world.shape.locks,
               .local_queues = world.shape.local_queues,
               .grant = world.shape.grant,
               .first_place = world.shape.first.place}) {}
  void load() { tree_.load(); }
  static std::optional<std::uint64_t> first_value(Key) { return {}; }
  void finish() {}
  Function draw(Rng& rng) const { return rng.below(2) == 0 ? Function::kGet : Function::kPut; }
  std::optional<NodeId> place_of(Key key) const { return tree_.host_of(key * kApart); }
  std::uint64_t lock_of(Key key) const { return tree_.lock_of_key(key * kApart); }
  NodeId host_of(std::uint64_t lock) const {
    return static_cast<NodeId>(lock % tree_.participants().size());
  }

  struct Operation {
    Operation(ShermanSide& side, Caller& me) : state(side.tree_, me) {}
    void begin(const Request& request) {
      if (request.f == Function::kGet) state.lookup(request.key * kApart);
      if (request.f == Function::kPut) state.update(request.key * kApart, request.value);
    }
    std::uint64_t value() const { return state.value(); }
    ShermanOperation state;
  };

 private:
  Sherman tree_;
};

}  // namespace pyrdma::loco::stores
