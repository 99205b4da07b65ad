// Parts of simulated threads that run on the stack of the external thread.
#include <utility>

#include "base/error.h"
#include "env/sim/scheduler.h"

namespace pyrdma {

void SimScheduler::on_external_stack(FunctionRef<void()> work) {
  if (is_external() || guest_runs_) return work();
  guest_ = &work;
  Fiber::switch_between(current_->fiber, external_.fiber, left_);
}

// Runs on the stack of the external thread, which waits, and goes back to the thread that asked.
void SimScheduler::serve_guest() {
  const FunctionRef<void()>& work = *std::exchange(guest_, nullptr);
  guest_runs_ = true;
  work();
  guest_runs_ = false;
  Fiber::switch_between(external_.fiber, current_->fiber, left_);
}

void SimScheduler::throw_guest_waits() {
  throw Error(ErrorCode::kInvalidArgument,
              "this call waits, and a node program may wait only by await: await an operation of "
              "its node, or give the call to node.do(function, ...)");
}

}  // namespace pyrdma
