// The requests between nodes.
#pragma once
#include <cstdint>

namespace pyrdma::tailwind {

enum class Opcode : std::uint8_t {
  kPing,
  // To the coordinator.
  kEnlist,        // a server is there
  kRenew,         // a server asks for a lease
  kSuspect,       // a server does not answer
  kRaiseVersion,  // of a segment: open replicas of a lower one do not count
  kCreateTable,
  kLocate,  // the tablets and the servers
  // To servers, by the coordinator.
  kUpdate,        // the tablets and the servers have changed
  kStartReading,  // a primary is dead: what of its log is here?
  kRecover,       // a part of a dead primary's tablets
  kForget,        // the log of a dead primary is recovered
  // To servers, by clients.
  kRead,
  kWrite,
  kRemove,
  // To backups.
  kOpen,
  kBackupWrite,
  kSetVersion,
  kClose,
  kFree,
  kReadReplica,  // the entries of a part
  // To primaries, by backups.
  kAskWhole,  // has each segment all its replicas, without those of my node's earlier lives?
  kDamaged,   // a closed replica is not whole here
  kCount,
};

/// Requests of this level run one after the other: a recovery that is asked for again must not run
/// beside the first one, which may still store objects of the same keys.
inline constexpr std::uint32_t kRecoveryLevel = 2;
/// A lease waits for no other request: the coordinator may write to its disk for one.
inline constexpr std::uint32_t kLeaseLevel = 3;
/// A request waits only for requests of lower levels, so a thread for each level that is not one of
/// the configured ones prevents a deadlock.
inline std::uint32_t level_of(Opcode opcode) {
  switch (opcode) {
    case Opcode::kRead:
    case Opcode::kWrite:
    case Opcode::kRemove:
      return 1;
    case Opcode::kRecover:
      return kRecoveryLevel;
    case Opcode::kRenew:
      return kLeaseLevel;
    default:
      return 0;
  }
}
inline constexpr std::uint32_t kLevels = 4;
/// Who may send a request to a server. The transport says who has sent it (Incoming::from).
enum class Asker : std::uint8_t { kAnyone, kServer, kCoordinator };
inline Asker asker_of(Opcode opcode) {
  switch (opcode) {
    case Opcode::kUpdate:
    case Opcode::kStartReading:
    case Opcode::kRecover:
    case Opcode::kForget:
      return Asker::kCoordinator;
    case Opcode::kOpen:
    case Opcode::kBackupWrite:
    case Opcode::kSetVersion:
    case Opcode::kClose:
    case Opcode::kFree:
    case Opcode::kReadReplica:
    case Opcode::kAskWhole:
    case Opcode::kDamaged:
      return Asker::kServer;
    default:
      return Asker::kAnyone;
  }
}
const char* to_string(Opcode opcode);

}  // namespace pyrdma::tailwind
