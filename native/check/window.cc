#include "check/window.h"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "check/search.h"

namespace pyrdma::check {

namespace {

// A window that is not the smallest is better than none, so the searches have budgets. The budget
// of steps makes the whole linear in the history.
constexpr std::uint64_t kBudgetOfOne = 20'000;   // configurations of one search
constexpr std::uint64_t kBudgetOfAll = 100'000;  // configurations of all searches
constexpr std::uint64_t kSteps = 20'000'000;
constexpr std::uint64_t kStepsPerOperation = 64;
constexpr std::uint64_t kStepsToPrepare = 16;  // an operation costs so much before each search
constexpr std::size_t kFewMoments = 64;
constexpr std::size_t kWiden = 8;

struct Weakened {
  const Operation* op;
  bool optional;
};
using Part = std::vector<Weakened>;
using Progress = Search::Progress;

class Shrinker {
 public:
  Shrinker(ModelKind kind, const History& history, const std::vector<Operation>& ops)
      : kind_(kind), history_(history), steps_(kSteps + kStepsPerOperation * ops.size()) {
    for (const Operation& op : ops) {
      all_.push_back({&op, !op.known()});
      moments_.push_back(op.call);
      if (op.known()) moments_.push_back(op.ret);
    }
    std::ranges::sort(moments_);
  }

  /// Shrinks a stretch of the history that is impossible from any state on, if there is one. It
  /// ends at one of `ends`, and is looked for from there backwards, in ever longer stretches.
  std::optional<Window> from_anywhere(const std::vector<std::uint32_t>& ends) {
    anywhere_ = true;
    for (std::size_t length = kFewMoments; steps_ > 0; length *= kWiden) {
      bool whole = true;
      for (const std::uint32_t end : ends) {
        const auto last = std::ranges::lower_bound(moments_, end);
        const auto far = static_cast<std::ptrdiff_t>(
            std::min<std::size_t>(length, static_cast<std::size_t>(last - moments_.begin())));
        whole = whole && last - far == moments_.begin();
        const Part part = after(before(all_, end), *(last - far));
        const std::uint32_t begin = latest_begin(part, last - far, last, length == kFewMoments);
        if (begin != kNever) return shrink(after(part, begin));
      }
      if (whole) break;
    }
    return std::nullopt;
  }

  /// Shrinks the history from the initial value to the first of `ends` up to which it is
  /// impossible; the last one is known to be such an end.
  Window from_start(const std::vector<std::uint32_t>& ends) {
    Part part = before(all_, ends.back());
    for (const std::uint32_t end : ends) {
      const Progress progress = search(before(all_, end));
      if (progress == Progress::kIllegal) part = before(all_, end);
      if (progress == Progress::kIllegal) break;
    }
    // The ends of the earlier operations may not matter.
    const auto last = std::ranges::lower_bound(moments_, ends.back());
    for (std::ptrdiff_t length = kFewMoments; length < last - moments_.begin() && steps_ > 0;
         length *= static_cast<std::ptrdiff_t>(kWiden)) {
      Part weaker = part;
      for (Weakened& w : weaker) w.optional = w.optional || w.op->ret < *(last - length);
      if (search(weaker) != Progress::kIllegal) continue;
      part = std::move(weaker);
      break;
    }
    return shrink(std::move(part));
  }

 private:
  using Moment = std::vector<std::uint32_t>::const_iterator;

  /// Returns the latest begin of an impossible stretch of the part, or kNever. An operation that is
  /// open at the begin may take effect later, and one that is over may not. So a later begin is not
  /// always weaker, and the search for it tries each of a few, and bisects many.
  std::uint32_t latest_begin(const Part& part, Moment first, Moment last, bool each) {
    const auto impossible = [&](std::uint32_t at) {
      return search(after(part, at), each ? kBudgetOfOne / 10 : kBudgetOfOne) == Progress::kIllegal;
    };
    if (each) {
      while (last != first)
        if (impossible(*--last)) return *last;
      return kNever;
    }
    if (!impossible(*first)) return kNever;
    return *(std::partition_point(first, last, impossible) - 1);
  }

  Window shrink(Part part) {
    for (std::size_t chunk = std::max<std::size_t>(1, part.size() / 2); chunk > 0; chunk /= 2)
      weaken(part, chunk);
    drop_what_does_not_matter(part);
    return explain(part);
  }

