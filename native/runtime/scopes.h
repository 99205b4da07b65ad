// The steps of the runtime, with the cost of each; see env/scope.h. Written by
// `pyrdma calibrate scopes`, which counts instructions and cache lines in the compiled code.
//
// machine: AMD EPYC
// compiler: g++ (Debian 12.2.0-14+deb12u1) 12.2.0
// commit: 770bbe04451f
#pragma once
#include "env/scope.h"

// clang-format off
//  name, instructions, lines: near, last level, NIC, other core, memory
#define PYRDMA_RUNTIME_SCOPES(X) \
  X(completion, 62.6, 0, 0, 0, 2.33, 0)                                                          \
  X(progress, 56.5, 0, 0, 0, 0, 0)                                                               \
  X(poller, 56.2, 0, 0, 0, 0, 0)                                                                 \
  X(poller_turn, 52, 0, 0, 0, 0, 0)                                                              \
  X(turn, 83.7, 0, 0, 0.0451, 0.497, 0)                                                          \
  X(wait, 95.6, 0, 0, 0, 0, 0)                                                                   \
  X(post, 180, 0.00705, 0, 0, 1.01, 0)                                                           \
  X(await_pair, 107, 0, 0, 0, 0, 0)                                                              \
  X(mark, 170, 0.312, 0, 0, 3.28, 0)                                                             \
  X(fence, 220, 0, 0, 0, 0, 0)                                                                   \
  X(fence_connection, 76.6, 0, 0, 0, 0.333, 0)
// clang-format on

namespace pyrdma::runtime::scope {

#define PYRDMA_SCOPE(NAME, ...) inline constexpr CpuScope NAME{"runtime/" #NAME, __VA_ARGS__};
PYRDMA_RUNTIME_SCOPES(PYRDMA_SCOPE)
#undef PYRDMA_SCOPE

#define PYRDMA_SCOPE(NAME, ...) &NAME,
inline constexpr const CpuScope* all[] = {PYRDMA_RUNTIME_SCOPES(PYRDMA_SCOPE)};
#undef PYRDMA_SCOPE

}  // namespace pyrdma::runtime::scope
