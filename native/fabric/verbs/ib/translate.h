// Translates between the values of the fabric and those of libibverbs.
#pragma once
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "fabric/types.h"

namespace pyrdma::fabric::verbs {

/// `receive` says that a receive completed. `soft_roce` says that Soft-RoCE reported the status: it
/// reports a wrong local key or bound as an operation that the queue pair cannot do.
Status status_of(ibv_wc_status status, bool receive, bool soft_roce);
QpState state_of(ibv_qp_state state);
ibv_qp_state state_to(QpState state);
/// Returns an or of IBV_ACCESS_*.
int access_to(std::uint32_t access);
ibv_wr_opcode opcode_to(Opcode opcode);
/// Returns an or of IBV_SEND_* from SendFlags.
inline unsigned send_flags_to(std::uint32_t flags) {
  return ((flags & kSignaled) != 0 ? unsigned{IBV_SEND_SIGNALED} : 0U) |
         ((flags & kInline) != 0 ? unsigned{IBV_SEND_INLINE} : 0U) |
         ((flags & kFence) != 0 ? unsigned{IBV_SEND_FENCE} : 0U);
}
/// Passes pieces without a copy.
inline ibv_sge* pieces(const Sge* sges) {
  static_assert(sizeof(Sge) == sizeof(ibv_sge) && offsetof(Sge, addr) == offsetof(ibv_sge, addr) &&
                offsetof(Sge, length) == offsetof(ibv_sge, length) &&
                offsetof(Sge, lkey) == offsetof(ibv_sge, lkey));
  return reinterpret_cast<ibv_sge*>(const_cast<Sge*>(sges));  // libraries only read them
}
inline constexpr std::uint32_t kMaxServiceLevel = 15, kMaxTrafficClass = 255;
/// A traffic class travels in the global header, so the route gets one.
void set_path(ibv_ah_attr& route, const PathOptions& path);
/// Converts an enumerated MTU to bytes, and back (to the largest that is not larger).
std::uint32_t bytes_of(ibv_mtu mtu);
/// Returns the Gbit/s of data that a port carries, by its active width and speed (the codes of
/// ibv_port_attr; IBTA 14.2.5.6), or 0 for an unknown code. A port of Ethernet has the rate of its
/// name; one of InfiniBand loses the line coding.
double link_gbps_of(std::uint8_t width, std::uint8_t speed, bool ethernet);
/// Returns the exponent n whose time, 4.096 us * 2^n, is at least `microseconds`.
std::uint8_t timeout_exponent(std::uint32_t microseconds);
/// Returns the code of the least receiver-not-ready time of at least `microseconds` (IBTA
/// 9.7.5.2.8, table 46).
std::uint8_t rnr_timer_code(std::uint32_t microseconds);

}  // namespace pyrdma::fabric::verbs
