// One function per bound topic; module.cc calls them all.
#pragma once
#include <pybind11/pybind11.h>

namespace pyrdma::bindings {

void bind_errors(pybind11::module_& module);
void bind_fabric(pybind11::module_& module);   // Cluster, verbs
void bind_queues(pybind11::module_& verbs);    // queues of completions, pairs, shared receives
void bind_requests(pybind11::module_& verbs);  // requests, completions, addresses
void bind_measure(pybind11::module_& module);
void bind_sim(pybind11::module_& module);
void bind_shm(pybind11::module_& module);
void bind_verbs(pybind11::module_& module);  // real devices
void bind_check(pybind11::module_& module);
void bind_fuzz(pybind11::module_& module);
void bind_loco(pybind11::module_& module);
void bind_loco_objects(pybind11::module_& loco);  // locks, queues, stores

}  // namespace pyrdma::bindings
