#include "check/linearizability.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "base/error.h"
#include "check/search.h"
#include "check/window.h"

namespace pyrdma::check {

namespace {

struct Object {
  Value key;
  std::vector<Operation> ops;
  std::unique_ptr<Search> search;
};

std::vector<Object> objects_of(const History& history, ModelKind kind, std::uint64_t& count) {
  const Operations paired = pair_operations(history);
  if (!paired.error.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "event " + std::to_string(paired.error_event) + ": " + paired.error);
  std::vector<Object> objects;
  std::unordered_map<Value, std::size_t, ValueHash> by_key;
  for (const Operation& op : paired.all) {
    history.poll();
    const std::string wrong = complaint(kind, history, op);
    if (!wrong.empty()) throw Error(ErrorCode::kInvalidArgument, wrong);
    ++count;
    if (!op.known() && !may_change(op)) continue;
    const Value key = object_of(kind, op);
    const auto [at, fresh] = by_key.try_emplace(key, objects.size());
    if (fresh) objects.push_back({key, {}, nullptr});
    objects[at->second].ops.push_back(kind == ModelKind::kMap ? to_map(op) : op);
  }
  return objects;
}

std::string pad(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string name_of(const History& history, ModelKind kind, const Value& key) {
  const std::string model = to_string(kind);
  return key.is_none() ? "the " + model : model + ", key " + history.show(key);
}

constexpr std::size_t kMostOperations = 1000;  // of a window
constexpr std::size_t kMostLines = 60;         // of a text

/// Keeps at most `most` operations, those nearest to the impossible one.
void keep_nearest(std::vector<WindowOperation>& ops, std::size_t most) {
  if (ops.size() <= most) return;
  const auto middle = static_cast<std::size_t>(
      std::ranges::find(ops, true, &WindowOperation::impossible) - ops.begin());
  const std::size_t wanted = middle - std::min(middle, most * 5 / 6);
  const std::size_t first = std::min(wanted, ops.size() - most);
  ops.erase(ops.begin(), ops.begin() + static_cast<std::ptrdiff_t>(first));
  ops.resize(most);
}

std::string explain(const History& history, const std::string& name, const Window& window,
                    std::size_t whole) {
  auto ops = window.operations;
  keep_nearest(ops, kMostLines);
  std::string text =
      name + ": no order of " +
      (whole == 1 ? "this operation explains its result"
                  : "these " + std::to_string(whole) + " operations explains their results") +
      (window.from_anywhere ? ", from any earlier state on" : ", from the initial value on") +
      (ops.size() < whole
           ? " (the " + std::to_string(ops.size()) + " nearest to the contradiction):\n"
           : ":\n");
  std::size_t width = 0;
  for (const WindowOperation& w : ops) width = std::max(width, describe(history, w.op).size());
  std::vector<const WindowOperation*> order;
  for (const WindowOperation& w : ops) {
    const std::string end = w.op.known() ? std::to_string(w.op.return_time) : "?";
    text +=
        "  " + pad("process " + std::to_string(w.op.process), 12) +
        pad(describe(history, w.op), width) + "  " +
        pad(std::to_string(w.op.call_time) + " .. " + end + " ns", 24) + "  " +
        pad(w.op.known() ? "events " + std::to_string(w.op.call) + ", " + std::to_string(w.op.ret)
                         : "event " + std::to_string(w.op.call),
            18) +
        (w.impossible ? "  <- impossible"
         : w.optional ? "  (may end later or never)"
                      : "");
    while (text.back() == ' ') text.pop_back();
    text += '\n';
    if (w.place >= 0) order.push_back(&w);
  }
  std::ranges::sort(order, {}, &WindowOperation::place);
  text += "  longest order: ";
  if (!order.empty() && order.front()->place > 0) text += "..., ";
  for (const WindowOperation* w : order) {
    if (w != order.front()) text += ", ";
    text += describe(history, w->op);
  }
  text += order.empty() ? "none\n" : "\n";
  for (const WindowOperation& w : ops)
    if (w.impossible)
      text += "  next, " + describe(history, w.op) + " (" + where(w.op) +
              ") must take effect, but its result is impossible\n";
  return text;
}

class Rounds {
 public:
  Rounds(const History& history, ModelKind kind, const SearchLimits& limits)
      : history_(history), kind_(kind), limits_(limits) {
    verdict_.model = to_string(kind);
    objects_ = objects_of(history, kind, verdict_.operations);
    verdict_.objects = objects_.size();
  }

  Verdict run() {
    std::vector<Object*> left;
    for (Object& object : objects_) left.push_back(&object);
    std::uint64_t done = 0;  // configurations spent on each object that is left
    for (std::uint64_t budget = 1000; !left.empty(); budget *= 10) {
      const std::uint64_t total = std::min(budget, limits_.configurations);
      std::vector<Object*> still;
      for (Object* object : left) {
        const Search::Progress progress = go_on(*object, total - done);
        if (progress == Search::Progress::kIllegal) return violation(*object);
        if (progress == Search::Progress::kOutOfBudget) still.push_back(object);
      }
      left = std::move(still);
      done = total;
      if (total == limits_.configurations && !left.empty()) return given_up(*left.front());
    }
    return verdict_;
  }

 private:
  Search::Progress go_on(Object& object, std::uint64_t budget) {
    if (!object.search) {
      auto model = make_model(kind_, history_, object.ops);
      const StateId start = model->initial();
      object.search = std::make_unique<Search>(std::move(model), history_, object.ops, start);
    }
    const std::size_t before = object.search->configurations();
    const Search::Progress progress = object.search->run(budget);
    verdict_.configurations += object.search->configurations() - before;
    if (progress == Search::Progress::kLegal) object.search.reset();
    return progress;
  }

  Verdict violation(Object& object) {
    const std::vector<std::uint32_t> ends = ends_of(object);
    object.search.reset();
    verdict_.answer = Answer::kNo;
    verdict_.key = object.key;
    if (!limits_.explain) {
      verdict_.text = name_of(history_, kind_, object.key) + ": not linearizable\n";
      return verdict_;
    }
    Window window = smallest_window(kind_, history_, object.ops, ends);
    const std::size_t whole = window.operations.size();
    keep_nearest(window.operations, kMostOperations);
    verdict_.text = explain(history_, name_of(history_, kind_, object.key), window, whole);
    for (const WindowOperation& w : window.operations) {
      verdict_.events.push_back(w.op.call);
      if (w.op.known()) verdict_.events.push_back(w.op.ret);
    }
    std::ranges::sort(verdict_.events);
    verdict_.from_anywhere = window.from_anywhere;
    verdict_.window = std::move(window.operations);
    return verdict_;
  }

  /// Returns the ends up to which the history may be impossible; up to the last one it is. Before
  /// that one, operations are open whose results the search has used.
  static std::vector<std::uint32_t> ends_of(const Object& object) {
    std::vector<std::uint32_t> ends{object.search->furthest(), object.search->conclusive()};
    std::uint32_t last = ends.back();
    for (const Operation& op : object.ops)
      if (op.known() && op.call < ends.back()) last = std::max(last, op.ret);
    ends.push_back(last);
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    return ends;
  }

  Verdict given_up(const Object& object) {
    verdict_.answer = Answer::kUnknown;
    verdict_.key = object.key;
    verdict_.text = name_of(history_, kind_, object.key) + ": unknown: the search visited " +
                    std::to_string(limits_.configurations) +
                    " configurations (the limit) for its " + std::to_string(object.ops.size()) +
                    " operations; use more keys, fewer concurrent clients, or fewer operations "
                    "with unknown outcome\n";
    return verdict_;
  }

  const History& history_;
  ModelKind kind_;
  const SearchLimits& limits_;
  Verdict verdict_;
  std::vector<Object> objects_;
};

}  // namespace

std::string describe(const History& history, const Operation& op) {
  std::string text = to_string(op.f);
  if (!op.input.is_none()) text += ' ' + history.show(op.input);
  if (!op.known()) return text + " -> ?";
  const bool looks = !may_change(op) || op.f == Function::kDeq;
  if (looks || (!op.output.is_none() && op.output != op.input))
    text += " -> " + history.show(op.output);
  return text;
}

std::string where(const Operation& op) {
  const std::string text = "process " + std::to_string(op.process) + ", ";
  if (!op.known()) return text + "event " + std::to_string(op.call);
  return text + "events " + std::to_string(op.call) + " and " + std::to_string(op.ret);
}

Verdict check_linearizability(const History& history, ModelKind kind, const SearchLimits& limits) {
  return Rounds(history, kind, limits).run();
}

}  // namespace pyrdma::check
