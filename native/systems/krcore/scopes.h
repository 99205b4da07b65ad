// The steps of the service, with the cost of each; see env/scope.h. Written by
// `pyrdma calibrate scopes`, which counts instructions and cache lines in the compiled code. No
// calibration passes the steps of splits and of directory paths (race_split_*, race_look_up_path,
// race_take_path): their costs are estimates.
//
// machine: AMD EPYC
// compiler: g++ (Debian 12.2.0-14+deb12u1) 12.2.0
// commit: 24026c5426a2
#pragma once
#include "env/scope.h"

// clang-format off
//  name, instructions, lines: near, last level, NIC, other core, memory
#define PYRDMA_KRCORE_SCOPES(X) \
  X(create, 294, 0, 0, 0, 0, 0)                                                                  \
  X(connect, 654, 0, 0, 0, 0, 0)                                                                 \
  X(meta_lookup, 418, 0, 0, 1, 0, 0)                                                             \
  X(push, 519, 0, 0, 0, 0.0135, 0)                                                               \
  X(check_request, 158, 0, 0, 0, 0, 0)                                                           \
  X(region_miss, 1590, 0, 0.514, 1, 0, 0)                                                        \
  X(fill_request, 85.4, 0, 0, 0, 0, 0)                                                           \
  X(post_physical, 66, 0, 0, 0, 0, 0)                                                            \
  X(post_request, 80.3, 0, 0, 0, 0, 0)                                                           \
  X(poll, 217, 0, 0, 0, 0.00817, 0)                                                              \
  X(poll_inner, 81.4, 0, 0, 0, 0.00561, 0)                                                       \
  X(dispatch_completion, 54, 0, 0, 0, 0, 0)                                                      \
  X(end_request, 139, 0, 0, 0, 0.0016, 0)                                                        \
  X(poll_receives, 58.8, 0, 0, 0.157, 0.00368, 0)                                                \
  X(take_message, 486, 0, 0, 0, 0.339, 0)                                                        \
  X(post_receive, 387, 0, 0, 0, 0.0407, 0)                                                       \
  X(pop_messages, 291, 0, 0, 0, 0.491, 0)                                                        \
  X(control_look, 65, 0, 0, 0, 0, 0)                                                             \
  X(look_after, 151, 0, 0, 0, 0.951, 0)                                                          \
  X(builder_turn, 170, 0, 0, 0, 1, 0)                                                            \
  X(call, 114, 0, 0, 0, 0, 0)                                                                    \
  X(forget_regions, 175, 0, 0, 0, 0, 0)                                                          \
  X(load_turn, 180, 0, 0, 0, 0, 0)                                                               \
  X(load_address, 44, 0, 0, 0, 0, 0)                                                             \
  X(race_start, 301, 0.286, 0, 0, 0, 0)                                                          \
  X(race_find_buckets, 688, 0.0954, 0, 0, 0, 0)                                                  \
  X(race_judge_buckets, 261, 0.0165, 0, 2, 0, 0)                                                 \
  X(race_read_blocks, 316, 0.0974, 0, 0, 0, 0)                                                   \
  X(race_compare_keys, 186, 0, 0, 1.02, 0, 0)                                                    \
  X(race_look_up_path, 150, 0, 0, 0, 0, 0)                                                       \
  X(race_take_path, 120, 0, 0, 2, 0, 0)                                                          \
  X(race_place, 1170, 0.0426, 0, 0, 0, 0)                                                        \
  X(race_look_again, 343, 0.0213, 0, 1.94, 0, 0)                                                 \
  X(race_resolve, 17.1, 0, 0, 0, 0, 0)                                                           \
  X(race_swap_slot, 164, 0, 0, 0, 0, 0)                                                          \
  X(race_finish, 27, 0, 0, 0, 0, 0)                                                              \
  X(race_ring, 1080, 0, 0, 0, 0, 0)                                                              \
  X(race_take_completion, 93.6, 0.0371, 0, 0, 0.00143, 0)                                        \
  X(race_split_begin, 150, 0, 0, 1, 0, 0)                                                        \
  X(race_split_look, 900, 0, 0, 48, 0, 0)                                                        \
  X(race_split_pass, 9000, 0, 0, 100, 0, 0)                                                      \
  X(race_split_publish, 1500, 0, 0, 0, 0, 0)                                                     \
  X(race_split_clean, 2000, 0, 0, 48, 0, 0)                                                      \
  X(lite_post, 100, 0.0269, 0, 0, 0.0258, 0)                                                     \
  X(lite_poll, 115, 0, 0, 0, 0, 0)                                                               \
  X(metadata_ask, 598, 0, 0, 1, 0, 0)                                                            \
  X(metadata_round, 426, 0, 0, 0.5, 0, 0)                                                        \
  X(metadata_request, 285, 0, 0, 0, 0, 0)
// clang-format on

namespace pyrdma::krcore::scope {

#define PYRDMA_SCOPE(NAME, ...) inline constexpr CpuScope NAME{"krcore/" #NAME, __VA_ARGS__};
PYRDMA_KRCORE_SCOPES(PYRDMA_SCOPE)
#undef PYRDMA_SCOPE

#define PYRDMA_SCOPE(NAME, ...) &NAME,
inline constexpr const CpuScope* all[] = {PYRDMA_KRCORE_SCOPES(PYRDMA_SCOPE)};
#undef PYRDMA_SCOPE

}  // namespace pyrdma::krcore::scope
