// A history holds the invocations and results of clients and the events inside nodes, in the order
// in which they happened. An event is recorded by a push_back of a plain structure. Texts and lists
// are interned, so that two values are equal exactly when their three fields are.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/rng.h"
#include "base/units.h"

namespace pyrdma::check {

/// Value is null, a truth value, a whole number, a pair of whole numbers, or a text or list of one
/// History (`a` is its number there).
struct Value {
  enum class Kind : std::uint8_t { kNone, kBool, kInteger, kPair, kText, kList };
  Kind kind = Kind::kNone;
  std::int64_t a = 0;
  std::int64_t b = 0;

  static constexpr Value none() { return {}; }
  static constexpr Value boolean(bool value) { return {Kind::kBool, value ? 1 : 0, 0}; }
  static constexpr Value integer(std::int64_t value) { return {Kind::kInteger, value, 0}; }
  static constexpr Value pair(std::int64_t a, std::int64_t b) { return {Kind::kPair, a, b}; }
  constexpr bool is_none() const { return kind == Kind::kNone; }
  constexpr bool is_integer() const { return kind == Kind::kInteger; }
  constexpr bool is_bool() const { return kind == Kind::kBool; }
  bool operator==(const Value&) const = default;
};

struct ValueHash {
  std::size_t operator()(const Value& value) const {
    return mix64(
        static_cast<std::uint64_t>(value.a) ^
        mix64(static_cast<std::uint64_t>(value.b) ^ static_cast<std::uint64_t>(value.kind)));
  }
};

/// ok: the operation happened, with this result. fail: it certainly did not happen. info: its
/// outcome is unknown.
enum class EventType : std::uint8_t { kInvoke, kOk, kFail, kInfo };

enum class Function : std::uint8_t {
  kRead,
  kWrite,
  kCas,
  kFetchAdd,
  kAdd,  // registers, counters
  kGet,
  kPut,
  kInsert,
  kDelete,
  kScan,  // maps
  kEnq,
  kDeq,
  kLock,
  kUnlock,
  kBarrier,  // objects
  kBcast,
  kRpc,  // messages, as the client sees them
  kDeliver,
  kView,
  kExec,  // messages, as the node sees them
  kLeader,
  kFollower,
  kAppend,
  kTruncate,
  kCommit,
  kApply,
  kSnapshot,  // Raft
  kRecover,
  kPost,
  kComp,
  kPersist,
};
inline constexpr int kFunctions = static_cast<int>(Function::kPersist) + 1;

const char* to_string(EventType type);
const char* to_string(Function f);
/// Knows the name of this file, a Jepsen name (`enqueue`, `acquire`, ...) and a Jepsen keyword
/// (`:read`).
std::optional<Function> function_named(std::string_view name);
std::optional<EventType> event_type_named(std::string_view name);
/// White-box events are points: they are recorded as `info` (or `ok`) without an invocation.
bool may_be_point(Function f);

struct Event {
  Time time = 0;
  Value key;
  Value value;
  std::int64_t epoch = -1;  // view, term or incarnation; -1: none
  std::int64_t op = -1;     // distinguishes the operations of a process that has several open
  std::int32_t process = 0;
  std::int32_t node = -1;
  EventType type = EventType::kInvoke;
  Function f = Function::kRead;
};

struct Header {
  std::uint64_t seed = 0;
  std::string git;
  std::string config;
  std::string fault_plan;  // hash of the planned faults
  std::string model;
  Value initial;         // initial value of every register, counter or key
  Time clock_bound = 0;  // by which the operations' ends are widened; see History::merge()
};

/// Not thread-safe: each thread records into a history of its own; merge() then joins them.
class History {
 public:
  Header header;
  /// Ends a long check from outside: poll() runs it every few thousand steps, and it may throw.
  std::function<void()> on_poll;
  void poll() const {
    if (++polls_ % 4096 == 0 && on_poll) on_poll();
  }

  /// Returns the event's index.
  std::size_t append(const Event& event) {
    appends_ = appends_ || (event.f == Function::kAppend && event.type == EventType::kInvoke);
    events_.push_back(event);
    return events_.size() - 1;
  }
  std::size_t invoke(Time time, std::int32_t process, Function f, Value key, Value value,
                     std::int64_t op = -1) {
    return append({time, key, value, -1, op, process, -1, EventType::kInvoke, f});
  }
  /// Ends the open operation of the process (the one numbered `op`, when it has several).
  std::size_t complete(Time time, std::int32_t process, EventType type, Function f, Value key,
                       Value value, std::int64_t op = -1) {
    return append({time, key, value, -1, op, process, -1, type, f});
  }
  /// Records an event inside a node.
  std::size_t point(Time time, std::int32_t node, Function f, Value key, Value value,
                    std::int64_t epoch = -1) {
    return append({time, key, value, epoch, -1, node, node, EventType::kInfo, f});
  }

  const std::vector<Event>& events() const { return events_; }
  /// Returns whether clients append texts to keys. A key that is absent then is an empty text.
  bool has_appends() const { return appends_; }
  void reserve(std::size_t events) { events_.reserve(events); }
  void clear() { events_.clear(); }

  Value text(std::string_view text);
  /// Makes a list; two whole numbers become a pair. Elements are scalars: no lists in lists.
  Value list(std::span<const Value> elements);
  const std::string& text_of(const Value& value) const;
  std::size_t size_of(const Value& value) const;               // elements of a pair or list, else 0
  Value element(const Value& value, std::size_t index) const;  // of a pair or list
  /// Readable and short: nil, 3, [1 2], "x". A long value is cut in its middle.
  std::string show(const Value& value) const;

  /// Merges the histories of several threads by time. At equal times invocations come first, so
  /// that a coarse clock never orders operations that overlapped. A process keeps its own order,
  /// also where its clock went back.
  ///
  /// `clock_bound` is the largest difference between the clocks of two parts at one moment, in ns.
  /// The end of an operation is widened by it, since the part's clock may be that much behind
  /// another part's. So an order of two operations stays only where all clocks agree on it, and no
  /// violation comes from the clocks. The operations of one process then overlap, and each gets an
  /// `op` of its own. Throws Error(kInvalidArgument) if a bound is given and a part has an event
  /// inside a node, since a moment cannot be widened.
  static History merge(std::span<const History> parts, Time clock_bound = 0);

 private:
  Value adopt(const History& other, const Value& value);
  void widen(Time clock_bound);

  std::vector<Event> events_;
  bool appends_ = false;
  mutable std::uint32_t polls_ = 0;
  std::vector<std::string> texts_;
  std::unordered_map<std::string, std::int64_t> text_ids_;
  std::vector<std::vector<Value>> lists_;
  std::unordered_multimap<std::uint64_t, std::int64_t> list_ids_;  // by hash of the content
};

}  // namespace pyrdma::check
