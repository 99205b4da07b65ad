// How a queue pair ends that shares its receives with others. When it is destroyed, it takes its
// completions along. They name the receives that it has taken: without them these are lost. A later
// queue pair may have its number: completions that are left could be taken for the later one's. So
// its owner calls fail(), waits until has_flushed(), takes what the completion queue has, and
// destroys the queue pair then.
#pragma once
#include "base/units.h"
#include "fabric/fabric.h"

namespace pyrdma::fabric {

/// For the NIC: the last completions of a queue pair that has failed come by then.
inline constexpr Time kTimeToFlush = kMillisecond;

/// Returns true when no completion follows of a queue pair that fail() has ended at `failed`. Cost:
/// that of is_quiet(), once the time is over.
inline bool has_flushed(const QueuePair& qp, Time failed, Time now) {
  return now - failed >= kTimeToFlush && qp.is_quiet();
}

}  // namespace pyrdma::fabric
