#include "check/models.h"

#include <algorithm>
#include <array>

namespace pyrdma::check {

namespace {

constexpr std::array<const char*, 6> kModelNames = {"register", "kv",      "queue",
                                                    "lock",     "counter", "map"};

std::span<const Function> functions_of(ModelKind kind) {
  static constexpr std::array kRegister = {Function::kRead, Function::kWrite, Function::kCas,
                                           Function::kFetchAdd};
  static constexpr std::array kKv = {Function::kGet,    Function::kPut,   Function::kInsert,
                                     Function::kDelete, Function::kCas,   Function::kFetchAdd,
                                     Function::kRead,   Function::kWrite, Function::kAppend};
  static constexpr std::array kQueue = {Function::kEnq, Function::kDeq};
  static constexpr std::array kLock = {Function::kLock, Function::kUnlock};
  static constexpr std::array kCounter = {Function::kRead, Function::kAdd, Function::kFetchAdd};
  static constexpr std::array kMap = {Function::kGet, Function::kPut, Function::kDelete,
                                      Function::kScan};
  switch (kind) {
    case ModelKind::kRegister:
      return kRegister;
    case ModelKind::kKv:
      return kKv;
    case ModelKind::kQueue:
      return kQueue;
    case ModelKind::kLock:
      return kLock;
    case ModelKind::kCounter:
      return kCounter;
    case ModelKind::kMap:
      return kMap;
  }
  return {};
}

// Keys and values of a map are whole numbers.
std::string complaint_of_map(const History& history, const Operation& op, const std::string& what) {
  if (!op.key.is_integer())
    return what + " has the key " + history.show(op.key) + "; it must be a whole number";
  const bool needs = op.f == Function::kPut || op.f == Function::kScan;
  if (needs && (!op.input.is_integer() || (op.f == Function::kScan && op.input.a < 1)))
    return what + " is invoked with " + history.show(op.input) + "; it must be a whole number" +
           (op.f == Function::kScan ? " from 1 on" : "");
  if (op.f == Function::kGet && !op.output.is_integer() && !op.output.is_none())
    return what + " returned " + history.show(op.output) + "; it must be a whole number or null";
  const bool fits = op.output.is_none() || op.output.is_integer() ||
                    op.output.kind == Value::Kind::kList || op.output.kind == Value::Kind::kPair;
  if (op.f == Function::kScan && !fits)
    return what + " returned " + history.show(op.output) +
           "; it must be a list of keys and values by turns, or their sum";
  return {};
}

}  // namespace

std::optional<ModelKind> model_named(std::string_view name) {
  for (std::size_t i = 0; i < kModelNames.size(); ++i)
    if (name == kModelNames[i]) return static_cast<ModelKind>(i);
  return std::nullopt;
}

const char* to_string(ModelKind kind) { return kModelNames[static_cast<std::size_t>(kind)]; }

std::string complaint(ModelKind kind, const History& history, const Operation& op) {
  const auto allowed = functions_of(kind);
  const std::string what = "event " + std::to_string(op.call) + ": " + to_string(op.f);
  if (std::ranges::find(allowed, op.f) == allowed.end()) {
    std::string names;
    for (const Function f : allowed) names += std::string(" ") + to_string(f);
    return what + " is not an operation of the model " + to_string(kind) + "; those are" + names;
  }
  if (kind == ModelKind::kMap) return complaint_of_map(history, op, what);
  if (op.f == Function::kCas && history.size_of(op.input) != 2)
    return what + " is invoked with " + history.show(op.input) + "; it must be [expected, new]";
  if ((op.f == Function::kFetchAdd || op.f == Function::kAdd) && !op.input.is_integer())
    return what + " is invoked with " + history.show(op.input) + "; it must be a whole number";
  if (op.f == Function::kAppend && op.input.kind != Value::Kind::kText)
    return what + " is invoked with " + history.show(op.input) + "; it must be a text";
  const bool counts =
      op.f == Function::kFetchAdd || (kind == ModelKind::kCounter && op.f == Function::kRead);
  if (counts && op.known() && !op.output.is_integer() && !op.output.is_none())
    return what + " returned " + history.show(op.output) + "; it must be a whole number";
  if (kind == ModelKind::kCounter && !history.header.initial.is_integer() &&
      !history.header.initial.is_none())
    return "the header's initial value is " + history.show(history.header.initial) +
           "; a counter needs a whole number";
  return {};
}

bool may_change(const Operation& op) {
  return op.f != Function::kRead && op.f != Function::kGet && op.f != Function::kScan;
}

Value object_of(ModelKind kind, const Operation& op) {
  return kind == ModelKind::kMap ? Value::none() : op.key;
}

Operation to_map(Operation op) {
  const bool has_two = op.f == Function::kPut || op.f == Function::kScan;
  op.input = has_two ? Value::pair(op.key.a, op.input.a) : op.key;
  return op;
}

bool can_start_anywhere(ModelKind kind) {
  return kind != ModelKind::kQueue && kind != ModelKind::kMap;
}

std::int64_t lock_owner(const Operation& op) {
  return op.input.is_integer() ? op.input.a : op.process;
}

std::unique_ptr<Model> make_model(ModelKind kind, const History& history, OperationsView ops) {
  switch (kind) {
    case ModelKind::kRegister:
    case ModelKind::kKv:
      return make_cell(history, ops);
    case ModelKind::kQueue:
      return make_queue(ops);
    case ModelKind::kLock:
      return make_lock(ops);
    case ModelKind::kCounter:
      return make_counter(history, ops);
    case ModelKind::kMap:
      return make_map(history, ops);
  }
  return nullptr;
}

}  // namespace pyrdma::check
