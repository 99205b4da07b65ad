// A model says which results an object may return, one operation after the other. It sees the
// operations of one object (one key), prepares them once, and steps from state to state. States are
// interned, so that the search compares and hashes 32 bits.
//
// Conventions beyond the plain ones:
//   cas [expected, new]: ok means swapped. A value true/false says whether it swapped; another
//     value is the old content (as the compare-and-swap of RDMA returns it).
//   get, deq: null means absent. insert, delete: false means "was there", "was not there".
//   append adds its text to the end of the key's text, as public logs of key-value stores have it.
//     In a history with appends, null and the empty text are one value, that of an absent key.
//   scan: the key is the first one, the invocation's value how many entries are wanted. ok carries
//     a list of keys and values by turns, or the sum of the values.
//   lock, unlock: the owner is the invocation's value if that is a whole number, else the process.
//   fetch_add: ok carries the old value; without one, the value is unknown.
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
/// The state in which nothing is known about the past. Steps from it allow at least the results
/// that any state allows.
inline constexpr StateId kAnyState = kNoState - 1;

class Model {
 public:
  virtual ~Model() = default;
  virtual StateId initial() const = 0;
  /// Returns the state after `op`, or kNoState where its result is impossible. `op` numbers the
  /// operations given at construction. For an operation of unknown outcome it returns the state in
  /// which the operation took effect.
  virtual StateId step(StateId from, std::uint32_t op) = 0;
  /// Returns the end (event index) of an operation that no order from `start` on can contain, or
  /// kNever when it sees none.
  virtual std::uint32_t impossible_end(StateId /*start*/) { return kNever; }
  /// Operations of one class are interchangeable except for their intervals.
  virtual std::uint32_t class_of(std::uint32_t op) const = 0;
  /// Returns whether taking `op` now (from state `from` to `to`) is as good as any later time, so
  /// that the search need not try anything else. This holds when `op` only looks wherever it is
  /// possible, or when its change harms no other operation. The outcome of `op` is known, and so is
  /// `from`.
  virtual bool is_free(StateId /*from*/, std::uint32_t /*op*/, StateId /*to*/) { return false; }
  /// The search takes `op` into its sequence, or gives it back.
  virtual void take(std::uint32_t /*op*/) {}
  virtual void give_back(std::uint32_t /*op*/) {}
  /// Looks ahead after a sequence that has just taken `op`. Returns the end (event index) of an
  /// operation that can no longer be explained; 0 when `op`, of unknown outcome, helps nothing;
  /// kNever when the model sees neither. The operations before that end suffice for the conclusion.
  virtual std::uint32_t dead_end(StateId /*from*/, std::uint32_t /*op*/, StateId /*to*/) {
    return kNever;
  }
};

enum class ModelKind { kRegister, kKv, kQueue, kLock, kCounter, kMap };
/// Keys of a history that the model `map` judges.
inline constexpr std::size_t kMostMapKeys = 64;
std::optional<ModelKind> model_named(std::string_view name);
const char* to_string(ModelKind kind);
/// Returns why `op` does not fit the model, or an empty text.
std::string complaint(ModelKind kind, const History& history, const Operation& op);
/// Returns whether an operation of unknown outcome can matter at all.
bool may_change(const Operation& op);

using OperationsView = std::span<const Operation>;
std::unique_ptr<Model> make_model(ModelKind kind, const History& history, OperationsView ops);
std::unique_ptr<Model> make_cell(const History& history, OperationsView ops);
std::unique_ptr<Model> make_queue(OperationsView ops);
std::unique_ptr<Model> make_lock(OperationsView ops);
std::unique_ptr<Model> make_counter(const History& history, OperationsView ops);
std::unique_ptr<Model> make_map(const History& history, OperationsView ops);
/// Returns the object that an operation belongs to: its key, or none where there is one object.
Value object_of(ModelKind kind, const Operation& op);
/// An operation of a map has its key as the first part of its input; to_map() puts it there.
Operation to_map(Operation op);
std::int64_t map_key(const Operation& op);
/// Returns whether the model can start from kAnyState.
bool can_start_anywhere(ModelKind kind);

std::int64_t lock_owner(const Operation& op);

}  // namespace pyrdma::check
