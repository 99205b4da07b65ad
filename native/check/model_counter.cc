// A counter has the operations add, read and fetch_add. Its states are its sums, interned.
#include <set>
#include <unordered_map>
#include <utility>

#include "check/models.h"

namespace pyrdma::check {

namespace {

class Counter final : public Model {
 public:
  Counter(const History& history, OperationsView ops) {
    intern(history.header.initial.a);
    grows_ = is_small(history.header.initial.a, kSmallSum);
    for (const Operation& op : ops) {
      Item item;
      item.ret = op.ret;
      item.d = op.f == Function::kRead ? 0 : op.input.a;
      item.sees = op.f != Function::kAdd && op.known() && op.output.is_integer();
      if (item.sees) item.seen = op.output.a;
      grows_ =
          grows_ && item.d >= 0 && is_small(item.d, kSmallStep) && is_small(item.seen, kSmallSum);
      items_.push_back(item);
      const Value look = item.sees ? Value::pair(item.d, item.seen) : Value::integer(item.d);
      class_of_.push_back(
          classes_.try_emplace(look, static_cast<std::uint32_t>(classes_.size())).first->second);
      if (item.sees) to_see_.insert({item.seen, item.ret});
    }
  }

  StateId initial() const override { return 0; }
  std::uint32_t class_of(std::uint32_t op) const override { return class_of_[op]; }

  StateId step(StateId from, std::uint32_t op) override {
    const Item& item = items_[op];
    if (!item.sees && from == kAnyState) return kAnyState;
    const std::int64_t sum = from == kAnyState ? item.seen : sums_[from];
    if (item.sees && sum != item.seen) return kNoState;
    if (item.d == 0 && from != kAnyState) return from;
    return intern(static_cast<std::int64_t>(static_cast<std::uint64_t>(sum) +
                                            static_cast<std::uint64_t>(item.d)));
  }

  void take(std::uint32_t op) override {
    if (items_[op].sees) to_see_.erase({items_[op].seen, items_[op].ret});
  }
  void give_back(std::uint32_t op) override {
    if (items_[op].sees) to_see_.insert({items_[op].seen, items_[op].ret});
  }

  // No operation subtracts, and an operation still has to see a smaller sum.
  std::uint32_t dead_end(StateId /*from*/, std::uint32_t /*op*/, StateId to) override {
    const bool passed =
        grows_ && to != kAnyState && !to_see_.empty() && to_see_.begin()->first < sums_[to];
    return passed ? to_see_.begin()->second : kNever;
  }

  // The operation only looks, or no operation looks any more.
  bool is_free(StateId /*from*/, std::uint32_t op, StateId /*to*/) override {
    return items_[op].d == 0 || to_see_.empty();
  }

 private:
  // Larger sums may wrap around, so they do not only grow.
  static constexpr std::int64_t kSmallSum = std::int64_t{1} << 61;
  static constexpr std::int64_t kSmallStep = std::int64_t{1} << 32;
  static bool is_small(std::int64_t value, std::int64_t bound) {
    return value < bound && value > -bound;
  }
  struct Item {
    std::int64_t d = 0;
    std::int64_t seen = 0;
    std::uint32_t ret = kNever;
    bool sees = false;
  };
  StateId intern(std::int64_t sum) {
    const auto [found, fresh] = ids_.try_emplace(sum, static_cast<StateId>(sums_.size()));
    if (fresh) sums_.push_back(sum);
    return found->second;
  }

  std::vector<Item> items_;
  std::vector<std::uint32_t> class_of_;
  std::unordered_map<Value, std::uint32_t, ValueHash> classes_;
  std::vector<std::int64_t> sums_;
  std::unordered_map<std::int64_t, StateId> ids_;
  std::set<std::pair<std::int64_t, std::uint32_t>> to_see_;  // sums and ends
  bool grows_ = true;
};

}  // namespace

std::unique_ptr<Model> make_counter(const History& history, OperationsView ops) {
  return std::make_unique<Counter>(history, ops);
}

}  // namespace pyrdma::check
