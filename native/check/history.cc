#include "check/history.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/assert.h"
#include "base/error.h"
#include "base/quote.h"

namespace pyrdma::check {

namespace {

struct FunctionName {
  const char* name;
  bool point;
};

constexpr std::array<FunctionName, kFunctions> kNames = {{
    {"read", false},   {"write", false},   {"cas", false},     {"fetch_add", false},
    {"add", false},    {"get", false},     {"put", false},     {"insert", false},
    {"delete", false}, {"scan", false},    {"enq", false},     {"deq", false},
    {"lock", false},   {"unlock", false},  {"barrier", false}, {"bcast", false},
    {"rpc", false},    {"deliver", true},  {"view", true},     {"exec", true},
    {"leader", true},  {"follower", true}, {"append", true},   {"truncate", true},
    {"commit", true},  {"apply", true},    {"snapshot", true}, {"recover", true},
    {"post", true},    {"comp", true},     {"persist", true},
}};

constexpr std::array<std::pair<std::string_view, Function>, 7> kAliases = {{
    {"enqueue", Function::kEnq},
    {"dequeue", Function::kDeq},
    {"acquire", Function::kLock},
    {"release", Function::kUnlock},
    {"fetch-add", Function::kFetchAdd},
    {"compare-and-set", Function::kCas},
    {"compare_swap", Function::kCas},
}};

constexpr std::array<const char*, 4> kTypes = {"invoke", "ok", "fail", "info"};

constexpr std::size_t kShownElements = 20;

std::string_view without_colon(std::string_view name) {
  if (!name.empty() && name.front() == ':') name.remove_prefix(1);
  return name;
}

}  // namespace

const char* to_string(EventType type) { return kTypes[static_cast<std::size_t>(type)]; }
const char* to_string(Function f) { return kNames[static_cast<std::size_t>(f)].name; }
bool may_be_point(Function f) { return kNames[static_cast<std::size_t>(f)].point; }

std::optional<Function> function_named(std::string_view name) {
  name = without_colon(name);
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i].name) return static_cast<Function>(i);
  for (const auto& [alias, f] : kAliases)
    if (name == alias) return f;
  return std::nullopt;
}

std::optional<EventType> event_type_named(std::string_view name) {
  name = without_colon(name);
  for (std::size_t i = 0; i < kTypes.size(); ++i)
    if (name == kTypes[i]) return static_cast<EventType>(i);
  return std::nullopt;
}

Value History::text(std::string_view text) {
  const auto [found, fresh] =
      text_ids_.try_emplace(std::string(text), static_cast<std::int64_t>(texts_.size()));
  if (fresh) texts_.emplace_back(text);
  return {Value::Kind::kText, found->second, 0};
}

Value History::list(std::span<const Value> elements) {
  if (elements.size() == 2 && elements[0].is_integer() && elements[1].is_integer())
    return Value::pair(elements[0].a, elements[1].a);
  std::uint64_t hash = elements.size();
  for (const Value& element : elements) hash = mix64(hash ^ ValueHash{}(element));
  const auto [begin, end] = list_ids_.equal_range(hash);
  for (auto i = begin; i != end; ++i)
    if (std::ranges::equal(lists_[static_cast<std::size_t>(i->second)], elements))
      return {Value::Kind::kList, i->second, 0};
  const auto id = static_cast<std::int64_t>(lists_.size());
  lists_.emplace_back(elements.begin(), elements.end());
  list_ids_.emplace(hash, id);
  return {Value::Kind::kList, id, 0};
}

const std::string& History::text_of(const Value& value) const {
  PYRDMA_ASSERT(value.kind == Value::Kind::kText);
  return texts_.at(static_cast<std::size_t>(value.a));
}

std::size_t History::size_of(const Value& value) const {
  if (value.kind == Value::Kind::kPair) return 2;
  if (value.kind == Value::Kind::kList) return lists_.at(static_cast<std::size_t>(value.a)).size();
  return 0;
}

