// The counters of faults as Python dictionaries.
#pragma once
#include <pybind11/pybind11.h>

#include <map>
#include <string>

#include "base/error.h"
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

/// Reads the faults of a cluster. Throws Error(kInvalidArgument) for windows that only a scenario
/// of the fuzzer can spread over its operations.
inline FaultOptions faults_of_cluster(const std::map<std::string, double>& values) {
  FaultOptions faults = FaultOptions::from_values(values);
  for (std::size_t i = 0; i < kFaults; ++i) {
    const std::string key(fault_info(static_cast<Fault>(i)).key);
    if (faults.settings[i].windows > 0)
      throw Error(ErrorCode::kInvalidArgument,
                  "fault " + key +
                      ".windows is for pyrdma fuzz, which spreads the windows over its "
                      "operations: give " +
                      key + ".rate, in windows per virtual millisecond");
  }
  return faults;
}

}  // namespace pyrdma::bindings
