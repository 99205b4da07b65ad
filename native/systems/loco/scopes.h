// The steps of LOCO, its baselines and its workloads, with the cost of each; see env/scope.h.
// Written by `pyrdma calibrate scopes`, which counts instructions and cache lines in the compiled
// code.
//
// machine: AMD EPYC
// compiler: g++ (Debian 12.2.0-14+deb12u1) 12.2.0
// commit: 770bbe04451f
#pragma once
#include "env/scope.h"

// clang-format off
//  name, instructions, lines: near, last level, NIC, other core, memory
#define PYRDMA_LOCO_SCOPES(X) \
  X(acquire, 260, 0, 0, 0, 0, 0)                                                                 \
  X(acquire_begin, 72, 0.00633, 0, 0, 0.00633, 0)                                                \
  X(acquire_turn, 97.1, 0, 0, 0, 0.507, 0)                                                       \
  X(acquire_poll, 46.3, 0.00109, 0, 0.0786, 0.0721, 0)                                           \
  X(acquire_ask, 175, 0.0949, 0, 0, 0.358, 0)                                                    \
  X(acquire_ask_again, 136, 0, 0, 0, 0.118, 0)                                                   \
  X(acquire_hold, 79.5, 0.0303, 0, 0, 0.0182, 0)                                                 \
  X(release, 128, 0, 0, 0, 0.176, 0)                                                             \
  X(hand_over, 42, 0, 0, 0, 0, 0)                                                                \
  X(move_on, 148, 0, 0, 0, 0.212, 0)                                                             \
  X(barrier, 322, 0, 0, 0, 0, 0)                                                                 \
  X(barrier_row, 49.9, 0, 0, 0.0927, 0, 0)                                                       \
  X(push, 144, 0, 0, 0, 0.0173, 0)                                                               \
  X(push_to_one, 85, 0, 0, 0, 0.0349, 0)                                                         \
  X(ring_broadcast, 117, 0.137, 0, 0, 0.541, 0)                                                  \
  X(ring_push, 146, 0.0179, 0, 0, 0.357, 0)                                                      \
  X(ring_acknowledged, 80.4, 0.00279, 0, 0.203, 0.0501, 0)                                       \
  X(ring_next, 133, 0, 0, 0, 0.191, 0)                                                           \
  X(ring_acknowledge, 195, 0, 0, 0, 0.229, 0)                                                    \
  X(power_control, 195, 0, 0, 1, 0, 0)                                                           \
  X(power_convert, 183, 0, 0, 0.25, 0, 0)                                                        \
  X(lookup, 68, 0, 0, 0, 0, 0)                                                                   \
  X(change, 214, 0.036, 0, 0, 0.0288, 0)                                                         \
  X(advance, 54.3, 0, 0, 0, 0.0479, 0)                                                           \
  X(find, 170, 0, 0, 0, 0.0421, 0)                                                               \
  X(judge, 100, 0, 0, 0.663, 0.315, 0)                                                           \
  X(update_locked, 285, 0.0222, 0, 0, 0.7, 0)                                                    \
  X(insert_locked, 262, 0, 0, 0, 2.71, 0)                                                        \
  X(publish, 94.4, 0, 0, 0, 0.8, 0)                                                              \
  X(remove_locked, 171, 0.174, 0, 0, 0.87, 0)                                                    \
  X(forget, 180, 0, 0, 0, 2.05, 0)                                                               \
  X(announce, 180, 0.0185, 0, 0, 0.404, 0)                                                       \
  X(announced, 57.2, 0, 0, 0, 0, 0)                                                              \
  X(track, 330, 0, 0, 0, 0, 0)                                                                   \
  X(apply, 104, 0, 0, 0, 2.08, 0)                                                                \
  X(index_find, 107, 0, 0, 0, 0.129, 0)                                                          \
  X(index_set, 110, 0, 0, 0, 0.368, 0)                                                           \
  X(index_erase, 128, 0, 0, 0, 0.467, 0)                                                         \
  X(hierarchical_begin, 54, 0.451, 0, 0, 0.49, 0)                                                \
  X(hierarchical_poll, 65.1, 0, 0, 0, 0.00866, 0)                                                \
  X(hierarchical_release, 75, 0, 0, 0, 0.0196, 0)                                                \
  X(test_and_set_try, 140, 0.0488, 0, 0, 0.451, 0)                                               \
  X(test_and_set_poll, 120, 0.0203, 0, 0.113, 0.638, 0)                                          \
  X(test_and_set_release, 306, 0.271, 0, 0, 0.271, 0)                                            \
  X(sherman_begin, 226, 0.0297, 0, 0, 0.129, 0)                                                  \
  X(sherman_level, 13, 0, 0, 0, 0, 0)                                                            \
  X(sherman_advance, 37.5, 0, 0, 0.0301, 0.0736, 0)                                              \
  X(sherman_write, 246, 0, 0, 0, 0.294, 0)                                                       \
  X(mpi_lock, 96.2, 0, 0, 0, 0, 0)                                                               \
  X(mpi_lock_try, 185, 0, 0, 0.571, 1.86, 0)                                                     \
  X(mpi_unlock, 170, 0, 0, 0, 1.4, 0)                                                            \
  X(ycsb_begin, 224, 0.00896, 0, 0, 1.32, 0)                                                     \
  X(ycsb_turn, 63.8, 0, 0, 0, 0, 0)                                                              \
  X(ycsb_slot, 48.5, 0, 0, 0, 0, 0)                                                              \
  X(ycsb_end, 72.8, 0, 0, 0, 0.00301, 0)                                                         \
  X(lock_section, 246, 0, 0, 0.25, 0.375, 0)                                                     \
  X(transfer, 609, 0, 0, 0.667, 2.22, 0)                                                         \
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
