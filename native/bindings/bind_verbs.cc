// Bindings of clusters over real RDMA devices, and of the list of devices.
#include <pybind11/stl.h>

#include "bindings/bind.h"
#include "bindings/waiting.h"
#include "bindings/worlds.h"
#include "fabric/verbs/cluster.h"
#include "fabric/verbs/connection.h"

namespace pyrdma::bindings {

namespace {

namespace verbs = fabric::verbs;

using VerbsWorld = ClusterWorld<verbs::VerbsCluster>;
using VerbsNodeWorld = NodeWorld<verbs::VerbsNode>;

class VerbsClusterSession final : public Session {
 public:
  using Session::Session;
};

class VerbsNodeSession final : public Session {
 public:
  explicit VerbsNodeSession(std::unique_ptr<VerbsNodeWorld> world) : Session(std::move(world)) {}
  std::string choice() {
    return call([this] { return static_cast<VerbsNodeWorld&>(world()).native.choice().reason; });
  }
};

verbs::Wish wish_of(const std::string& device, int port, int gid_index,
                    const std::string& address) {
  return {device, port, gid_index, address};
}

py::dict to_dict(const verbs::Candidate& c) {
  using namespace py::literals;
  return py::dict("device"_a = c.device, "firmware"_a = c.firmware, "port"_a = c.port,
                  "active"_a = c.active, "gid_index"_a = c.gid_index,
                  "type"_a = verbs::to_string(c.type), "gid"_a = c.gid, "address"_a = c.address,
                  "interface"_a = c.interface, "login"_a = c.login, "mtu"_a = c.mtu,
                  "problem"_a = c.problem);
}

/// A connection made by librdmacm, with its queue pair.
class PyConnection {
 public:
  PyConnection(std::shared_ptr<PyQueuePair> queue_pair,
               std::unique_ptr<verbs::Connection> connection)
      : queue_pair_(std::move(queue_pair)), connection_(std::move(connection)) {}
  py::bytes private_data() const {
    const std::vector<std::byte>& data = connection_->private_data();
    return {reinterpret_cast<const char*>(data.data()), data.size()};
  }
  bool is_over() {
    return queue_pair_->session().call([this] {
      const PyQueuePair::Call call(*queue_pair_);
      queue_pair_->native();  // throws when it is closed
      return connection_->is_over();
    });
  }

