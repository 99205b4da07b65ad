// The steps of the multicast, with the cost of each; see env/scope.h. Written by
// `pyrdma calibrate scopes`, which counts instructions and cache lines in the compiled code.
//
// machine: Intel(R) Xeon(R) Processor
// compiler: g++ (Debian 12.2.0-14+deb12u1) 12.2.0
// commit: 9bcfad4e41f7
#pragma once
#include "env/scope.h"

// clang-format off
//  name, instructions, lines: near, last level, NIC, other core, memory
#define PYRDMA_SPINDLE_SCOPES(X) \
  X(turn, 188, 0, 0, 0.0115, 0.29, 0)                                                            \
  X(look, 571, 0, 0, 0, 0.866, 0)                                                                \
  X(look_at_sender, 24.9, 0, 0, 0.349, 0.0217, 0)                                                \
  X(look_at_member, 23.3, 0, 0, 0, 0, 0)                                                         \
  X(receive, 119, 0, 0, 0, 0.0476, 0)                                                            \
  X(take_from_sender, 37, 0, 0, 0.243, 0.0933, 0)                                                \
  X(deliver, 208, 0.00243, 0, 0, 0.0267, 0)                                                      \
  X(deliver_message, 73.2, 0, 0, 0, 0.0073, 0)                                                   \
  X(take_round, 58.7, 0, 0, 0.501, 0.499, 0)                                                     \
  X(call_upcall, 86, 0, 0, 0, 0.0073, 0)                                                         \
  X(send, 79.8, 0, 0, 0, 0.575, 0)                                                               \
  X(push, 227, 0, 0, 0, 0.00705, 0)                                                              \
  X(acquire, 70.7, 0, 0, 0, 0.309, 0)                                                            \
  X(find_free, 49.5, 0, 0, 0.558, 0.231, 0)                                                      \
  X(commit, 46, 0, 0, 0, 0.0336, 0)                                                              \
  X(change, 93, 0, 0, 0, 0.0678, 0)                                                              \
  X(reserve, 144, 0, 0, 0, 0.382, 0)                                                             \
  X(queue, 118, 0, 0, 0, 0.631, 0)                                                               \
  X(timers, 797, 0, 0, 0, 0, 0)                                                                  \
  X(keep_sample, 315, 0, 0, 0.622, 0.178, 0)                                                     \
  X(load_message, 27.3, 0, 0, 0, 0, 0)                                                           \
  X(load_upcall, 86, 0, 0, 0.0803, 0.101, 0)
// clang-format on

namespace pyrdma::spindle::scope {

#define PYRDMA_SCOPE(NAME, ...) inline constexpr CpuScope NAME{"spindle/" #NAME, __VA_ARGS__};
PYRDMA_SPINDLE_SCOPES(PYRDMA_SCOPE)
#undef PYRDMA_SCOPE

#define PYRDMA_SCOPE(NAME, ...) &NAME,
inline constexpr const CpuScope* all[] = {PYRDMA_SPINDLE_SCOPES(PYRDMA_SCOPE)};
#undef PYRDMA_SCOPE

}  // namespace pyrdma::spindle::scope
