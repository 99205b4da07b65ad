// loco_ycsb: lookups and changes of keys drawn uniformly or by Zipf's law, with a window of
// operations in flight per thread (LOCO, section 7.2 and figure 5).
#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "base/error.h"
#include "measure/kv_history.h"
#include "measure/zipf.h"
#include "systems/loco/barrier.h"
#include "systems/loco/baselines/sherman.h"
#include "systems/loco/kvstore/store.h"
#include "systems/loco/scopes.h"
#include "systems/loco/workloads/options.h"
#include "systems/loco/workloads/workloads.h"

namespace pyrdma::loco {

namespace {

using Int = std::int64_t;

enum class StoreSystem : std::uint8_t { kLoco, kSherman };
enum class Kind : std::uint8_t { kLookup, kUpdate, kInsert, kRemove };
constexpr std::uint64_t kFirstWord = std::uint64_t{1} << 40;  // least word that a client writes
constexpr const char* kNames[] = {"lookup", "update", "insert", "remove"};

struct Mix {
  double reads, inserts, removes;
  Kind draw(Rng& rng) const {
    const double at = rng.uniform();
    if (at < reads) return Kind::kLookup;
    if (at < reads + inserts) return Kind::kInsert;
    return at < reads + inserts + removes ? Kind::kRemove : Kind::kUpdate;
  }
};

/// Maps ranks of popularity to keys, scattered as by YCSB's hash.
class Keys {
 public:
  Keys(std::uint64_t count, double theta) : count_(count), theta_(theta), zipf_(count, theta) {}
  Key draw(Rng& rng) const {
    if (theta_ == 0) return rng.below(count_);
    return static_cast<Key>(static_cast<unsigned __int128>(mix64(zipf_(rng))) * count_ >> 64);
  }

 private:
  std::uint64_t count_;
  double theta_;
  measure::Zipf zipf_;
};

/// With `whole` a value repeats its word, so that a torn one shows. Values that the store has
/// loaded have their key as the first word, which is less than any other word, and zeros.
struct LocoSlot {
  LocoSlot(KvStore& store, Caller& me, bool whole)
      : store(store), operation(store, me), value(store.options().value_bytes), whole(whole) {}
  void begin(Kind kind, Key key, std::uint64_t word) {
    for (std::size_t at = 0; at == 0 || (whole && at < value.size()); at += sizeof word)
      std::memcpy(value.data() + at, &word, std::min(value.size() - at, sizeof word));
    if (kind == Kind::kLookup) operation.lookup(key);
    if (kind == Kind::kUpdate) operation.update(key, value);
    if (kind == Kind::kInsert) operation.insert(key, value);
    if (kind == Kind::kRemove) operation.remove(key);
  }
  bool poll(Time now) { return operation.poll(now); }
  void prefetch(Key key) const { store.prefetch(key); }
  /// Returns the word that was found; of a torn value one that nobody writes.
  std::uint64_t found() const {
    const std::span<const std::byte> got = operation.value();
    std::uint64_t word;
    std::memcpy(&word, got.data(), sizeof word);
    const std::uint64_t other = word < kFirstWord ? 0 : word;
    for (std::size_t at = sizeof word; at < got.size(); at += sizeof word)
      if (std::memcmp(got.data() + at, &other, std::min(got.size() - at, sizeof word)) != 0)
        return ~std::uint64_t{0};
    return word;
  }
  KvStore& store;
  KvOperation operation;
  std::vector<std::byte> value;
  bool whole;
};

struct ShermanSlot {
  ShermanSlot(Sherman& tree, Caller& me, bool /*whole*/) : operation(tree, me) {}
  void begin(Kind kind, Key key, std::uint64_t word) {
    if (kind == Kind::kLookup) operation.lookup(key);
    if (kind == Kind::kUpdate) operation.update(key, word);
  }
  bool poll(Time) { return operation.poll(); }
  void prefetch(Key) const {}
  std::uint64_t found() const { return operation.value(); }
  ShermanOperation operation;
};

/// The work of one thread: `window` operations at a time, each started and ended independently.
template <class Slot>
class Client {
 public:
  template <class Store>
  Client(Store& store, Caller& me, measure::ThreadRecorder& recorder, std::uint32_t window,
         const Mix& mix, const Keys& keys, Rng rng, measure::KvHistory* history,
         std::uint64_t thread)
      : env_(me.env()),
        mix_(mix),
        keys_(keys),
        rng_(rng),
        history_(history),
        word_(thread * kFirstWord) {
    for (std::uint32_t i = 0; i < window; ++i)
      slots_.push_back({Slot(store, me, history != nullptr)});
    for (std::size_t i = 0; i < 4; ++i) latency_[i] = &recorder.histogram(kNames[i]);
    next_ = keys_.draw(rng_);
  }

