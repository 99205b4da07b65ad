// A map is a store of keys in order: gets, puts, deletes, and scans. A scan names the first key and
// how many entries it wants; it sees one moment of all keys. So the whole map is one object.
//
// A state is the values of all keys that the history names; states are interned.
#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "check/models.h"

namespace pyrdma::check {

namespace {

class Map final : public Model {
 public:
  Map(const History& history, OperationsView ops) : history_(history) {
    std::map<std::int64_t, std::size_t> places;
    for (const Operation& op : ops) {
      if (op.f == Function::kScan) continue;
      places.try_emplace(map_key(op));
    }
    if (places.size() > kMostMapKeys)
      throw Error(ErrorCode::kInvalidArgument,
                  "the history names more than " + std::to_string(kMostMapKeys) +
                      " keys, the most of the model map; check a part of the keys");
    for (auto& [key, place] : places) {
      place = keys_.size();
      keys_.push_back(key);
    }
    for (const Operation& op : ops) {
      Item item{op.f, op.known(), 0, 0, op.output};
      if (op.f == Function::kScan) {
        item.place =
            static_cast<std::size_t>(std::ranges::lower_bound(keys_, op.input.a) - keys_.begin());
        item.count = op.input.b;
      } else {
        item.place = places.at(map_key(op));
        if (op.f == Function::kPut) item.value = Value::integer(op.input.b);
      }
      items_.push_back(item);
    }
    intern(std::vector<Value>(keys_.size()));
  }

  StateId initial() const override { return 0; }
  std::uint32_t class_of(std::uint32_t op) const override { return op; }
  bool is_free(StateId from, std::uint32_t /*op*/, StateId to) override { return from == to; }

  StateId step(StateId from, std::uint32_t op) override {
    const Item& item = items_[op];
    const std::vector<Value>& values = states_[from];
    switch (item.f) {
      case Function::kGet:
        return values[item.place] == item.value ? from : kNoState;
      case Function::kScan:
        return shows(values, item) ? from : kNoState;
      case Function::kDelete: {
        const bool was_there = !values[item.place].is_none();
        if (item.value.is_bool() && (item.value.a != 0) != was_there) return kNoState;
        return was_there ? with(from, item.place, Value::none()) : from;
      }
      default:
        return values[item.place] == item.value ? from : with(from, item.place, item.value);
    }
  }

 private:
  struct Item {
    Function f;
    bool known;
    std::size_t place;   // of the key, or of the first one, in keys_
    std::int64_t count;  // that a scan wants
    Value value;         // that is put, or that came back
  };

  // The result is a list of keys and values by turns, or the sum of the values.
  bool shows(const std::vector<Value>& values, const Item& item) const {
    std::int64_t left = item.count;
    std::uint64_t sum = 0;
    std::size_t at = 0;
    const bool is_sum = item.value.is_integer();
    for (std::size_t i = item.place; i < keys_.size() && left > 0; ++i) {
      if (values[i].is_none()) continue;
      --left;
      sum += static_cast<std::uint64_t>(values[i].a);
      if (is_sum) continue;
      if (at + 2 > history_.size_of(item.value) ||
          history_.element(item.value, at) != Value::integer(keys_[i]) ||
          history_.element(item.value, at + 1) != values[i])
        return false;
      at += 2;
    }
    return is_sum ? sum == static_cast<std::uint64_t>(item.value.a)
                  : at == history_.size_of(item.value);
  }

  StateId with(StateId from, std::size_t place, const Value& value) {
    std::vector<Value> values = states_[from];
    values[place] = value;
    return intern(std::move(values));
  }

  StateId intern(std::vector<Value> values) {
    std::uint64_t hash = 0;
    for (const Value& value : values) hash = mix64(hash ^ ValueHash{}(value));
    auto& same = ids_[hash];
    for (const StateId id : same) {
      if (states_[id] == values) return id;
    }
    same.push_back(static_cast<StateId>(states_.size()));
    states_.push_back(std::move(values));
    return same.back();
  }

  const History& history_;
  std::vector<std::int64_t> keys_;  // in order
  std::vector<Item> items_;
  std::vector<std::vector<Value>> states_;
  std::unordered_map<std::uint64_t, std::vector<StateId>> ids_;
};

}  // namespace

std::int64_t map_key(const Operation& op) { return op.input.a; }

std::unique_ptr<Model> make_map(const History& history, OperationsView ops) {
  return std::make_unique<Map>(history, ops);
}

}  // namespace pyrdma::check
