// Test helper: the parts of the model of replication: requests, backups that carry them out, and
// jobs of the cleaner.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "systems/tailwind/replication/replicated_log.h"
#include "systems/tailwind/rpc/messages.h"

namespace pyrdma::tailwind {

struct ModelRequest {
  enum class Kind : std::uint8_t { kOpen, kWrite, kVersion, kClose, kCoordinator, kFree } kind;
  ReplicaId id;
  NodeId backup;
  std::uint64_t version;
  std::uint32_t to;
  bool is_copy;
  bool is_refused = false;
  std::size_t generation = 0;  // of the segment's bytes: it counts compactions
  std::uint64_t attempt = 0;   // to open the replica
};

struct ModelBackup {
  struct Held {
    std::uint64_t version = 0;
    bool is_copy = false, is_closed = false;
    std::uint32_t bytes = 0;
    std::size_t generation = 0;
    std::uint64_t attempt = 0;
  };
  std::map<std::uint64_t, Held> replicas;  // by segment

  bool has(std::uint64_t segment, std::uint64_t attempt) const {
    const auto found = replicas.find(segment);
    return found != replicas.end() && found->second.attempt == attempt;
  }
  /// A replica that counts when the coordinator knows the version `least`.
  bool has_valid(std::uint64_t segment, std::uint64_t least) const {
    const auto found = replicas.find(segment);
    return found != replicas.end() &&
           (found->second.is_closed || (!found->second.is_copy && found->second.version >= least));
  }
  /// Carries out the request unless it is refused, and refuses those of a replica that is not here.
  /// Returns false if it has no answer.
  bool take(ModelRequest& request) {
    using Kind = ModelRequest::Kind;
    const std::uint64_t segment = request.id.segment;
    if (request.kind == Kind::kOpen) {
      const auto known = replicas.find(segment);
      if (known != replicas.end() && known->second.attempt > request.attempt) return false;
      if (!request.is_refused)
        replicas[segment] = {request.version, request.is_copy,    false,
                             request.to,      request.generation, request.attempt};
      return true;
    }
    const bool has_it = has(segment, request.attempt);
    if (request.kind == Kind::kFree) {
      if (has_it) replicas.erase(segment);
      return false;
    }
    request.is_refused = request.is_refused || !has_it;
    if (request.is_refused) return true;
    Held& held = replicas.at(segment);
    if (request.kind == Kind::kWrite) {
      held.bytes = request.to;
    } else if (request.kind == Kind::kVersion) {
      held.version = request.version;
      held.is_copy = false;
    } else {
      held.is_closed = true;
    }
    return true;
  }
};

struct ModelCleaning {
  std::vector<std::uint64_t> cleaned, survivors;
  bool has_moved = false;  // all that is of use
  Position end_of_work;
  bool has_begun = false;  // a head behind the survivors is there
  bool is_listed = false;  // later digests have the survivors
};

}  // namespace pyrdma::tailwind
