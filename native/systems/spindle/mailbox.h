// What a script sends and takes. Messages wait in a mailbox until the script takes them.
#pragma once
#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "env/sync.h"
#include "systems/spindle/group.h"

namespace pyrdma::spindle {

/// A queue of items for each subgroup. Any thread may call it; one sends at a time.
template <class Item>
class Mailbox {
 public:
  Mailbox(Env& env, std::size_t subgroups)
      : env_(env), sending_(env), mutex_(env), items_(subgroups) {}

  /// Adds `make(message)` for each message.
  template <class Make>
  void put(std::uint32_t subgroup, std::span<const Message> messages, Make&& make) {
    {
      const std::lock_guard<Mutex> lock(mutex_);
      for (const Message& message : messages) items_[subgroup].push_back(make(message));
    }
    env_.notify(arrived_);
  }
  /// Takes up to `most` items, oldest first; waits up to `timeout` for the first one.
  std::vector<Item> take(std::uint32_t subgroup, std::size_t most, Time timeout) {
    std::vector<Item> taken;
    const auto take_some = [&] {
      const std::lock_guard<Mutex> lock(mutex_);
      std::deque<Item>& items = items_.at(subgroup);
      while (!items.empty() && taken.size() < most) {
        taken.push_back(std::move(items.front()));
        items.pop_front();
      }
      return !taken.empty();
    };
    if (!take_some()) env_.poll_until(take_some, env_.now() + timeout, &arrived_);
    return taken;
  }

  /// Sends the messages, each in a slot of its own; waits for slots. Throws Error(kTimeout), naming
  /// the member that lags and the number of messages that were sent, and else as Group::send does.
  void send(Group& group, std::uint32_t subgroup, const std::vector<std::string>& messages,
            Time timeout) {
    const std::lock_guard<Mutex> lock(sending_);
    const Time deadline = group.env().now() + timeout;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const std::string& message = messages[i];
      const std::span<std::byte> slot = group.reserve(subgroup, deadline);
      if (slot.empty()) {
        throw Error(ErrorCode::kTimeout,
                    std::to_string(i) + " of " + std::to_string(messages.size()) +
                        " messages were sent in time: " + group.describe_wait(subgroup),
                    false);
      }
      std::memcpy(slot.data(), message.data(), std::min(message.size(), slot.size()));
      group.send(subgroup, static_cast<std::uint32_t>(message.size()));
    }
  }

 private:
  Env& env_;
  Mutex sending_;
  Mutex mutex_;  // guards items_
  Watch arrived_;
  std::vector<std::deque<Item>> items_;
};

}  // namespace pyrdma::spindle
