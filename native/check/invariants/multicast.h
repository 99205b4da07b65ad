// Totally ordered multicast with views. Per view v, for members p and q:
// - what p delivered in v is a prefix of what q delivered in v, or the other way round;
// - those that went on from v to the same next view delivered the same in v;
// - nobody delivers a message twice, in whatever views, nor one that was not sent (where the
//   history has sends);
// - of one sender, messages are delivered in the order of their numbers, none left out between two
//   that were delivered in one view and that was sent, too;
// - a view has the same members for all.
// O(n log n) in the number of deliveries.
#pragma once
#include "check/invariants/violation.h"

namespace pyrdma::check {

/// Points deliver (node, epoch: the view, value [sender, number]) and view (node, epoch: the view,
/// value: list of members), operations bcast (value as deliver's). Keys tell groups apart.
MaybeViolation check_multicast(const History& history, const Operations& operations);

}  // namespace pyrdma::check