Value History::element(const Value& value, std::size_t index) const {
  if (value.kind == Value::Kind::kPair) return Value::integer(index == 0 ? value.a : value.b);
  PYRDMA_ASSERT(value.kind == Value::Kind::kList);
  return lists_.at(static_cast<std::size_t>(value.a)).at(index);
}

std::string History::show(const Value& value) const {
  switch (value.kind) {
    case Value::Kind::kNone:
      return "nil";
    case Value::Kind::kBool:
      return value.a != 0 ? "true" : "false";
    case Value::Kind::kInteger:
      return std::to_string(value.a);
    case Value::Kind::kText:
      return in_quotes(text_of(value), '"');
    case Value::Kind::kPair:
    case Value::Kind::kList:
      break;
  }
  const std::size_t size = size_of(value);
  std::string list = "[";
  for (std::size_t i = 0; i < std::min(size, kShownElements); ++i) {
    if (i > 0) list += ' ';
    list += show(element(value, i));
  }
  return list + (size > kShownElements ? " ... (" + std::to_string(size) + " elements)]" : "]");
}

Value History::adopt(const History& other, const Value& value) {
  if (value.kind == Value::Kind::kText) return text(other.text_of(value));
  if (value.kind != Value::Kind::kList) return value;
  std::vector<Value> elements;
  for (std::size_t i = 0; i < other.size_of(value); ++i)
    elements.push_back(adopt(other, other.element(value, i)));
  return list(elements);
}

void History::widen(Time clock_bound) {
  const auto later = [&](Time t) { return std::min(t, kForever - clock_bound) + clock_bound; };
  header.clock_bound = later(header.clock_bound);
  struct Open {
    Function f;
    std::int64_t op;  // its own number
  };
  std::unordered_map<Value, Open, ValueHash> open;       // by process and op
  std::unordered_map<std::int32_t, std::int64_t> begun;  // operations of each process
  for (Event& event : events_) {
    const Value name = Value::pair(event.process, event.op);
    if (event.type == EventType::kInvoke) {
      event.op = begun[event.process]++;
      open[name] = {event.f, event.op};
      continue;
    }
    const auto at = open.find(name);
    if (at == open.end() || at->second.f != event.f)
      throw Error(ErrorCode::kInvalidArgument,
                  "process " + std::to_string(event.process) + " has a " + to_string(event.f) +
                      " without an invocation; a bound of the clocks of " +
                      std::to_string(clock_bound) + " ns cannot widen an event inside a node");
    event.op = at->second.op;
    event.time = later(event.time);
    open.erase(at);
  }
}

History History::merge(std::span<const History> parts, Time clock_bound) {
  History all;
  std::map<std::int32_t, std::int64_t> last;  // time of each process's event before
  for (const History& part : parts) {
    if (&part == &parts.front()) all.header = part.header;
    for (Event event : part.events_) {
      if (event.op < 0 && event.node < 0) {
        // A process that moves to another core may read an earlier time than before. Its own order
        // stands: it invokes an operation after the end of the one before.
        const auto [before, is_first] = last.try_emplace(event.process, event.time);
        const bool invokes = event.type == EventType::kInvoke;
        if (!is_first) event.time = std::max(event.time, before->second + (invokes ? 1 : 0));
        before->second = event.time;
      }
      event.key = all.adopt(part, event.key);
      event.value = all.adopt(part, event.value);
      all.append(event);
    }
  }
  if (!parts.empty()) all.header.initial = all.adopt(parts.front(), all.header.initial);
  if (clock_bound > 0) all.widen(clock_bound);
  std::stable_sort(all.events_.begin(), all.events_.end(), [](const Event& x, const Event& y) {
    const bool x_ends = x.type != EventType::kInvoke, y_ends = y.type != EventType::kInvoke;
    return x.time != y.time ? x.time < y.time : x_ends < y_ends;
  });
  return all;
}

}  // namespace pyrdma::check
