#include "systems/erpc/bindings/endpoints.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/per_node.h"
#include "bindings/program/waiting_method.h"
#include "systems/erpc/background_endpoint.h"

namespace pyrdma::erpc::bindings {

namespace {

namespace py = pybind11;
using pyrdma::bindings::def_waiting;
using pyrdma::bindings::make_owned;
using pyrdma::bindings::PerNode;
using Endpoints = PerNode<BackgroundEndpoint>;

/// Endpoints of workloads have the numbers of their threads, which are lower.
constexpr std::uint32_t kNumber = 64;

/// Runs `work(endpoint)`. Calls of several Python threads go on at once.
template <class Work>
auto on(Endpoints& self, NodeId node, Work&& work) {
  return self.session().call([&] { return work(self.at(node)); });
}

std::shared_ptr<Endpoints> make_endpoints(std::shared_ptr<pyrdma::bindings::Session> session,
                                          int preset, std::uint32_t workers) {
  Options options = Options::of(static_cast<Preset>(preset));
  options.name = "python/" + std::to_string(session->next_run());
  options.workers = workers;
  const auto make = [options](Env& env) {
    return std::make_unique<BackgroundEndpoint>(env, options, kNumber);
  };
  return make_owned<Endpoints>(std::move(session), make, -1);
}

Handler native_handler(const std::string& kind, std::uint64_t value) {
  if (kind == "sized") {
    return [value](RequestHandle& handle) {
      std::ranges::fill(handle.response(static_cast<std::uint32_t>(value)), std::byte{0});
      handle.respond();
    };
  }
  const Time time = kind == "spin" ? static_cast<Time>(value) : 0;
  return [time](RequestHandle& handle) {
    Env& env = handle.endpoint().env();
    if (time != 0) env.work(time);
    env.now();  // in virtual time the node's other threads go on until then
    const auto request = handle.request();
    std::ranges::copy(request, handle.response(static_cast<std::uint32_t>(request.size())).begin());
    handle.respond();
  };
}

/// Calls a Python function with the request; its bytes are the response. An exception goes to the
/// client.
Handler python_handler(py::function function) {
  const std::shared_ptr<py::function> held(new py::function(std::move(function)),
                                           [](py::function* last) {
                                             const py::gil_scoped_acquire gil;
                                             delete last;
                                           });
  return [held](RequestHandle& handle) {
    std::string reply;
    {
      const py::gil_scoped_acquire gil;
      try {
        const auto request = handle.request();
        const py::object found =
            (*held)(py::bytes(reinterpret_cast<const char*>(request.data()), request.size()));
        if (!py::isinstance<py::bytes>(found)) {
          throw Error(ErrorCode::kInvalidArgument,
                      "the handler returned " + py::repr(py::type::of(found)).cast<std::string>() +
                          "; a handler returns bytes");
        }
        reply = found.cast<std::string>();
      } catch (const py::error_already_set& error) {
        throw Error(ErrorCode::kInternal, error.what());
      }
    }
    const auto response = handle.response(static_cast<std::uint32_t>(reply.size()));
    std::ranges::copy(std::as_bytes(std::span(reply)), response.begin());
    handle.respond();
  };
}

/// Returns (outcome, whether the handler may have run, bytes) of each request.
py::list rows_of(const std::vector<BackgroundEndpoint::Reply>& replies) {
  py::list found;
  for (const BackgroundEndpoint::Reply& reply : replies) {
    const py::bytes data(reinterpret_cast<const char*>(reply.data.data()), reply.data.size());
    if (reply.has_ended)
      found.append(py::make_tuple(to_string(reply.outcome), may_have_run(reply.outcome), data));
    else
      found.append(py::make_tuple("no answer", true, data));
  }
  return found;
}

}  // namespace

void bind_endpoints(py::module_& module) {
  py::class_<Endpoints, std::shared_ptr<Endpoints>> endpoints(module, "Endpoints");
  endpoints.def(py::init(&make_endpoints))
      .def("serve",
           [](Endpoints& self, NodeId node, std::uint8_t type, const std::string& kind,
              std::uint64_t value, bool in_worker) {
             on(self, node, [&](BackgroundEndpoint& endpoint) {
               endpoint.register_handler(type, native_handler(kind, value),
                                         in_worker ? RunIn::kWorker : RunIn::kDispatch);
             });
           })
      .def("serve_python", [](Endpoints& self, NodeId node, std::uint8_t type,
                              py::function function) {
        if (self.session().simulated()) {
          throw Error(ErrorCode::kUnavailable,
                      "serve: a Python function takes no virtual time, so it serves nothing in "
                      "the simulator; serve Echo, Sized or Spin there, or open the cluster with "
                      "Cluster.local(nodes, fabric='shm', mode='thread')");
        }
        Handler handler = python_handler(std::move(function));
        on(self, node, [&](BackgroundEndpoint& endpoint) {
          endpoint.register_handler(type, std::move(handler), RunIn::kWorker);
        });
      });
  def_waiting(endpoints, "connect", [](Endpoints& self, NodeId node, NodeId to, double timeout_s) {
    return on(self, node, [&](BackgroundEndpoint& endpoint) {
      return endpoint.connect({to, kNumber}, static_cast<Time>(timeout_s * 1e9));
    });
  });
  def_waiting(endpoints, "disconnect", [](Endpoints& self, NodeId node, SessionId session) {
    on(self, node, [&](BackgroundEndpoint& endpoint) { endpoint.disconnect(session); });
  });
  def_waiting(endpoints, "why_lost", [](Endpoints& self, NodeId node, SessionId session) {
    return on(self, node, [&](BackgroundEndpoint& endpoint) { return endpoint.why_lost(session); });
  });
  def_waiting(
      endpoints, "call",
      [](Endpoints& self, NodeId node, SessionId session, std::uint8_t type,
         const std::vector<std::string>& requests, std::uint32_t most, double timeout_s) {
        return on(self, node, [&](BackgroundEndpoint& endpoint) {
          return endpoint.call(session, type, requests, most, static_cast<Time>(timeout_s * 1e9));
        });
      },
      &rows_of);
}

}  // namespace pyrdma::erpc::bindings
