// The steps of eRPC, its baselines, stores and workloads, with the cost of each; see env/scope.h.
// Written by `pyrdma calibrate scopes`, which counts instructions and cache lines in the compiled
// code.
//
// machine: AMD EPYC
// compiler: g++ (Debian 12.2.0-14+deb12u1) 12.2.0
// commit: 55f2cf959b23
#pragma once
#include "env/scope.h"

// clang-format off
//  name, instructions, lines: near, last level, NIC, other core, memory
#define PYRDMA_ERPC_SCOPES(X) \
  X(turn, 167, 0.0353, 0, 0, 0, 0)                                                               \
  X(wait, 30, 0, 0, 0, 0, 0)                                                                     \
  X(receive, 214, 0.0618, 0, 1.78, 0, 0)                                                         \
  X(post, 96.1, 0.041, 0, 0, 0, 0)                                                               \
  X(enqueue_request, 246, 0.222, 0, 0, 0.00604, 0)                                               \
  X(transmit, 107, 0.0153, 0, 0, 0, 0)                                                           \
  X(receive_response, 454, 1.32, 0, 0.778, 0.0138, 0)                                            \
  X(receive_request, 331, 1.09, 0, 0.716, 0.0261, 0)                                             \
  X(enqueue_response, 165, 0.0522, 0, 0, 0, 0)                                                   \
  X(load_issue, 121, 0.0599, 0, 0, 0.283, 0)                                                     \
  X(load_end, 124, 0.97, 0, 0, 0, 0)                                                             \
  X(fasst_send, 90, 0, 0, 0, 0, 0)                                                               \
  X(fasst_post, 60, 0, 0, 0, 0, 0)                                                               \
  X(fasst_poll, 60, 0, 0, 0, 0, 0)                                                               \
  X(fasst_request, 80, 0, 0, 1, 0, 0)                                                            \
  X(fasst_response, 60, 0, 0, 1, 0, 0)                                                           \
  X(fasst_refill, 40, 0, 0, 0, 0, 0)                                                             \
  X(ring_send, 140, 0, 0, 0, 0, 0)                                                               \
  X(ring_poll, 30, 0, 0, 0, 0, 0)                                                                \
  X(ring_look, 12, 0.5, 0, 0, 0, 0)                                                              \
  X(ring_request, 90, 0, 0, 1, 0, 0)                                                             \
  X(ring_response, 70, 0, 0, 1, 0, 0)                                                            \
  X(ring_write_head, 60, 0, 0, 0, 0, 0)                                                          \
  X(baseline_issue, 40, 0, 0, 0, 0, 0)                                                           \
  X(baseline_answer, 40, 0, 0, 0, 0, 0)                                                          \
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
