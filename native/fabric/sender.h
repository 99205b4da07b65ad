// Who has sent a datagram. A message may claim anything; what the network says of its sender is as
// true as the network: over shared memory the sender's process writes it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fabric/types.h"

namespace pyrdma::fabric {

/// Returns whether a header of kGrhBytes names `gid` as its sender. Sources: InfiniBand
/// Architecture Specification, section 8.3 (the header begins with version 6, and has the sender's
/// GID at byte 8), and annex A17.4.5.2 (RoCE v2 over IPv4: the last 20 bytes are an IPv4 header,
/// which has the sender's address at byte 12).
inline bool names_sender(const std::byte* header, const std::uint8_t (&gid)[16]) {
  constexpr std::uint8_t kIpv4[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  constexpr std::size_t kGidAt = 8, kIpv4At = kGrhBytes - 20, kSourceAt = kIpv4At + 12;
  const bool is_ipv4 =
      std::memcmp(gid, kIpv4, sizeof kIpv4) == 0 && header[kIpv4At] == std::byte{0x45};
  if (is_ipv4 && std::memcmp(header + kSourceAt, gid + sizeof kIpv4, 4) == 0) return true;
  return (header[0] >> 4U) == std::byte{6} && std::memcmp(header + kGidAt, gid, sizeof gid) == 0;
}

/// Returns whether the queue pair at `address` has sent a datagram, whose completion has
/// `source_qpn` and `source_node`, and whose receive begins with `header` of kGrhBytes. The network
/// names the node, or over RoCE its GID. An InfiniBand datagram within a subnet (an address with a
/// LID) has the number of the queue pair alone.
inline bool is_from(std::uint32_t source_qpn, std::uint32_t source_node, const std::byte* header,
                    const QpAddress& address) {
  if (source_qpn != address.qp_num) return false;
  if (source_node != kNoNode) return source_node == address.node;
  return address.lid != 0 || names_sender(header, address.gid);
}
inline bool is_from(const Completion& datagram, const std::byte* header, const QpAddress& address) {
  return is_from(datagram.source_qpn, datagram.source_node, header, address);
}

/// Returns whether both are the address of one queue pair.
inline bool is_same_pair(const QpAddress& a, const QpAddress& b) {
  return a.node == b.node && a.qp_num == b.qp_num && a.lid == b.lid &&
         std::memcmp(a.gid, b.gid, sizeof a.gid) == 0;
}

}  // namespace pyrdma::fabric
