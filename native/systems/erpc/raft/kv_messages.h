// The commands of clients and their answers, and their encoding. A command is also the payload of
// its entry in the log.
//
// command: operation (1), value size (1), zeros (6), client (8), sequence (8), key (16), value
// answer:  status (1), found (1), value size (1), zero (1), leader's node + 1 (4), sequence (8),
//          version (8), value
#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace pyrdma::erpc::raft {

inline constexpr std::size_t kKeyBytes = 16;  // paper, section 7.1
inline constexpr std::size_t kMaxValue = 64;

using Key = std::array<std::byte, kKeyBytes>;

/// Value holds at most kMaxValue bytes.
struct Value {
  std::array<std::byte, kMaxValue> bytes{};
  std::uint8_t size = 0;
  ByteView view() const { return ByteView(bytes).first(size); }
  bool operator==(const Value& other) const;
  /// Takes the first kMaxValue bytes.
  static Value of(ByteView bytes);
};

enum class KvOperation : std::uint8_t { kPut = 1, kGet };

struct KvCommand {
  KvOperation operation = KvOperation::kGet;
  std::uint64_t client = 0;    // chosen by the client, different for each
  std::uint64_t sequence = 0;  // from 1; a retry keeps it
  Key key{};
  Value value;  // of a put
};

enum class KvStatus : std::uint8_t {
  kDone = 1,
  kNotLeader,       // ask `leader` if it is not 0; a put may have happened: retry with its sequence
  kBusy,            // nothing has happened
  kStale,           // a later command of this client has already been done
  kTooManyClients,  // the table of sessions is full; nothing has happened
  kMalformed,
};

struct KvAnswer {
  KvStatus status = KvStatus::kMalformed;
  bool found = false;          // by a get
  std::uint32_t leader = 0;    // the leader's node + 1, or 0 if it is unknown
  std::uint64_t sequence = 0;  // of the command
  std::uint64_t version = 0;   // puts of the key so far; of a put: this one included
  Value value;                 // that a get has found
};

Bytes encode(const KvCommand& command);
Bytes encode(const KvAnswer& answer);
/// Both return nothing for bytes that are no command, or no answer.
std::optional<KvCommand> decode_command(ByteView bytes);
std::optional<KvAnswer> decode_answer(ByteView bytes);

}  // namespace pyrdma::erpc::raft
