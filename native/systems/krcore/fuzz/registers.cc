#include "systems/krcore/fuzz/registers.h"

#include "fuzz/simulation.h"

namespace pyrdma::krcore::scenario {

std::uint64_t Registers::begin(Time now, NodeId node, std::uint32_t life, std::uint32_t word,
                               check::Function f, std::int64_t value) {
  if (free_processes_.empty()) free_processes_.insert(processes_++);
  check::Event event;
  event.time = now;
  // Each life of a node begins with words of its own.
  event.key = check::Value::integer(std::int64_t{node} << 40 | std::int64_t{life} << 8 | word);
  event.process = *free_processes_.begin();
  event.f = f;
  if (f != check::Function::kRead) event.value = check::Value::integer(value);
  free_processes_.erase(free_processes_.begin());
  open_[++begun_] = {events_.size(), event.process};
  events_.push_back(event);
  return begun_;
}

void Registers::end(Time now, std::uint64_t number, check::EventType type, check::Value value) {
  const Open open = open_.at(number);
  open_.erase(number);
  free_processes_.insert(open.process);
  check::Event event = events_[open.event];
  event.time = now;
  event.type = type;
  event.value = value;
  events_.push_back(event);
}

void Registers::ok(Time now, std::uint64_t number, check::Value value) {
  end(now, number, check::EventType::kOk, value);
}

void Registers::fail(Time now, std::uint64_t number) {
  end(now, number, check::EventType::kFail, {});
}

void Registers::judge(fuzz::Outcome& outcome, const fuzz::Options& options, Time now) const {
  check::History history;
  history.header.initial = check::Value::integer(0);
  for (const check::Event& event : events_) history.append(event);
  fuzz::judge(outcome, options, history, "register", now);
}

}  // namespace pyrdma::krcore::scenario
