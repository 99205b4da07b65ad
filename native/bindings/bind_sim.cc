#include <pybind11/stl.h>

#include "base/quote.h"
#include "bindings/bind.h"
#include "bindings/faults.h"
#include "bindings/worlds.h"
#include "fabric/sim/cluster.h"

namespace pyrdma::bindings {

namespace {

namespace sim = fabric::sim;
using namespace py::literals;

class SimWorld final : public ClusterWorld<sim::SimCluster> {
 public:
  explicit SimWorld(sim::SimOptions options) : ClusterWorld("sim", true, std::move(options)) {}
  bool is_up(NodeId node) const override { return cluster.is_up(node); }
  Time moment(NodeId /*node*/) override { return cluster.now(); }
  void on_interpreter_stack(FunctionRef<void()> work) override { cluster.on_caller_stack(work); }
};

class SimSession final : public Session {
 public:
  using Session::Session;
  sim::SimCluster& cluster() { return static_cast<SimWorld&>(world()).cluster; }
};

sim::MemoryModel memory_model(const std::string& name) {
  if (name == "strong") return sim::MemoryModel::strong();
  if (name == "weak") return sim::MemoryModel::weak();
  throw Error(ErrorCode::kInvalidArgument,
              "memory is " + in_quotes(name) + "; the models are 'strong' and 'weak'");
}

sim::Crash crash_named(const std::string& name) {
  if (name == "process") return sim::Crash::kProcess;
  if (name == "host") return sim::Crash::kHost;
  if (name == "battery") return sim::Crash::kHostBattery;
  throw Error(
      ErrorCode::kInvalidArgument,
      "crash is " + in_quotes(name) + "; a node can crash as 'process', 'host' or 'battery'");
}

std::shared_ptr<SimSession> make_cluster(std::uint32_t nodes,
                                         const std::map<std::string, double>& profile,
                                         std::uint64_t seed, std::uint32_t cores_per_node,
                                         const std::string& memory,
                                         const std::map<std::string, double>& faults,
                                         std::uint32_t devices_per_node, bool variance) {
  if (nodes == 0 || nodes > 65536)
    throw Error(ErrorCode::kInvalidArgument,
                "nodes is " + std::to_string(nodes) + "; give 1 to 65536");
  if (cores_per_node == 0)
    throw Error(ErrorCode::kInvalidArgument, "cores_per_node is 0; give at least 1");
  const py::gil_scoped_release release;
  sim::SimOptions options;
  options.nodes = nodes;
  options.cores_per_node = cores_per_node;
  options.devices_per_node = devices_per_node;
  options.variance = variance;
  options.profile = sim::SimProfile::from_values(profile);
  options.seed = seed;
  options.memory = memory_model(memory);
  options.faults = faults_of_cluster(faults);
  return std::make_shared<SimSession>(std::make_unique<SimWorld>(std::move(options)));
}

py::list parameters() {
  py::list all;
  for (const sim::ParameterInfo& info : sim::SimProfile::parameters()) {
    all.append(py::dict("name"_a = std::string(info.name), "unit"_a = std::string(info.unit),
                        "min"_a = info.min, "max"_a = info.max,
                        "meaning"_a = std::string(info.meaning)));
  }
  return all;
}

py::list faults() {
  const char* draws[] = {"draw", "window", "run", "memory"};
  py::list all;
  for (std::size_t i = 0; i < kFaults; ++i) {
    const FaultInfo& info = fault_info(static_cast<Fault>(i));
    all.append(py::dict("key"_a = std::string(info.key), "number"_a = std::string(info.number),
                        "draw"_a = draws[static_cast<int>(info.draw)], "rate"_a = info.rate,
                        "min_ns"_a = info.min, "max_ns"_a = info.max,
                        "meaning"_a = std::string(info.meaning)));
  }
  return all;
}

std::map<std::string, double> random_faults(std::uint64_t seed, double probability) {
  if (!(probability >= 0 && probability <= 1))
    throw Error(ErrorCode::kInvalidArgument,
                "probability is " + std::to_string(probability) + "; allowed is 0 to 1");
  const FaultOptions drawn = FaultOptions::draw(seed, probability);
  std::map<std::string, double> rates;
  for (std::size_t i = 0; i < kFaults; ++i)
    if (drawn.settings[i].rate > 0)
      rates[std::string(fault_info(static_cast<Fault>(i)).key) + ".rate"] = drawn.settings[i].rate;
  return rates;
}

py::dict fault_counters(SimSession& self) {
  return fault_dict(self.call([&] { return self.cluster().fault_counters(); }));
}

py::dict counters(SimSession& self, NodeId node, std::uint32_t device) {
  const sim::NicCounters c = self.call([&] {
    const std::uint32_t devices = self.env(node).devices();
    if (device >= devices)
      throw Error(ErrorCode::kInvalidArgument, "device is " + std::to_string(device) +
                                                   "; a node has devices 0 to " +
                                                   std::to_string(devices - 1));
    return self.cluster().counters(node, device);
  });
  return py::dict("requests"_a = c.requests, "packets"_a = c.packets, "wire_bytes"_a = c.wire_bytes,
                  "dropped"_a = c.dropped, "retransmitted"_a = c.retransmitted,
                  "ecn_marked"_a = c.ecn_marked, "paused"_a = c.paused,
                  "cache_hits"_a = c.cache_hits, "cache_misses"_a = c.cache_misses,
                  "request_misses"_a = c.request_misses, "receive_fetches"_a = c.receive_fetches,
                  "receive_waits"_a = c.receive_waits, "doorbells"_a = c.doorbells,
                  "payload_dma_reads"_a = c.payload_dma_reads, "rnr_naks"_a = c.rnr_naks);
}

py::dict network_counters(SimSession& self) {
  const sim::NetworkCounters c = self.call([&] { return self.cluster().network_counters(); });
  const auto tier = [](const sim::QueueCounters& queues) {
    return py::dict("dropped"_a = queues.dropped, "ecn_marked"_a = queues.ecn_marked,
                    "paused"_a = queues.paused);
  };
  return py::dict("node"_a = tier(c.node), "uplink"_a = tier(c.uplink), "spine"_a = tier(c.spine));
}

void write_timeline(const Timeline& timeline, const py::function& write) {
  timeline.write(
      [&write](std::string_view piece) { write(py::bytes(piece.data(), piece.size())); });
}

}  // namespace

void bind_sim(py::module_& module) {
  py::module_ sim_module = module.def_submodule("sim", "Clusters in virtual time.");
  py::class_<Timeline, std::shared_ptr<Timeline>>(sim_module, "Timeline", "A recorded timeline.")
      .def_property_readonly("events", &Timeline::events, "Number of recorded events.")
      .def_property_readonly("left_out", &Timeline::left_out,
                             "Number of events of the window beyond the limit.")
      .def_property_readonly("complete_until_ps", &Timeline::complete_until,
                             "Time of the first event that was left out.")
      .def("write", &write_timeline, py::arg("write"),
           "Call write(bytes) for each piece of the file.");
  sim_module.def("parameters", &parameters,
                 "Every parameter of a profile: name, unit, min, max, meaning.");
  sim_module.def("faults", &faults,
                 "Every fault: key, number, how it is drawn, rate and duration when on, meaning.");
  sim_module.def(
      "random_faults", &random_faults, py::arg("seed"), py::arg("probability") = 0.25,
      "Draw the random subset of faults for a seed; return the rates of the drawn faults.");
  py::class_<SimSession, Session, std::shared_ptr<SimSession>>(sim_module, "Cluster",
                                                               "A simulated cluster.")
      .def(py::init(&make_cluster), py::arg("nodes"), py::arg("profile"), py::arg("seed") = 1,
           py::arg("cores_per_node") = 16, py::arg("memory") = "strong",
           py::arg("faults") = std::map<std::string, double>{}, py::arg("devices_per_node") = 1,
           py::arg("variance") = false)
      .def_property_readonly(
          "now_ns", [](SimSession& s) { return s.call([&] { return s.cluster().now(); }); },
          "Virtual time.")
      .def_property_readonly(
          "events", [](SimSession& s) { return s.call([&] { return s.cluster().events(); }); },
          "Number of events so far.")
      .def_property_readonly(
          "fingerprint",
          [](SimSession& s) { return s.call([&] { return s.cluster().fingerprint(); }); },
          "Hash of the times and order of all events; equal for equal runs.")
      .def(
          "start_timeline",
          [](SimSession& s, Picos from, Picos to, std::uint64_t most_events) {
            s.call([&] { s.cluster().start_timeline({from, to, most_events}); });
          },
          py::arg("from_ps"), py::arg("to_ps"), py::arg("most_events"),
          "Record a timeline from now on.")
      .def(
          "stop_timeline",
          [](SimSession& s) { return s.call([&] { return s.cluster().stop_timeline(); }); },
          "End the recording and return the timeline.")
      .def("counters", &counters, py::arg("node"), py::arg("device") = 0,
           "Counters of a NIC of the node.")
      .def("network_counters", &network_counters, "Counters of the switches' queues by tier.")
      .def("fault_counters", &fault_counters, "How often each fault fired and had its effect.")
      .def(
          "crash",
          [](SimSession& s, NodeId node, const std::string& how, Time after) {
            s.call([&] {
              if (after == 0)
                s.cluster().kill(node, crash_named(how));
              else
                s.cluster().kill_later(node, after, crash_named(how));
            });
          },
          py::arg("node"), py::arg("how"), py::arg("after_ns") = 0,
          "End a node: 'process', 'host' or 'battery'; now, or later in virtual time.")
      .def(
          "restart",
          [](SimSession& s, NodeId node, Time after) {
            s.call([&] {
              if (after == 0)
                s.cluster().restart(node);
              else
                s.cluster().restart_later(node, after);
            });
          },
          py::arg("node"), py::arg("after_ns") = 0,
          "Start a crashed node again; now, or later in virtual time.")
      .def(
          "pause",
          [](SimSession& s, NodeId node, Time ns) { s.call([&] { s.cluster().pause(node, ns); }); },
          py::arg("node"), py::arg("duration_ns"), "Stop a node's threads; its NIC continues.")
      .def(
          "slow_down",
          [](SimSession& s, NodeId node, std::uint32_t shift, Time ns) {
            s.call([&] { s.cluster().slow_down(node, shift, ns); });
          },
          py::arg("node"), py::arg("shift"), py::arg("duration_ns"),
          "Make a node 2^shift times slower.")
      .def(
          "fail_device",
          [](SimSession& s, NodeId node, std::uint32_t device, Time ns) {
            s.call([&] { s.cluster().fail_device(node, device, ns); });
          },
          py::arg("node"), py::arg("device"), py::arg("duration_ns"),
          "Make one NIC fail; the node and its other NICs go on.")
      .def(
          "block",
          [](SimSession& s, NodeId from, NodeId to, Time ns) {
            s.call([&] { s.cluster().block(from, to, ns); });
          },
          py::arg("source"), py::arg("target"), py::arg("duration_ns"),
          "Lose the packets from one node to another.")
      .def(
          "heal", [](SimSession& s) { s.call([&] { s.cluster().heal(); }); },
          "End all faults now.");
}

}  // namespace pyrdma::bindings