  void run(Caller& me, measure::Interval& interval) {
    for (WindowSlot& entry : slots_) begin(entry, env_.now());
    busy_ = slots_.size();
    while (busy_ != 0) {
      // The wait starts again when some operations have ended, because that may let other threads
      // of the node continue.
      if (!poll_all(interval)) wait(me, interval);
    }
    if (lost_ != 0) {
      throw Error(ErrorCode::kInternal,
                  std::to_string(lost_) + " lookups or updates did not find existing keys");
    }
  }

 private:
  struct WindowSlot {
    Slot slot;
    Kind kind = Kind::kLookup;
    Key key = 0;
    std::uint64_t word = 0;
    Time began = 0;
    bool idle = false;
  };
  static constexpr std::size_t kMany = 8;  // more operations than this share one clock reading

  void begin(WindowSlot& entry, Time now) {
    const Scope step(env_, scope::ycsb_begin);
    entry.kind = mix_.draw(rng_);
    entry.began = now;
    entry.key = next_;
    entry.word = ++word_;
    next_ = keys_.draw(rng_);  // drawn early, so that its entry is in the cache when it is used
    entry.slot.prefetch(next_);
    entry.slot.begin(entry.kind, entry.key, entry.word);
  }

  bool poll_all(measure::Interval& interval) {
    const Scope step(env_, scope::ycsb_turn);
    bool any = false;
    Time now = slots_.size() > kMany ? env_.now() : 0;
    for (WindowSlot& entry : slots_) {
      const Scope one(env_, scope::ycsb_slot);
      if (entry.idle || !entry.slot.poll(now)) continue;
      const Scope end(env_, scope::ycsb_end);
      any = true;
      now = env_.now();
      const Outcome outcome = entry.slot.operation.outcome();
      if (history_ != nullptr) record(entry, outcome, now);
      lost_ += outcome == Outcome::kMissing && entry.kind <= Kind::kUpdate && mix_.removes == 0;
      if (interval.count(now)) {
        latency_[static_cast<std::size_t>(entry.kind)]->record(now - entry.began);
      }
      if (interval.over(now)) {
        entry.idle = true;
        --busy_;
        continue;
      }
      begin(entry, now);
    }
    return any;
  }

  void record(const WindowSlot& entry, Outcome outcome, Time now) {
    using check::Function;
    using check::Value;
    const bool ok = outcome == Outcome::kOk;
    const auto slot = static_cast<std::uint64_t>(&entry - slots_.data());
    const auto word = [](std::uint64_t w) { return Value::integer(static_cast<std::int64_t>(w)); };
    const auto add = [&](Function f, const Value& input, const Value& output, bool done = true) {
      history_->ended(slot, entry.began, now, f, entry.key, input, output,
                      done ? check::EventType::kOk : check::EventType::kFail);
    };
    if (entry.kind == Kind::kInsert)
      add(Function::kInsert, word(entry.word), Value::boolean(ok), outcome != Outcome::kFull);
    else if (entry.kind == Kind::kRemove)
      add(Function::kDelete, Value::none(), Value::boolean(ok));
    else if (!ok)  // an update, too, then only has seen that the key is absent
      add(Function::kGet, Value::none(), Value::none());
    else if (entry.kind == Kind::kLookup)
      add(Function::kGet, Value::none(), word(entry.slot.found()));
    else
      add(Function::kPut, word(entry.word), word(entry.word));
  }

  void wait(Caller& me, measure::Interval& interval) {
    me.wait_until([&] { return poll_all(interval); }, "completion of an operation on the store");
  }

