// A group for scripts: it keeps what it delivers until the script takes it, and a record of the
// views. A message is copied once, out of its slot.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "env/sync.h"
#include "systems/spindle/group.h"
#include "systems/spindle/mailbox.h"

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
  Mailbox<Delivered>& mailbox() { return mailbox_; }
  std::vector<Entered> events();

 private:
  std::uint64_t view_ = 0;  // of the thread that makes turns
  Mutex mutex_;             // guards events_
  std::vector<Entered> events_;
  Mailbox<Delivered> mailbox_;
  std::unique_ptr<Group> group_;
};

}  // namespace pyrdma::spindle
