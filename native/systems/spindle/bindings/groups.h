// The Python classes of groups and of domains, and what both share.
#pragma once
#include <pybind11/pybind11.h>

#include <algorithm>
#include <string>
#include <utility>

#include "env/env.h"
#include "systems/spindle/options.h"

namespace pyrdma::spindle::bindings {

inline Time nanoseconds(double seconds) { return static_cast<Time>(seconds * 1e9); }

/// The options of a group that a script makes.
inline Options script_options(int preset, std::string name, double suspicion_s) {
  Options options = Options::of(static_cast<Preset>(preset));
  options.name = std::move(name);
  options.suspicion_timeout = nanoseconds(suspicion_s);
  options.heartbeat =
      std::max<Time>(1000, std::min(options.heartbeat, options.suspicion_timeout / 10));
  options.join_timeout = std::max<Time>(10 * kSecond, 4 * options.suspicion_timeout);
  options.idle_sleep = kMillisecond;  // a shorter sleep of a real thread mostly spins
  return options;
}

/// Calls of several Python threads go on at once: a receiver waits while others send.
template <class Objects, class Work>
auto on(Objects& self, NodeId node, Work&& work) {
  return self.session().call([&] { return work(self.at(node)); });
}

void bind_domains(pybind11::module_& module);
void bind_groups(pybind11::module_& module);

}  // namespace pyrdma::spindle::bindings
