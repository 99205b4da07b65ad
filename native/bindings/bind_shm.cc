#include <pybind11/stl.h>

#include <numeric>

#include "bindings/bind.h"
#include "bindings/faults.h"
#include "bindings/session.h"
#include "fabric/shm/cluster.h"

namespace pyrdma::bindings {

namespace {

namespace shm = fabric::shm;

/// All nodes as threads of this process.
class ShmWorld final : public World {
 public:
  explicit ShmWorld(const shm::ShmOptions& options) : cluster_(options) {}
  const char* fabric() const override { return "shm"; }
  NodeId nodes() const override { return cluster_.nodes(); }
  std::vector<NodeId> local_nodes() const override {
    std::vector<NodeId> all(cluster_.nodes());
    std::iota(all.begin(), all.end(), NodeId{0});
    return all;
  }
  Env& env(NodeId node) override { return cluster_.env(node); }
  void run(FunctionRef<void(Env&)> per_node) override { cluster_.run(per_node); }
  void request_stop() override { cluster_.request_stop(); }
  void kill(NodeId node) override { cluster_.kill(node); }
  bool simulated() const override { return false; }
  FaultCounters fault_counters() const {
    FaultCounters sum;
    for (NodeId node = 0; node < cluster_.nodes(); ++node) {
      const FaultCounters& counters = cluster_.fault_counters(node);
      for (std::size_t i = 0; i < kFaults; ++i) {
        sum.fired[i] += counters.fired[i];
        sum.reached[i] += counters.reached[i];
      }
    }
    return sum;
  }

 private:
  shm::ShmCluster cluster_;
};

/// This process is one node.
class NodeWorld final : public World {
 public:
  NodeWorld(const std::string& session, NodeId node, std::uint32_t nodes, const std::string& token,
            const FaultOptions& faults)
      : node_(node), nodes_(nodes), native_(session, node, nodes, token, faults) {}
  const char* fabric() const override { return "shm"; }
  NodeId nodes() const override { return nodes_; }
  std::vector<NodeId> local_nodes() const override { return {node_}; }
  Env& env(NodeId /*node*/) override { return native_.env(); }
  void run(FunctionRef<void(Env&)> per_node) override { per_node(native_.env()); }
  void request_stop() override { native_.request_stop(); }
  void kill(NodeId /*node*/) override {
    throw Error(ErrorCode::kInvalidArgument,
                "a node process is killed from outside: end the process");
  }
  bool simulated() const override { return false; }
  const FaultCounters& fault_counters() const { return native_.fault_counters(); }

 private:
  NodeId node_, nodes_;
  shm::ShmNode native_;
};

template <class Kind>
class FaultySession final : public Session {
 public:
  using Session::Session;
  FaultCounters fault_counters() {
    return call([this] { return static_cast<Kind&>(world()).fault_counters(); });
  }
};
using ShmClusterSession = FaultySession<ShmWorld>;
using ShmNodeSession = FaultySession<NodeWorld>;
using FaultValues = std::map<std::string, double>;

}  // namespace

void bind_shm(py::module_& module) {
  py::module_ shm_module =
      module.def_submodule("shm", "Clusters over memory shared on this machine.");
  shm_module.attr("MAX_NODES") = shm::kMaxNodes;
  py::class_<ShmClusterSession, Session, std::shared_ptr<ShmClusterSession>>(
      shm_module, "Cluster", "All nodes as threads of this process.")
      .def(py::init([](std::uint32_t nodes, std::uint64_t seed, const FaultValues& faults) {
             const py::gil_scoped_release release;
             return std::make_shared<ShmClusterSession>(std::make_unique<ShmWorld>(
                 shm::ShmOptions{nodes, seed, FaultOptions::from_values(faults)}));
           }),
           py::arg("nodes"), py::arg("seed") = 1, py::arg("faults") = FaultValues{})
      .def(
          "fault_counters", [](ShmClusterSession& s) { return fault_dict(s.fault_counters()); },
          "How often each fault fired, and had its effect. Not while a run is on.");
  py::class_<ShmNodeSession, Session, std::shared_ptr<ShmNodeSession>>(
      shm_module, "Node", "This process as one node of a session.")
      .def(py::init([](const std::string& session, NodeId node, std::uint32_t nodes,
                       const std::string& token, const FaultValues& faults) {
             const py::gil_scoped_release release;
             return std::make_shared<ShmNodeSession>(std::make_unique<NodeWorld>(
                 session, node, nodes, token, FaultOptions::from_values(faults)));
           }),
           py::arg("session"), py::arg("node"), py::arg("nodes"), py::arg("token"),
           py::arg("faults") = FaultValues{})
      .def(
          "fault_counters", [](ShmNodeSession& s) { return fault_dict(s.fault_counters()); },
          "How often each fault fired, and had its effect. Not while a run is on.");
  py::class_<shm::Session>(shm_module, "Session",
                           "The controller's end of a run whose nodes are processes.")
      .def(py::init([](std::uint32_t nodes, std::uint64_t seed) {
             return shm::create_session(nodes, seed);
           }),
           py::arg("nodes"), py::arg("seed") = 1)
      .def_property_readonly("name", &shm::Session::name)
      .def_property_readonly("token", &shm::Session::token)
      .def_property_readonly("nodes", &shm::Session::nodes)
      .def_property_readonly("dead_nodes", &shm::Session::dead_nodes,
                             "Nodes whose process ended without leaving.")
      .def_property_readonly("now_ns", &shm::Session::now, "Time of the run.")
      .def("incarnation", &shm::Session::incarnation, py::arg("node"),
           "How often the node has been taken over from an ended process.")
      .def("end", &shm::Session::end, py::arg("node"),
           "The node's process has ended: another may take its place.")
      .def_property_readonly("all_attached", &shm::Session::all_attached)
      .def("request_stop", &shm::Session::request_stop);
}

}  // namespace pyrdma::bindings
