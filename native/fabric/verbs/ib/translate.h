// Between the fabric's words and libibverbs'.
#pragma once
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "fabric/types.h"

namespace pyrdma::fabric::verbs {

/// `receive`: of a receive. `soft_roce`: Soft-RoCE says it, which reports a local key or bound that
/// is wrong as an operation that the queue pair cannot do.
Status status_of(ibv_wc_status status, bool receive, bool soft_roce);
QpState state_of(ibv_qp_state state);
ibv_qp_state state_to(QpState state);
/// Or of IBV_ACCESS_*.
int access_to(std::uint32_t access);
ibv_wr_opcode opcode_to(Opcode opcode);
/// Or of IBV_SEND_*, from SendFlags.
inline unsigned send_flags_to(std::uint32_t flags) {
  return ((flags & kSignaled) != 0 ? unsigned{IBV_SEND_SIGNALED} : 0U) |
         ((flags & kInline) != 0 ? unsigned{IBV_SEND_INLINE} : 0U) |
         ((flags & kFence) != 0 ? unsigned{IBV_SEND_FENCE} : 0U);
}
/// Pieces are handed over as they are.
inline ibv_sge* pieces(const Sge* sges) {
  static_assert(sizeof(Sge) == sizeof(ibv_sge) && offsetof(Sge, addr) == offsetof(ibv_sge, addr) &&
                offsetof(Sge, length) == offsetof(ibv_sge, length) &&
                offsetof(Sge, lkey) == offsetof(ibv_sge, lkey));
  return reinterpret_cast<ibv_sge*>(const_cast<Sge*>(sges));  // which libraries only read
}
/// Bytes of an enumerated MTU, and back (the largest that is not larger).
std::uint32_t bytes_of(ibv_mtu mtu);
/// The exponent whose time, 4.096 us * 2^n, is at least this.
std::uint8_t timeout_exponent(std::uint32_t microseconds);
/// The code of the least receiver-not-ready time that is at least this (IBTA 9.7.5.2.8, table 46).
std::uint8_t rnr_timer_code(std::uint32_t microseconds);

}  // namespace pyrdma::fabric::verbs
