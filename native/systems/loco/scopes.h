// The steps of LOCO, its baselines and its workloads, with the cost of each; see env/scope.h.
// Written by `pyrdma calibrate scopes`, which counts instructions and cache lines in the compiled
// code.
//
// machine: AMD EPYC
// compiler: g++ (Debian 12.2.0-14+deb12u1) 12.2.0
// commit: 7c04399e5fb6
#pragma once
#include "env/scope.h"

// clang-format off
//  name, instructions, lines: near, last level, NIC, other core, memory
#define PYRDMA_LOCO_SCOPES(X) \
  X(acquire, 144, 0, 0, 0, 0, 0)                                                                 \
  X(acquire_begin, 72, 0.00221, 0, 0, 0.00221, 0)                                                \
  X(acquire_turn, 115, 0, 0, 0, 0.575, 0)                                                        \
  X(acquire_poll, 47.3, 0.000126, 0, 0.0159, 0.105, 0)                                           \
  X(acquire_ask, 174, 0.049, 0, 0, 0.167, 0)                                                     \
  X(acquire_ask_again, 136, 0, 0, 0, 0.00214, 0)                                                 \
  X(acquire_hold, 65.4, 0.0108, 0, 0, 0.00649, 0)                                                \
  X(release, 221, 0, 0, 0, 0.619, 0)                                                             \
  X(hand_over, 74.6, 0, 0, 0, 0, 0)                                                              \
  X(move_on, 148, 0, 0, 0, 0.115, 0)                                                             \
  X(barrier, 289, 0, 0, 0, 0, 0)                                                                 \
  X(barrier_row, 61.3, 0, 0, 0.094, 0, 0)                                                        \
  X(push, 141, 0, 0, 0, 0.00518, 0)                                                              \
  X(push_to_one, 87.8, 0, 0, 0, 0.019, 0)                                                        \
  X(ring_broadcast, 108, 0.0111, 0, 0, 0.289, 0)                                                 \
  X(ring_push, 163, 0.0179, 0, 0, 0.214, 0)                                                      \
  X(ring_acknowledged, 80.4, 0.00279, 0, 0.145, 0.0167, 0)                                       \
  X(ring_next, 172, 0, 0, 0, 0.0302, 0)                                                          \
  X(ring_acknowledge, 195, 0, 0, 0, 0.125, 0)                                                    \
  X(power_control, 195, 0, 0, 1, 0, 0)                                                           \
  X(power_convert, 183, 0, 0, 0.25, 0, 0)                                                        \
  X(lookup, 68, 0, 0, 0, 0, 0)                                                                   \
  X(change, 214, 0.00719, 0, 0, 0.00719, 0)                                                      \
  X(advance, 54.3, 0, 0, 0, 0.0456, 0)                                                           \
  X(find, 170, 0, 0, 0, 0.0421, 0)                                                               \
  X(judge, 100, 0, 0, 0.663, 0.315, 0)                                                           \
  X(update_locked, 285, 0.0222, 0, 0, 0.578, 0)                                                  \
  X(insert_locked, 262, 0, 0, 0, 1.86, 0)                                                        \
  X(publish, 94.4, 0, 0, 0, 0.8, 0)                                                              \
  X(remove_locked, 171, 0.087, 0, 0, 0.609, 0)                                                   \
  X(forget, 180, 0, 0, 0, 1.5, 0)                                                                \
  X(announce, 180, 0.0111, 0, 0, 0.389, 0)                                                       \
  X(announced, 57.2, 0, 0, 0, 0, 0)                                                              \
  X(track, 237, 0, 0, 0, 0, 0)                                                                   \
  X(apply, 104, 0, 0, 0, 1.21, 0)                                                                \
  X(index_find, 107, 0, 0, 0, 0.129, 0)                                                          \
  X(index_set, 110, 0, 0, 0, 0.368, 0)                                                           \
  X(index_erase, 128, 0, 0, 0, 0.467, 0)                                                         \
  X(hierarchical_begin, 54, 0.431, 0, 0, 0.471, 0)                                               \
  X(hierarchical_poll, 65.2, 0, 0, 0, 0.00867, 0)                                                \
  X(hierarchical_release, 75, 0, 0, 0, 0.0196, 0)                                                \
  X(test_and_set_try, 155, 0.00877, 0, 0, 0.0409, 0)                                             \
  X(test_and_set_poll, 120, 0.000631, 0, 0.107, 0.422, 0)                                        \
  X(test_and_set_release, 302, 0.0411, 0, 0, 0.0685, 0)                                          \
  X(sherman_begin, 199, 0.0198, 0, 0, 0.0594, 0)                                                 \
  X(sherman_level, 19.8, 0, 0, 0, 0, 0)                                                          \
  X(sherman_advance, 37.5, 0, 0, 0, 0.0684, 0)                                                   \
  X(sherman_write, 246, 0, 0, 0, 0.118, 0)                                                       \
  X(mpi_lock, 145, 0, 0, 0, 0, 0)                                                                \
  X(mpi_lock_try, 200, 0, 0, 1, 1.39, 0)                                                         \
  X(mpi_unlock, 260, 0, 0, 0, 1.12, 0)                                                           \
  X(ycsb_begin, 224, 0.00597, 0, 0, 0.982, 0)                                                    \
  X(ycsb_turn, 59.7, 0, 0, 0, 0.269, 0)                                                          \
  X(ycsb_slot, 56.8, 0, 0, 0, 0, 0)                                                              \
  X(ycsb_end, 73.4, 0, 0, 0, 0.0307, 0)                                                          \
  X(lock_section, 555, 0, 0, 0.995, 0.568, 0)                                                    \
  X(transfer, 791, 0, 0, 1.68, 2.08, 0)                                                          \
  X(barrier_turn, 90.9, 0, 0, 0, 0, 0)
// clang-format on

namespace pyrdma::loco::scope {

#define PYRDMA_SCOPE(NAME, ...) inline constexpr CpuScope NAME{"loco/" #NAME, __VA_ARGS__};
PYRDMA_LOCO_SCOPES(PYRDMA_SCOPE)
#undef PYRDMA_SCOPE

#define PYRDMA_SCOPE(NAME, ...) &NAME,
inline constexpr const CpuScope* all[] = {PYRDMA_LOCO_SCOPES(PYRDMA_SCOPE)};
#undef PYRDMA_SCOPE

}  // namespace pyrdma::loco::scope
