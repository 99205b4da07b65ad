// The steps of the store, with the cost of each; see env/scope.h. Written by
// `pyrdma calibrate scopes`, which counts instructions and cache lines in the compiled code.
//
// machine: Intel(R) Xeon(R) Processor
// compiler: g++ (Debian 12.2.0-14+deb12u1) 12.2.0
// commit: 6021beb32fbe
#pragma once
#include "env/scope.h"

// clang-format off
//  name, instructions, lines: near, last level, NIC, other core, memory
#define PYRDMA_TAILWIND_SCOPES(X) \
  X(take_message, 541, 0, 0, 0.895, 1.71, 0)                                                     \
  X(send_message, 539, 0, 0, 0, 1.34, 0)                                                         \
  X(hand_over, 33.6, 0, 0, 0, 0, 0)                                                              \
  X(take_done, 193, 0, 0, 0, 1.17, 0)                                                            \
  X(serve, 787, 0, 0, 1, 0.766, 0)                                                               \
  X(write_object, 1470, 0, 0, 0, 4.12, 0)                                                        \
  X(read_object, 363, 0, 0, 0, 1.07, 0)                                                          \
  X(append, 2800, 0, 0, 1, 4.47, 0)                                                              \
  X(post_write, 203, 0, 0, 0, 0.118, 0)                                                          \
  X(take_completion, 462, 0, 0, 0, 0.0588, 0)                                                    \
  X(copy_to_buffer, 818, 0, 0, 1, 2, 0)                                                          \
  X(load_issue, 1310, 0.0152, 0, 0, 0.682, 0)                                                    \
  X(turn, 265, 0.00279, 0, 0, 0.471, 0)                                                          \
  X(work, 132, 0, 0, 0, 3.12, 0)                                                                 \
  X(keep_time, 1450, 0, 0, 0, 3, 0)                                                              \
  X(client_turn, 293, 0.0145, 0, 0, 0, 0)                                                        \
  X(client_send, 1660, 0, 0, 0, 0.924, 0)                                                        \
  X(client_take, 705, 0, 0, 0, 1.26, 0)                                                          \
  X(commit, 427, 0, 0, 0, 0.141, 0)                                                              \
  X(load_end, 102, 0, 0, 0, 0, 0)
// clang-format on

namespace pyrdma::tailwind::scope {

#define PYRDMA_SCOPE(NAME, ...) inline constexpr CpuScope NAME{"tailwind/" #NAME, __VA_ARGS__};
PYRDMA_TAILWIND_SCOPES(PYRDMA_SCOPE)
#undef PYRDMA_SCOPE

#define PYRDMA_SCOPE(NAME, ...) &NAME,
inline constexpr const CpuScope* all[] = {PYRDMA_TAILWIND_SCOPES(PYRDMA_SCOPE)};
#undef PYRDMA_SCOPE

}  // namespace pyrdma::tailwind::scope
