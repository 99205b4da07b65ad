// Bindings of node programs; pyrdma.program documents them.
#include <pybind11/stl.h>

#include <algorithm>

#include "base/quote.h"
#include "bindings/argument.h"
#include "bindings/bind.h"
#include "bindings/columns.h"
#include "bindings/program/history.h"
#include "bindings/program/operations.h"
#include "bindings/waiting.h"

namespace pyrdma::bindings {

namespace {

using OperationPtr = std::shared_ptr<Operation>;
using Seconds = Arg<"s", double, 0, 1'000'000'000>;
using Nanoseconds = Arg<"ns", Time, 0, 1'000'000'000'000'000'000>;

constexpr double kLongest = 1e9;  // s

/// Returns nothing for None: no limit.
std::optional<Time> timeout_of(const py::object& timeout) {
  if (timeout.is_none()) return std::nullopt;
  return duration_of(read_real("timeout_s", timeout, 0, kLongest), "timeout_s");
}

Time time_of(const Seconds& s, const Nanoseconds& ns) {
  return duration_of(s.value, "s") + ns.value;
}

/// Copies bytes, or another object with a buffer, such as a NumPy array.
std::string bytes_of(const char* name, const py::object& data) {
  Py_buffer view;
  if (PyUnicode_Check(data.ptr()) ||
      PyObject_GetBuffer(data.ptr(), &view, PyBUF_C_CONTIGUOUS) != 0) {
    PyErr_Clear();
    refuse(name, data, "bytes, or an object with a contiguous buffer");
  }
  std::string copy(static_cast<const char*>(view.buf), static_cast<std::size_t>(view.len));
  PyBuffer_Release(&view);
  return copy;
}

template <class T, class... Args>
OperationPtr make(Args&&... args) {
  return std::make_shared<T>(std::forward<Args>(args)...);
}

// ---- operations and tasks ----

// An operation is its own iterator: the task yields it to the driver, and takes its result when it
// runs again. Slots of the type do that, since a C++ exception for each StopIteration would take
// more time than all the rest of an await.

PyObject* itself(PyObject* self) { return Py_NewRef(self); }

PySendResult send(PyObject* self, PyObject* /*value*/, PyObject** result) {
  return py::handle(self).cast<Operation*>()->send(self, result);
}

PyObject* next(PyObject* self) {
  PyObject* result = nullptr;
  const PySendResult sent = send(self, Py_None, &result);
  if (sent != PYGEN_RETURN) return result;
  const auto value = py::reinterpret_steal<py::object>(result);
  // Not PyErr_SetObject(StopIteration, value): that would take a tuple for several arguments.
  PyErr_SetObject(PyExc_StopIteration, py::object(py::handle(PyExc_StopIteration)(value)).ptr());
  return nullptr;
}

void set_slots(PyHeapTypeObject* type) {
  type->as_async.am_await = itself;
  type->as_async.am_send = send;
  type->ht_type.tp_iter = itself;
  type->ht_type.tp_iternext = next;
}

void bind_operations(py::module_& module) {
  py::class_<Operation, OperationPtr>(
      module, "Operation", "What a node program awaits, once; ``await`` returns its result.",
      py::custom_type_setup(set_slots))
      .def("result", &Operation::take, "Return what ``await`` returns, after it.");
  py::class_<Task, std::shared_ptr<Task>>(
      module, "Task", "A coroutine that a node runs beside others; `Node.spawn` starts one.")
      .def("__await__", [](const std::shared_ptr<Task>& self) { return make<Join>(self); })
      .def_property_readonly("name", &Task::name, "Name of the coroutine's function.")
      .def_property_readonly("done", &Task::is_finished, "Whether the task has ended.")
      .def("cancel", &Task::cancel,
           "End the task's await, or its next one, with `pyrdma.Cancelled`.");
  py::class_<NodeEvent, std::shared_ptr<NodeEvent>>(
      module, "Event", "Tasks of a node wait for it until another task of the node sets it.")
      .def_property_readonly("is_set", &NodeEvent::is_set, "Whether it is set.")
      .def("set", &NodeEvent::set, "Let all waits end.")
      .def("clear", &NodeEvent::clear, "Let later waits wait again.")
      .def(
          "wait",
          [](const std::shared_ptr<NodeEvent>& self, const py::object& timeout) {
            return make<EventWait>(self, timeout_of(timeout));
          },
          py::arg("timeout_s") = py::none(),
          "Await it; the result is False if `timeout_s` has passed first.");
}

// ---- messages ----

void bind_messages(py::module_& module) {
  py::class_<PyMessage>(module, "Request", "A message that an `Inbox` has got.")
      .def_property_readonly(
          "data", [](const PyMessage& self) { return py::bytes(self.request.data); },
          "The bytes that the sender has given.")
      .def_property_readonly(
          "source", [](const PyMessage& self) { return self.request.source; },
          "Node that has sent it.")
      .def_property_readonly(
          "wants_reply", [](const PyMessage& self) { return self.request.id != 0; },
          "Whether the sender waits for a reply: `Peer.call`, not `Peer.send`.")
      .def(
          "reply",
          [](const PyMessage& self, const py::object& data) {
            return make<Reply>(self, bytes_of("data", data));
          },
          py::arg("data") = py::bytes(),
          "Await it to answer with up to the inbox's `max_bytes`.\n"
          "\n"
          "A sender that has ended gets nothing.");
  py::class_<PyInbox, std::shared_ptr<PyInbox>>(
      module, "Inbox",
      "Requests to a service of a node.\n"
      "\n"
      "``async for request in inbox`` takes one after another until the program ends.")
      .def("__aiter__", [](const std::shared_ptr<PyInbox>& self) { return self; })
      .def(
          "__anext__",
          [](const std::shared_ptr<PyInbox>& self) { return make<Next>(self, std::nullopt, true); })
      .def(
          "receive",
          [](const std::shared_ptr<PyInbox>& self, const py::object& timeout) {
            return make<Next>(self, timeout_of(timeout), false);
          },
          py::arg("timeout_s") = py::none(),
          "Await the next request; the result is None if `timeout_s` has passed first.");
  using CallTimeout = Arg<"timeout_s", double, 0, 1'000'000'000>;
  py::class_<PyPeer, std::shared_ptr<PyPeer>>(
      module, "Peer",
      "A connection to the inbox of a node. Up to 16 calls of several tasks may be under way.")
      .def(
          "call",
          [](const std::shared_ptr<PyPeer>& self, const py::object& data,
             const CallTimeout& timeout) {
            return make<Call>(self, bytes_of("data", data), duration_of(timeout.value, "timeout_s"),
                              true);
          },
          py::arg("data") = py::bytes(), py::arg("timeout_s") = 1.0,
          "Await the reply, bytes.\n"
          "\n"
          "Raises Timeout after `timeout_s`, and Unavailable when the connection has failed; the\n"
          "request may have been served in both cases.")
      .def(
          "send",
          [](const std::shared_ptr<PyPeer>& self, const py::object& data,
             const CallTimeout& timeout) {
            return make<Call>(self, bytes_of("data", data), duration_of(timeout.value, "timeout_s"),
                              false);
          },
          py::arg("data") = py::bytes(), py::arg("timeout_s") = 1.0,
          "Await that the message is on its way; the receiver does not reply.");
}

// ---- functions ----

/// Returns the operation of a method that says how it waits: `__pyrdma_steps__`, a function that
/// returns an operation, or a coroutine of several (pyrdma.systems.operation). Null for other
/// functions.
py::object operation_of(const NodePtr& node, const py::object& function, const py::args& arguments,
                        const py::kwargs& keywords) {
  if (!node->program().simulated() || !PyMethod_Check(function.ptr())) return {};
  const py::handle method = PyMethod_GET_FUNCTION(function.ptr());
  static PyObject* const name = PyUnicode_InternFromString("__pyrdma_steps__");
  const auto steps = py::reinterpret_steal<py::object>(PyObject_GetAttr(method.ptr(), name));
  if (!steps) {
    PyErr_Clear();
    return {};
  }
  const AwaitedCalls awaited(*node);
  // For operations of microseconds, pybind11's call with packs of arguments takes too long.
  py::tuple given(1 + arguments.size());
  given[0] = py::handle(PyMethod_GET_SELF(function.ptr()));
  for (std::size_t i = 0; i < arguments.size(); ++i) given[i + 1] = arguments[i];
  PyObject* const named = keywords.empty() ? nullptr : keywords.ptr();
  auto made = py::reinterpret_steal<py::object>(PyObject_Call(steps.ptr(), given.ptr(), named));
  if (!made) throw py::error_already_set();
  if (PyCoro_CheckExact(made.ptr()) != 0) return py::cast(make<Steps>(node, std::move(made)));
  if (!py::isinstance<Operation>(made))
    refuse("function", function, "a method whose __pyrdma_steps__ return what a task awaits");
  return made;
}

// ---- nodes ----

py::object random_of(const NodePtr& self) {
  self->program();
  if (!self->random)
    self->random = py::module_::import("random").attr("Random")(self->env().rng("node program")());
  return self->random;
}

void record(const NodePtr& self, const py::object& name,
            const Arg<"latency_ns", Time, 0, measure::Histogram::kHighest>& latency) {
  self->program().recorder(self->node()).histogram(name_of("name", name)).record(latency);
}

void count(const NodePtr& self, const py::object& name, const Arg<"n", double, 0, 1e18>& n,
           const py::object& unit) {
  self->program().count(self->node(), name_of("name", name), name_of("unit", unit), n);
}

void bind_node(py::module_& module) {
  using Depth = Arg<"depth", std::uint32_t, 1, runtime::kMaxInboxDepth>;
  using MaxBytes = Arg<"max_bytes", std::uint32_t, 1, runtime::kMaxMessageBytes>;
  using ConnectTimeout = Arg<"timeout_s", double, 0, 1'000'000'000>;
  py::class_<NodeRun, NodePtr>(
      module, "Node", "The node that a program runs on, the first argument of its function.")
      .def_property_readonly("id", &NodeRun::node, "Number of the node, from 0.")
      .def_property_readonly(
          "nodes", [](const NodeRun& self) { return self.env().nodes(); },
          "Number of nodes of the cluster.")
      .def_property_readonly(
          "incarnation", [](const NodeRun& self) { return self.env().incarnation(); },
          "How often the node has been started again after a kill.")
      .def_property_readonly(
          "device",
          [](const NodeRun& self) {
            return PyDevice{self.program().session_pointer(), self.node()};
          },
          "The node's first RDMA device, of `pyrdma.verbs`; calls that wait go through `do`.")
      .def_property_readonly("random", &random_of,
                             "A random.Random of the node; equal seeds give equal numbers.")
      .def(
          "now", [](const NodeRun& self) { return self.env().now(); },
          "Return the node's clock in ns; virtual in the simulated world.")
      .def(
          "sleep",
          [](const NodePtr&, const Seconds& s, const Nanoseconds& ns) {
            return make<Sleep>(time_of(s, ns));
          },
          py::arg("s") = 0.0, py::kw_only(), py::arg("ns") = 0,
          "Await it to let time pass, ``s`` seconds and ``ns`` nanoseconds; the CPU is free.")
      .def(
          "work",
          [](const NodePtr&, const Seconds& s, const Nanoseconds& ns) {
            return make<Work>(time_of(s, ns));
          },
          py::arg("s") = 0.0, py::kw_only(), py::arg("ns") = 0,
          "Await it to keep a CPU of the node busy; Python code itself takes no virtual time.")
      .def(
          "do",
          [](const NodePtr& self, const py::object& function, const py::args& arguments,
             const py::kwargs& keywords) {
            if (PyCallable_Check(function.ptr()) == 0)
              refuse("function", function, "a function, or another callable");
            py::object made = operation_of(self, function, arguments, keywords);
            return made ? made : py::cast(make<Do>(function, arguments, keywords));
          },
          py::arg("function"),
          "Await ``function(*args, **kwargs)``, a plain function that may wait.\n"
          "\n"
          "Such as the allocation of memory. In the simulated world the methods of systems' "
          "objects\n"
          "take a few us of real time; any other function gets an OS thread, which takes 50 us. "
          "Ctrl-C\n"
          "ends the function where it next runs Python code, so not within ``time.sleep``.")
      .def(
          "awaits",
          [](const NodePtr& self, const py::object& object) {
            return py::module_::import("pyrdma._program").attr("Awaited")(self, object);
          },
          py::arg("object"),
          "Return the object for use by this node's tasks: its methods are awaited.\n"
          "\n"
          "``await awaited.method(...)`` is ``await node.do(object.method, ...)``. A keyword\n"
          "``node`` of the method is this node by default.")
      .def("spawn", &NodeRun::spawn, py::arg("coroutine"),
           "Start a task of this node: a thread of its own, with a clock and a CPU.\n"
           "\n"
           "An error that no other task awaits ends the program.")
      .def(
          "event", [](const NodePtr& self) { return std::make_shared<NodeEvent>(self); },
          "Make an `Event` for tasks of this node.")
      .def(
          "poll",
          [](const NodePtr& self, const Arg<"queue", std::shared_ptr<PyCompletionQueue>>& queue,
             const Arg<"max", std::size_t, 1, 1 << 20>& most, const py::object& timeout,
             const Arg<"check", bool>& check) {
            if (queue.value->node() != self->node())
              throw Error(ErrorCode::kInvalidArgument, "the completion queue belongs to node " +
                                                           std::to_string(queue.value->node()) +
                                                           "; give one of node " +
                                                           std::to_string(self->node()));
            return make<Poll>(queue.value, most, timeout_of(timeout), check);
          },
          py::arg("queue"), py::arg("max") = 16, py::arg("timeout_s") = py::none(),
          py::arg("check") = true,
          "Await completions, as `CompletionQueue.poll` returns them.\n"
          "\n"
          "There are none if ``timeout_s`` has passed first.")
      .def(
          "bind",
          [](const NodePtr&, const py::object& service, const Depth& depth,
             const MaxBytes& max_bytes) {
            return make<Bind>(name_of("service", service), runtime::InboxOptions{depth, max_bytes});
          },
          py::arg("service"), py::arg("depth") = 64, py::arg("max_bytes") = 4096,
          "Await an `Inbox` for the service.\n"
          "\n"
          "Up to ``depth`` requests may wait in it, of up to ``max_bytes``.")
      .def(
          "connect",
          [](const NodePtr&, const py::object& service, const Arg<"to", NodeId>& to,
             const ConnectTimeout& timeout) {
            return make<Connect>(name_of("service", service), to,
                                 duration_of(timeout.value, "timeout_s"));
          },
          py::arg("service"), py::arg("to"), py::arg("timeout_s") = 1.0,
          "Await a `Peer`: a connection to the inbox of node ``to``, which may bind it later.")
      .def("record", &record, py::arg("name"), py::arg("latency_ns"),
           "Add a latency to the histogram ``name`` of the result.\n"
           "\n"
           "The metric ``name`` is the number of these latencies.")
      .def("count", &count, py::arg("name"), py::arg("n") = 1.0, py::arg("unit") = "count",
           "Add to the metric ``name`` of this node in the result.")
      .def("invoke", &invoke, py::arg("function"), py::arg("key") = py::none(),
           py::arg("value") = py::none(),
           "Begin an operation of the history, such as ``invoke('write', 'x', 3)``.\n"
           "\n"
           "Its `ok`, `fail` or `info` ends it.");
}

py::dict run_programs(const std::shared_ptr<Session>& session,
                      const std::map<NodeId, py::object>& functions, Time deadline_ns,
                      bool deadline_fails, Time grace_ns, const std::string& model,
                      std::int64_t run, const std::vector<NodeId>& members) {
  ProgramOptions options;
  options.functions = functions;
  options.members = members;
  options.deadline = deadline_ns;
  options.deadline_fails = deadline_fails;
  options.grace = grace_ns;
  options.model = model;
  options.name = "program/" + std::to_string(run < 0 ? session->next_run() : run);
  Program program(session, std::move(options));
  program.run();
  return to_columns(program.recorders(), {});
}

}  // namespace

void bind_program(py::module_& module) {
  py::module_ program =
      module.def_submodule("program", "Node programs; pyrdma.program is the documented interface.");
  bind_operations(program);
  bind_messages(program);
  bind_histories(program);
  bind_node(program);
  program.def("run", &run_programs, py::arg("cluster"), py::arg("functions"),
              py::arg("deadline_ns"), py::arg("deadline_fails"), py::arg("grace_ns"),
              py::arg("model") = "", py::arg("run") = -1,
              py::arg("members") = std::vector<NodeId>{},
              "Run an async function on each node that has one, and return their columns.");
}

}  // namespace pyrdma::bindings
