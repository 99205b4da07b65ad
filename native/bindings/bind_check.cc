// Bindings of the history checkers: a file comes in, a dictionary goes out.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "base/error.h"
#include "bindings/bind.h"
#include "check/check.h"
#include "check/history_json.h"

namespace pyrdma::bindings {

namespace py = pybind11;
using namespace py::literals;

namespace {

const char* to_string(check::Answer answer) {
  switch (answer) {
    case check::Answer::kYes:
      return "yes";
    case check::Answer::kNo:
      return "no";
    case check::Answer::kUnknown:
      return "unknown";
  }
  return "unknown";
}

/// Lists become text, so that a value of a history is a scalar or a text.
py::object to_python(const check::History& history, const check::Value& value) {
  switch (value.kind) {
    case check::Value::Kind::kNone:
      return py::none();
    case check::Value::Kind::kBool:
      return py::bool_(value.a != 0);
    case check::Value::Kind::kInteger:
      return py::int_(value.a);
    case check::Value::Kind::kText:
      return py::str(history.text_of(value));
    case check::Value::Kind::kPair:
    case check::Value::Kind::kList:
      return py::str(history.show(value));
  }
  return py::none();
}

py::dict to_python(const check::History& history, const check::WindowOperation& w) {
  const check::Operation& op = w.op;
  const auto event = [](std::uint32_t index) -> py::object {
    return index == check::kNever ? py::object(py::none()) : py::int_(index);
  };
  return py::dict("process"_a = op.process, "text"_a = check::describe(history, op),
                  "call_ns"_a = op.call_time,
                  "return_ns"_a = op.known() ? py::object(py::int_(op.return_time)) : py::none(),
                  "call_event"_a = event(op.call), "return_event"_a = event(op.ret),
                  "optional"_a = w.optional, "impossible"_a = w.impossible,
                  "place"_a = w.place < 0 ? py::object(py::none()) : py::int_(w.place));
}

constexpr std::size_t kChunk = 1 << 20;

/// Ctrl-C ends a check: Python's handlers run every now and then.
void run_signal_handlers() {
  const py::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

check::ParsedHistory read_all(const py::function& read) {
  check::HistoryReader reader({}, run_signal_handlers);
  for (;;) {
    const py::object chunk = read(kChunk);
    if (chunk.is_none()) continue;  // a raw file that has nothing yet
    const py::bytes bytes(chunk);
    const std::string_view view = bytes;
    const py::gil_scoped_release release;
    if (view.empty() || !reader.feed(view)) return reader.end();
  }
}

py::dict check_file(const py::function& read, const std::string& model,
                    std::uint64_t configurations) {
  const check::ParsedHistory parsed = read_all(read);
  if (!parsed.ok()) throw Error(ErrorCode::kInvalidArgument, parsed.message());
  const std::string chosen = model.empty() ? parsed.history.header.model : model;
  if (chosen.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "line 1: no header names the model; give one with --model");
  check::Verdict verdict;
  {
    const py::gil_scoped_release release;
    verdict = check::check_history(parsed.history, chosen, {configurations, true});
  }
  py::list window;
  for (const check::WindowOperation& w : verdict.window)
    window.append(to_python(parsed.history, w));
  return py::dict("answer"_a = to_string(verdict.answer), "model"_a = verdict.model,
                  "key"_a = to_python(parsed.history, verdict.key), "text"_a = verdict.text,
                  "window"_a = window, "events"_a = verdict.events,
                  "operations"_a = verdict.operations, "objects"_a = verdict.objects,
                  "configurations"_a = verdict.configurations,
                  "seed"_a = parsed.history.header.seed);
}

py::bytes merge_histories(const std::vector<std::string>& texts, Time clock_bound) {
  std::string merged;
  {
    const py::gil_scoped_release release;
    std::vector<check::History> parts;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      check::ParsedHistory parsed = check::parse_history(texts[i]);
      if (!parsed.ok())
        throw Error(ErrorCode::kInvalidArgument,
                    "history " + std::to_string(i) + ": " + parsed.message());
      parts.push_back(std::move(parsed.history));
    }
    merged = check::to_json(check::History::merge(parts, clock_bound));
  }
  return py::bytes(merged);
}

}  // namespace

void bind_check(py::module_& module) {
  py::module_ check_module = module.def_submodule("check", "Histories and their checkers.");
  check_module.def(
      "check_file", &check_file, py::arg("read"), py::arg("model") = "",
      py::arg("configurations") = check::SearchLimits{}.configurations,
      "Read a history (JSON Lines) and check it.\n\n`read(bytes)` returns the next bytes, none at "
      "the end.\n`model` overrides the model of the header.");
  check_module.def("merge_histories", &merge_histories, py::arg("texts"),
                   py::arg("clock_bound_ns") = 0,
                   "Merge histories (JSON Lines) by time; see History::merge().");
  check_module.def("model_names", &check::model_names, "Names of the models for a check.");
}

}  // namespace pyrdma::bindings
