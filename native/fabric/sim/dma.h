// Payloads between a NIC and its host's memory: the NIC fetches the payloads of outgoing requests
// and stores the payloads of incoming responses.
#pragma once
#include <cstdint>

#include "env/sim/event_queue.h"
#include "fabric/types.h"

namespace pyrdma::fabric::sim {

class Nic;
struct Message;

class Dma {
 public:
  explicit Dma(Nic& nic) : nic_(nic) {}

  /// Fetches a chunk's payload from `begin` on. Returns the time at which the message may leave.
  Picos fetch(const Message& message, Picos now, Picos begin);
  /// Copies the current bytes of the chunk, or only its pieces in `mask`, from the requester's
  /// memory into the message. The chunk is not empty. Returns false when its region is
  /// deregistered.
  bool gather(Message& message, std::uint64_t mask) const;
  /// Copies a response's bytes, or only the pieces in `mask`, to the request's scatter list.
  /// Returns false when a region was deregistered after the check of the request.
  bool scatter(const Message& message, std::uint64_t mask) const;

 private:
  Nic& nic_;
};

/// Walks the `length` bytes that begin `skip` bytes into a scatter-gather list. The walk calls
/// visit(sge, address, bytes, done) for each contiguous piece; `done` counts the bytes of the
/// pieces before. The walk stops and returns false when a visit returns false.
template <class Visit>
bool for_each_piece(const Sge* sges, std::uint32_t count, std::uint64_t skip, std::uint32_t length,
                    Visit&& visit) {
  std::uint32_t done = 0;
  for (const Sge* sge = sges; sge != sges + count && done < length; ++sge) {
    if (skip >= sge->length) {
      skip -= sge->length;
      continue;
    }
    const std::uint64_t rest = sge->length - skip;
    const std::uint32_t left = length - done;
    const std::uint32_t bytes = rest < left ? static_cast<std::uint32_t>(rest) : left;
    if (!visit(*sge, sge->addr + skip, bytes, done)) return false;
    done += bytes;
    skip = 0;
  }
  return true;
}

}  // namespace pyrdma::fabric::sim
