// The bytes of requests to backups that a primary may send several times, and of their answers.
#pragma once
#include <memory>

#include "systems/tailwind/rpc/messages.h"

namespace pyrdma::tailwind {

template <class Message>
std::shared_ptr<const Bytes> shared_bytes(const Message& message) {
  return std::make_shared<const Bytes>(encoded_bytes(message));
}

/// The status that an answer consists of; kRefused for other bytes.
inline BackupStatus status_in(ByteView answer) {
  if (answer.size() != 1 || answer[0] > static_cast<std::byte>(BackupStatus::kRefused))
    return BackupStatus::kRefused;
  return static_cast<BackupStatus>(answer[0]);
}

}  // namespace pyrdma::tailwind
