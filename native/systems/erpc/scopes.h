// The steps of eRPC, its baselines, stores and workloads, with the cost of each; see env/scope.h.
// Written by `pyrdma calibrate scopes`, which counts instructions and cache lines in the compiled
// code.
//
// machine: AMD EPYC
// compiler: g++ (Debian 12.2.0-14+deb12u1) 12.2.0
// commit: f6876d554133
#pragma once
#include "env/scope.h"

// clang-format off
//  name, instructions, lines: near, last level, NIC, other core, memory
#define PYRDMA_ERPC_SCOPES(X) \
  X(turn, 142, 0.0221, 0, 0, 0, 0)                                                               \
  X(wait, 29, 0.00636, 0, 0, 0, 0)                                                               \
  X(receive, 251, 0.14, 0, 1.97, 0, 0)                                                           \
  X(post, 45.3, 0.0552, 0, 0, 0, 0)                                                              \
  X(enqueue_request, 223, 0.285, 0, 0, 0.0527, 0)                                                \
  X(pace, 150, 0.747, 0, 0, 0, 0)                                                                \
  X(leave_wheel, 70, 0, 0, 0, 0, 0)                                                              \
  X(transmit, 108, 0, 0, 0, 0, 0)                                                                \
  X(receive_response, 269, 1.34, 0, 0.714, 0.0264, 0)                                            \
  X(rate_update, 104, 0, 0, 0, 0, 0)                                                             \
  X(receive_request, 315, 1.64, 0, 0.708, 0.0218, 0)                                             \
  X(take_buffer, 66.8, 0.0494, 0, 0, 0, 0)                                                       \
  X(grow_pool, 230, 0.239, 0, 0, 0.063, 0)                                                       \
  X(give_buffer_back, 35, 0, 0, 0, 0, 0)                                                         \
  X(enqueue_response, 108, 0.0752, 0, 0, 0.00546, 0)                                             \
  X(load_issue, 120, 0.0917, 0, 0, 0.373, 0)                                                     \
  X(load_end, 92, 0.982, 0, 0, 0.00188, 0)                                                       \
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
  X(baseline_issue, 220, 0, 0, 0, 0.769, 0)                                                      \
  X(baseline_answer, 57.2, 0.0335, 0, 0, 0, 0)                                                   \
  X(store_get, 1550, 4, 0, 0, 0, 0)                                                              \
  X(store_scan, 1500, 4, 0, 0, 0, 0)                                                             \
  X(store_scan_key, 165, 0, 0, 0, 0, 0)                                                          \
  X(store_put, 5600, 40, 20, 0, 0, 0)                                                            \
  X(store_put_key, 1600, 4, 0, 0, 0, 0)                                                          \
  X(raft_turn, 1390, 0.479, 0, 0, 1.77, 0)                                                       \
  X(raft_receive, 1820, 0.428, 0, 0, 2.7, 0)                                                     \
  X(raft_send, 794, 0.601, 0, 0, 1.43, 0)                                                        \
  X(raft_propose, 6360, 2.54, 0, 0, 2.49, 0)                                                     \
  X(raft_apply, 786, 1.01, 0, 0, 1.57, 0)
// clang-format on

namespace pyrdma::erpc::scope {

#define PYRDMA_SCOPE(NAME, ...) inline constexpr CpuScope NAME{"erpc/" #NAME, __VA_ARGS__};
PYRDMA_ERPC_SCOPES(PYRDMA_SCOPE)
#undef PYRDMA_SCOPE

#define PYRDMA_SCOPE(NAME, ...) &NAME,
inline constexpr const CpuScope* all[] = {PYRDMA_ERPC_SCOPES(PYRDMA_SCOPE)};
#undef PYRDMA_SCOPE

}  // namespace pyrdma::erpc::scope
