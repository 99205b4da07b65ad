#include "check/history_json.h"

#include <limits>
#include <optional>
#include <vector>

#include "check/json.h"
#include "check/operations.h"

namespace pyrdma::check {

namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMost32 = std::numeric_limits<std::int32_t>::max();

// --- writing ---

void append_value(std::string& out, const History& history, const Value& value) {
  switch (value.kind) {
    case Value::Kind::kNone:
      out += "null";
      return;
    case Value::Kind::kBool:
      out += value.a != 0 ? "true" : "false";
      return;
    case Value::Kind::kInteger:
      out += std::to_string(value.a);
      return;
    case Value::Kind::kText:
      append_json(out, history.text_of(value));
      return;
    case Value::Kind::kPair:
    case Value::Kind::kList:
      break;
  }
  out += '[';
  for (std::size_t i = 0; i < history.size_of(value); ++i) {
    if (i > 0) out += ',';
    append_value(out, history, history.element(value, i));
  }
  out += ']';
}

void append_header(std::string& out, const History& history) {
  const Header& header = history.header;
  out += "{\"seed\":" + std::to_string(header.seed) + ",\"git\":";
  append_json(out, header.git);
  out += ",\"config\":";
  append_json(out, header.config);
  out += ",\"fault_plan\":";
  append_json(out, header.fault_plan);
  out += ",\"model\":";
  append_json(out, header.model);
  out += ",\"initial\":";
  append_value(out, history, header.initial);
  out += "}\n";
}

// --- reading ---

Value read_scalar(JsonLine& line, History& history, const char* what) {
  switch (line.peek()) {
    case 'n':
      line.null();
      return Value::none();
    case 't':
    case 'f':
      return Value::boolean(line.boolean());
    case '"':
      return history.text(line.text());
    case '[':
    case '{':
      line.fail(std::string(what) +
                " must be null, true, false, a whole number, a text or a list of these");
    default:
      return Value::integer(line.integer(what, kLeast, kMost));
  }
}

Value read_value(JsonLine& line, History& history, const char* what) {
  if (!line.take('[')) return read_scalar(line, history, what);
  std::vector<Value> elements;
  if (!line.take(']')) {
    do {
      elements.push_back(read_scalar(line, history, "an element of a list"));
    } while (line.take(','));
    line.expect(']', "after a list");
  }
  return history.list(elements);
}

enum Field : unsigned {
  kIndex,
  kTime,
  kProcess,
  kType,
  kF,
  kKey,
  kValue,
  kNode,
  kEpoch,
  kOp,
  kFields
};
constexpr const char* kFieldNames[kFields] = {"index", "time",  "process", "type",  "f",
                                              "key",   "value", "node",    "epoch", "op"};

struct Line {
  Event event;
  std::int64_t index = -1;
  unsigned seen = 0;        // bits by Field
  bool of_a_client = true;  // false: an event of Jepsen's nemesis
  bool known_f = true;
  std::string f;
  std::size_t f_column = 0;
  std::optional<JsonError> bad_value;  // such as only the nemesis may have

  bool has(Field field) const { return (seen >> field & 1U) != 0; }
};

void read_any_value(JsonLine& line, History& history, Line& into) {
  const JsonLine begin = line;
  try {
    into.event.value = read_value(line, history, "value");
  } catch (const JsonError& error) {
    into.bad_value = error;
    line = begin;
    line.skip_value();
  }
}

void read_field(JsonLine& line, History& history, Field field, Line& into) {
  Event& event = into.event;
  switch (field) {
    case kIndex:
      into.index = line.integer("index", 0, kMost);
      break;
    case kTime:
      event.time = line.integer("time", kLeast, kMost);
      break;
    case kProcess:
      if (line.peek() == '"') {
        line.text();
        into.of_a_client = false;
      } else {
        event.process = static_cast<std::int32_t>(line.integer("process", 0, kMost32));
      }
      break;
    case kType: {
      const std::size_t column = line.column();
      const std::string name = line.text();
      const auto type = event_type_named(name);
      if (!type)
        JsonLine::fail_at(column, "type is \"" + name + "\"; it must be invoke, ok, fail or info");
      event.type = *type;
      break;
    }
    case kF: {
      into.f_column = line.column();
      into.f = line.text();
      const auto f = function_named(into.f);
      into.known_f = f.has_value();
      if (f) event.f = *f;
      break;
    }
    case kKey:
      event.key = read_value(line, history, "key");
      break;
    case kValue:
      read_any_value(line, history, into);
      break;
    case kNode:
      event.node = static_cast<std::int32_t>(line.integer("node", -1, kMost32));
      break;
    case kEpoch:
      event.epoch = line.integer("epoch", -1, kMost);
      break;
    case kOp:
      event.op = line.integer("op", -1, kMost);
      break;
    case kFields:
      break;
  }
}

std::string function_names() {
  std::string names;
  for (int i = 0; i < kFunctions; ++i) {
    if (i > 0) names += ' ';
    names += to_string(static_cast<Function>(i));
  }
  return names;
}

Line read_event(std::string_view text, History& history) {
  JsonLine line(text);
  Line found;
  line.expect('{', "to begin an event");
  if (!line.take('}')) {
    do {
      line.peek();
      const std::size_t column = line.column();
      const std::string name = line.text();
      line.expect(':', "after a name");
      unsigned field = 0;
      while (field < kFields && name != kFieldNames[field]) ++field;
      if (field == kFields) {
        line.skip_value();
        continue;
      }
      if (found.has(static_cast<Field>(field)))
        JsonLine::fail_at(column, '"' + name + "\" occurs twice");
      found.seen |= 1U << field;
      line.peek();
      read_field(line, history, static_cast<Field>(field), found);
    } while (line.take(','));
    line.expect('}', "after an event");
  }
  line.end();
  if (found.of_a_client && found.bad_value) throw *found.bad_value;
  for (const Field field : {kProcess, kType, kF})
    if (!found.has(field))
      JsonLine::fail_at(1, std::string("the event has no \"") + kFieldNames[field] + '"');
  if (found.of_a_client && !found.known_f)
    JsonLine::fail_at(found.f_column,
                      "f is \"" + found.f + "\"; it must be one of " + function_names());
  return found;
}

void read_header(std::string_view text, History& history) {
  JsonLine line(text);
  Header& header = history.header;
  line.expect('{', "to begin the header");
  if (!line.take('}')) {
    do {
      const std::string name = line.text();
      line.expect(':', "after a name");
      const bool is_text = line.peek() == '"';
      if (name == "seed")
        header.seed = line.unsigned_integer("seed");
      else if (name == "initial")
        header.initial = read_value(line, history, "initial");
      else if (name == "model")
        header.model = line.text();
      else if (name == "git" && is_text)
        header.git = line.text();
      else if (name == "config" && is_text)
        header.config = line.text();
      else if (name == "fault_plan" && is_text)
        header.fault_plan = line.text();
      else
        line.skip_value();
    } while (line.take(','));
    line.expect('}', "after the header");
  }
  line.end();
}

/// Returns whether the first line is a header: an object without "type".
bool is_header(std::string_view text) {
  JsonLine line(text);
  if (!line.take('{')) return false;
  if (line.take('}')) return true;
  do {
    if (line.text() == "type") return false;
    line.expect(':', "after a name");
    line.skip_value();
  } while (line.take(','));
  return true;
}

class Reader {
 public:
  Reader(std::string_view text, const ReadLimits& limits) : text_(text), limits_(limits) {}

