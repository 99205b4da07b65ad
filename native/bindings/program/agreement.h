// The nodes of a program that are processes agree on its end, through the rendezvous.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "env/env.h"

namespace pyrdma::bindings {

/// Each node publishes when it becomes quiet (its function has returned, or has waited for requests
/// for the grace time) and when it becomes active again. Any thread of the node may call.
class Agreement {
 public:
  Agreement(std::string name, std::vector<NodeId> members)
      : name_(std::move(name)), members_(std::move(members)) {}

  /// The node has been quiet for the grace time. Returns true when all members are, and were at the
  /// last call already, so that no request was under way between two of them. Cost: a look-up of
  /// the rendezvous for each member that has become quiet, and for one that has not.
  bool is_quiet(Env& env);
  /// The node has something to do again.
  void is_active(Env& env);

 private:
  void publish(Env& env);
  std::string key(NodeId node, std::uint32_t change) const;

  const std::string name_;
  const std::vector<NodeId> members_;
  std::mutex mutex_;
  std::map<NodeId, std::uint32_t> changes_;  // known ones; an odd number: the node is quiet
  std::uint64_t last_ = 0;                   // sum of all changes when all were quiet
};

}  // namespace pyrdma::bindings
