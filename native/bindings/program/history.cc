#include "bindings/program/history.h"

#include <algorithm>
#include <vector>

#include "base/quote.h"
#include "bindings/argument.h"

namespace pyrdma::bindings {

namespace {

constexpr std::uint64_t kMostEvents = std::uint64_t{1}
                                      << 20;  // of a node's history, 140 MB as JSON

check::Value scalar_of(check::History& history, const char* name, py::handle given) {
  if (given.is_none()) return check::Value::none();
  if (PyBool_Check(given.ptr())) return check::Value::boolean(given.ptr() == Py_True);
  if (PyUnicode_Check(given.ptr())) return history.text(name_of(name, given));
  return check::Value::integer(read_argument<std::int64_t>(name, given));
}

check::Value value_of(check::History& history, const char* name, py::handle given) {
  if (!py::isinstance<py::list>(given) && !py::isinstance<py::tuple>(given))
    return scalar_of(history, name, given);
  std::vector<check::Value> elements;
  for (const py::handle element : given) elements.push_back(scalar_of(history, name, element));
  return history.list(elements);
}

/// An operation of a client, between its call and its result.
class OpenOperation {
 public:
  OpenOperation(NodePtr node, std::shared_ptr<Task> task, std::int32_t process, check::Function f,
                check::Value key, check::Value input)
      : node_(std::move(node)),
        task_(std::move(task)),
        process_(process),
        f_(f),
        key_(key),
        input_(input) {}
  void end(check::EventType type, const py::object& value) {
    if (ended_)
      throw Error(ErrorCode::kInvalidArgument,
                  "this operation of the history has ended; invoke another one");
    check::History& history = node_->program().recorder(node_->node()).thread(0).history();
    const check::Value output = value.is_none() ? input_ : value_of(history, "value", value);
    history.complete(node_->program().world().moment(node_->node()), process_, type, f_, key_,
                     output);
    ended_ = true;
    // Its effect may come at any later time, and so the process cannot go on.
    if (type == check::EventType::kInfo) task_->process(true);
  }

 private:
  NodePtr node_;
  std::shared_ptr<Task> task_;
  std::int32_t process_;
  check::Function f_;
  check::Value key_, input_;
  bool ended_ = false;
};

}  // namespace

std::string name_of(const char* parameter, const py::handle& given) {
  constexpr const char* kTakes = "1 to 64 bytes of text without '@' and control characters";
  Py_ssize_t length = 0;
  const char* text =
      PyUnicode_Check(given.ptr()) ? PyUnicode_AsUTF8AndSize(given.ptr(), &length) : nullptr;
  if (text == nullptr) {
    PyErr_Clear();
    refuse(parameter, given, kTakes);
  }
  std::string name(text, static_cast<std::size_t>(length));
  const bool printable = std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '@';
  });
  if (name.empty() || name.size() > 64 || !printable) refuse(parameter, given, kTakes);
  return name;
}

py::object invoke(const NodePtr& self, const py::object& function, const py::object& key,
                  const py::object& value) {
  const auto f = check::function_named(name_of("function", function));
  if (!f)
    throw Error(ErrorCode::kInvalidArgument,
                "function is " + in_quotes(function.cast<std::string>()) +
                    "; give one that a model of pyrdma.check knows, such as read, write or cas");
  const std::shared_ptr<Task> task = self->running_task();
  check::History& history = self->program().recorder(self->node()).thread(0).history();
  if (history.events().size() + 2 > kMostEvents)
    throw Error(ErrorCode::kExhausted,
                "the history of node " + std::to_string(self->node()) + " has " +
                    std::to_string(history.events().size()) +
                    " events, as many as it can have; run the program for a shorter time");
  history.header.model = self->program().options().model;
  const check::Value its_key = value_of(history, "key", key),
                     input = value_of(history, "value", value);
  const std::int32_t process = task->process(false);
  history.invoke(self->program().world().moment(self->node()), process, *f, its_key, input);
  return py::cast(OpenOperation(self, task, process, *f, its_key, input));
}

void bind_histories(py::module_& module) {
  py::class_<OpenOperation>(module, "OpenOperation",
                            "An operation of a history that has begun; see `Node.invoke`.")
      .def(
          "ok",
          [](OpenOperation& self, const py::object& value) {
            self.end(check::EventType::kOk, value);
          },
          py::arg("value") = py::none(), "Record that it has happened, with this result.")
      .def(
          "fail", [](OpenOperation& self) { self.end(check::EventType::kFail, py::none()); },
          "Record that it has certainly not happened.")
      .def(
          "info", [](OpenOperation& self) { self.end(check::EventType::kInfo, py::none()); },
          "Record that it may have happened, or may still happen: a call without a reply.");
}

}  // namespace pyrdma::bindings
