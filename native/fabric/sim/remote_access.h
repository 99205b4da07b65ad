// What one-sided requests do to a region of the target, after the checks of the responder.
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
  /// Samples the target's memory; long reads do it chunk by chunk (Responses).
  Status read(Message& message, const QueuePairCore& target);
  Status atomic(Message& message, const QueuePairCore& target, Picos now, bool duplicate);
  /// The region that a request names, when it may access `bytes` there; else null.
  const Region* accessible(const Message& message, const QueuePairCore& target, std::uint64_t bytes,
                           std::uint32_t access) const;

 private:
  void execute_atomic(Message& message, const Region& region, Picos now);
  Nic& nic_;
};

}  // namespace pyrdma::fabric::sim
