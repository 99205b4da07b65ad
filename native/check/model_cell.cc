// A cell is one word of memory, or one key of a map, where null is absence. Every operation
// requires "the value is a", "the value is not a" or nothing; then the value stays, becomes b, or d
// is added to it, or b is appended to it.
#include <algorithm>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "check/models.h"

namespace pyrdma::check {

namespace {

constexpr StateId kAbsent = 0;
// Bounds of a look ahead.
constexpr std::size_t kLook = 8, kAll = kNever;
constexpr int kLookBack = 64;

struct Effect {
  enum class Requires : std::uint8_t { kNothing, kEqual, kDifferent };
  enum class Then : std::uint8_t { kStays, kBecomes, kAdds, kAppends };
  Requires needs = Requires::kNothing;
  Then then = Then::kStays;
  StateId a = kAbsent;
  StateId b = kAbsent;
  std::int64_t d = 0;
  bool known = true;
  bool operator==(const Effect&) const = default;
};
using Requires = Effect::Requires;
using Then = Effect::Then;

/// Queued orders operations by the moment of their end, and visits those that are not taken yet.
class Queued {
 public:
  void add(std::uint32_t moment, std::uint32_t op) { ops_.push_back({moment, op}); }
  void sort() { std::sort(ops_.begin(), ops_.end()); }
  /// Calls `visit(moment, op)` for the first `most` operations, until it returns true.
  template <typename Visit>
  void find(const std::vector<bool>& taken, std::size_t most, Visit visit) {
    while (head_ < ops_.size() && taken[ops_[head_].second]) ++head_;
    for (std::size_t i = head_; i < ops_.size() && most > 0; ++i) {
      if (taken[ops_[i].second]) continue;
      if (visit(ops_[i].first, ops_[i].second)) return;
      --most;
    }
  }
  void give_back(std::uint32_t moment) {
    const auto at = std::lower_bound(ops_.begin(), ops_.end(), std::pair(moment, 0U));
    head_ = std::min(head_, static_cast<std::size_t>(at - ops_.begin()));
  }

 private:
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ops_;
  std::size_t head_ = 0;
};

class Cell final : public Model {
 public:
  Cell(const History& history, OperationsView ops) : history_(history) {
    intern(Value::none());
    initial_ = intern(history.header.initial);
    for (const Operation& op : ops) effects_.push_back(effect_of(op));
    find_expected_texts();
    expected_.resize(values_.size());
    expecting_.resize(values_.size());
    making_.resize(values_.size());
    taken_.resize(effects_.size());
    for (std::uint32_t op = 0; op < effects_.size(); ++op) {
      const Effect& effect = effects_[op];
      calls_.push_back(ops[op].call);
      rets_.push_back(ops[op].ret);
      if (effect.needs == Requires::kEqual && effect.known) expecting_[effect.a].add(rets_[op], op);
      if (makes_a_value(effect)) making_[effect.b].push_back(op);
      count(effect, 1);
      adders_ = adders_ || effect.then == Then::kAdds;
      appenders_ = appenders_ || effect.then == Then::kAppends;
      if (effect.then == Then::kBecomes) setting_.push_back(op);
      if (effect.needs == Requires::kEqual && effect.known) looking_.add(rets_[op], op);
      classes_.push_back(class_for(op));
    }
    for (Queued& ops_of_value : expecting_) ops_of_value.sort();
    looking_.sort();
    find_last_others();
  }

  StateId initial() const override { return initial_; }
  std::uint32_t class_of(std::uint32_t op) const override { return classes_[op]; }

  std::uint32_t impossible_end(StateId start) override {
    if (!exact()) return kNever;
    for (StateId value = 0; value < expecting_.size(); ++value) {
      const std::uint32_t end = unmet_end(value, value == start || start == kAnyState, kAll);
      if (end != kNever) return end;
    }
    return kNever;
  }

  StateId step(StateId from, std::uint32_t op) override {
    const Effect& effect = effects_[op];
    const bool anything = from == kAnyState;
    if (effect.needs == Requires::kEqual && from != effect.a && !anything) return kNoState;
    if (effect.needs == Requires::kDifferent && from == effect.a) return kNoState;
    if (effect.then == Then::kBecomes) return effect.b;
    const StateId before = effect.needs == Requires::kEqual ? effect.a : from;
    if (effect.then == Then::kAppends) return appended(before, effect.b);
    return effect.then == Then::kStays ? before : added(before, effect.d);
  }

