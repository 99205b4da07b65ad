#include "systems/spindle/inbox_group.h"

#include <mutex>

namespace pyrdma::spindle {

InboxGroup::InboxGroup(Env& env, const Options& options, const std::vector<SubgroupSpec>& subgroups)
    : mutex_(env), mailbox_(env, subgroups.size()) {
  Upcalls upcalls;
  upcalls.deliver = [this](std::uint32_t subgroup, std::span<const Message> messages) {
    mailbox_.put(subgroup, messages, [this](const Message& message) {
      return Delivered{
          message.node, view_, message.sequence, {message.bytes.begin(), message.bytes.end()}};
    });
  };
  upcalls.view = [this, &env](const ViewShape& shape) {
    view_ = shape.id;
    const std::lock_guard<Mutex> lock(mutex_);
    Entered& entered = events_.emplace_back();
    entered.time = env.now();
    entered.view = shape.id;
    for (const Member& member : shape.members) entered.members.push_back(member.node);
  };
  group_ = std::make_unique<Group>(env, options, subgroups, upcalls);
}

std::vector<InboxGroup::Entered> InboxGroup::events() {
  const std::lock_guard<Mutex> lock(mutex_);
  return events_;
}

}  // namespace pyrdma::spindle
