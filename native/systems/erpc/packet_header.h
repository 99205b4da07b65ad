// The header of every packet (eRPC, sections 4.2.1 and 5.1): two words in host byte order, which is
// little-endian on every machine that this code supports. Nothing in a received header is trusted:
// is_sane() tests what a header can say alone, and the receiver tests the rest against its
// sessions.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pyrdma::erpc {

enum class PacketKind : std::uint8_t {
  kRequest,          // client to server: a piece of the request
  kResponseRequest,  // client to server: asks for the next piece of the response (RFR)
  kCreditReturn,     // server to client: a piece of the request has arrived (CR)
  kResponse,         // server to client: a piece of the response
  kManagement,       // both ways: management_message.h
};
inline constexpr std::uint32_t kPacketKinds = 5;

/// The requests of a session are numbered from a random number on (ManagementMessage). A slot's
/// next request has the number of its last one plus the number of slots, modulo 2^36. A packet
/// belongs to the present request of its slot, or to the next one, if the numbers are equal; no
/// number is compared by size. A slot comes to the same number again after 2^30 requests, with 64
/// slots, or more. Each takes a round trip, of half a microsecond at least. So a packet that is
/// taken for one of the later request has been on its way for 8 minutes. The networks of a data
/// center drop a packet after less than a second. TCP assumes two minutes at most (RFC 9293,
/// section 3.4.1).
///
/// An RPC has packets of the client 0 to n-1, and as many of the server. Packet i of the server
/// answers packet i of the client. The pieces of the request come first: the numbers of the
/// response's pieces continue from the last one of the request.
struct PacketHeader {
  static constexpr std::uint32_t kMagic = 11;
  static constexpr std::uint32_t kMaxPacket = (1U << 16U) - 1;
  static constexpr std::uint32_t kMaxMessage = (1U << 24U) - 1;
  static constexpr std::uint64_t kMaxRequest = (1ULL << 36U) - 1;
  static constexpr std::uint32_t kGenerations = 1U << 12U;

  // Bits: magic 0-3, kind 4-6, congested 7, refused 8, packet 16-31, message size 32-55, request
  // type 56-63. Bits 9-15 are zero.
  std::uint64_t what = 0;
  // Bits: request number 0-35, session of the receiver 36-51, its generation 52-63.
  std::uint64_t whose = 0;

  static constexpr std::uint64_t make_what(PacketKind kind, std::uint32_t packet,
                                           std::uint32_t size, std::uint8_t type) {
    return kMagic | static_cast<std::uint64_t>(kind) << 4U |
           static_cast<std::uint64_t>(packet) << 16U | static_cast<std::uint64_t>(size) << 32U |
           static_cast<std::uint64_t>(type) << 56U;
  }
  static std::uint64_t make_whose(std::uint64_t request, std::uint32_t session,
                                  std::uint32_t generation) {
    return request | static_cast<std::uint64_t>(session) << 36U |
           static_cast<std::uint64_t>(generation) << 52U;
  }
  static PacketHeader at(const std::byte* place) {
    PacketHeader header;
    std::memcpy(&header, place, sizeof header);
    return header;
  }
  void store(std::byte* place) const { std::memcpy(place, this, sizeof *this); }

  PacketKind kind() const { return static_cast<PacketKind>(what >> 4U & 7U); }
  /// The server's NIC has seen a mark of congestion on the packet that this one answers.
  bool congested() const { return (what & kCongestedBit) != 0; }
  /// The server has no handler for the request's type, or, with data, the handler has failed.
  bool refused() const { return (what & kRefusedBit) != 0; }
  std::uint32_t packet() const { return static_cast<std::uint32_t>(what >> 16U & 0xffffU); }
  std::uint32_t size() const { return static_cast<std::uint32_t>(what >> 32U & 0xffffffU); }
  std::uint8_t type() const { return static_cast<std::uint8_t>(what >> 56U); }
  std::uint64_t request() const { return whose & kMaxRequest; }
  std::uint32_t session() const { return static_cast<std::uint32_t>(whose >> 36U & 0xffffU); }
  std::uint32_t generation() const { return static_cast<std::uint32_t>(whose >> 52U); }

  bool is_sane() const { return (what & 0xfe0fU) == kMagic && (what >> 4U & 7U) < kPacketKinds; }

  static constexpr std::uint64_t kCongestedBit = 1ULL << 7U;
  static constexpr std::uint64_t kRefusedBit = 1ULL << 8U;
};
inline constexpr std::uint32_t kHeaderBytes = sizeof(PacketHeader);
static_assert(kHeaderBytes == 16);

/// With checksums each header is preceded by one word: the checksum of the header and its data.
inline constexpr std::uint32_t kChecksumBytes = 8;
inline constexpr std::uint32_t kHeaderRoom = kHeaderBytes + kChecksumBytes;

}  // namespace pyrdma::erpc
