#include "systems/tailwind/rpc/opcode.h"

namespace pyrdma::tailwind {

const char* to_string(Opcode opcode) {
  switch (opcode) {
    case Opcode::kPing:
      return "ping";
    case Opcode::kEnlist:
      return "enlist";
    case Opcode::kRenew:
      return "renew";
    case Opcode::kSuspect:
      return "suspect";
    case Opcode::kRaiseVersion:
      return "raise version";
    case Opcode::kCreateTable:
      return "create table";
    case Opcode::kLocate:
      return "locate";
    case Opcode::kUpdate:
      return "update";
    case Opcode::kStartReading:
      return "start reading";
    case Opcode::kRecover:
      return "recover";
    case Opcode::kForget:
      return "forget";
    case Opcode::kRead:
      return "read";
    case Opcode::kWrite:
      return "write";
    case Opcode::kRemove:
      return "remove";
    case Opcode::kOpen:
      return "open";
    case Opcode::kBackupWrite:
      return "backup write";
    case Opcode::kSetVersion:
      return "set version";
    case Opcode::kClose:
      return "close";
    case Opcode::kFree:
      return "free";
    case Opcode::kReadReplica:
      return "read replica";
    case Opcode::kAskWhole:
      return "ask whole";
    case Opcode::kDamaged:
      return "damaged";
    case Opcode::kCount:
      break;
  }
  return "unknown opcode";
}

}  // namespace pyrdma::tailwind
