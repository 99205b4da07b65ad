// The counters of faults as Python dictionaries.
#pragma once
#include <pybind11/pybind11.h>

#include <string>

#include "env/faults.h"

namespace pyrdma::bindings {

/// Counts by kind: how often the fault fired, and how often it had its effect.
inline pybind11::dict fault_dict(const FaultCounters& counters) {
  pybind11::dict all;
  for (std::size_t i = 0; i < kFaults; ++i)
    all[pybind11::str(std::string(fault_info(static_cast<Fault>(i)).key))] =
        pybind11::make_tuple(counters.fired[i], counters.reached[i]);
  return all;
}

}  // namespace pyrdma::bindings
