// What a wait says when its completion queue has overrun. Nothing comes from such a queue any more,
// so a wait for it would not end, or would end with an error that blames somebody else.
#pragma once
#include <cstdint>
#include <string>

#include "fabric/fabric.h"

namespace pyrdma::fabric {

/// The error of the overrun `queue` of node `node`. `owner` is what uses the queue, such as
/// "runtime 'a'". A request whose completion is lost may have had its effect.
inline Error overrun_error(const CompletionQueue& queue, std::uint32_t node,
                           const std::string& owner) {
  return Error(ErrorCode::kUnavailable,
               "node " + std::to_string(node) + ": the completion queue of " + owner +
                   " has overrun its " + std::to_string(queue.entries()) +
                   " entries, so no request of it ends any more; make it anew, with more entries "
                   "or fewer requests in flight",
               false)
      .blaming({node});
}

/// Throws overrun_error() if `queue` has overrun. Call it where a poll has found nothing: a full
/// queue gives what it has, and an overrun one gives nothing.
inline void check_overrun(const CompletionQueue& queue, std::uint32_t node, const char* owner) {
  if (queue.overrun()) [[unlikely]]
    throw overrun_error(queue, node, owner);
}

}  // namespace pyrdma::fabric
