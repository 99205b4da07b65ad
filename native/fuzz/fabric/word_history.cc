#include "fuzz/fabric/word_history.h"

#include <algorithm>

namespace pyrdma::fuzz {

using check::Event;
using check::EventType;
using check::Value;

check::History history_of(std::span<const AtomicWord> words) {
  check::History history;
  history.header.model = "register";
  history.header.initial = Value::integer(0);
  std::vector<Event> events;
  std::int64_t key = 0, number = 0;
  for (const AtomicWord& word : words) {
    if (word.counter) continue;
    ++key;
    for (const AtomicOperation& op : word.operations) {
      Event event;
      event.key = Value::integer(key);
      event.op = number++;
      event.process = static_cast<std::int32_t>(op.client);
      event.node = static_cast<std::int32_t>(word.node);
      event.f = check::Function::kCas;
      event.time = op.invoked;
      event.value = Value::pair(static_cast<std::int64_t>(op.expected),
                                static_cast<std::int64_t>(op.desired));
      events.push_back(event);
      if (!op.known()) continue;
      event.type = EventType::kOk;
      event.time = op.returned;
      event.value = Value::integer(static_cast<std::int64_t>(op.old));
      events.push_back(event);
    }
  }
  // At equal times beginnings come first, because their order is unknown.
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    const bool a_ends = a.type != EventType::kInvoke, b_ends = b.type != EventType::kInvoke;
    return a.time != b.time ? a.time < b.time : a_ends < b_ends;
  });
  for (const Event& event : events) history.append(event);
  return history;
}

}  // namespace pyrdma::fuzz