  Env& env_;
  const Mix& mix_;
  const Keys& keys_;
  Rng rng_;
  std::vector<WindowSlot> slots_;
  measure::Histogram* latency_[4];
  measure::KvHistory* history_;
  Key next_ = 0;
  std::size_t busy_ = 0;
  std::uint64_t word_, lost_ = 0;  // word_: of the last value written, unlike all others
};

class LocoYcsb final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    static const std::vector<measure::ParameterSpec> specs = with_runtime_parameters(with_preset({
        {"system",
         std::string("loco"),
         "",
         "LOCO's store, or the model of Sherman",
         0,
         0,
         {"loco", "sherman"}},
        {"reads", 1.0, "", "fraction of lookups; the rest, after inserts and removes, are updates",
         0, 1},
        {"inserts", 0.0, "", "fraction of insertions", 0, 1, {}, "loco"},
        {"removes", 0.0, "", "fraction of removals", 0, 1, {}, "loco"},
        {"theta", 0.0, "", "exponent of Zipf's law, 0.99 in the paper; 0: uniform keys", 0, 10},
        {"window", Int{3}, "count", "operations in flight per thread", 1, 1 << 16},
        {"keys", Int{100'000}, "count", "keys of all nodes together", 1, 1e12},
        {"fill", 0.8, "",
         "fraction of the keys that are there at first; operations draw from these", 0.01, 1},
        {"value_bytes", Int{8}, "B", "size of a value", 8, 1 << 20, {}, "loco"},
        {"locks", Int{4096}, "count", "ticket locks of the store; sherman: locks of each node", 1,
         1 << 24},
        {"fence", Int{1}, "bool",
         "updates are placed, not only completed, before their lock is released", 0, 1},
        {"local_queues",
         Int{1},
         "bool",
         "a node's threads queue for a lock locally and hand it over; otherwise each thread tries "
         "for it over the network",
         0,
         1,
         {},
         "sherman"},
        {"whole_leaf",
         Int{1},
         "bool",
         "an operation reads the whole leaf of its key; otherwise only the key's entry",
         0,
         1,
         {},
         "sherman"},
        {"combined_unlock",
         Int{1},
         "bool",
         "an update posts its unlock with its write; otherwise when the write has ended",
         0,
         1,
         {},
         "sherman"},
        {"grant",
         std::string("test_and_set"),
         "",
         "order in which nodes get a lock: of their successful tries, or of their tickets",
         0,
         0,
         {"test_and_set", "ticket"},
         "sherman"},
        {"stored_index",
         Int{1},
         "bool",
         "the index's table holds the first keys too (paper); otherwise the index "
         "computes their places, which saves each simulated node a table",
         0,
         1,
         {},
         "loco"},
        measure::history_parameter(),
        {"tracker_pause_ns",
         Int{100'000},
         "ns",
         "longest pause of an idle tracker thread",
         1000,
         1e9,
         {},
         "loco"},
    }));
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    const Mix mix{params.real("reads"), params.real("inserts"), params.real("removes")};
    if (mix.reads + mix.inserts + mix.removes > 1 + 1e-9) {
      throw_parameter(params, "reads", "and inserts and removes are more than 1 together");
    }
    const bool sherman = params.choice<StoreSystem>("system") == StoreSystem::kSherman;
    const auto loaded = static_cast<std::uint64_t>(params.real("fill") *
                                                   static_cast<double>(params.integer("keys")));
    const Keys keys(std::max<std::uint64_t>(1, loaded), params.real("theta"));
    ManagerOptions options = loco_options(params);
    ++options.callers;  // one more for the store's tracker
    options.block_bytes = sherman ? Sherman::kLeafBytes
                                  : std::max<std::uint32_t>(64, params.count("value_bytes") + 24);
    options.blocks = std::min<std::uint32_t>(4096, 64 + 2 * params.count("window"));
    Manager manager(env, options);
    Barrier barrier(manager, "bar");
    if (sherman) {
      ShermanOptions tree;
      tree.keys = std::max<std::uint64_t>(1, loaded);
      tree.locks = params.count("locks");
      tree.fence = params.flag("fence");
      tree.local_queues = params.flag("local_queues");
      tree.whole_leaf = params.flag("whole_leaf");
      tree.combined_unlock = params.flag("combined_unlock");
      tree.grant = params.choice<Grant>("grant");
      Sherman store(manager, "tree", tree);
      manager.wait_for_ready();
      store.load();
      measure<ShermanSlot>(env, params, recorder, manager, barrier, store, mix, keys, tree.keys);
    } else {
      KvOptions kv;
      kv.keys = static_cast<std::uint64_t>(params.integer("keys"));
      kv.value_bytes = params.count("value_bytes");
      kv.locks = params.count("locks");
      kv.lock = lock_options(params);
      kv.fence = params.flag("fence");
      kv.tracker_pause = params.integer("tracker_pause_ns");
      KvStore store(manager, "kv", kv);
      manager.wait_for_ready();
      store.load(loaded, params.flag("stored_index"));
      recorder.add("index", "B", static_cast<double>(store.index_bytes()));
      measure<LocoSlot>(env, params, recorder, manager, barrier, store, mix, keys, loaded);
    }
  }

 private:
  template <class Slot, class Store>
  static void measure(Env& env, const measure::Params& params, measure::Recorder& recorder,
                      Manager& manager, Barrier& barrier, Store& store, const Mix& mix,
                      const Keys& keys, std::uint64_t present) {
    const std::uint32_t threads = params.count("threads");
    recorder.prepare_threads(threads);
    barrier.wait(manager.caller(0));
    const measure::Interval shared(env.now(), params);
    measure::on_threads(env, threads, [&](std::uint32_t i) {
      Caller& me = manager.caller(i);
      measure::ThreadRecorder& rows = recorder.thread(i);
      const std::uint32_t window = params.count("window");
      const std::uint64_t number = std::uint64_t{env.node()} * threads + i;
      std::optional<measure::KvHistory> history;
      if (params.flag("history")) {
        history.emplace(
            rows, params,
            measure::KvHistory::Place{env.node(), env.nodes(), i, threads, window, present});
      }
      Client<Slot> client(store, me, rows, window, mix, keys, env.rng("ycsb/" + std::to_string(i)),
                          history ? &*history : nullptr, number + 1);
      measure::Interval interval = shared;
      client.run(me, interval);
      interval.add_rates(rows);
    });
    barrier.wait(manager.caller(0));
    manager.leave();
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_ycsb() { return std::make_unique<LocoYcsb>(); }

}  // namespace pyrdma::loco
