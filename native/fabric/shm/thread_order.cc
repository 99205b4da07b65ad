#include "fabric/shm/thread_order.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace pyrdma::fabric::shm {

namespace {

bool membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

void join_thread_order() { membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED); }

// Without the call, a store leaves its CPU's buffer long before the sleep ends.
void order_all_threads() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace pyrdma::fabric::shm
