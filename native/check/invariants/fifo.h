// A FIFO queue with unique values is linearizable exactly when four patterns are absent (Henzinger,
// Sezgin, Vafeiadis: Aspect-oriented linearizability proofs, CONCUR 2013):
//   (a) a value comes out that did not go in before;
//   (b) a value comes out twice;
//   (c) a went in before b, and b came out before a, or b came out and a never did;
//   (d) a dequeue finds nothing although the queue held a value at every moment of it.
// O(n log n). A dequeue of unknown outcome may have taken any value. With such dequeues each
// reported violation is still real, but some violations stay unnoticed.
#pragma once
#include "check/invariants/violation.h"

namespace pyrdma::check {

/// The operations are enq and deq, one queue per key. Throws Error(kInvalidArgument) if a value is
/// enqueued twice.
MaybeViolation check_fifo(const History& history, const Operations& operations);

}  // namespace pyrdma::check
