// FIFO queues whose values are unique: linearizable exactly when four patterns are absent
// (Henzinger, Sezgin, Vafeiadis: Aspect-oriented linearizability proofs, CONCUR 2013):
//   (a) a value comes out that did not go in before;
//   (b) a value comes out twice;
//   (c) a went in before b, and b came out before a, or b came out and a never did;
//   (d) a dequeue finds nothing although at every moment of it something was in there.
// O(n log n). With dequeues of unknown outcome, which may have taken anything, what is found is
// still wrong, but not everything wrong is found.
#pragma once
#include "check/invariants/violation.h"

namespace pyrdma::check {

/// Operations enq and deq, one queue per key. Throws Error(kInvalidArgument) if a value is enqueued
/// twice.
MaybeViolation check_fifo(const History& history, const Operations& operations);

}  // namespace pyrdma::check
