// Links carry the messages of a member to the other members. They may lose, delay, duplicate and
// reorder messages, and they know nothing of the content.
#pragma once
#include <cstddef>
#include <functional>
#include <span>

#include "env/env.h"

namespace pyrdma::erpc::raft {

class Links {
 public:
  virtual ~Links() = default;
  /// Sends a copy of `message`. `done` runs once, never inside send(), and says whether the peer
  /// has received the message; `false` may be wrong. It runs when a long message has arrived as a
  /// whole or is given up, however long that takes. It may run after the end of the member, and
  /// does not run after the end of the links. Incoming messages go to Member::receive.
  virtual void send(NodeId to, std::span<const std::byte> message,
                    std::function<void(bool delivered)> done) = 0;
};

}  // namespace pyrdma::erpc::raft
