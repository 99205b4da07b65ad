// The steps of the service, with the cost of each; see env/scope.h. Written by
// `pyrdma calibrate scopes`, which counts instructions and cache lines in the compiled code. No
// calibration passes the steps of splits and of directory paths (race_split_*, race_look_up_path,
// race_take_path): their costs are estimates.
//
// machine: AMD EPYC
// compiler: g++ (Debian 12.2.0-14+deb12u1) 12.2.0
// commit: 1986bb288e95
#pragma once
#include "env/scope.h"

// clang-format off
//  name, instructions, lines: near, last level, NIC, other core, memory
#define PYRDMA_KRCORE_SCOPES(X) \
  X(create, 289, 0, 0, 0, 0, 0)                                                                  \
  X(connect, 587, 0, 0, 0, 0, 0)                                                                 \
  X(meta_lookup, 418, 0, 0, 1, 0, 0)                                                             \
  X(push, 424, 0, 0, 0, 0.0177, 0)                                                               \
  X(check_request, 346, 0, 0, 0, 0.00506, 0)                                                     \
  X(region_miss, 1350, 0, 0, 1, 0, 0)                                                            \
  X(post_physical, 211, 0, 0, 0, 0.00398, 0)                                                     \
  X(poll, 221, 0, 0, 0, 0.00454, 0)                                                              \
  X(poll_inner, 86.4, 0, 0, 0, 0.0235, 0)                                                        \
  X(dispatch_completion, 170, 0, 0, 0, 0.00558, 0)                                               \
  X(poll_receives, 87.4, 0, 0, 0.306, 0.00885, 0)                                                \
  X(take_message, 483, 0, 0, 0, 0.347, 0)                                                        \
  X(post_receive, 391, 0, 0, 0, 0.0402, 0)                                                       \
  X(pop_messages, 299, 0, 0, 0, 0.34, 0)                                                         \
  X(control_look, 65, 0, 0, 0, 0, 0)                                                             \
  X(look_after, 150, 0, 0, 0, 1.14, 0)                                                           \
  X(builder_turn, 170, 0, 0, 0, 1, 0)                                                            \
  X(call, 109, 0, 0, 0, 0, 0)                                                                    \
  X(forget_regions, 173, 0, 0, 0, 0, 0)                                                          \
  X(load_turn, 165, 0, 0, 0, 0, 0)                                                               \
  X(load_address, 51, 0, 0, 0, 0, 0)                                                             \
  X(race_start, 301, 0.544, 0, 0, 0, 0)                                                          \
  X(race_find_buckets, 693, 0.11, 0, 0, 0, 0)                                                    \
  X(race_judge_buckets, 411, 0.399, 0, 2, 0, 0)                                                  \
  X(race_read_blocks, 317, 0.531, 0, 0, 0, 0)                                                    \
  X(race_compare_keys, 186, 0.102, 0, 1.02, 0, 0)                                                \
  X(race_look_up_path, 150, 0, 0, 0, 0, 0)                                                       \
  X(race_take_path, 120, 0, 0, 2, 0, 0)                                                          \
  X(race_place, 1170, 0.186, 0, 0, 0, 0)                                                         \
  X(race_look_again, 468, 0.346, 0, 2, 0, 0)                                                     \
  X(race_resolve, 17.1, 0, 0, 0, 0, 0)                                                           \
  X(race_swap_slot, 164, 0, 0, 0, 0, 0)                                                          \
  X(race_finish, 27, 0.0128, 0, 0, 0, 0)                                                         \
  X(race_ring, 1060, 0.0375, 0, 0, 0, 0)                                                         \
  X(race_take_completion, 93.7, 0.404, 0, 0, 0.00145, 0)                                         \
  X(race_split_begin, 150, 0, 0, 1, 0, 0)                                                        \
  X(race_split_look, 900, 0, 0, 48, 0, 0)                                                        \
  X(race_split_pass, 9000, 0, 0, 100, 0, 0)                                                      \
  X(race_split_publish, 1500, 0, 0, 0, 0, 0)                                                     \
  X(race_split_clean, 2000, 0, 0, 48, 0, 0)                                                      \
  X(lite_post, 95, 0.0269, 0, 0, 0.0258, 0)                                                      \
  X(lite_poll, 110, 0, 0, 0, 0, 0)                                                               \
  X(metadata_ask, 588, 0, 0, 1, 0, 0)                                                            \
  X(metadata_round, 426, 0, 0, 0.5, 0, 0)                                                        \
  X(metadata_request, 280, 0, 0, 0, 0, 0)
// clang-format on

namespace pyrdma::krcore::scope {

#define PYRDMA_SCOPE(NAME, ...) inline constexpr CpuScope NAME{"krcore/" #NAME, __VA_ARGS__};
PYRDMA_KRCORE_SCOPES(PYRDMA_SCOPE)
#undef PYRDMA_SCOPE

#define PYRDMA_SCOPE(NAME, ...) &NAME,
inline constexpr const CpuScope* all[] = {PYRDMA_KRCORE_SCOPES(PYRDMA_SCOPE)};
#undef PYRDMA_SCOPE

}  // namespace pyrdma::krcore::scope
