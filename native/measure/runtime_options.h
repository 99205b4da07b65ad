// The parameters of a workload whose threads use a runtime for a time, and the runtime's options
// that follow from them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "measure/interval.h"
#include "measure/params.h"
#include "runtime/runtime.h"

namespace pyrdma::measure {

/// Returns the parameters of the runtime and of Interval, then the workload's own.
inline std::vector<ParameterSpec> with_runtime_parameters(std::vector<ParameterSpec> own) {
  std::vector<ParameterSpec> specs = {
      {"threads", std::int64_t{1}, "count", "threads of a node, or ranks", 1, 64},
      {"polling",
       std::string("callers"),
       "",
       "poller of the completion queue: a thread of its own, or the callers",
       0,
       0,
       {"thread", "callers"}},
      {"wait_timeout_ms", std::int64_t{10'000}, "ms",
       "time after which a wait for another node fails and names that node", 1, 1e9},
  };
  const std::vector<ParameterSpec> interval = interval_parameters();
  specs.insert(specs.end(), interval.begin(), interval.end());
  specs.insert(specs.end(), own.begin(), own.end());
  return specs;
}

/// Sets the options that these parameters give. `system` and the run make the name. Throws as
/// check_interval() does.
inline void set_runtime_options(const Params& params, std::string_view system,
                                runtime::Options& options) {
  check_interval(params);
  options.name = params.key(system);
  options.callers = params.count("threads");
  options.polling = params.choice<runtime::Polling>("polling");
  options.wait_timeout = params.integer("wait_timeout_ms") * kMillisecond;
}

}  // namespace pyrdma::measure
