// What an object may do, one operation after the other. A model sees the operations of one object
// (one key), prepares them once, and steps from state to state; states are interned, so that the
// search compares and hashes 32 bits.
//
// Conventions, beside the plain ones:
//   cas [expected, new]: ok means swapped; with a value true/false: whether it swapped; with
//     another value: what was there before (as the compare-and-swap of RDMA returns).
//   get, deq: null is nothing there. insert, delete: false is "was there", "was not there".
//   lock, unlock: the owner is the invocation's value if that is a whole number, else the process.
//   fetch_add: ok with the value before; without one, the value is unknown.
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "check/history.h"
#include "check/operations.h"

namespace pyrdma::check {

using StateId = std::uint32_t;
inline constexpr StateId kNoState = std::numeric_limits<StateId>::max();
/// Where nothing is known about what came before. Steps from it allow at least what any state does.
inline constexpr StateId kAnyState = kNoState - 1;

class Model {
 public:
  virtual ~Model() = default;
  virtual StateId initial() const = 0;
  /// The state after `op`, or kNoState where its result is impossible. `op` numbers the operations
  /// given at construction. Of an unknown outcome: the state if it took effect.
  virtual StateId step(StateId from, std::uint32_t op) = 0;
  /// The end (event index) of an operation that no order from `start` on can have; kNever: none
  /// seen.
  virtual std::uint32_t impossible_end(StateId /*start*/) { return kNever; }
  /// Operations of one class are interchangeable, but for their intervals.
  virtual std::uint32_t class_of(std::uint32_t op) const = 0;
  /// Whether taking `op` now (it leads from `from` to `to`) is as good as any later time, so that
  /// the search need not try anything else: it only looks, wherever it is possible, or what it
  /// changes harms nobody. Its outcome is known, and so is `from`.
  virtual bool is_free(StateId /*from*/, std::uint32_t /*op*/, StateId /*to*/) { return false; }
  /// The search takes `op` into its sequence, or out again.
  virtual void take(std::uint32_t /*op*/) {}
  virtual void give_back(std::uint32_t /*op*/) {}
  /// Whether a sequence that has just taken `op` can not be completed any more, or not better than
  /// without `op` if its outcome is unknown. May always say no.
  virtual bool is_hopeless(StateId /*from*/, std::uint32_t /*op*/, StateId /*to*/) { return false; }
};

enum class ModelKind { kRegister, kKv, kQueue, kLock, kCounter };
std::optional<ModelKind> model_named(std::string_view name);
const char* to_string(ModelKind kind);
/// What is wrong with `op` for this model, or nothing.
std::string complaint(ModelKind kind, const History& history, const Operation& op);
/// Whether an operation of unknown outcome can matter at all.
bool may_change(const Operation& op);

using OperationsView = std::span<const Operation>;
std::unique_ptr<Model> make_model(ModelKind kind, const History& history, OperationsView ops);
std::unique_ptr<Model> make_cell(const History& history, OperationsView ops);
std::unique_ptr<Model> make_queue(OperationsView ops);
std::unique_ptr<Model> make_lock(OperationsView ops);
std::unique_ptr<Model> make_counter(const History& history, OperationsView ops);
/// Whether the model can start from kAnyState.
bool can_start_anywhere(ModelKind kind);

std::int64_t lock_owner(const Operation& op);

}  // namespace pyrdma::check
