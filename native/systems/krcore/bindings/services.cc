#include "systems/krcore/bindings/services.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/per_node.h"
#include "systems/krcore/bindings/script_app.h"
#include "systems/krcore/ring/daemon.h"

namespace pyrdma::krcore::bindings {

namespace {

using pyrdma::bindings::make_owned;
using pyrdma::bindings::PerNode;

class ServiceNode {
 public:
  ServiceNode(Env& env, const Options& options) : service(env, options) {}
  ScriptApp<App>& app(std::uint64_t number) {
    const auto found = apps.find(number);
    if (found == apps.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "krcore: the application has been closed; make another one with app()");
    }
    return *found->second;
  }
  Service service;
  std::map<std::uint64_t, std::unique_ptr<ScriptApp<App>>> apps;
  std::unique_ptr<ring::Daemon> daemon;
};

using Services = PerNode<ServiceNode>;

/// Calls on the application's node.
struct OnNode {
  template <class Use>
  auto operator()(Services& services, NodeId node, std::uint64_t app, Use&& use) const {
    return services.on(node, [&](ServiceNode& each) { return use(each.app(app)); });
  }
};

std::shared_ptr<Services> make_services(std::shared_ptr<pyrdma::bindings::Session> session,
                                        const py::dict& given) {
  int policy = 1;
  bool is_public = false;
  const auto take = [&](const char* name, auto& value) {
    if (given.contains(name)) value = given[name].cast<std::remove_reference_t<decltype(value)>>();
  };
  take("public", is_public);
  Options options = is_public ? Options::public_code() : Options::paper();
  options.name = "krcore/python/" + std::to_string(session->next_run());
  take("meta_servers", options.meta_servers);
  take("cores", options.cores);
  take("dc_queue_pairs", options.dc_queue_pairs);
  take("rc_queue_pairs", options.rc_queue_pairs);
  if (given.contains("rc_policy")) {
    take("rc_policy", policy);
    options.rc_policy = static_cast<RcPolicy>(policy);
  }
  take("sample_interval_ns", options.sample_interval);
  take("frequent_requests", options.frequent_requests);
  take("message_bytes", options.message_bytes);
  take("zero_copy_above", options.zero_copy_above);
  take("arena_bytes", options.arena_bytes);
  take("regions", options.regions);
  take("lease_ns", options.lease);
  take("app_queues", options.app_queues);
  take("app_bytes", options.app_bytes);
  return make_owned<Services>(
      std::move(session),
      [options](Env& env) { return std::make_unique<ServiceNode>(env, options); }, -1);
}

std::vector<std::pair<std::string, double>> counters_of(ServiceNode& node) {
  Service& service = node.service;
  Counters& counters = service.counters();
  const auto number = [](std::uint64_t value) { return static_cast<double>(value); };
  return {{"connects", number(counters.connects)},
          {"rc_hits", number(counters.rc_hits)},
          {"cache_hits", number(counters.cache_hits)},
          {"meta_reads", number(service.meta_reads())},
          {"region_misses", number(counters.region_misses)},
          {"transfers", number(counters.transfers)},
          {"zero_copies", number(counters.zero_copies)},
          {"refused_messages", number(counters.refused_messages)},
          {"reposted", number(counters.reposted)},
          {"rc_made", number(counters.rc_made)},
          {"rc_reclaimed", number(counters.rc_reclaimed)},
          {"queue_pairs", number(service.physical_queue_pairs())},
          {"ending_regions", number(service.regions().ending())}};
}

}  // namespace

void bind_services(py::module_& module) {
  py::class_<Services, std::shared_ptr<Services>> services(module, "Services");
  services.def(py::init(&make_services));
  const auto def = [&](const char* name, auto work) {
    pyrdma::bindings::def_waiting(services, name, work);
  };
  def("app", [](Services& self, NodeId node, std::uint32_t message_bytes) {
    return self.on(node, [&](ServiceNode& each) {
      auto made = std::make_unique<ScriptApp<App>>(message_bytes, each.service);
      const std::uint64_t number = made->app.number();
      each.apps[number] = std::move(made);
      return number;
    });
  });
  def("close", [](Services& self, NodeId node, std::uint64_t app) {
    self.on(node, [&](ServiceNode& each) { each.apps.erase(app); });
  });
  def("uses_reliable", [](Services& self, NodeId node, std::uint32_t vqp) {
    return self.on(node,
                   [&](ServiceNode& each) { return each.service.uses_reliable(VqpId::of(vqp)); });
  });
  def("listen", [](Services& self, NodeId node, const std::string& folder) {
    return self.on(node, [&](ServiceNode& each) {
      if (each.daemon == nullptr)
        each.daemon = std::make_unique<ring::Daemon>(each.service, folder);
      return each.daemon->path();
    });
  });
  def("hang_up", [](Services& self, NodeId node) {
    self.on(node, [&](ServiceNode& each) { each.daemon.reset(); });
  });
  def("applications", [](Services& self, NodeId node) {
    return self.on(node, [&](ServiceNode& each) {
      return each.daemon == nullptr ? 0 : each.daemon->applications();
    });
  });
  def("clear_caches", [](Services& self, NodeId node) {
    self.on(node, [](ServiceNode& each) { each.service.clear_caches(); });
  });
  def("counters", [](Services& self, NodeId node) {
    return self.on(node, [](ServiceNode& each) { return counters_of(each); });
  });
  def_applications<Services, OnNode>(services);
}

}  // namespace pyrdma::krcore::bindings
