// The list of the systems. A system NAME has the folder systems/NAME and defines
//   pyrdma::systems::System pyrdma::NAME::description();  in system.cc, and
//   void pyrdma::NAME::bind(pybind11::module_& module);   in bindings/.
#pragma once

#define PYRDMA_FOR_EACH_SYSTEM(SYSTEM) \
  SYSTEM(loco)                         \
  SYSTEM(erpc)                         \
  SYSTEM(spindle)                      \
  SYSTEM(tailwind)                     \
  SYSTEM(krcore)                       \
  // A new system is one more line above this one.