  void take(std::uint32_t op) override {
    taken_[op] = true;
    count(effects_[op], -1);
  }
  void give_back(std::uint32_t op) override {
    taken_[op] = false;
    const Effect& effect = effects_[op];
    if (effect.needs == Requires::kEqual && effect.known) {
      expecting_[effect.a].give_back(rets_[op]);
      looking_.give_back(rets_[op]);
    }
    count(effect, 1);
  }

  // An operation that only looks is taken at once. So is a write if no operation will look at the
  // value that it overwrites, nor at the value that it writes: the next look then comes after
  // another write in any case.
  bool is_free(StateId from, std::uint32_t op, StateId to) override {
    const Effect& effect = effects_[op];
    if (effect.then == Then::kStays) return true;
    if (effect.needs == Requires::kEqual) return effect.a == effect.b;  // swapped for itself
    return exact() && different_ == 0 && effect.needs == Requires::kNothing &&
           expected_[from] == 0 && expected_[to] == 0;
  }

  std::uint32_t dead_end(StateId from, std::uint32_t op, StateId to) override {
    if (appenders_ && !adders_ && from != to && to != kAnyState) return unread_end(to);
    if (!exact() || from == to) return kNever;
    if (from != kAnyState) {
      const std::uint32_t end = unmet_end(from, false, kLook);
      if (end != kNever) return end;
    }
    // An operation of unknown outcome may as well not happen if it wrote a value that no operation
    // expects.
    return !effects_[op].known && different_ == 0 && expected_[to] == 0 ? 0 : kNever;
  }

 private:
  // Returns whether every value that can come up is known beforehand.
  bool exact() const { return !adders_ && !appenders_; }

  static bool makes_a_value(const Effect& effect) {
    return effect.then == Then::kBecomes &&
           (effect.needs != Requires::kEqual || effect.a != effect.b);
  }

  /// Returns the end of an operation that expects `value`, which no operation makes in time, or
  /// kNever. `is_there`: the value may be there now. Looks at the first `most` such operations.
  std::uint32_t unmet_end(StateId value, bool is_there, std::size_t most) {
    std::uint32_t unmet = kNever;
    expecting_[value].find(taken_, most, [&](std::uint32_t end, std::uint32_t op) {
      if ((is_there && after_[op] == 0) || is_made(value, op)) return false;
      unmet = end;
      return true;
    });
    return unmet;
  }

  /// Returns whether an operation that is not taken may make `value` for `op`: it begins before the
  /// end of `op`, and ends after the last operation that certainly saw another value before `op`.
  bool is_made(StateId value, std::uint32_t op) const {
    const auto& makers = making_[value];
    auto maker = std::ranges::lower_bound(makers, rets_[op], {}, [&](auto m) { return calls_[m]; });
    for (int looked = 0; maker != makers.begin(); ++looked) {
      --maker;
      if (looked == kLookBack || (!taken_[*maker] && rets_[*maker] >= after_[op])) return true;
    }
    return false;
  }

  /// Finds, for each operation, the latest beginning of an operation that had ended before and that
  /// saw or made another value than this one expects.
  void find_last_others() {
    struct Last {
      std::uint32_t after = 0;   // beginning + 1; 0: none
      StateId value = kNoState;  // the only value that it agrees with
    };
    std::vector<std::uint32_t> by_end;
    for (std::uint32_t op = 0; op < effects_.size(); ++op)
      if (effects_[op].known) by_end.push_back(op);
    std::ranges::sort(by_end, {}, [&](std::uint32_t op) { return rets_[op]; });
    after_.resize(effects_.size());
    Last last, other;  // `other` agrees with another value than `last`
    std::size_t ended = 0;
    for (std::uint32_t op = 0; op < effects_.size(); ++op) {
      for (; ended < by_end.size() && rets_[by_end[ended]] < calls_[op]; ++ended) {
        const Effect& effect = effects_[by_end[ended]];
        if (effect.needs == Requires::kDifferent && effect.then == Then::kStays) continue;
        const bool blind = effect.needs == Requires::kNothing;
        const Last found{calls_[by_end[ended]] + 1, blind                    ? effect.b
                                                    : !makes_a_value(effect) ? effect.a
                                                                             : kNoState};
        if (found.after > last.after) {
          if (last.value != found.value || found.value == kNoState) other = last;
          last = found;
        } else if (found.after > other.after && found.value != last.value) {
          other = found;
        }
      }
      if (effects_[op].needs != Requires::kEqual) continue;
      after_[op] = last.value == effects_[op].a ? other.after : last.after;
    }
  }

