#include "check/invariants/rpc.h"

#include <unordered_map>

#include "base/error.h"
#include "check/verdict.h"

namespace pyrdma::check {

namespace {

void need_triple(const History& history, std::uint32_t event, const Value& value) {
  if (history.size_of(value) != 3)
    throw Error(ErrorCode::kInvalidArgument, "event " + std::to_string(event) + ": the value is " +
                                                 history.show(value) +
                                                 "; it must be [client, session, request]");
}

}  // namespace

MaybeViolation check_rpc(const History& history, const Operations& operations) {
  std::unordered_map<Value, const Operation*, ValueHash> calls;
  for (const Operation& op : operations.all) {
    if (op.f != Function::kRpc) continue;
    need_triple(history, op.call, op.input);
    const auto [first, fresh] = calls.try_emplace(op.input, &op);
    if (!fresh)
      return violation_of("call " + history.show(op.input) +
                              " was made twice: " + where(*first->second) + "; " + where(op),
                          {*first->second, op});
  }
  // A failed call did not happen, so its handler must not run: `calls` leaves it out.
  std::unordered_map<Value, std::uint32_t, ValueHash> runs;
  for (const std::uint32_t point : operations.points) {
    history.poll();
    const Event& event = history.events()[point];
    if (event.f != Function::kExec) continue;
    need_triple(history, point, event.value);
    const std::string name = "call " + history.show(event.value);
    const auto [first, fresh] = runs.try_emplace(event.value, point);
    const auto call = calls.find(event.value);
    if (!fresh) {
      Violation found = violation_at(name + " ran twice: events " + std::to_string(first->second) +
                                         " and " + std::to_string(point),
                                     {first->second, point});
      if (call != calls.end()) found.operations.push_back(*call->second);
      return found;
    }
    if (call == calls.end() || call->second->call > point)
      return violation_at(name + " ran (event " + std::to_string(point) +
                              ") although no client had called it, or the call had failed",
                          {point});
  }
  if (runs.empty()) return std::nullopt;
  for (const auto& op : operations.all) {
    if (op.f != Function::kRpc || !op.known()) continue;
    const auto run = runs.find(op.input);
    if (run == runs.end() || run->second > op.ret)
      return violation_of("call " + history.show(op.input) +
                              " was answered before its handler had run: " + where(op),
                          {op});
  }
  return std::nullopt;
}

}  // namespace pyrdma::check
