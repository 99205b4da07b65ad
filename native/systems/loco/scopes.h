// The steps of LOCO, its baselines and its workloads, with the cost of each; see env/scope.h.
// Written by `pyrdma calibrate scopes`, which counts instructions and cache lines in the compiled
// code.
//
// machine: AMD EPYC
// compiler: g++ (Debian 12.2.0-14+deb12u1) 12.2.0
// commit: c9b36ac16adc
#pragma once
#include "env/scope.h"

// clang-format off
//  name, instructions, lines: near, last level, NIC, other core, memory
#define PYRDMA_LOCO_SCOPES(X) \
  X(acquire, 408, 0, 0, 0, 0, 0)                                                                 \
  X(acquire_begin, 72, 0.00503, 0, 0, 0.00503, 0)                                                \
  X(acquire_turn, 77.4, 0, 0, 0, 0.435, 0)                                                       \
  X(acquire_poll, 47.2, 0.00104, 0, 0.0899, 0.0815, 0)                                           \
  X(acquire_ask, 175, 0.0452, 0, 0, 0.0282, 0)                                                   \
  X(acquire_ask_again, 136, 0, 0, 0, 0, 0)                                                       \
  X(acquire_hold, 80.4, 0.025, 0, 0, 0.02, 0)                                                    \
  X(release, 131, 0, 0, 0, 0.33, 0)                                                              \
  X(hand_over, 46.5, 0, 0, 0, 0, 0)                                                              \
  X(move_on, 148, 0.00571, 0, 0, 0, 0)                                                           \
  X(barrier, 323, 0, 0, 0, 0, 0)                                                                 \
  X(barrier_row, 50.9, 0, 0, 0.0745, 0, 0)                                                       \
  X(push, 144, 0, 0, 0, 0.0154, 0)                                                               \
  X(push_to_one, 85, 0, 0, 0, 0.0392, 0)                                                         \
  X(ring_broadcast, 125, 0.156, 0, 0, 0.582, 0)                                                  \
  X(ring_push, 146, 0, 0, 0, 0.19, 0)                                                            \
  X(ring_acknowledged, 81.3, 0.00581, 0, 0.218, 0.0494, 0)                                       \
  X(ring_next, 136, 0, 0, 0, 0.203, 0)                                                           \
  X(ring_acknowledge, 195, 0, 0, 0, 0.22, 0)                                                     \
  X(power_control, 195, 0, 0, 1, 0, 0)                                                           \
  X(power_convert, 183, 0, 0, 0.25, 0, 0)                                                        \
  X(lookup, 68, 0, 0, 0, 0, 0)                                                                   \
  X(change, 215, 0.0303, 0, 0, 0.0909, 0)                                                        \
  X(advance, 55.2, 0, 0, 0, 0.0586, 0)                                                           \
  X(find, 175, 0, 0, 0, 0, 0)                                                                    \
  X(judge, 100, 0, 0, 0.688, 0.411, 0)                                                           \
  X(update_locked, 289, 0.0183, 0, 0, 0.569, 0)                                                  \
  X(insert_locked, 262, 0, 0, 0, 2.5, 0)                                                         \
  X(publish, 95.7, 0, 0, 0, 0.857, 0)                                                            \
  X(remove_locked, 168, 0.1, 0, 0, 0.65, 0)                                                      \
  X(forget, 173, 0, 0, 0, 1.8, 0)                                                                \
  X(announce, 181, 0.0164, 0, 0, 0.316, 0)                                                       \
  X(announced, 57.1, 0, 0, 0, 0, 0)                                                              \
  X(track, 334, 0, 0, 0, 0, 0)                                                                   \
  X(apply, 107, 0, 0, 0, 2.09, 0)                                                                \
  X(index_find, 107, 0, 0, 0, 0.0932, 0)                                                         \
  X(index_set, 111, 0, 0, 0, 0.227, 0)                                                           \
  X(index_erase, 129, 0, 0, 0, 0.435, 0)                                                         \
  X(hierarchical_begin, 54, 0.381, 0, 0, 0.587, 0)                                               \
  X(hierarchical_poll, 64.7, 0, 0, 0, 0.00885, 0)                                                \
  X(hierarchical_release, 74.6, 0, 0, 0, 0, 0)                                                   \
  X(test_and_set_try, 143, 0.0448, 0, 0, 0.149, 0)                                               \
  X(test_and_set_poll, 113, 0.0131, 0, 0.114, 0.634, 0)                                          \
  X(test_and_set_release, 303, 0.206, 0, 0, 0.19, 0)                                             \
  X(sherman_begin, 220, 0.0244, 0, 0, 0.0325, 0)                                                 \
  X(sherman_level, 13, 0, 0, 0, 0, 0)                                                            \
  X(sherman_advance, 37.1, 0, 0, 0.0332, 0.0749, 0)                                              \
  X(sherman_write, 241, 0, 0, 0, 0, 0)                                                           \
  X(mpi_lock, 69, 0, 0, 0, 0, 0)                                                                 \
  X(mpi_lock_try, 179, 0, 0, 0.429, 1.57, 0)                                                     \
  X(mpi_unlock, 215, 0, 0, 0, 1, 0)                                                              \
  X(ycsb_begin, 225, 0.00748, 0, 0, 1.35, 0)                                                     \
  X(ycsb_turn, 63.6, 0, 0, 0, 0, 0)                                                              \
  X(ycsb_slot, 48.6, 0, 0, 0, 0, 0)                                                              \
  X(ycsb_end, 72.6, 0, 0, 0, 0.00501, 0)                                                         \
  X(lock_section, 342, 0, 0, 0.462, 0.462, 0)                                                    \
  X(transfer, 648, 0, 0, 0.778, 2.17, 0)                                                         \
  X(barrier_turn, 88.2, 0, 0, 0, 0, 0)
// clang-format on

namespace pyrdma::loco::scope {

#define PYRDMA_SCOPE(NAME, ...) inline constexpr CpuScope NAME{"loco/" #NAME, __VA_ARGS__};
PYRDMA_LOCO_SCOPES(PYRDMA_SCOPE)
#undef PYRDMA_SCOPE

#define PYRDMA_SCOPE(NAME, ...) &NAME,
inline constexpr const CpuScope* all[] = {PYRDMA_LOCO_SCOPES(PYRDMA_SCOPE)};
#undef PYRDMA_SCOPE

}  // namespace pyrdma::loco::scope
