// Totally ordered multicast with views. For each view v and its members p and q:
// - the deliveries of p in v are a prefix of those of q in v, or the other way round;
// - all members that went from v to the same next view delivered the same messages in v;
// - no node delivers a message twice, in whatever views, nor an unsent message (where the history
//   has sends);
// - each node delivers the messages of one sender in the order of their numbers; between two
//   deliveries in one view it leaves out no sent message;
// - a view has the same members at all nodes.
// O(n log n) in the number of deliveries.
#pragma once
#include "check/invariants/violation.h"

namespace pyrdma::check {

/// The points are deliver (node, epoch: the view, value [sender, number]) and view (node, epoch:
/// the view, value: list of members). The operation is bcast (value as for deliver). Keys
/// distinguish groups.
MaybeViolation check_multicast(const History& history, const Operations& operations);

}  // namespace pyrdma::check
