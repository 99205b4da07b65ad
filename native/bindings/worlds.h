// The worlds that Python opens, alike for every fabric: a whole cluster in this process, one node
// of a cluster of processes, and the controller's end of such a cluster.
#pragma once
#include <pybind11/stl.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "bindings/session.h"

namespace pyrdma::bindings {

/// All nodes as threads of this process.
template <class Cluster>
class ClusterWorld : public World {
 public:
  template <class Options>
  ClusterWorld(const char* fabric, bool simulated, Options&& options)
      : cluster(std::forward<Options>(options)), fabric_(fabric), simulated_(simulated) {}
  const char* fabric() const override { return fabric_; }
  NodeId nodes() const override { return cluster.nodes(); }
  std::vector<NodeId> local_nodes() const override {
    std::vector<NodeId> all(cluster.nodes());
    std::iota(all.begin(), all.end(), NodeId{0});
    return all;
  }
  Env& env(NodeId node) override { return cluster.env(node); }
  void run(FunctionRef<void(Env&)> per_node) override { cluster.run(per_node); }
  void request_stop() override { cluster.request_stop(); }
  void forget_stop() override { cluster.forget_stop(); }
  void kill(NodeId node) override { cluster.kill(node); }
  bool simulated() const override { return simulated_; }

  Cluster cluster;

 private:
  const char* fabric_;
  bool simulated_;
};

/// This process is one node.
template <class Node>
class NodeWorld : public World {
 public:
  template <class... Options>
  NodeWorld(const char* fabric, const std::string& session, NodeId node, std::uint32_t nodes,
            const std::string& token, const Options&... options)
      : native(session, node, nodes, token, options...),
        fabric_(fabric),
        node_(node),
        nodes_(nodes) {}
  const char* fabric() const override { return fabric_; }
  NodeId nodes() const override { return nodes_; }
  std::vector<NodeId> local_nodes() const override { return {node_}; }
  Env& env(NodeId /*node*/) override { return native.env(); }
  void run(FunctionRef<void(Env&)> per_node) override { per_node(native.env()); }
  void request_stop() override { native.request_stop(); }
  void kill(NodeId /*node*/) override {
    throw Error(ErrorCode::kInvalidArgument,
                "a process cannot kill its own node: end the process from outside");
  }
  bool simulated() const override { return false; }

  Node native;

 private:
  const char* fabric_;
  NodeId node_, nodes_;
};

/// Class Session of a fabric's module, without its constructor.
template <class Controller>
py::class_<Controller> bind_controller(py::module_& module) {
  return py::class_<Controller>(module, "Session",
                                "The controller's end of a run whose nodes are processes.")
      .def_property_readonly("name", &Controller::name, "Name by which the nodes find the session.")
      .def_property_readonly("token", &Controller::token, "Secret that admits a node.")
      .def_property_readonly("nodes", &Controller::nodes, "Number of nodes.")
      .def_property_readonly("dead_nodes", &Controller::dead_nodes,
                             "Nodes whose process ended without leaving the run.")
      .def_property_readonly("now_ns", &Controller::now, "Time of the run.")
      .def("incarnation", &Controller::incarnation, py::arg("node"),
           "How often another process has replaced an ended process of the node.")
      .def("end", &Controller::end, py::arg("node"),
           "Report that the node's process has ended; another process may replace it.");
}

}  // namespace pyrdma::bindings
