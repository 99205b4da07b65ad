#include "check/history_json.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "base/quote.h"
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
  if (header.clock_bound > 0) out += ",\"clock_bound_ns\":" + std::to_string(header.clock_bound);
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
        JsonLine::fail_at(
            column, "type is " + in_quotes(name, '"') + "; it must be invoke, ok, fail or info");
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
    JsonLine::fail_at(found.f_column, "f is " + in_quotes(found.f, '"') + "; it must be one of " +
                                          function_names());
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
      else if (name == "clock_bound_ns")
        header.clock_bound = line.integer("clock_bound_ns", 0, kMost);
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

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace

bool HistoryReader::feed(std::string_view chunk) {
  if (!result_.ok()) return false;
  try {
    bytes_ += chunk.size();
    if (bytes_ > limits_.bytes)
      JsonLine::fail_at(1, "the history is longer than " + std::to_string(limits_.bytes) +
                               " bytes; split it, by key");
    for (std::size_t end = chunk.find('\n'); end != std::string_view::npos;
         end = chunk.find('\n')) {
      add_to_line(chunk.substr(0, end));
      chunk.remove_prefix(end + 1);
      end_line();
    }
    add_to_line(chunk);
  } catch (const JsonError& error) {
    refuse(error);
  }
  return result_.ok();
}

ParsedHistory HistoryReader::end() {
  try {
    if (result_.ok() && !rest_.empty()) end_line();
    if (result_.ok()) check_pairs();
  } catch (const JsonError& error) {
    refuse(error);
  }
  return std::move(result_);
}

void HistoryReader::refuse(const JsonError& error) {
  result_.error = error.message;
  result_.line = line_;
  result_.column = error.column;
}

void HistoryReader::add_to_line(std::string_view piece) {
  if (rest_.size() + piece.size() > limits_.line_bytes)
    JsonLine::fail_at(1, "the line is longer than " + std::to_string(limits_.line_bytes) +
                             " bytes; a history has one event per line");
  rest_ += piece;
}

void HistoryReader::end_line() {
  result_.history.poll();
  std::string_view line = rest_;
  if (line_ == 1) {
    if (line.starts_with("\xff\xfe") || line.starts_with("\xfe\xff"))
      JsonLine::fail_at(1, "the file begins with a byte order mark of UTF-16; save it as UTF-8");
    if (line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  }
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
    if (++blank_lines_ > limits_.line_bytes)
      JsonLine::fail_at(1, "more than " + std::to_string(limits_.line_bytes) +
                               " lines in a row are empty; remove them");
  } else {
    blank_lines_ = 0;
    if (first_ && is_header(line)) {
      read_header(line, result_.history);
    } else {
      const Line found = read_event(line, result_.history);
      add(found.event, found.index, found.of_a_client, found.has(kTime));
    }
    first_ = false;
  }
  rest_.clear();
  ++line_;
}

void HistoryReader::add(Event event, std::int64_t index, bool of_a_client, bool has_time) {
  if (index >= 0) {
    if (index <= last_index_)
      JsonLine::fail_at(1, "index " + std::to_string(index) + " comes after " +
                               std::to_string(last_index_) + "; sort the events by index");
    last_index_ = index;
  }
  if (!of_a_client) return;
  // An event without a time has that of the event before; the first one has 0.
  if (!has_time) event.time = lines_.empty() ? 0 : last_time_;
  if (!lines_.empty() && event.time < last_time_)
    JsonLine::fail_at(1, "time " + std::to_string(event.time) + " comes after time " +
                             std::to_string(last_time_) + " of line " +
                             std::to_string(lines_.back()) +
                             "; time must not run backwards: sort the events by time");
  last_time_ = event.time;
  if (lines_.size() == limits_.events)
    JsonLine::fail_at(
        1, "the history has more than " + std::to_string(limits_.events) + " events; split it");
  result_.history.append(event);
  lines_.push_back(line_);
}

void HistoryReader::check_pairs() {
  const Operations paired = pair_operations(result_.history);
  if (paired.error.empty()) return;
  line_ = lines_[paired.error_event];
  JsonLine::fail_at(1, paired.error);
}

std::string to_json(const History& history) {
  std::string out;
  append_header(out, history);
  std::size_t index = 0;
  Time time = 0;
  for (const Event& event : history.events()) {
    // A thread's clock may be behind another's, and a reader refuses times that run backwards.
    time = std::max(time, event.time);
    out += "{\"index\":" + std::to_string(index++) + ",\"time\":" + std::to_string(time) +
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
  HistoryReader reader(limits);
  reader.feed(text);
  return reader.end();
}

}  // namespace pyrdma::check
