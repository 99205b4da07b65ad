#include "systems/tailwind/fuzz/losses.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

namespace pyrdma::tailwind::scenario {

namespace {

using check::Event;
using check::EventType;
using check::Function;
using check::Value;

constexpr std::size_t kOpen = std::numeric_limits<std::size_t>::max();

struct Operation {
  Function f = Function::kGet;
  std::int64_t key = 0;
  Value wanted, got;  // a put's value; the result
  std::size_t call = 0, ret = kOpen;
  bool has_failed = false;
  bool is_unknown = false;  // its outcome is taken away
  bool is_change() const {
    return f == Function::kPut || (f == Function::kDelete && got == Value::boolean(true));
  }
  /// The value that the key had at some time of the operation, or that it may have got; none: it
  /// was, or became, absent.
  std::optional<Value> shows() const {
    if (f == Function::kPut) return wanted;
    if (f == Function::kGet && ret == kOpen) return std::nullopt;
    return f == Function::kGet ? got : Value::none();
  }
};

std::vector<Operation> operations_of(const check::History& history) {
  std::vector<Operation> all;
  std::map<std::int32_t, std::size_t> open;  // by process
  for (std::size_t i = 0; i < history.events().size(); ++i) {
    const Event& event = history.events()[i];
    if (event.type == EventType::kInvoke) {
      open[event.process] = all.size();
      Operation& op = all.emplace_back();
      op.f = event.f;
      op.key = event.key.a;
      op.wanted = event.value;
      op.call = i;
    } else {
      Operation& op = all[open.at(event.process)];
      op.ret = i;
      op.got = event.value;
      op.has_failed = event.type == EventType::kFail;
    }
  }
  return all;
}

using OfKey = std::vector<const Operation*>;  // the operations of one key

/// What a key may have after a loss.
struct Choice {
  std::set<std::int64_t> values;
  bool may_be_absent = false;
};

/// What the key had at some time since the last change that was durable began.
Choice choice_of(const OfKey& all, const Loss& loss, std::size_t durable_events) {
  std::size_t last_call = 0;
  bool is_initial = true;
  for (const Operation* op : all) {
    if (op->ret >= durable_events || op->has_failed || !op->is_change()) continue;
    last_call = std::max(last_call, op->call);
    is_initial = false;
  }
  Choice choice;
  choice.may_be_absent = is_initial || loss.durable < 0;
  for (const Operation* op : all) {
    if (op->call >= loss.event || op->ret < last_call) continue;
    if (op->has_failed && op->ret < loss.event) continue;
    const std::optional<Value> shown = op->shows();
    if (!shown) continue;
    if (shown->is_none())
      choice.may_be_absent = true;
    else
      choice.values.insert(shown->a);
  }
  return choice;
}

/// Adds the writes of unknown outcome that explain what clients see of the key after the loss.
void restore(const OfKey& all, std::int64_t key, const Loss& loss, const Choice& choice,
             std::vector<Event>& into) {
  Event write;
  write.key = Value::integer(key);
  if (choice.may_be_absent) {
    write.f = Function::kDelete;
    into.push_back(write);
  }
  std::set<std::int64_t> restored;
  bool is_removed = false;  // what no read has shown may be removed
  for (const Operation* op : all) {
    if (op->ret == kOpen || op->ret < loss.event || op->has_failed) continue;
    if (op->f == Function::kGet && choice.values.contains(op->got.a) && !op->got.is_none())
      restored.insert(op->got.a);
    is_removed = is_removed || (op->f == Function::kDelete && op->is_change());
  }
  if (is_removed && !choice.values.empty()) restored.insert(*choice.values.rbegin());
  write.f = Function::kPut;
  for (const std::int64_t value : restored) {
    write.value = Value::integer(value);
    into.push_back(write);
  }
}

}  // namespace

check::History with_losses(const check::History& history, const std::vector<Loss>& losses) {
  const std::vector<Event>& events = history.events();
  std::vector<Operation> all = operations_of(history);
  std::map<std::int64_t, OfKey> of_keys;
  for (const Operation& op : all) of_keys[op.key].push_back(&op);
  std::map<std::size_t, std::vector<Event>> restored;  // by event
  std::map<std::int64_t, Choice> earlier;              // what no read may have shown yet
  for (const Loss& loss : losses) {
    const auto is_late = [&](const Event& event) { return event.time > loss.durable; };
    const auto durable_events =
        static_cast<std::size_t>(std::ranges::find_if(events, is_late) - events.begin());
    for (const std::int64_t key : loss.keys) {
      Choice choice = choice_of(of_keys[key], loss, durable_events);
      Choice& before = earlier[key];
      choice.may_be_absent = choice.may_be_absent || before.may_be_absent;
      choice.values.insert(before.values.begin(), before.values.end());
      before = choice;
      restore(of_keys[key], key, loss, choice, restored[loss.event]);
    }
    for (Operation& op : all) {
      if (op.call >= loss.event || op.ret < loss.event || !loss.keys.contains(op.key)) continue;
      op.is_unknown = op.is_unknown || op.f == Function::kDelete || op.has_failed;
    }
  }
  std::int32_t process = 0;  // a new one for each write whose outcome is unknown
  for (const Event& event : events) process = std::max(process, event.process + 1);
  std::vector<std::int32_t> replaced(events.size(), -1);
  std::vector<bool> is_left_out(events.size(), false);
  for (const Operation& op : all) {
    if (!op.is_unknown) continue;
    replaced[op.call] = process++;
    if (op.ret != kOpen) is_left_out[op.ret] = true;
  }
  check::History result;
  result.header = history.header;
  for (std::size_t i = 0; i <= events.size(); ++i) {
    if (const auto at = restored.find(i); at != restored.end()) {
      for (const Event& write : at->second)
        result.invoke(i == 0 ? 0 : events[i - 1].time, process++, write.f, write.key, write.value);
    }
    if (i == events.size() || is_left_out[i]) continue;
    Event event = events[i];
    if (replaced[i] >= 0) event.process = replaced[i];
    result.append(event);
  }
  return result;
}

}  // namespace pyrdma::tailwind::scenario
