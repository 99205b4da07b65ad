#include "fabric/sim/dma.h"

#include <algorithm>
#include <cstring>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {

// The message goes out while the NIC still fetches its end. The last byte cannot leave before the
// NIC has fetched it.
Picos Dma::fetch(const Message& message, Picos now, Picos begin) {
  const NicTimes& t = nic_.times();
  const Picos latency = t.tx_latency + nic_.jitter.crossing(t.dma_read);
  if (t.dma_read == 0) return begin + latency;
  const Picos departure = nic_.fabric().network.wire_time(message.wire_bytes);
  return nic_.pcie.read(now, begin, message.chunk.length, departure) + latency;
}

bool Dma::gather(Message& message, std::uint64_t mask) const {
  const Chunk& chunk = message.chunk;
  const SendQueue& sends = message.initiator->sends;
  const std::uint64_t sequence = message.header.sequence;
  const SendEntry& entry = sends[sequence];
  message.reserve_payload();
  std::byte* const payload = message.payload();
  if (entry.is_inline()) {
    std::memcpy(payload, sends.inline_data(sequence) + chunk.offset, chunk.length);
    return true;
  }
  return for_each_piece(
      sends.sges(sequence), entry.sge_count, chunk.offset, chunk.length,
      [&](const Sge& sge, std::uint64_t addr, std::uint32_t bytes, std::uint32_t done) {
        const Region* region = nic_.regions.find(sge.lkey);
        // A null region was deregistered while in use.
        if (region == nullptr) return false;
        const std::byte* from = region->at(addr);
        if (mask == ~0ULL)
          std::memcpy(payload + done, from, bytes);
        else
          Pieces(from, bytes, least_unit(bytes)).copy(payload + done, from, mask);
        return true;
      });
}

bool Dma::scatter(const Message& message, std::uint64_t mask) const {
  const Chunk& chunk = message.chunk;
  if (!chunk.has_payload) return true;
  const SendQueue& sends = message.initiator->sends;
  const std::uint64_t sequence = message.header.sequence;
  const std::byte* const payload = message.payload();
  return for_each_piece(
      sends.sges(sequence), sends[sequence].sge_count, chunk.offset, chunk.length,
      [&](const Sge& sge, std::uint64_t addr, std::uint32_t bytes, std::uint32_t done) {
        const Region* region = nic_.regions.find(sge.lkey);
        if (region == nullptr) return false;
        std::byte* to = region->at(addr);
        nic_.placed(bytes, nic_);
        if (mask == ~0ULL)
          std::memcpy(to, payload + done, bytes);
        else
          Pieces(to, bytes, least_unit(bytes)).copy(to, payload + done, mask);
        return true;
      });
}

}  // namespace pyrdma::fabric::sim
