// The steps of a client, with the cost of each; see env/scope.h.
//
// These counts are estimates: instructions were counted by hand in the source, roughly, and lines
// by what a step touches. `pyrdma calibrate scopes` has not measured them yet.
#pragma once
#include "env/scope.h"

// clang-format off
//  name, instructions, lines: near, last level, NIC, other core, memory
#define PYRDMA_RACE_SCOPES(X) \
  X(start, 220, 0, 0, 0, 0, 0)                                                                   \
  X(find_buckets, 180, 0, 0, 0, 0, 0)                                                            \
  X(judge_buckets, 260, 0, 0, 4, 0, 0)                                                           \
  X(read_blocks, 120, 0, 0, 0, 0, 0)                                                             \
  X(compare_keys, 250, 0, 0, 2, 0, 0)                                                            \
  X(look_up_path, 150, 0, 0, 0, 0, 0)                                                            \
  X(take_path, 120, 0, 0, 2, 0, 0)                                                               \
  X(place, 200, 0, 0, 0, 0, 0)                                                                   \
  X(look_again, 260, 0, 0, 5, 0, 0)                                                              \
  X(resolve, 120, 0, 0, 0, 0, 0)                                                                 \
  X(swap_slot, 90, 0, 0, 0, 0, 0)                                                                \
  X(swapped, 80, 0, 0, 1, 0, 0)                                                                  \
  X(finish, 70, 0, 0, 0, 0, 0)                                                                   \
  X(ring, 60, 0, 0, 0, 0, 0)                                                                     \
  X(take_completion, 70, 0, 0, 0, 0, 0)                                                          \
  X(split_begin, 150, 0, 0, 1, 0, 0)                                                             \
  X(split_look, 900, 0, 0, 48, 0, 0)                                                             \
  X(split_pass, 9000, 0, 0, 100, 0, 0)                                                           \
  X(split_publish, 1500, 0, 0, 0, 0, 0)                                                          \
  X(split_clean, 2000, 0, 0, 48, 0, 0)
// clang-format on

namespace pyrdma::krcore::race::scope {

#define PYRDMA_SCOPE(NAME, ...) inline constexpr CpuScope NAME{"race/" #NAME, __VA_ARGS__};
PYRDMA_RACE_SCOPES(PYRDMA_SCOPE)
#undef PYRDMA_SCOPE

#define PYRDMA_SCOPE(NAME, ...) &NAME,
inline constexpr const CpuScope* all[] = {PYRDMA_RACE_SCOPES(PYRDMA_SCOPE)};
#undef PYRDMA_SCOPE

}  // namespace pyrdma::krcore::race::scope
