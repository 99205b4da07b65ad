// The rules of a post, by transport and options, are the same on every provider, because libraries
// check little of this and differ in what they check.
#pragma once
#include <cstdint>

#include "fabric/types.h"

namespace pyrdma::fabric {

/// A set of opcodes has one bit for each.
constexpr std::uint32_t bit(Opcode opcode) { return 1U << static_cast<unsigned>(opcode); }
inline constexpr std::uint32_t kSends = bit(Opcode::kSend) | bit(Opcode::kSendImm);
inline constexpr std::uint32_t kWrites = bit(Opcode::kWrite) | bit(Opcode::kWriteImm);
inline constexpr std::uint32_t kAtomics = bit(Opcode::kCompareSwap) | bit(Opcode::kFetchAdd);
/// The opcodes that bring data back.
inline constexpr std::uint32_t kReturning = bit(Opcode::kRead) | kAtomics;

constexpr bool is_one_of(Opcode opcode, std::uint32_t set) {
  return static_cast<unsigned>(opcode) < 32 && (bit(opcode) & set) != 0;
}

constexpr std::uint32_t allowed_opcodes(Transport transport) {
  switch (transport) {
    case Transport::kRc:
    case Transport::kDc:
      return kSends | kWrites | kReturning;
    case Transport::kUc:
      return kSends | kWrites;
    case Transport::kUd:
      return kSends;
  }
  return 0;
}

/// Each request names its destination.
constexpr bool is_addressed(Transport transport) {
  return transport == Transport::kUd || transport == Transport::kDc;
}
/// The responder answers each request.
constexpr bool is_reliable(Transport transport) {
  return transport == Transport::kRc || transport == Transport::kDc;
}

/// Returns whether a work or receive request has at most `max_sges` pieces.
template <class Request>
constexpr bool has_pieces_up_to(std::uint32_t max_sges, const Request& request) {
  return request.sge_count <= max_sges && (request.sges != nullptr || request.sge_count == 0);
}

/// Returns whether a queue accepts a receive with a buffer for `strides` messages.
constexpr bool has_strides(std::uint32_t strides, const ReceiveRequest& request) {
  return strides == 1 || (request.sge_count == 1 && request.sges[0].length % strides == 0);
}

/// Returns whether a post accepts the request; otherwise the post fails with PostError::kInvalid.
/// `allowed` is the set of the transport, or empty for a queue pair that only receives.
inline bool is_postable(const WorkRequest& request, const QpOptions& options,
                        std::uint32_t allowed) {
  if (!is_one_of(request.opcode, allowed) || !has_pieces_up_to(options.max_sges, request))
      [[unlikely]] {
    return false;
  }
  if (is_addressed(options.transport) && request.address_handle == nullptr) return false;
  if ((request.flags & kInline) == 0) return true;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < request.sge_count; ++i) bytes += request.sges[i].length;
  return bytes <= options.max_inline && !is_one_of(request.opcode, kReturning);
}

}  // namespace pyrdma::fabric
