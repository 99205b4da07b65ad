// The steps of eRPC, its baselines, stores and workloads, with the cost of each; see env/scope.h.
// Written by `pyrdma calibrate scopes`, which counts instructions and cache lines in the compiled
// code.
//
// machine: AMD EPYC
// compiler: g++ (Debian 12.2.0-14+deb12u1) 12.2.0
// commit: 19e0e3fe598f
#pragma once
#include "env/scope.h"

// clang-format off
//  name, instructions, lines: near, last level, NIC, other core, memory
#define PYRDMA_ERPC_SCOPES(X) \
  X(turn, 140, 0.00801, 0, 0, 0, 0)                                                              \
  X(wait, 29, 0, 0, 0, 0, 0)                                                                     \
  X(receive, 236, 0.0717, 0, 1.98, 0, 0)                                                         \
  X(post, 45.3, 0.0481, 0, 0, 0, 0)                                                              \
  X(enqueue_request, 181, 0.204, 0, 0, 0.0484, 0)                                                \
  X(transmit, 82.2, 0.0155, 0, 0, 0, 0)                                                          \
  X(receive_response, 253, 1.24, 0, 0.718, 0.0152, 0)                                            \
  X(rate_update, 104, 0, 0, 0, 0, 0)                                                             \
  X(receive_request, 300, 1.5, 0, 0.708, 0.0178, 0)                                              \
  X(enqueue_response, 108, 0.0919, 0, 0, 0.00429, 0)                                             \
  X(load_issue, 123, 0.0545, 0, 0, 0.385, 0)                                                     \
  X(load_end, 132, 0.977, 0, 0, 0, 0)                                                            \
  X(fasst_send, 243, 0.00866, 0, 0, 0, 0)                                                        \
  X(fasst_post, 41, 0, 0, 0, 0, 0)                                                               \
  X(fasst_poll, 681, 0.0339, 0, 3.05, 0.22, 0)                                                   \
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
  X(baseline_answer, 66.1, 0.0344, 0, 0, 0, 0)                                                   \
  X(store_get, 1550, 4, 0, 0, 0, 0)                                                              \
  X(store_scan, 1500, 4, 0, 0, 0, 0)                                                             \
  X(store_scan_key, 165, 0, 0, 0, 0, 0)                                                          \
  X(store_put, 5600, 40, 20, 0, 0, 0)                                                            \
  X(store_put_key, 1600, 4, 0, 0, 0, 0)                                                          \
  X(raft_turn, 400, 1, 0, 0, 0, 0)                                                               \
  X(raft_receive, 300, 1, 0, 1, 0, 0)                                                            \
  X(raft_send, 300, 1, 0, 0, 0, 0)                                                               \
  X(raft_propose, 500, 2, 0, 0, 0, 0)                                                            \
  X(raft_apply, 200, 1, 1, 0, 0, 1)
// clang-format on

namespace pyrdma::erpc::scope {

#define PYRDMA_SCOPE(NAME, ...) inline constexpr CpuScope NAME{"erpc/" #NAME, __VA_ARGS__};
PYRDMA_ERPC_SCOPES(PYRDMA_SCOPE)
#undef PYRDMA_SCOPE

#define PYRDMA_SCOPE(NAME, ...) &NAME,
inline constexpr const CpuScope* all[] = {PYRDMA_ERPC_SCOPES(PYRDMA_SCOPE)};
#undef PYRDMA_SCOPE

}  // namespace pyrdma::erpc::scope
