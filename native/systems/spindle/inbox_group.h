// A group for scripts: it keeps what it delivers until the script takes it, and a record of the
// views. A message is copied once, out of its slot.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "env/sync.h"
#include "systems/spindle/group.h"

namespace pyrdma::spindle {

class InboxGroup {
 public:
  struct Delivered {
    NodeId sender = 0;
    std::uint64_t view = 0, sequence = 0;
    Bytes bytes;
  };
  /// A view that this node has entered.
  struct Entered {
    Time time = 0;
    std::uint64_t view = 0;
    std::vector<NodeId> members;
  };

  /// Throws like Group.
  InboxGroup(Env& env, const Options& options, const std::vector<SubgroupSpec>& subgroups);
  Group& group() { return *group_; }

  /// Sends the messages, each in a slot of its own; waits for slots. Throws Error(kTimeout), naming
  /// the member that lags and the number of messages that were sent.
  void send(std::uint32_t subgroup, const std::vector<std::string>& messages, Time timeout);
  /// Takes up to `most` messages, oldest first; waits up to `timeout` for the first one.
  std::vector<Delivered> receive(std::uint32_t subgroup, std::size_t most, Time timeout);
  std::vector<Entered> events();

 private:
  Env& env_;
  Mutex mutex_;
  Watch arrived_;
  std::uint64_t view_ = 0;
  std::vector<std::deque<Delivered>> inbox_;  // by subgroup
  std::vector<Entered> events_;
  std::unique_ptr<Group> group_;
};

}  // namespace pyrdma::spindle
