// An order between threads of different processes that costs one side nothing: the rare side makes
// all CPUs order their accesses, so the frequent side needs no fence.
//   frequent: store A; compiler barrier; load B
//   rare:     store B; order_all_threads(); load A
// One of the two loads sees the other side's store.
#pragma once

namespace pyrdma::fabric::shm {

/// Lets order_all_threads() reach the threads of this process. Call it before the frequent side.
void join_thread_order();
/// Costs some microseconds, and a millisecond on a kernel without membarrier(2).
void order_all_threads();

}  // namespace pyrdma::fabric::shm
