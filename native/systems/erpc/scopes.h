// The steps of eRPC, its baselines, stores and workloads, with the cost of each; see env/scope.h.
// Written by `pyrdma calibrate scopes`, which counts instructions and cache lines in the compiled
// code.
//
// machine: AMD EPYC
// compiler: g++ (Debian 12.2.0-14+deb12u1) 12.2.0
// commit: 764e1e7cd221
#pragma once
#include "env/scope.h"

// clang-format off
//  name, instructions, lines: near, last level, NIC, other core, memory
#define PYRDMA_ERPC_SCOPES(X) \
  X(turn, 159, 0.108, 0, 0, 0, 0)                                                                \
  X(wait, 29, 0, 0, 0, 0, 0)                                                                     \
  X(receive, 228, 0.13, 0, 1.88, 0, 0)                                                           \
  X(post, 98.2, 0.0435, 0, 0, 0, 0)                                                              \
  X(enqueue_request, 193, 0.231, 0, 0, 0.00268, 0)                                               \
  X(transmit, 111, 0.0126, 0, 0, 0, 0)                                                           \
  X(receive_response, 380, 1.38, 0, 0.753, 0.0128, 0)                                            \
  X(receive_request, 336, 1.57, 0, 0.759, 0.0433, 0)                                             \
  X(enqueue_response, 129, 0.0249, 0, 0, 0, 0)                                                   \
  X(load_issue, 122, 0.0507, 0, 0, 0.329, 0)                                                     \
  X(load_end, 129, 0.943, 0, 0, 0, 0)                                                            \
  X(fasst_send, 243, 0.00866, 0, 0, 0.00144, 0)                                                  \
  X(fasst_post, 41, 0, 0, 0, 0, 0)                                                               \
  X(fasst_poll, 681, 0.0339, 0, 3.07, 0.0339, 0)                                                 \
  X(fasst_request, 230, 0.00288, 0, 0.868, 0, 0)                                                 \
  X(fasst_response, 205, 0, 0, 0.847, 0, 0)                                                      \
  X(fasst_refill, 33, 0, 0, 0, 0, 0)                                                             \
  X(ring_send, 457, 0, 0, 0, 0.00997, 0)                                                         \
  X(ring_poll, 180, 0, 0, 0, 0, 0)                                                               \
  X(ring_look, 557, 0, 0, 1.71, 0, 0)                                                            \
  X(ring_request, 569, 0, 0, 0.79, 0.00741, 0)                                                   \
  X(ring_response, 351, 0, 0, 0.803, 0, 0)                                                       \
  X(ring_write_head, 47.2, 0, 0, 0, 0, 0)                                                        \
  X(baseline_issue, 218, 0, 0, 0, 0.769, 0)                                                      \
  X(baseline_answer, 66.1, 0.0335, 0, 0, 0, 0)                                                   \
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
