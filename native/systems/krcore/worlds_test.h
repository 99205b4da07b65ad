// The worlds in which services are tested. Each world runs a function on every node, with a
// service.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "runtime/worlds_test.h"
#include "systems/krcore/app.h"

namespace pyrdma::krcore {

using runtime::Kill;

class KrcoreWorlds : public testing::TestWithParam<std::string> {
 protected:
  bool is_sim() const { return GetParam().rfind("sim", 0) == 0; }
  /// Small queues, so that tests reach their bounds.
  static Options options() {
    Options result;
    result.cores = 2;
    result.send_entries = 32;
    result.lease = 2 * kMillisecond;
    result.arena_bytes = 1 << 20;
    return result;
  }
  void run(std::uint32_t nodes, Options options,
           const std::function<void(Service&, const Kill&)>& per_node) {
    runtime::run_world(GetParam(), nodes, [&](Env& env, const Kill& kill) {
      Service service(env, options);
      per_node(service, kill);
    });
  }
};

/// Of services whose queue pairs share one pool, and get a reliable connection only when they must.
inline Options one_core(Bugs bugs = {}) {
  Options options;
  options.cores = 1;
  options.arena_bytes = 1 << 20;
  options.rc_policy = RcPolicy::kNever;
  options.bugs = bugs;
  return options;
}

/// Of devices without dynamic connections.
inline fabric::sim::SimOptions without_dynamic(std::uint32_t nodes) {
  fabric::sim::SimOptions options = runtime::sim_options(nodes);
  auto values = fabric::sim::test_profile_values();
  values["nic.has_dc"] = 0;
  options.profile = fabric::sim::SimProfile::from_values(values);
  return options;
}

inline auto krcore_worlds() {
  std::vector<std::string> names;
#if !defined(__SANITIZE_THREAD__)
  names = {"sim", "sim_strong"};
#endif
  names.emplace_back("shm");
  if (std::getenv("PYRDMA_TEST_VERBS") != nullptr) names.emplace_back("verbs");
  return testing::ValuesIn(names);
}

/// Posts one request and waits for its completion.
inline fabric::Completion do_one(App& app, Queue queue, fabric::WorkRequest request) {
  fabric::Completion done;
  done.status = fabric::Status::kGeneral;
  const PushResult result = app.push(queue, {&request, 1});
  if (result.error != fabric::PostError::kNone) {
    done.status = result.status;
    return done;
  }
  app.wait(queue, {&done, 1}, app.env().now() + 10 * kSecond);
  return done;
}

inline fabric::WorkRequest one_sided(fabric::Opcode opcode, const fabric::Sge& sge,
                                     std::uint64_t addr, std::uint32_t rkey,
                                     std::uint64_t wr_id = 0) {
  fabric::WorkRequest request;
  request.wr_id = wr_id;
  request.sges = &sge;
  request.sge_count = 1;
  request.opcode = opcode;
  request.remote_addr = addr;
  request.rkey = rkey;
  return request;
}

inline fabric::Sge piece(const Registration& region, std::uint64_t offset, std::uint32_t bytes) {
  return {region.addr + offset, bytes, region.key};
}

}  // namespace pyrdma::krcore
