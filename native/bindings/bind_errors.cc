// The only place where native exceptions become Python exceptions.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/argument.h"
#include "bindings/bind.h"
#include "bindings/errors.h"
#include "bindings/program/operation.h"

namespace pyrdma::bindings {

namespace py = pybind11;

namespace {

const char* hint(fabric::Status status) {
  switch (status) {
    case fabric::Status::kLocalLength:
      return "the message does not fit the receive buffer, or is longer than the transport carries";
    case fabric::Status::kLocalProtection:
      return "the lkey and the local address must lie in one open memory region, writable for "
             "reads and receives";
    case fabric::Status::kFlushed:
      return "the queue pair had failed before; read its first error, reset it and connect "
             "again";
    case fabric::Status::kRemoteInvalidRequest:
      return "the peer's queue pair does not take this operation or alignment";
    case fabric::Status::kRemoteAccess:
      return "the rkey, the remote address and the length must lie in an open region of the peer, "
             "and the peer must have granted the access: allocate(size, access=LOCAL_WRITE | "
             "REMOTE_WRITE for writes, REMOTE_READ for reads, REMOTE_ATOMIC for atomics)";
    case fabric::Status::kRetryExceeded:
      return "the peer did not answer: its node has ended, or its queue pair was destroyed. Python "
             "destroys a queue pair when no variable refers to it any more, so keep the peer's "
             "object as long as the connection";
    case fabric::Status::kRnrRetryExceeded:
      return "the peer posted no receive";
    default:
      return "see the completion's vendor error";
  }
}

const char* class_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "InvalidArgument";
    case ErrorCode::kUnavailable:
      return "Unavailable";
    case ErrorCode::kExhausted:
      return "Exhausted";
    case ErrorCode::kTimeout:
      return "Timeout";
    case ErrorCode::kInternal:
      return "Error";
  }
  return "Error";
}

void raise(const char* name, const Error& thrown) {
  const py::object error = py::module_::import("pyrdma.errors").attr(name)(thrown.what());
  error.attr("definite") = thrown.definite();
  error.attr("nodes") = py::tuple(py::cast(thrown.nodes()));
  PyErr_SetObject(py::type::handle_of(error).ptr(), error.ptr());
}

void raise(const CompletionFailed& failed) {
  const fabric::Completion& completion = failed.completion;
  const py::object error =
      py::module_::import("pyrdma.errors").attr("CompletionError")(failed.what());
  error.attr("status") = fabric::to_string(completion.status);
  error.attr("wr_id") = completion.wr_id;
  error.attr("qp_num") = completion.qp_num;
  error.attr("definite") = failed.definite();
  PyErr_SetObject(py::type::handle_of(error).ptr(), error.ptr());
}

}  // namespace

CompletionFailed::CompletionFailed(const fabric::Completion& failed)
    : Error(ErrorCode::kInternal,
            "request " + std::to_string(failed.wr_id) + " on queue pair " +
                std::to_string(failed.qp_num) + " failed: " + fabric::to_string(failed.status) +
                " (" + hint(failed.status) + ')',
            failed.status == fabric::Status::kFlushed ||
                failed.status == fabric::Status::kLocalProtection),
      completion(failed) {}

void refuse(const char* name, py::handle value, const std::string& takes) {
  const py::object shown = py::module_::import("pyrdma.arguments").attr("shown")(value);
  throw Error(ErrorCode::kInvalidArgument,
              std::string(name) + " is " + shown.cast<std::string>() + "; give " + takes);
}

void bind_errors(py::module_& /*module*/) {
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const CompletionFailed& error) {
      raise(error);
    } catch (const Cancelled&) {
      PyErr_SetNone(py::module_::import("pyrdma.errors").attr("Cancelled").ptr());
    } catch (const StillExported& error) {
      PyErr_SetString(PyExc_BufferError, error.what());
    } catch (const Error& error) {
      raise(class_of(error.code()), error);
    }
  });
}

}  // namespace pyrdma::bindings
