// Records what the threads of a load do to a key-value store, for the checker's model `kv`, or
// `map` if the store has scans.
#pragma once
#include <cstdint>
#include <string>

#include "base/error.h"
#include "check/history.h"
#include "measure/params.h"
#include "measure/recorder.h"

namespace pyrdma::measure {

/// The parameter of workloads that record histories.
inline ParameterSpec history_parameter() {
  return {"history", std::int64_t{0},
          "bool",    "record all operations; pyrdma.check says whether they are linearizable",
          0,         1};
}

/// The history of one thread, which alone uses it. Its `slots` operations in flight are processes
/// of the history, numbered through all nodes and threads. A history has to be whole, from the
/// first load on: a read may return what an operation before the measured interval has written.
class KvHistory {
 public:
  /// Most events of a node, about 35 MB as JSON.
  static constexpr std::uint64_t kMostEvents = std::uint64_t{1} << 18;

  /// The numbers of a load: `node` of `nodes`, and `thread` of its `threads`. Keys 0 to
  /// `present` - 1 have themselves as values before the load begins. Throws
  /// Error(kInvalidArgument) if a node's share of them leaves no room.
  struct Place {
    std::uint64_t node, nodes, thread, threads, slots, present;
  };
  KvHistory(ThreadRecorder& recorder, const Params& params, const Place& place,
            const char* model = "kv")
      : history_(recorder.history()),
        first_((place.node * place.threads + place.thread) * place.slots) {
    history_.header.model = model;
    if (first_ + place.slots > kMostProcesses)
      throw_parameter(params, "history",
                      "has more than " + std::to_string(kMostProcesses) +
                          " operations in flight to tell apart; give a smaller window");
    const std::uint64_t loaded = 2 * ((place.present + place.nodes - 1) / place.nodes);
    if (loaded >= kMostEvents)
      throw_parameter(params, "keys",
                      "make " + std::to_string(loaded) + " events of a node at the start; a " +
                          "history has at most " + std::to_string(kMostEvents) + "; give fewer");
    share_ = left_ = (kMostEvents - loaded) / place.threads;
    if (place.thread == 0) load(place);
  }

  /// Records an operation of a slot. Throws Error(kExhausted) if the history is full.
  void ended(std::uint64_t slot, Time began, Time now, check::Function f, std::uint64_t key,
             const check::Value& input, const check::Value& output,
             check::EventType type = check::EventType::kOk) {
    if (left_ < 2)
      throw Error(ErrorCode::kExhausted,
                  "the history of a thread has more than " + std::to_string(share_) +
                      " events, its share of the " + std::to_string(kMostEvents) +
                      " of a node; give fewer `keys` or `iterations`, or a shorter duration");
    left_ -= 2;
    add(slot, began, now, f, key, input, output, type);
  }

 private:
  void load(const Place& place) {
    const auto before = -static_cast<Time>(place.present);
    for (std::uint64_t key = place.node; key < place.present; key += place.nodes) {
      const auto value = check::Value::integer(static_cast<std::int64_t>(key));
      const Time at = before + static_cast<Time>(key);
      add(0, at, at, check::Function::kPut, key, value, value, check::EventType::kOk);
    }
  }

  void add(std::uint64_t slot, Time began, Time now, check::Function f, std::uint64_t key,
           const check::Value& input, const check::Value& output, check::EventType type) {
    const auto process = static_cast<std::int32_t>(first_ + slot);
    const auto at = check::Value::integer(static_cast<std::int64_t>(key));
    history_.invoke(began, process, f, at, input);
    history_.complete(now, process, type, f, at, output);
  }

  static constexpr std::uint64_t kMostProcesses = std::uint64_t{1} << 31;

  check::History& history_;
  std::uint64_t first_;
  std::uint64_t share_ = 0, left_ = 0;  // events
};

}  // namespace pyrdma::measure
