#include "fabric/types.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/error.h"
#include "fabric/fabric.h"

namespace pyrdma::fabric {

const char* to_string(Status status) {
  switch (status) {
    case Status::kSuccess:
      return "success";
    case Status::kLocalLength:
      return "local length error";
    case Status::kLocalQpOperation:
      return "local queue pair operation error";
    case Status::kLocalProtection:
      return "local protection error";
    case Status::kFlushed:
      return "flushed";
    case Status::kRemoteInvalidRequest:
      return "remote invalid request";
    case Status::kRemoteAccess:
      return "remote access error";
    case Status::kRemoteOperation:
      return "remote operation error";
    case Status::kRetryExceeded:
      return "retry count exceeded";
    case Status::kRnrRetryExceeded:
      return "receiver not ready, retry count exceeded";
    case Status::kGeneral:
      return "general error";
  }
  return "unknown status";
}

const char* to_string(Opcode opcode) {
  switch (opcode) {
    case Opcode::kWrite:
      return "write";
    case Opcode::kWriteImm:
      return "write_imm";
    case Opcode::kSend:
      return "send";
    case Opcode::kSendImm:
      return "send_imm";
    case Opcode::kRead:
      return "read";
    case Opcode::kCompareSwap:
      return "compare_swap";
    case Opcode::kFetchAdd:
      return "fetch_add";
    case Opcode::kReceive:
      return "receive";
    case Opcode::kReceiveWriteImm:
      return "receive_write_imm";
  }
  return "unknown opcode";
}

const char* to_string(Transport transport) {
  switch (transport) {
    case Transport::kRc:
      return "RC";
    case Transport::kUc:
      return "UC";
    case Transport::kUd:
      return "UD";
    case Transport::kDc:
      return "DC";
  }
  return "unknown transport";
}

const char* to_string(QpState state) {
  switch (state) {
    case QpState::kReset:
      return "RESET";
    case QpState::kInit:
      return "INIT";
    case QpState::kReadyToReceive:
      return "RTR";
    case QpState::kReadyToSend:
      return "RTS";
    case QpState::kSendQueueError:
      return "SQE";
    case QpState::kError:
      return "ERROR";
  }
  return "unknown state";
}

const char* to_string(PostError error) {
  switch (error) {
    case PostError::kNone:
      return "none";
    case PostError::kQueueFull:
      return "queue full";
    case PostError::kInvalid:
      return "invalid request";
    case PostError::kInvalidState:
      return "invalid queue pair state";
  }
  return "unknown post error";
}

void check_transition(QpState from, QpState next) {
  const bool allowed = next == QpState::kReset ||
                       (next == QpState::kError && from != QpState::kReset) ||
                       (next == QpState::kInit && from == QpState::kReset) ||
                       (next == QpState::kReadyToReceive && from == QpState::kInit) ||
                       (next == QpState::kReadyToSend &&
                        (from == QpState::kReadyToReceive || from == QpState::kSendQueueError));
  if (allowed) return;
  throw Error(ErrorCode::kInvalidArgument, std::string("a queue pair cannot go from ") +
                                               to_string(from) + " to " + to_string(next) +
                                               "; the order is RESET, INIT, RTR, RTS, and ERROR "
                                               "follows any of them but RESET");
}

namespace {

std::string in_hex(std::uint32_t bits) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  do text.insert(text.begin(), kDigits[bits % 16]);
  while ((bits /= 16) != 0);
  return "0x" + text;
}

void check_known(const char* what, std::uint32_t access, std::uint32_t known) {
  if ((access & ~known) == 0) return;
  throw Error(ErrorCode::kInvalidArgument, std::string(what) + " access " + in_hex(access) +
                                               " has unknown bits; give bits of " + in_hex(known));
}

}  // namespace

std::uint32_t access_for(Opcode opcode) {
  switch (opcode) {
    case Opcode::kWrite:
    case Opcode::kWriteImm:
      return kLocalWrite | kRemoteWrite;
    case Opcode::kRead:
      return kLocalWrite | kRemoteRead;
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd:
      return kLocalWrite | kRemoteAtomic;
    case Opcode::kSend:
    case Opcode::kSendImm:
    case Opcode::kReceive:
    case Opcode::kReceiveWriteImm:
      break;  // the receiver names the memory
  }
  return kLocalWrite;
}

void check_region_access(std::uint32_t access) {
  check_known("region", access, kAllAccess | kRelaxedOrdering | kOwnFile);
  if ((access & (kRemoteWrite | kRemoteAtomic)) == 0 || (access & kLocalWrite) != 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              "region access " + in_hex(access) +
                  " has remote write or remote atomic without local write; add kLocalWrite "
                  "(LOCAL_WRITE in Python)");
}

void check_queue_pair_access(std::uint32_t access) {
  check_known("queue pair", access, kAllAccess);
}

std::uint32_t reads_in_flight(std::uint32_t own, const QpAddress& peer) {
  if (peer.reads == 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "the peer's address says that it serves no reads (reads is 0); give what the peer's "
        "address() returned, from a queue pair with max_outstanding_reads of 1 or more");
  }
  return std::min<std::uint32_t>(own, peer.reads);
}

void check_receive_strides(const QpOptions& options, const Capabilities& device, bool is_shared) {
  const std::uint32_t strides = options.receive_strides;
  if (strides == 1) return;
  const std::string given = "receive_strides is " + std::to_string(strides);
  const std::uint32_t most = device.max_receive_strides;
  if (most == 1)
    throw Error(ErrorCode::kUnavailable,
                given +
                    "; on this device each datagram takes a receive of its own: give 1 and post "
                    "one receive for each, or use fabric shm, or sim with nic.receive_strides");
  if (!std::has_single_bit(strides) || strides > most)
    throw Error(ErrorCode::kInvalidArgument,
                given + "; give a power of two from 1 to " + std::to_string(most));
  if (options.transport != Transport::kUd || is_shared)
    throw Error(ErrorCode::kInvalidArgument,
                given + " on a queue pair of transport " + to_string(options.transport) +
                    (is_shared ? " with a shared receive queue" : "") +
                    "; give 1, or a UD queue pair with receives of its own");
}

namespace {

void check_zero(const char* fabric, const char* name, std::uint32_t value) {
  if (value == 0) return;
  throw Error(ErrorCode::kInvalidArgument, std::string(name) + " is " + std::to_string(value) +
                                               "; fabric " + fabric +
                                               " allows 0 only; use a device of fabric verbs");
}

}  // namespace

void check_no_path(const char* fabric, const PathOptions& path) {
  check_zero(fabric, "service_level", path.service_level);
  check_zero(fabric, "traffic_class", path.traffic_class);
}

void check_no_path(const char* fabric, const QpOptions& options) {
  check_zero(fabric, "pkey_index", options.pkey_index);
  check_no_path(fabric, options.path);
}

void Rendezvous::throw_size(std::string_view key, std::size_t got, std::size_t wanted) {
  throw Error(ErrorCode::kInvalidArgument,
              "rendezvous key '" + std::string(key) + "' holds " + std::to_string(got) +
                  " bytes instead of " + std::to_string(wanted) +
                  ": the nodes run different programs; start the same build on each");
}

}  // namespace pyrdma::fabric
