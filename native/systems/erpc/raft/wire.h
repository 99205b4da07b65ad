// The messages between members, and their encoding. Fields are little-endian. decode() checks each
// field against its bounds, so that a message that lies cannot reach the library.
//
// A message is a header (version, type, two zero bytes, length of the whole) and the fields of its
// type, in the order of the structures below. Source: Raft (Ongaro and Ousterhout 2014), figure 2,
// and the fields that libraft adds (pre-vote, leadership transfer).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"

namespace pyrdma::erpc::raft {

/// Bounds of what a member accepts.
inline constexpr std::uint64_t kMaxNumber = std::uint64_t{1} << 48;  // of an index or a term
/// By how much a term may be ahead of the receiver's. A member that stands for election every
/// millisecond, alone, needs 49 days for it.
inline constexpr std::uint64_t kMaxTermLeap = std::uint64_t{1} << 32;
inline constexpr std::size_t kMaxServers = 16;
inline constexpr std::size_t kMaxEntries = 4096;       // in one message
inline constexpr std::size_t kMaxPayload = 64 * 1024;  // bytes of one entry
inline constexpr std::size_t kWireHeader = 8;

enum class EntryType : std::uint8_t { kCommand = 1, kBarrier, kChange };
enum class Role : std::uint8_t { kStandby, kVoter, kSpare };

struct Server {
  std::uint64_t id = 0;  // node + 1
  Role role = Role::kVoter;
  bool operator==(const Server&) const = default;
};
using Servers = std::vector<Server>;

struct EntryView {
  std::uint64_t term = 0;
  EntryType type = EntryType::kCommand;
  ByteView payload;  // belongs to the caller, or points into the decoded message
};

struct AppendEntries {
  std::uint64_t term = 0, previous_index = 0, previous_term = 0, commit = 0;
  std::vector<EntryView> entries;
};
struct AppendResult {
  std::uint64_t term = 0, rejected = 0, last_index = 0;
};
struct RequestVote {
  std::uint64_t term = 0, candidate = 0, last_index = 0, last_term = 0;
  bool disrupt_leader = false, pre_vote = false;
};
struct VoteResult {
  std::uint64_t term = 0;
  bool granted = false;
  std::uint8_t pre_vote = 0;  // 0 unknown, 1 yes, 2 no
};
struct InstallSnapshot {
  std::uint64_t term = 0, last_index = 0, last_term = 0, servers_index = 0;
  Servers servers;
  ByteView data;
};
struct TimeoutNow {
  std::uint64_t term = 0, last_index = 0, last_term = 0;
};

/// The order gives the type numbers, from 1.
using Message =
    std::variant<AppendEntries, AppendResult, RequestVote, VoteResult, InstallSnapshot, TimeoutNow>;

Bytes encode(const Message& message);
/// Returns nothing for bytes that are no message. The views of the result point into `bytes`.
std::optional<Message> decode(ByteView bytes);
/// The bytes that an entry takes in an AppendEntries.
std::size_t wire_size(const EntryView& entry);

/// Reads the payload of a kChange entry, which libraft has encoded: version 1, the number of
/// servers, then for each its id, its address (text with a final zero) and its role. Returns
/// nothing for other bytes, for ids that occur twice and for an address that is not the id's.
std::optional<Servers> decode_change(ByteView payload);

/// The address of a server: the node's number as text.
std::string address_of(std::uint64_t id);

}  // namespace pyrdma::erpc::raft