  ParsedHistory read() {
    try {
      while (!text_.empty()) next_line();
      check_pairs();
    } catch (const JsonError& error) {
      result_.error = error.message;
      result_.line = line_;
      result_.column = error.column;
    }
    return std::move(result_);
  }

 private:
  void next_line() {
    ++line_;
    const std::size_t end = text_.substr(0, limits_.line_bytes + 1).find('\n');
    if (end == std::string_view::npos && text_.size() > limits_.line_bytes)
      JsonLine::fail_at(1, "the line is longer than " + std::to_string(limits_.line_bytes) +
                               " bytes; a history has one event per line");
    const std::string_view line = text_.substr(0, end);
    text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
    if (first_ && is_header(line)) {
      read_header(line, result_.history);
    } else {
      add(read_event(line, result_.history));
    }
    first_ = false;
  }

  void add(const Line& found) {
    if (found.index >= 0) {
      if (found.index <= last_index_)
        JsonLine::fail_at(1, "index " + std::to_string(found.index) + " comes after " +
                                 std::to_string(last_index_) + "; sort the events by index");
      last_index_ = found.index;
    }
    if (!found.of_a_client) return;
    if (lines_.size() == limits_.events)
      JsonLine::fail_at(
          1, "the history has more than " + std::to_string(limits_.events) + " events; split it");
    result_.history.append(found.event);
    lines_.push_back(line_);
  }

  void check_pairs() {
    const Operations paired = pair_operations(result_.history);
    if (paired.error.empty()) return;
    line_ = lines_[paired.error_event];
    JsonLine::fail_at(1, paired.error);
  }

  std::string_view text_;
  const ReadLimits& limits_;
  ParsedHistory result_;
  std::vector<std::size_t> lines_;  // line of each event
  std::size_t line_ = 0;
  std::int64_t last_index_ = -1;
  bool first_ = true;
};

}  // namespace

std::string to_json(const History& history) {
  std::string out;
  append_header(out, history);
  std::size_t index = 0;
  for (const Event& event : history.events()) {
    out += "{\"index\":" + std::to_string(index++) + ",\"time\":" + std::to_string(event.time) +
           ",\"process\":" + std::to_string(event.process) + ",\"type\":\"" +
           to_string(event.type) + "\",\"f\":\"" + to_string(event.f) + '"';
    if (!event.key.is_none()) {
      out += ",\"key\":";
      append_value(out, history, event.key);
    }
    out += ",\"value\":";
    append_value(out, history, event.value);
    if (event.node >= 0) out += ",\"node\":" + std::to_string(event.node);
    if (event.epoch >= 0) out += ",\"epoch\":" + std::to_string(event.epoch);
    if (event.op >= 0) out += ",\"op\":" + std::to_string(event.op);
    out += "}\n";
  }
  return out;
}

std::string ParsedHistory::message() const {
  return "line " + std::to_string(line) + ", column " + std::to_string(column) + ": " + error;
}

ParsedHistory parse_history(std::string_view text, const ReadLimits& limits) {
  return Reader(text, limits).read();
}

}  // namespace pyrdma::check
