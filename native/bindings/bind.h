// One function per topic of the Python module. systems/module.cc calls them all. The tables that a
// function takes outlive the module.
#pragma once
#include <pybind11/pybind11.h>

#include <utility>
#include <vector>

#include "fuzz/scenario.h"
#include "measure/workload.h"

namespace pyrdma::bindings {

void bind_errors(pybind11::module_& module);
void bind_fabric(pybind11::module_& module);   // Cluster, verbs
void bind_queues(pybind11::module_& verbs);    // completion, receive and queue pair classes
void bind_requests(pybind11::module_& verbs);  // requests, completions, addresses
void bind_measure(pybind11::module_& module, const measure::Workloads& workloads);
void bind_sim(pybind11::module_& module);
void bind_shm(pybind11::module_& module);
void bind_verbs(pybind11::module_& module);  // real devices
void bind_program(pybind11::module_& module);
void bind_check(pybind11::module_& module);
void bind_fuzz(pybind11::module_& module, const std::vector<fuzz::Scenario>& scenarios);

/// Returns the digest of the native sources; source_digest.py writes this function.
const char* source_digest();

/// Binds the first argument of `function`; that argument outlives the result.
template <class Result, class First, class... Rest>
auto with_first(Result (*function)(const First&, Rest...), const First& first) {
  return [function, &first](Rest... rest) { return function(first, std::forward<Rest>(rest)...); };
}

}  // namespace pyrdma::bindings