 private:
  std::shared_ptr<PyQueuePair> queue_pair_;
  std::unique_ptr<verbs::Connection> connection_;
};

/// Runs `make(env, queue pair, private bytes, deadline)` outside the GIL.
template <class Make>
std::unique_ptr<PyConnection> connected(const std::shared_ptr<PyQueuePair>& queue_pair,
                                        const std::string& data, double timeout_s, Make&& make) {
  const Time timeout = duration_of(timeout_s, "timeout_s");
  auto connection = queue_pair->session().call([&] {
    const PyQueuePair::Call call(*queue_pair);
    Env& env = queue_pair->env();
    return make(env, queue_pair->native(), std::as_bytes(std::span(data)), env.now() + timeout);
  });
  return std::make_unique<PyConnection>(queue_pair, std::move(connection));
}

void bind_connections(py::module_& here) {
  py::class_<PyConnection>(here, "Connection", "A connection made by librdmacm.")
      .def_property_readonly("private_data", &PyConnection::private_data,
                             "The private bytes of the peer.")
      .def_property_readonly(
          "is_over", &PyConnection::is_over,
          "True if the peer has closed the connection; the queue pair is then in the error state.");
  py::class_<verbs::Listener>(here, "Listener", "Waits for connections by librdmacm.")
      .def(py::init([](const std::string& address, std::uint16_t port) {
             return verbs::listen(address, port);
           }),
           py::arg("address"), py::arg("port") = 0)
      .def_property_readonly("port", &verbs::Listener::port, "The port that it listens on.")
      .def(
          "accept",
          [](verbs::Listener& self, const std::shared_ptr<PyQueuePair>& queue_pair,
             const py::bytes& data, double timeout_s) {
            return connected(
                queue_pair, data, timeout_s,
                [&](Env& env, fabric::QueuePair& native, std::span<const std::byte> bytes,
                    Time deadline) { return self.accept(env, native, bytes, deadline); });
          },
          py::arg("queue_pair"), py::arg("private_data") = py::bytes(), py::arg("timeout_s") = 30.0,
          "Connect the next peer that asks to `queue_pair`.");
  here.def(
      "connect",
      [](const std::shared_ptr<PyQueuePair>& queue_pair, const std::string& address,
         std::uint16_t port, const py::bytes& data, double timeout_s) {
        return connected(queue_pair, data, timeout_s,
                         [&](Env& env, fabric::QueuePair& native, std::span<const std::byte> bytes,
                             Time deadline) {
                           return verbs::connect(env, native, address, port, bytes, deadline);
                         });
      },
      py::arg("queue_pair"), py::arg("address"), py::arg("port"),
      py::arg("private_data") = py::bytes(), py::arg("timeout_s") = 30.0,
      "Connect `queue_pair` to the listener at `address` and `port`.");
}

void bind_clock(py::module_& here) {
  py::class_<Clock>(here, "Clock", "The clock of this machine, which its nodes share.")
      .def(py::init(&Clock::calibrate), py::call_guard<py::gil_scoped_release>())
      .def_static("from_parts", &Clock::from_parts, py::arg("parts"),
                  "Make the clock of another process of this machine.")
      .def_property_readonly("parts", &Clock::parts, "Three numbers, for another process.")
      .def_property_readonly("now_ns", &Clock::now, "The time in ns.")
      .def("adjusted", &Clock::adjusted, py::arg("at_ns"), py::arg("offset_ns"), py::arg("drift"),
           "Return the clock on another machine's scale: t becomes t + offset + drift * (t - at).");
}

}  // namespace

void bind_verbs(py::module_& module) {
  py::module_ here = module.def_submodule("ibverbs", "Clusters over real RDMA devices.");
  bind_clock(here);
  py::class_<VerbsClusterSession, Session, std::shared_ptr<VerbsClusterSession>>(
      here, "Cluster", "All nodes as threads of this process, over one device.")
      .def(py::init([](std::uint32_t nodes, std::uint64_t seed, const std::string& device, int port,
                       int gid_index, const std::string& address) {
             const py::gil_scoped_release release;
             return std::make_shared<VerbsClusterSession>(std::make_unique<VerbsWorld>(
                 "verbs", false,
                 verbs::VerbsOptions{nodes, seed, wish_of(device, port, gid_index, address)}));
           }),
           py::arg("nodes"), py::arg("seed") = 1, py::arg("device") = "", py::arg("port") = 0,
           py::arg("gid_index") = -1, py::arg("address") = "");
  py::class_<VerbsNodeSession, Session, std::shared_ptr<VerbsNodeSession>>(
      here, "Node", "A session in which this process is one node.")
      .def(py::init([](const std::string& session, NodeId node, std::uint32_t nodes,
                       const std::string& token, const std::string& device, int port, int gid_index,
                       const std::string& address, std::optional<Clock> clock,
                       std::uint32_t neighbours) {
             const py::gil_scoped_release release;
             std::optional<verbs::Machine> machine;
             if (clock) machine = verbs::Machine{neighbours, *clock};
             return std::make_shared<VerbsNodeSession>(std::make_unique<VerbsNodeWorld>(
                 "verbs", session, node, nodes, token, wish_of(device, port, gid_index, address),
                 machine));
           }),
           py::arg("session"), py::arg("node"), py::arg("nodes"), py::arg("token"),
           py::arg("device") = "", py::arg("port") = 0, py::arg("gid_index") = -1,
           py::arg("address") = "", py::arg("clock") = py::none(), py::arg("neighbours") = 0)
      .def_property_readonly("choice", &VerbsNodeSession::choice,
                             "The device, port and GID in use, and the reasons for the choice.");
  bind_controller<verbs::Session>(here).def(
      py::init([](std::uint32_t nodes, std::uint64_t seed, const std::string& address,
                  std::optional<Clock> clock) {
        verbs::SessionOptions options{nodes, seed, address};
        options.clock = clock;
        return std::make_unique<verbs::Session>(options);
      }),
      py::arg("nodes"), py::arg("seed") = 1, py::arg("address") = "127.0.0.1",
      py::arg("clock") = py::none());
  bind_connections(here);
  here.def("has_provider", &verbs::has_provider,
           "Return whether this build has the provider for real NICs.");
  here.def("problem", &verbs::provider_problem,
           "Why build or libraries prevent opening a device; empty if they do not.");
  here.def(
      "candidates",
      [] {
        std::vector<verbs::Candidate> found;
        {
          const py::gil_scoped_release release;
          found = verbs::find_candidates();
        }
        py::list rows;
        for (const verbs::Candidate& candidate : found) rows.append(to_dict(candidate));
        return rows;
      },
      "Every entry of the GID tables of all devices.");
  here.def(
      "choose",
      [](const std::string& device, int port, int gid_index, const std::string& address) {
        verbs::Choice choice;
        {
          const py::gil_scoped_release release;
          choice =
              verbs::choose(verbs::find_candidates(), wish_of(device, port, gid_index, address));
        }
        using namespace py::literals;
        return py::dict("device"_a = choice.device, "port"_a = choice.port,
                        "gid_index"_a = choice.gid_index, "address"_a = choice.address,
                        "reason"_a = choice.reason);
      },
      py::arg("device") = "", py::arg("port") = 0, py::arg("gid_index") = -1,
      py::arg("address") = "",
      "Return the device, port and GID that a node with these wishes would use.");
}

}  // namespace pyrdma::bindings
