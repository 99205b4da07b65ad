// The steps of the service, with the cost of each; see env/scope.h. Written by
// `pyrdma calibrate scopes`, which counts instructions and cache lines in the compiled code.
//
// machine: estimates
// compiler: estimates
// commit: estimates
#pragma once
#include "env/scope.h"

// clang-format off
//  name, instructions, lines: near, last level, NIC, other core, memory
#define PYRDMA_KRCORE_SCOPES(X) \
  X(create, 120, 0, 0, 0, 0, 0)                                                                  \
  X(connect, 150, 0, 0, 0, 0, 0)                                                                 \
  X(meta_lookup, 200, 0, 0, 0, 0, 0)                                                             \
  X(push, 150, 0, 0, 0, 0, 0)                                                                    \
  X(check_request, 80, 0, 0, 0, 0, 0)                                                            \
  X(region_miss, 100, 0, 0, 0, 0, 0)                                                             \
  X(post_physical, 150, 0, 0, 0, 0, 0)                                                           \
  X(poll, 60, 0, 0, 0, 0, 0)                                                                     \
  X(poll_inner, 40, 0, 0, 0, 0, 0)                                                               \
  X(dispatch_completion, 60, 0, 0, 0, 0, 0)                                                      \
  X(poll_receives, 40, 0, 0, 0, 0, 0)                                                            \
  X(take_message, 150, 0, 0, 1, 0, 0)                                                            \
  X(post_receive, 60, 0, 0, 0, 0, 0)                                                             \
  X(pop_messages, 100, 0, 0, 0, 0, 0)                                                            \
  X(control_look, 100, 0, 0, 0, 0, 0)                                                            \
  X(look_after, 100, 0, 0, 0, 0, 0)                                                              \
  X(builder_turn, 100, 0, 0, 0, 0, 0)                                                            \
  X(call, 40, 0, 0, 0, 0, 0)                                                                     \
  X(forget_regions, 40, 0, 0, 0, 0, 0)                                                           \
  X(load_record, 40, 0, 0, 0, 0, 0)                                                              \
  X(load_address, 40, 0, 0, 0, 0, 0)                                                             \
  X(race_start, 220, 0, 0, 0, 0, 0)                                                              \
  X(race_find_buckets, 180, 0, 0, 0, 0, 0)                                                       \
  X(race_judge_buckets, 260, 0, 0, 4, 0, 0)                                                      \
  X(race_read_blocks, 120, 0, 0, 0, 0, 0)                                                        \
  X(race_compare_keys, 250, 0, 0, 2, 0, 0)                                                       \
  X(race_look_up_path, 150, 0, 0, 0, 0, 0)                                                       \
  X(race_take_path, 120, 0, 0, 2, 0, 0)                                                          \
  X(race_place, 200, 0, 0, 0, 0, 0)                                                              \
  X(race_look_again, 260, 0, 0, 5, 0, 0)                                                         \
  X(race_resolve, 120, 0, 0, 0, 0, 0)                                                            \
  X(race_swap_slot, 90, 0, 0, 0, 0, 0)                                                           \
  X(race_swapped, 80, 0, 0, 1, 0, 0)                                                             \
  X(race_finish, 70, 0, 0, 0, 0, 0)                                                              \
  X(race_ring, 60, 0, 0, 0, 0, 0)                                                                \
  X(race_take_completion, 70, 0, 0, 0, 0, 0)                                                     \
  X(race_split_begin, 150, 0, 0, 1, 0, 0)                                                        \
  X(race_split_look, 900, 0, 0, 48, 0, 0)                                                        \
  X(race_split_pass, 9000, 0, 0, 100, 0, 0)                                                      \
  X(race_split_publish, 1500, 0, 0, 0, 0, 0)                                                     \
  X(race_split_clean, 2000, 0, 0, 48, 0, 0)                                                      \
  X(lite_post, 120, 0, 0, 0, 0, 0)                                                               \
  X(lite_poll, 40, 0, 0, 0, 0, 0)                                                                \
  X(metadata_ask, 150, 0, 0, 1, 0, 0)                                                            \
  X(metadata_round, 60, 0, 0, 0, 0, 0)                                                           \
  X(metadata_request, 400, 2, 0, 1, 0, 0)
// clang-format on

namespace pyrdma::krcore::scope {

#define PYRDMA_SCOPE(NAME, ...) inline constexpr CpuScope NAME{"krcore/" #NAME, __VA_ARGS__};
PYRDMA_KRCORE_SCOPES(PYRDMA_SCOPE)
#undef PYRDMA_SCOPE

#define PYRDMA_SCOPE(NAME, ...) &NAME,
inline constexpr const CpuScope* all[] = {PYRDMA_KRCORE_SCOPES(PYRDMA_SCOPE)};
#undef PYRDMA_SCOPE

}  // namespace pyrdma::krcore::scope
