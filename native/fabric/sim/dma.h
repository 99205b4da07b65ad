// What crosses PCIe between a NIC and its host's memory: payloads of requests on their way out, and
// of responses on their way in.
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

  /// Fetches a chunk's payload from `begin` on; PCIe serves one after the other. Returns when the
  /// message may leave.
  Picos fetch(const Message& message, Picos begin);
  /// Copies the chunk's bytes, as they are now at this initiator, into the message, or only the
  /// pieces in `mask`. False when nobody reads them.
  bool gather(Message& message, std::uint64_t mask) const;
  /// Copies a response's bytes, or only the pieces in `mask`, to where the request wants them.
  /// False when a region is gone since the request was checked.
  bool scatter(const Message& message, std::uint64_t mask) const;

 private:
  Nic& nic_;
  Picos pcie_free_ = 0;
};

/// Walks the `length` bytes that begin `skip` bytes into a scatter-gather list: visit(sge, address,
/// bytes, done) for each contiguous piece, after `done` bytes of others. Stops, and returns false,
/// when a visit does.
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
