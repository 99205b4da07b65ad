// What a node program does to an object, for the checkers, and names that tables can hold.
#pragma once
#include <memory>
#include <string>

#include "bindings/program/program.h"

namespace pyrdma::bindings {

using NodePtr = std::shared_ptr<NodeRun>;

/// Returns a name, which tables and files can hold.
std::string name_of(const char* parameter, const py::handle& given);
/// Begins an operation of the node's history; returns an OpenOperation of Python.
py::object invoke(const NodePtr& self, const py::object& function, const py::object& key,
                  const py::object& value);
void bind_histories(py::module_& module);

}  // namespace pyrdma::bindings
