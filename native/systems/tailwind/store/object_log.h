// What the store needs of the log that it lies in. The server implements it: it makes new heads,
// and brings what is appended to the backups.
//
// Any thread may call append().
#pragma once
#include <span>

#include "systems/tailwind/log/entry.h"
#include "systems/tailwind/log/log_memory.h"
#include "systems/tailwind/rpc/messages.h"

namespace pyrdma::tailwind {

class ObjectLog {
 public:
  virtual ~ObjectLog() = default;
  /// In one critical section: appends entries, of which all survive a crash or none, sets the place
  /// of each in `places`, and then drops entries that are of no use any more. Returns the end of
  /// the last one. Returns Position{}, and does nothing, when no memory is left. Without entries it
  /// only drops, never fails, and returns the log's end.
  ///
  /// The caller holds locks of keys, so append() must not wait for one who needs them: the cleaner.
  virtual Position append(std::span<const NewEntry> entries, Place* places,
                          std::span<const Place> dropped) = 0;
  virtual LogMemory& memory() = 0;
};

}  // namespace pyrdma::tailwind
