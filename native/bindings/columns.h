// The measurements of a run as Python's data.
#pragma once
#include <pybind11/pybind11.h>

#include <map>
#include <string>
#include <vector>

#include "bindings/session.h"
#include "measure/recorder.h"

namespace pyrdma::bindings {

/// What the devices of a run have to say.
struct Notices {
  std::vector<NodeId> nodes;
  std::vector<std::string> texts;
};
Notices notices_of(World& world, bool faults_only);

/// Returns the lists that `Columns` of pyrdma/cluster_base.py describes.
pybind11::dict to_columns(const std::map<NodeId, measure::Recorder>& recorders,
                          const Notices& notices);

}  // namespace pyrdma::bindings