  StateId intern(const Value& value) {
    const bool text = value.kind == Value::Kind::kText && history_.has_appends();
    if (text && history_.text_of(value).empty()) return kAbsent;
    const auto [found, fresh] = ids_.try_emplace(value, static_cast<StateId>(values_.size()));
    if (fresh) values_.push_back(value);
    if (fresh && text) by_text_.emplace(history_.text_of(value), found->second);
    return found->second;
  }

  bool is_text(StateId state) const { return values_[state].kind == Value::Kind::kText; }
  std::string_view text_of(StateId state) const {
    if (!is_text(state)) return {};
    const std::int64_t number = values_[state].a;
    return number < 0 ? made_[static_cast<std::size_t>(-1 - number)]
                      : std::string_view(history_.text_of(values_[state]));
  }

  // Texts that no operation expects, nor the beginning of one, are one state: no operation can tell
  // them apart, however much is appended. So the number of states is bounded by what was read.
  void find_expected_texts() {
    if (!history_.has_appends()) return;
    for (const Effect& effect : effects_)
      if (effect.needs != Requires::kNothing && is_text(effect.a))
        expected_texts_.push_back(text_of(effect.a));
    std::ranges::sort(expected_texts_);
    made_.emplace_back();
    unexpected_ = static_cast<StateId>(values_.size());
    values_.push_back({Value::Kind::kText, -1, 0});
  }

  StateId appended(StateId from, StateId text) {
    if (from == kAnyState || from == unexpected_ || text == kAbsent) return from;
    if (from != kAbsent && !is_text(from)) return kNoState;
    const auto [known, fresh] =
        sums_.try_emplace(std::uint64_t{from} << 32 | text, static_cast<StateId>(values_.size()));
    if (!fresh) return known->second;
    std::string sum(text_of(from));
    sum += text_of(text);
    if (const auto there = by_text_.find(sum); there != by_text_.end())
      return known->second = there->second;
    const auto longer = std::ranges::lower_bound(expected_texts_, std::string_view(sum));
    if (longer == expected_texts_.end() || !longer->starts_with(sum))
      return known->second = unexpected_;
    values_.push_back({Value::Kind::kText, -1 - static_cast<std::int64_t>(made_.size()), 0});
    by_text_.emplace(sum, known->second);
    made_.push_back(std::move(sum));
    return known->second;
  }

  /// Returns the end of an operation that expects a text which does not begin with the text of
  /// `state`, while no operation sets the value again in time; or kNever. Looks at the first few.
  std::uint32_t unread_end(StateId state) {
    std::uint32_t unread = kNever;
    looking_.find(taken_, kLook, [&](std::uint32_t end, std::uint32_t op) {
      const StateId wanted = effects_[op].a;
      const bool begins = state == kAbsent || state == wanted ||
                          (state != unexpected_ && is_text(state) && is_text(wanted) &&
                           text_of(wanted).starts_with(text_of(state)));
      if (begins || is_set(wanted, end)) return false;
      unread = end;
      return true;
    });
    return unread;
  }

  /// Returns whether an operation that is not taken may set a beginning of `wanted` before `end`.
  bool is_set(StateId wanted, std::uint32_t end) const {
    auto setter = std::ranges::lower_bound(setting_, end, {}, [&](auto op) { return calls_[op]; });
    for (int looked = 0; setter != setting_.begin(); ++looked) {
      --setter;
      if (looked == kLookBack) return true;
      const StateId value = effects_[*setter].b;
      if (!taken_[*setter] &&
          (value == kAbsent || value == wanted ||
           (is_text(value) && is_text(wanted) && text_of(wanted).starts_with(text_of(value)))))
        return true;
    }
    return false;
  }

  static Value sum(std::int64_t value, std::int64_t d) {  // wraps around, as words of memory do
    return Value::integer(static_cast<std::int64_t>(static_cast<std::uint64_t>(value) +
                                                    static_cast<std::uint64_t>(d)));
  }

  StateId added(StateId from, std::int64_t d) {
    if (from == kAnyState) return kAnyState;
    const Value value = values_[from];
    if (!value.is_integer() && !value.is_none()) return kNoState;
    return intern(sum(value.a, d));
  }

