// Records what the threads of a load do to a key-value store, for the checker's model `kv`.
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

  /// `thread` is the number of this thread among the `threads` of all nodes.
  KvHistory(ThreadRecorder& recorder, const Params& params, std::uint64_t thread,
            std::uint64_t slots)
      : history_(recorder.history()),
        first_(thread * slots),
        left_(kMostEvents / params.count("threads")) {
    history_.header.model = "kv";
    if (first_ + slots > kMostProcesses)
      throw_parameter(params, "history",
                      "has more than " + std::to_string(kMostProcesses) +
                          " operations in flight to tell apart; give a smaller window");
  }

  /// Keys first, first + step, ... below `end` had themselves as values before the load began.
  void loaded(std::uint64_t first, std::uint64_t step, std::uint64_t end) {
    const auto before = -static_cast<Time>(end);
    for (std::uint64_t key = first; key < end; key += step) {
      const auto value = check::Value::integer(static_cast<std::int64_t>(key));
      ended(0, before + static_cast<Time>(key), before + static_cast<Time>(key),
            check::Function::kPut, key, value, value);
    }
  }

  /// Records an operation of a slot. Throws Error(kExhausted) if the history is full.
  void ended(std::uint64_t slot, Time began, Time now, check::Function f, std::uint64_t key,
             const check::Value& input, const check::Value& output,
             check::EventType type = check::EventType::kOk) {
    if (left_ < 2)
      throw Error(ErrorCode::kExhausted,
                  "the history of a node has more than " + std::to_string(kMostEvents) +
                      " events; give fewer `keys` or `iterations`, or a shorter duration");
    left_ -= 2;
    const auto process = static_cast<std::int32_t>(first_ + slot);
    const auto at = check::Value::integer(static_cast<std::int64_t>(key));
    history_.invoke(began, process, f, at, input);
    history_.complete(now, process, type, f, at, output);
  }

 private:
  static constexpr std::uint64_t kMostProcesses = std::uint64_t{1} << 31;

  check::History& history_;
  std::uint64_t first_, left_;
};

}  // namespace pyrdma::measure