  /// Returns the part as the search sees it; `numbers` maps back.
  std::vector<Operation> visible(const Part& part, std::vector<std::size_t>* numbers) const {
    std::vector<Operation> ops;
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (part[i].optional && !may_change(*part[i].op)) continue;
      ops.push_back(*part[i].op);
      if (part[i].optional) ops.back().ret = kNever;
      if (numbers != nullptr) numbers->push_back(i);
    }
    return ops;
  }

  void spend(std::uint64_t steps) { steps_ -= std::min(steps_, steps); }

  Progress search(const Part& part, std::uint64_t configurations = kBudgetOfOne) {
    spend(part.size());
    if (configurations_ == 0 || steps_ == 0) return Progress::kOutOfBudget;
    const std::vector<Operation> ops = visible(part, nullptr);
    spend(kStepsToPrepare * ops.size());
    auto model = make_model(kind_, history_, ops);
    const StateId start = anywhere_ ? kAnyState : model->initial();
    Search search(std::move(model), history_, ops, start);
    const Progress progress = search.run(configurations, steps_);
    configurations_ -= std::min<std::uint64_t>(configurations_, search.configurations() + 1);
    spend(search.steps());
    return progress;
  }

  static Part before(const Part& part, std::uint32_t end) {
    Part cut;
    for (Weakened w : part) {
      if (w.op->call > end) continue;
      w.optional = w.optional || w.op->ret > end;
      cut.push_back(w);
    }
    return cut;
  }

  static Part after(const Part& part, std::uint32_t begin) {
    Part cut;
    for (Weakened w : part) {
      if (w.op->known() && w.op->ret < begin) continue;
      w.optional = w.optional || w.op->call < begin;
      cut.push_back(w);
    }
    return cut;
  }

  /// Opens the ends of `chunk` operations at a time where the rest stays impossible.
  void weaken(Part& part, std::size_t chunk) {
    for (std::size_t i = 0; i < part.size() && steps_ > 0; i += chunk) {
      Part weaker = part;
      bool changed = false;
      for (std::size_t j = i; j < std::min(part.size(), i + chunk); ++j) {
        changed = changed || !weaker[j].optional;
        weaker[j].optional = true;
      }
      spend(part.size());
      if (changed && search(weaker) == Progress::kIllegal) part = std::move(weaker);
    }
  }

  /// Keeps an optional operation only if it could have been an explanation, so that it is worth
  /// showing.
  void drop_what_does_not_matter(Part& part) const {
    std::unordered_set<Value, ValueHash> certain;  // values, or owners of the lock
    const auto named = [&](const Operation& op) {
      return kind_ == ModelKind::kLock ? std::vector<Value>{Value::integer(lock_owner(op))}
                                       : values_of(op);
    };
    for (const Weakened& w : part)
      if (!w.optional)
        for (const Value& value : named(*w.op)) certain.insert(value);
    std::erase_if(part, [&](const Weakened& w) {
      if (!w.optional) return false;
      if (!may_change(*w.op)) return true;
      return kind_ != ModelKind::kCounter && kind_ != ModelKind::kMap &&
             w.op->f != Function::kAppend && std::ranges::none_of(named(*w.op), [&](auto value) {
               return certain.contains(value);
             });
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
    for (const Weakened& w : part) window.operations.push_back({*w.op, w.optional, -1, false});
    std::vector<std::size_t> numbers;
    const std::vector<Operation> ops = visible(part, &numbers);
    auto model = make_model(kind_, history_, ops);
    const StateId start = anywhere_ ? kAnyState : model->initial();
    Search search(std::move(model), history_, ops, start, true);
    search.run(kBudgetOfOne, kSteps);
    int place = 0;
    for (const std::uint32_t op : search.longest()) window.operations[numbers[op]].place = place++;
    if (search.stuck() != kNever) window.operations[numbers[search.stuck()]].impossible = true;
    return window;
  }

  ModelKind kind_;
  const History& history_;
  Part all_;
  std::vector<std::uint32_t> moments_;  // the calls and ends, sorted
  bool anywhere_ = false;
  std::uint64_t configurations_ = kBudgetOfAll;  // what is left
  std::uint64_t steps_;
};

}  // namespace

Window smallest_window(ModelKind kind, const History& history, const std::vector<Operation>& ops,
                       const std::vector<std::uint32_t>& ends) {
  std::optional<Window> window;
  if (can_start_anywhere(kind)) window = Shrinker(kind, history, ops).from_anywhere(ends);
  if (window && window->operations.size() == 1) return *window;
  Window other = Shrinker(kind, history, ops).from_start(ends);
  return window && window->operations.size() <= other.operations.size() ? *window : other;
}

}  // namespace pyrdma::check