  Effect effect_of(const Operation& op) {
    Effect effect;
    effect.known = op.known();
    switch (op.f) {
      case Function::kWrite:
      case Function::kPut:
        effect.then = Then::kBecomes;
        effect.b = intern(op.input);
        break;
      case Function::kCas:
        cas(op, effect);
        break;
      case Function::kInsert:
        if (op.output == Value::boolean(false)) {
          effect.needs = Requires::kDifferent;
        } else {
          effect.needs = Requires::kEqual;
          effect.then = Then::kBecomes;
          effect.b = intern(op.input);
        }
        break;
      case Function::kDelete:
        if (op.output == Value::boolean(false)) {
          effect.needs = Requires::kEqual;
        } else {
          effect.then = Then::kBecomes;
          if (op.output == Value::boolean(true)) effect.needs = Requires::kDifferent;
        }
        break;
      case Function::kAppend:
        effect.then = Then::kAppends;
        effect.b = intern(op.input);
        break;
      case Function::kFetchAdd:
        effect.d = op.input.a;
        effect.then = Then::kAdds;
        if (op.known() && !op.output.is_none()) {
          effect.needs = Requires::kEqual;
          effect.a = intern(op.output);
          effect.then = Then::kBecomes;
          effect.b = intern(sum(op.output.a, effect.d));
        }
        break;
      default:  // read, get
        effect.needs = Requires::kEqual;
        effect.a = intern(op.output);
        break;
    }
    return effect;
  }

  void cas(const Operation& op, Effect& effect) {
    const StateId expected = intern(history_.element(op.input, 0));
    const StateId fresh = intern(history_.element(op.input, 1));
    // A completion may repeat the invocation's pair (Jepsen); it then says no more than ok.
    const bool swapped = !op.known() || op.output.is_none() || op.output == op.input ||
                         op.output == Value::boolean(true);
    effect.needs = Requires::kEqual;
    effect.a = expected;
    if (!swapped && op.output.is_bool())
      effect.needs = Requires::kDifferent;
    else if (!swapped)
      effect.a = intern(op.output);
    if (effect.needs == Requires::kEqual && effect.a == expected) {
      effect.then = Then::kBecomes;
      effect.b = fresh;
    }
  }

  void count(const Effect& effect, int change) {
    if (effect.needs == Requires::kEqual) expected_[effect.a] += change;
    if (effect.needs == Requires::kDifferent) different_ += change;
  }

  std::uint32_t class_for(std::uint32_t op) {
    Effect effect = effects_[op];
    effect.known = true;
    const auto needs = static_cast<std::int64_t>(effect.needs);
    const auto then = static_cast<std::int64_t>(effect.then);
    const std::uint64_t hash = mix64(ValueHash{}(Value::pair(needs * 4 + then, effect.d)) ^
                                     ValueHash{}(Value::pair(effect.a, effect.b)));
    auto& same = class_ids_[hash];
    for (const std::uint32_t other : same) {
      Effect theirs = effects_[other];
      theirs.known = true;
      if (theirs == effect) return other;
    }
    same.push_back(op);
    return op;
  }

  const History& history_;
  std::vector<Value> values_;
  std::unordered_map<Value, StateId, ValueHash> ids_;
  StateId initial_ = kAbsent;
  std::vector<Effect> effects_;
  std::vector<std::uint32_t> classes_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> class_ids_;
  std::vector<std::uint32_t> calls_, rets_;
  std::vector<bool> taken_;
  // By value: the operations that certainly happened and require it, by their ends; the operations
  // that make it, by their beginnings; the number of untaken operations that require it.
  std::vector<Queued> expecting_;
  std::vector<std::vector<std::uint32_t>> making_;
  std::vector<std::uint32_t> after_;  // by operation: find_last_others()
  std::vector<int> expected_;
  int different_ = 0;
  bool adders_ = false;

  // For keys with appends: the operations that look, those that set the value, the sorted texts
  // that operations expect, and the texts that appends have made.
  bool appenders_ = false;
  Queued looking_;
  std::vector<std::uint32_t> setting_;
  std::vector<std::string_view> expected_texts_;
  std::deque<std::string> made_;
  std::unordered_map<std::string, StateId> by_text_;
  std::unordered_map<std::uint64_t, StateId> sums_;
  StateId unexpected_ = kNoState;
};

}  // namespace

std::unique_ptr<Model> make_cell(const History& history, OperationsView ops) {
  return std::make_unique<Cell>(history, ops);
}

}  // namespace pyrdma::check
