// The steps of eRPC, its baselines, stores and workloads, with the cost of each; see env/scope.h.
// Written by `pyrdma calibrate scopes`, which counts instructions and cache lines in the compiled
// code.
//
// machine: AMD EPYC
// compiler: g++ (Debian 12.2.0-14+deb12u1) 12.2.0
// commit: e86aebb692f6
#pragma once
#include "env/scope.h"

// clang-format off
//  name, instructions, lines: near, last level, NIC, other core, memory
#define PYRDMA_ERPC_SCOPES(X) \
  X(turn, 140, 0.0174, 0, 0, 0, 0)                                                               \
  X(wait, 29, 0, 0, 0, 0, 0)                                                                     \
  X(receive, 212, 0.0675, 0, 1.75, 0, 0)                                                         \
  X(post, 45.3, 0.0497, 0, 0, 0, 0)                                                              \
  X(enqueue_request, 181, 0.211, 0, 0, 0.0562, 0)                                                \
  X(transmit, 82.3, 0.0143, 0, 0, 0, 0)                                                          \
  X(receive_response, 259, 1.24, 0, 0.751, 0.0475, 0)                                            \
  X(rate_update, 104, 0, 0, 0, 0, 0)                                                             \
  X(receive_request, 346, 1.44, 0, 0.74, 0.0403, 0)                                              \
  X(enqueue_response, 108, 0.1, 0, 0, 0.00671, 0)                                                \
  X(load_issue, 123, 0.0592, 0, 0, 0.378, 0)                                                     \
  X(load_end, 134, 0.968, 0, 0, 0.0038, 0)                                                       \
  X(fasst_send, 243, 0.00866, 0, 0, 0.00144, 0)                                                  \
  X(fasst_post, 41, 0, 0, 0, 0, 0)                                                               \
  X(fasst_poll, 681, 0.0339, 0, 3.05, 0.0508, 0)                                                 \
  X(fasst_request, 230, 0.00288, 0, 0.868, 0, 0)                                                 \
  X(fasst_response, 205, 0, 0, 0.847, 0, 0)                                                      \
  X(fasst_refill, 33, 0, 0, 0, 0, 0)                                                             \
  X(ring_send, 457, 0, 0, 0, 0, 0)                                                               \
  X(ring_poll, 180, 0, 0, 0, 0, 0)                                                               \
  X(ring_look, 557, 0, 0, 1.71, 0, 0)                                                            \
  X(ring_request, 569, 0, 0, 0.79, 0, 0)                                                         \
  X(ring_response, 351, 0, 0, 0.803, 0, 0)                                                       \
  X(ring_write_head, 47.2, 0, 0, 0, 0, 0)                                                        \
  X(baseline_issue, 218, 0, 0, 0, 0.769, 0)                                                      \
  X(baseline_answer, 66.1, 0.0335, 0, 0, 0, 0)                                                   \
  X(store_get, 1550, 4, 0, 0, 0, 0)                                                              \
  X(store_scan, 1500, 4, 0, 0, 0, 0)                                                             \
  X(store_scan_key, 165, 0, 0, 0, 0, 0)                                                          \
  X(store_put, 5600, 40, 20, 0, 0, 0)                                                            \
  X(store_put_key, 1600, 4, 0, 0, 0, 0)                                                          \
  X(raft_turn, 1360, 0.39, 0, 0, 1.67, 0)                                                        \
  X(raft_receive, 1820, 0.421, 0, 0, 2.66, 0)                                                    \
  X(raft_send, 864, 0.402, 0, 0, 1.43, 0)                                                        \
  X(raft_propose, 6340, 2.78, 0, 0, 2.52, 0)                                                     \
  X(raft_apply, 787, 1.03, 0, 0, 1.69, 0)
// clang-format on

namespace pyrdma::erpc::scope {

#define PYRDMA_SCOPE(NAME, ...) inline constexpr CpuScope NAME{"erpc/" #NAME, __VA_ARGS__};
PYRDMA_ERPC_SCOPES(PYRDMA_SCOPE)
#undef PYRDMA_SCOPE

#define PYRDMA_SCOPE(NAME, ...) &NAME,
inline constexpr const CpuScope* all[] = {PYRDMA_ERPC_SCOPES(PYRDMA_SCOPE)};
#undef PYRDMA_SCOPE

}  // namespace pyrdma::erpc::scope
