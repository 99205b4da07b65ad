// One-sided requests access a region of the target here, after the checks of the responder.
#pragma once
#include <cstdint>

#include "env/sim/event_queue.h"
#include "fabric/types.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;
struct Message;
struct Region;

class RemoteAccess {
 public:
  explicit RemoteAccess(Nic& nic) : nic_(nic) {}

  Status write(Message& message, const QueuePairCore& target, Picos now);
  /// Samples the target's memory. A read longer than a chunk is only checked here: Responses
  /// samples its memory chunk by chunk.
  Status read(Message& message, const QueuePairCore& target);
  Status atomic(Message& message, const QueuePairCore& target, Picos now);
  /// Returns the value that an executed atomic has found, without a look at its region.
  static void repeat_atomic(Message& message);
  /// Returns the region that a request names, or null when the request must not access `bytes`
  /// bytes there.
  const Region* accessible(const Message& message, const QueuePairCore& target, std::uint64_t bytes,
                           std::uint32_t access) const;

 private:
  std::uint64_t execute_atomic(Message& message, const Region& region, Picos now);
  Nic& nic_;
};

}  // namespace pyrdma::fabric::sim
