// What services of different nodes send each other: the header of messages, and datagrams of the
// control path. Plain data; every field of a received one is checked before its use.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "base/checksum.h"
#include "fabric/types.h"

namespace pyrdma::krcore {

/// What a request needs to address a node's dynamically connected target (section 3.1): 12 bytes.
struct DctMeta {
  std::uint32_t number = 0;
  std::uint32_t key = 0;
  std::uint32_t incarnation = 0;  // of the node
  bool operator==(const DctMeta&) const = default;
};
static_assert(sizeof(DctMeta) == 12);

/// The number of a virtual queue pair on its node: its place in the table, and how often that place
/// has been used. 0 is none.
struct VqpId {
  std::uint16_t index = 0;
  std::uint16_t generation = 0;
  bool operator==(const VqpId&) const = default;
  std::uint32_t number() const { return std::uint32_t{generation} << 16 | index; }
  static VqpId of(std::uint32_t number) {
    return {static_cast<std::uint16_t>(number), static_cast<std::uint16_t>(number >> 16)};
  }
  explicit operator bool() const { return generation != 0; }
};

enum class MessageKind : std::uint8_t {
  kData,
  kZeroCopy,      // the receiver reads the payload (section 4.5)
  kZeroCopyDone,  // it has
  kWriteNotice,   // a write with immediate has been placed
  kTransfer,      // the sender changes its physical queue pair (section 4.6)
  kTransferAck,   // all messages before that have been dispatched
  kFake,          // the fake request of a transfer
  kRefused,       // a message could not be delivered
  kCount,
};

/// The header of a message, in front of its payload (section 4.4).
struct MessageHeader {
  static constexpr std::uint16_t kMagic = 0x4b52;
  static constexpr std::uint16_t kAnyLife = 0xffff;
  std::uint16_t magic = kMagic;
  MessageKind kind = MessageKind::kData;
  std::uint8_t flags = 0;
  std::uint32_t length = 0;  // of the payload
  std::uint32_t to = 0;      // VqpId, or 0: whoever has bound `port`
  std::uint16_t port = 0;
  std::uint16_t to_life = kAnyLife;  // incarnation of the receiver's node, modulo 2^16
  std::uint32_t from_node = 0;
  std::uint32_t from = 0;  // VqpId
  DctMeta meta;            // of the sender's core (section 4.4)
  std::uint32_t immediate = 0;
  std::uint64_t address = 0;     // kZeroCopy: of the payload
  std::uint64_t ticket = 0;      // of the request that an answer belongs to
  std::uint32_t key = 0;         // kZeroCopy: of the payload's region; kRefused: a fabric::Status
  std::uint16_t from_epoch = 0;  // connections of the sender's queue pair so far
  std::uint16_t to_epoch = 0;    // of the receiver's, as the sender knows it; 0: any

  enum Flags : std::uint8_t { kHasImmediate = 1, kAnswer = 2, kAgain = 4, kMask = 7 };
};
static_assert(sizeof(MessageHeader) == 64);

/// Returns the header of a received message of `bytes` bytes, or nothing if it cannot be one.
inline std::optional<MessageHeader> parse_header(const std::byte* at, std::size_t bytes) {
  MessageHeader header;
  if (bytes < sizeof header) return std::nullopt;
  std::memcpy(&header, at, sizeof header);
  if (header.magic != MessageHeader::kMagic || header.kind >= MessageKind::kCount ||
      (header.flags & ~MessageHeader::kMask) != 0)
    return std::nullopt;
  const bool carries = header.kind == MessageKind::kData;
  if (carries && header.length != bytes - sizeof header) return std::nullopt;
  if (!carries && bytes != sizeof header) return std::nullopt;
  return header;
}

enum class ControlKind : std::uint32_t {
  kRegister,     // metadata of the sender, for a meta server
  kRegistered,   // it is in the table
  kQuery,        // asks a node for its own metadata, or a meta server for that of `about`
  kMeta,         // the answer
  kConnect,      // offers a reliable connection between two cores
  kConnectMeta,  // offers one by which the sender reads a meta server's tables
  kAccept,       // its other end
  kConfirm,      // both ends are ready; kRegistered answers
  kRefuse,       // no room for it
  kDisconnect,   // the sender has left the connection
  kCount,
};

/// Where a ClusterHash is. Plain data.
struct TableAddress {
  fabric::RemoteRegion region;
  std::uint32_t buckets = 0, entries = 0;
};

/// Tells whether `answer` is what the receiver of `request` may answer.
inline bool is_answer_to(ControlKind request, ControlKind answer) {
  switch (request) {
    case ControlKind::kRegister:
    case ControlKind::kDisconnect:
      return answer == ControlKind::kRegistered;
    case ControlKind::kQuery:
      return answer == ControlKind::kMeta;
    case ControlKind::kConnectMeta:
      return answer == ControlKind::kAccept;
    case ControlKind::kConnect:
      return answer == ControlKind::kAccept || answer == ControlKind::kRefuse;
    case ControlKind::kConfirm:
      return answer == ControlKind::kRegistered || answer == ControlKind::kRefuse;
    default:
      return false;
  }
}

/// A datagram of the control path. Datagrams may be lost, doubled, delayed or damaged: a request is
/// sent again until its answer comes, and equal requests have equal answers.
struct ControlMessage {
  static constexpr std::uint32_t kMagic = 0x4b524331;
  static constexpr std::uint32_t kAnyLife = ~0U;
  std::uint32_t magic = kMagic;
  ControlKind kind = ControlKind::kRegister;
  std::uint32_t from = 0, to = 0;  // nodes
  std::uint32_t incarnation = 0;   // of the sender
  std::uint32_t about = 0;         // kQuery, kMeta: a node
  std::uint64_t ticket = 0;
  DctMeta meta;
  std::uint32_t core = 0;                   // kConnect, kAccept: the pool that has the connection
  std::uint32_t from_core = 0;              // of the sender
  fabric::QpAddress queue_pair;             // kConnect, kAccept
  fabric::QpAddress port;                   // where the sender takes datagrams
  std::uint32_t to_incarnation = kAnyLife;  // of the receiver, as the sender knows it
  TableAddress tables[2];  // kRegister, kMeta: ValidMR. kAccept of a meta server: its two
  std::uint64_t sum = 0;   // of all before
};

inline std::uint64_t sum_of(const ControlMessage& message) {
  return checksum(std::as_bytes(std::span(&message, 1)).first(offsetof(ControlMessage, sum)));
}

inline std::optional<ControlMessage> parse_control(const std::byte* at, std::size_t bytes) {
  ControlMessage message;
  if (bytes != sizeof message) return std::nullopt;
  std::memcpy(&message, at, sizeof message);
  if (message.magic != ControlMessage::kMagic || message.kind >= ControlKind::kCount ||
      message.sum != sum_of(message))
    return std::nullopt;
  return message;
}

}  // namespace pyrdma::krcore
