#include "systems/spindle/inbox_group.h"

#include <algorithm>
#include <cstring>
#include <mutex>

namespace pyrdma::spindle {

InboxGroup::InboxGroup(Env& env, const Options& options, const std::vector<SubgroupSpec>& subgroups)
    : env_(env), mutex_(env), inbox_(subgroups.size()) {
  Upcalls upcalls;
  upcalls.deliver = [this](std::uint32_t subgroup, std::span<const Message> messages) {
    const std::lock_guard<Mutex> lock(mutex_);
    for (const Message& message : messages) {
      inbox_[subgroup].push_back(
          {message.node, view_, message.sequence, {message.bytes.begin(), message.bytes.end()}});
    }
    env_.notify(arrived_);
  };
  upcalls.view = [this](const ViewShape& shape) {
    const std::lock_guard<Mutex> lock(mutex_);
    view_ = shape.id;
    Entered& entered = events_.emplace_back();
    entered.time = env_.now();
    entered.view = shape.id;
    for (const Member& member : shape.members) entered.members.push_back(member.node);
  };
  group_ = std::make_unique<Group>(env, options, subgroups, upcalls);
}

void InboxGroup::send(std::uint32_t subgroup, const std::vector<std::string>& messages,
                      Time timeout) {
  const Time deadline = env_.now() + timeout;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string& message = messages[i];
    const std::span<std::byte> slot = group_->reserve(subgroup, deadline);
    if (slot.empty()) {
      throw Error(ErrorCode::kTimeout,
                  "send: " + std::to_string(i) + " of " + std::to_string(messages.size()) +
                      " messages were sent in time: " + group_->describe_wait(subgroup),
                  false);
    }
    std::memcpy(slot.data(), message.data(), std::min(message.size(), slot.size()));
    group_->send(subgroup, static_cast<std::uint32_t>(message.size()));
  }
}

std::vector<InboxGroup::Delivered> InboxGroup::receive(std::uint32_t subgroup, std::size_t most,
                                                       Time timeout) {
  std::vector<Delivered> taken;
  const auto take = [&] {
    const std::lock_guard<Mutex> lock(mutex_);
    std::deque<Delivered>& inbox = inbox_.at(subgroup);
    while (!inbox.empty() && taken.size() < most) {
      taken.push_back(std::move(inbox.front()));
      inbox.pop_front();
    }
    return !taken.empty();
  };
  if (!take()) env_.poll_until(take, env_.now() + timeout, &arrived_);
  return taken;
}

std::vector<InboxGroup::Entered> InboxGroup::events() {
  const std::lock_guard<Mutex> lock(mutex_);
  return events_;
}

}  // namespace pyrdma::spindle
