#include "check/window.h"

#include <algorithm>
#include <memory>

#include "check/search.h"

namespace pyrdma::check {

namespace {

// A window that is not the smallest is better than none, so the searches have budgets.
constexpr std::uint64_t kBudgetOfOne = 20'000;
constexpr std::uint64_t kBudgetOfAll = 100'000;

struct Weakened {
  Operation op;
  bool optional = false;
};
using Part = std::vector<Weakened>;

class Shrinker {
 public:
  Shrinker(ModelKind kind, const History& history) : kind_(kind), history_(history) {}

  /// Shrinks from the initial value on, or from any state if that is possible and `anywhere`.
  Window shrink(const std::vector<Operation>& ops, std::uint32_t furthest, bool anywhere) {
    Part part;
    for (const Operation& op : ops) part.push_back({op, !op.known()});
    cut_end(part, furthest);
    if (anywhere) cut_begin(part);
    for (std::size_t chunk = std::max<std::size_t>(1, part.size() / 2); chunk > 0; chunk /= 2)
      weaken(part, chunk);
    std::erase_if(part, [&](const Weakened& w) { return w.optional && !matters(w.op, part); });
    return explain(part);
  }

 private:
  /// Returns the part as the search sees it; `numbers` maps back.
  std::vector<Operation> visible(const Part& part, std::vector<std::size_t>* numbers) const {
    std::vector<Operation> ops;
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (part[i].optional && !may_change(part[i].op)) continue;
      ops.push_back(part[i].op);
      if (part[i].optional) ops.back().ret = kNever;
      if (numbers != nullptr) numbers->push_back(i);
    }
    return ops;
  }

  bool is_impossible(const Part& part, bool anywhere) {
    if (spent_ >= kBudgetOfAll) return false;
    const std::vector<Operation> ops = visible(part, nullptr);
    auto model = make_model(kind_, history_, ops);
    const StateId start = anywhere ? kAnyState : model->initial();
    Search search(std::move(model), ops, start);
    const Search::Progress progress = search.run(kBudgetOfOne);
    spent_ += search.configurations() + 1;
    return progress == Search::Progress::kIllegal;
  }

  static Part before(const Part& part, std::uint32_t end) {
    Part cut;
    for (Weakened w : part) {
      if (w.op.call > end) continue;
      w.optional = w.optional || w.op.ret > end;
      cut.push_back(w);
    }
    return cut;
  }

  static Part after(const Part& part, std::uint32_t begin) {
    Part cut;
    for (Weakened w : part) {
      if (w.op.known() && w.op.ret < begin) continue;
      w.optional = w.optional || w.op.call < begin;
      cut.push_back(w);
    }
    return cut;
  }

  /// A longer beginning is impossible when a shorter one is. The search got stuck at `furthest`;
  /// the shortest beginning ends there unless the model looked ahead.
  void cut_end(Part& part, std::uint32_t furthest) {
    Part first = before(part, furthest);
    if (!is_impossible(first, false)) {
      std::vector<std::uint32_t> ends;
      for (const Weakened& w : part)
        if (w.op.known() && w.op.ret > furthest) ends.push_back(w.op.ret);
      std::sort(ends.begin(), ends.end());
      const auto shortest = std::partition_point(ends.begin(), ends.end(), [&](std::uint32_t end) {
        return !is_impossible(before(part, end), false);
      });
      if (shortest == ends.end()) return;
      first = before(part, *shortest);
    }
    part = std::move(first);
  }

  void cut_begin(Part& part) {
    if (!is_impossible(part, true)) return;
    anywhere_ = true;
    std::vector<std::uint32_t> begins;
    for (const Weakened& w : part) {
      begins.push_back(w.op.call);
      if (w.op.known()) begins.push_back(w.op.ret);
    }
    std::sort(begins.begin(), begins.end());
    const auto latest = std::partition_point(begins.begin(), begins.end(), [&](std::uint32_t at) {
      return is_impossible(after(part, at), true);
    });
    if (latest != begins.begin()) part = after(part, *(latest - 1));
  }

  /// Opens the ends of `chunk` operations at a time where the rest stays impossible.
  void weaken(Part& part, std::size_t chunk) {
    for (std::size_t i = 0; i < part.size(); i += chunk) {
      Part weaker = part;
      bool changed = false;
      for (std::size_t j = i; j < std::min(part.size(), i + chunk); ++j) {
        changed = changed || !weaker[j].optional;
        weaker[j].optional = true;
      }
      if (changed && is_impossible(weaker, anywhere_)) part = std::move(weaker);
    }
  }

  /// Returns whether an optional operation could have been an explanation, so that it is worth
  /// showing.
  bool matters(const Operation& op, const Part& part) const {
    if (!may_change(op)) return false;
    if (kind_ == ModelKind::kCounter) return true;
    return std::ranges::any_of(part, [&](const Weakened& w) {
      if (w.optional) return false;
      if (kind_ == ModelKind::kLock) return lock_owner(w.op) == lock_owner(op);
      return shares_value(op, w.op);
    });
  }

  bool shares_value(const Operation& x, const Operation& y) const {
    const std::vector<Value> theirs = values_of(y);
    return std::ranges::any_of(values_of(x), [&](const Value& value) {
      return std::ranges::find(theirs, value) != theirs.end();
    });
  }

  std::vector<Value> values_of(const Operation& op) const {
    std::vector<Value> values;
    const bool two = op.f == Function::kCas;
    for (const Value& value : {op.input, op.output}) {
      if (two && history_.size_of(value) == 2) {
        values.push_back(history_.element(value, 0));
        values.push_back(history_.element(value, 1));
      } else if (!value.is_none() && !value.is_bool()) {
        values.push_back(value);
      }
    }
    return values;
  }

  /// Finds the longest order of the part, and the operation that cannot follow.
  Window explain(const Part& part) {
    Window window;
    window.from_anywhere = anywhere_;
    for (const Weakened& w : part) window.operations.push_back({w.op, w.optional, -1, false});
    std::vector<std::size_t> numbers;
    const std::vector<Operation> ops = visible(part, &numbers);
    auto model = make_model(kind_, history_, ops);
    const StateId start = anywhere_ ? kAnyState : model->initial();
    Search search(std::move(model), ops, start, true);
    search.run(kBudgetOfOne);
    int place = 0;
    for (const std::uint32_t op : search.longest()) window.operations[numbers[op]].place = place++;
    if (search.stuck() != kNever) window.operations[numbers[search.stuck()]].impossible = true;
    return window;
  }

  ModelKind kind_;
  const History& history_;
  bool anywhere_ = false;
  std::uint64_t spent_ = 0;
};

}  // namespace

Window smallest_window(ModelKind kind, const History& history, const std::vector<Operation>& ops,
                       std::uint32_t furthest) {
  Window window = Shrinker(kind, history).shrink(ops, furthest, false);
  if (!can_start_anywhere(kind)) return window;
  Window other = Shrinker(kind, history).shrink(ops, furthest, true);
  return other.operations.size() <= window.operations.size() ? other : window;
}

}  // namespace pyrdma::check
