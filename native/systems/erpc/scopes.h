// The steps of eRPC, its baselines, stores and workloads, with the cost of each; see env/scope.h.
// Written by `pyrdma calibrate scopes`, which counts instructions and cache lines in the compiled
// code.
//
// machine: AMD EPYC
// compiler: g++ (Debian 12.2.0-14+deb12u1) 12.2.0
// commit: 6c54c0be35cd
#pragma once
#include "env/scope.h"

// clang-format off
//  name, instructions, lines: near, last level, NIC, other core, memory
#define PYRDMA_ERPC_SCOPES(X) \
  X(turn, 144, 0.0305, 0, 0, 0, 0)                                                               \
  X(wait, 29, 0.00645, 0, 0, 0, 0)                                                               \
  X(receive, 260, 0.189, 0, 2.04, 0, 0)                                                          \
  X(post, 45.3, 0.0557, 0, 0, 0, 0)                                                              \
  X(enqueue_request, 223, 0.276, 0, 0, 0.0581, 0)                                                \
  X(pace, 150, 0.759, 0, 0, 0, 0)                                                                \
  X(leave_wheel, 70, 0, 0, 0, 0, 0)                                                              \
  X(transmit, 108, 0, 0, 0, 0, 0)                                                                \
  X(receive_response, 268, 1.36, 0, 0.708, 0.0314, 0)                                            \
  X(rate_update, 105, 0, 0, 0, 0, 0)                                                             \
  X(receive_request, 314, 1.66, 0, 0.699, 0.0297, 0)                                             \
  X(take_buffer, 66.8, 0.0494, 0, 0, 0, 0)                                                       \
  X(grow_pool, 230, 0.244, 0, 0, 0.063, 0)                                                       \
  X(give_buffer_back, 35, 0, 0, 0, 0, 0)                                                         \
  X(enqueue_response, 108, 0.0721, 0, 0, 0.00787, 0)                                             \
  X(load_issue, 120, 0.0801, 0, 0, 0.37, 0)                                                      \
  X(load_end, 92, 0.977, 0, 0, 0.00188, 0)                                                       \
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
  X(raft_turn, 1380, 0.358, 0, 0, 1.78, 0)                                                       \
  X(raft_receive, 1820, 0.43, 0, 0, 2.67, 0)                                                     \
  X(raft_send, 794, 0.364, 0, 0, 1.4, 0)                                                         \
  X(raft_propose, 6370, 2.85, 0, 0, 2.55, 0)                                                     \
  X(raft_apply, 792, 1.05, 0, 0, 1.56, 0)
// clang-format on

namespace pyrdma::erpc::scope {

#define PYRDMA_SCOPE(NAME, ...) inline constexpr CpuScope NAME{"erpc/" #NAME, __VA_ARGS__};
PYRDMA_ERPC_SCOPES(PYRDMA_SCOPE)
#undef PYRDMA_SCOPE

#define PYRDMA_SCOPE(NAME, ...) &NAME,
inline constexpr const CpuScope* all[] = {PYRDMA_ERPC_SCOPES(PYRDMA_SCOPE)};
#undef PYRDMA_SCOPE

}  // namespace pyrdma::erpc::scope
