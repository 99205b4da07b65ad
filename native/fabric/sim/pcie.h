// The PCIe link between a NIC and its host. Each direction carries packets with a header. The
// latency of a read or write is a parameter of the profile. This class adds the time that a
// transfer waits for the transfers before it.
#pragma once
#include <cstdint>

#include "fabric/sim/profile.h"
#include "fabric/sim/server.h"

namespace pyrdma::fabric::sim {

class Pcie {
 public:
  static constexpr std::uint32_t kCompletionBytes = 64;  // a completion queue entry
  static constexpr std::uint32_t kDoorbellBytes = 8;
  static constexpr std::uint32_t kRequestBytes = 64;  // a work request or a posted receive
  explicit Pcie(const SimProfile& profile)
      : payload_(static_cast<std::uint32_t>(profile.pcie_payload_bytes)),
        picos_per_byte_(8000.0 / profile.pcie_rate_gbps),
        header_(static_cast<Picos>(profile.pcie_header_bytes * picos_per_byte_)) {}

  /// The NIC writes `bytes` to host memory. They come in during `arrival` and end at `end`. The DMA
  /// engine needs `engine` besides. Returns the time at which the last byte enters the host.
  Picos write(Picos now, Picos end, std::uint32_t bytes, Picos arrival = 0, Picos engine = 0) {
    return to_host_.pass(now, end, time(bytes) + engine, arrival + engine);
  }
  /// The NIC reads `bytes` of host memory, from `ready` on. They go out during `departure`. Returns
  /// the time at which they can begin to, without the latency of a read.
  Picos read(Picos now, Picos ready, std::uint32_t bytes, Picos departure = 0) {
    const Picos asked = to_host_.serve(now, ready, header_);
    return std::max(asked, to_nic_.serve(now, asked, time(bytes)) - departure);
  }
  /// The CPU stores `bytes` to the NIC's registers.
  void store(std::uint32_t bytes) { to_nic_.serve(0, 0, time(bytes)); }

 private:
  Picos time(std::uint32_t bytes) const {
    const std::uint32_t packets = bytes <= payload_ ? 1 : (bytes + payload_ - 1) / payload_;
    return static_cast<Picos>(bytes * picos_per_byte_) + packets * header_;
  }
  std::uint32_t payload_;
  double picos_per_byte_;
  Picos header_;
  Server to_host_, to_nic_;
};

}  // namespace pyrdma::fabric::sim
