// PerNodeClass binds a Python class whose native object has a part on each node. One block says
// what each method does at a part.
#pragma once
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>

#include "bindings/per_node.h"
#include "bindings/program/waiting_method.h"

namespace pyrdma::bindings {

/// `Parts` is a PerNode, or holds one: on(node, work) runs `work(part, given...)` on one node, with
/// values of the types `Given`, such as the caller of that node; Parts::Part is the type of a part.
template <class Parts, class... Given>
class PerNodeClass {
 public:
  using Part = typename Parts::Part;

  /// `make` returns a shared_ptr to Parts. The Python constructor takes the same arguments.
  template <class Make>
  PerNodeClass(const pybind11::object& scope, const char* name, Make make) : class_(scope, name) {
    class_.def(pybind11::init(std::move(make)));
  }

  /// Binds a method of one node: `work(part, given..., arguments...)`. The Python method takes the
  /// node and the arguments. Bytes arrive as std::string and leave as std::vector<std::byte>.
  template <class Work>
  PerNodeClass& on(const char* name, Work work) {
    return on_as(name, work, &Work::operator());
  }
  /// Binds a method of all nodes at once: `work(parts, arguments...)`.
  template <class Work>
  PerNodeClass& of_all(const char* name, Work work) {
    def_waiting(class_, name, work);
    return *this;
  }

 private:
  template <class Work, class Result, class... Arguments>
  PerNodeClass& on_as(const char* name, Work work,
                      Result (Work::*)(Part&, Given..., Arguments...) const) {
    def_waiting(class_, name, [work](Parts& self, NodeId node, Arguments... arguments) {
      return self.on(
          node, [&](Part& part, Given... given) { return work(part, given..., arguments...); });
    });
    return *this;
  }

  pybind11::class_<Parts, std::shared_ptr<Parts>> class_;
};

}  // namespace pyrdma::bindings
