#include "check/operations.h"

#include <unordered_map>

namespace pyrdma::check {

namespace {

Value open_name(const Event& event) { return Value::pair(event.process, event.op); }

std::string who(const Event& event) {
  std::string text = "process " + std::to_string(event.process);
  if (event.op >= 0) text += ", op " + std::to_string(event.op);
  return text;
}

}  // namespace

Operations pair_operations(const History& history) {
  Operations found;
  std::unordered_map<Value, std::uint32_t, ValueHash> open;
  std::vector<bool> failed;
  const auto fail = [&](std::size_t index, std::string error) {
    found.error = std::move(error);
    found.error_event = index;
    return found;
  };
  const auto& events = history.events();
  for (std::uint32_t i = 0; i < events.size(); ++i) {
    history.poll();
    const Event& event = events[i];
    const auto at = open.find(open_name(event));
    if (event.type == EventType::kInvoke) {
      if (at != open.end())
        return fail(i, who(event) + " invokes " + to_string(event.f) + " before its " +
                           to_string(found.all[at->second].f) + " (event " +
                           std::to_string(found.all[at->second].call) +
                           ") has ended; add the end, or give each operation its own `op`");
      open.emplace(open_name(event), static_cast<std::uint32_t>(found.all.size()));
      Operation op;
      op.key = event.key;
      op.input = event.value;
      op.call_time = event.time;
      op.call = i;
      op.process = event.process;
      op.node = event.node;
      op.f = event.f;
      found.all.push_back(op);
      failed.push_back(false);
      continue;
    }
    const bool ends = at != open.end() && found.all[at->second].f == event.f;
    if (!ends && may_be_point(event.f) && event.type != EventType::kFail) {
      found.points.push_back(i);
      continue;
    }
    if (at == open.end())
      return fail(i, who(event) + " ends a " + to_string(event.f) + " that it did not invoke");
    Operation& op = found.all[at->second];
    if (!ends)
      return fail(i, who(event) + " ends a " + to_string(event.f) + ", but it invoked a " +
                         to_string(op.f) + " (event " + std::to_string(op.call) + ')');
    if (!event.key.is_none() && event.key != op.key)
      return fail(i, who(event) + " ends a " + to_string(event.f) + " of key " +
                         history.show(event.key) + ", but invoked it for key " +
                         history.show(op.key));
    if (event.type == EventType::kOk) {
      op.ret = i;
      op.return_time = event.time;
      op.output = event.value;
    } else {
      op.info = i;
      failed[at->second] = event.type == EventType::kFail;
    }
    open.erase(at);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < found.all.size(); ++i)
    if (!failed[i]) found.all[kept++] = found.all[i];
  found.all.resize(kept);
  return found;
}

}  // namespace pyrdma::check
