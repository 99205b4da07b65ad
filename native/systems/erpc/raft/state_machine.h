// StateMachine is what the members replicate. All members apply the same commands in the same
// order, so apply() must depend on nothing else than its state and the command.
#pragma once
#include <cstdint>

#include "systems/erpc/raft/kv_messages.h"

namespace pyrdma::erpc::raft {

class StateMachine {
 public:
  virtual ~StateMachine() = default;
  /// Applies the command of entry `index` and returns its result. Any bytes may come: a command
  /// that is malformed changes nothing. May not throw, since libraft calls it.
  virtual KvAnswer apply(std::uint64_t index, ByteView command) = 0;
  /// Equal states give equal bytes, at least one.
  virtual Bytes snapshot() const = 0;
  /// Replaces the state. Returns false, and changes nothing, if the bytes are no snapshot.
  virtual bool restore(ByteView snapshot) = 0;
};

}  // namespace pyrdma::erpc::raft
