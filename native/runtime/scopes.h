// The steps of the runtime, with the cost of each; see env/scope.h. Written by
// `pyrdma calibrate scopes`, which counts instructions and cache lines in the compiled code.
//
// machine: AMD EPYC
// compiler: g++ (Debian 12.2.0-14+deb12u1) 12.2.0
// commit: 7c04399e5fb6
#pragma once
#include "env/scope.h"

// clang-format off
//  name, instructions, lines: near, last level, NIC, other core, memory
#define PYRDMA_RUNTIME_SCOPES(X) \
  X(completion, 64.6, 0, 0, 0, 0.743, 0)                                                         \
  X(progress, 52.4, 0, 0, 0, 0.00635, 0)                                                         \
  X(poller, 45, 0, 0, 0, 0, 0)                                                                   \
  X(poller_turn, 57.9, 0, 0, 0, 0, 0)                                                            \
  X(turn, 75, 0, 0, 0.0132, 0.268, 0)                                                            \
  X(wait, 47, 0, 0, 0, 0.000921, 0)                                                              \
  X(post, 181, 0.00157, 0, 0, 1.29, 0)                                                           \
  X(await_pair, 107, 0.0339, 0, 0, 0.0339, 0)                                                    \
  X(mark, 140, 0.0201, 0, 0, 0.577, 0)                                                           \
  X(fence, 231, 0, 0, 0, 0.453, 0)                                                               \
  X(fence_connection, 66.8, 0, 0, 0, 0.182, 0)
// clang-format on

namespace pyrdma::runtime::scope {

#define PYRDMA_SCOPE(NAME, ...) inline constexpr CpuScope NAME{"runtime/" #NAME, __VA_ARGS__};
PYRDMA_RUNTIME_SCOPES(PYRDMA_SCOPE)
#undef PYRDMA_SCOPE

#define PYRDMA_SCOPE(NAME, ...) &NAME,
inline constexpr const CpuScope* all[] = {PYRDMA_RUNTIME_SCOPES(PYRDMA_SCOPE)};
#undef PYRDMA_SCOPE

}  // namespace pyrdma::runtime::scope
