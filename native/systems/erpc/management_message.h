// The messages that make, test and end sessions. They travel as datagrams of their own kind between
// the endpoints (session_manager.h).
#pragma once
#include <cstdint>
#include <type_traits>

#include "fabric/types.h"

namespace pyrdma::erpc {

enum class ManagementKind : std::uint32_t {
  kConnect,       // client: make a session with these numbers
  kConnected,     // server: the session is made
  kRefused,       // server: the session cannot be made; `reason` says why
  kDisconnect,    // client: end the session
  kDisconnected,  // server: the session has ended, or never was
  kPing,          // either: is the session alive?
  kPong,          // either: it is
  kReset,         // either: there is no such session here
};
inline constexpr std::uint32_t kManagementKinds = 8;

enum class Refusal : std::uint16_t { kNone, kNoReceives, kOtherOptions, kNoSessions };

/// Plain data. The names "client" and "server" are the roles of the session, whoever sends.
struct ManagementMessage {
  ManagementKind kind = ManagementKind::kConnect;
  Refusal reason = Refusal::kNone;
  std::uint16_t is_for_client = 0;  // an endpoint may be the client and the server of a session
  std::uint64_t client_token = 0;   // random; names the incarnation of the client's endpoint
  std::uint64_t server_token = 0;   // 0 in the first request to connect
  /// Random, and a multiple of `slots`: slot i counts its requests from this number plus i on. It
  /// tells the session from earlier ones of its place, whose generations go round.
  std::uint64_t first_request = 0;
  std::uint32_t client_endpoint = 0, client_incarnation = 0;  // the name of the client's address
  std::uint16_t client_session = 0, client_generation = 0;
  std::uint16_t server_session = 0, server_generation = 0;
  std::uint16_t credits = 0, slots = 0, packet_bytes = 0, checksums = 0;
  fabric::QpAddress sender;  // of the message: where answers go
};
static_assert(std::is_trivially_copyable_v<ManagementMessage>);
static_assert(sizeof(ManagementMessage) == 96);

}  // namespace pyrdma::erpc
