// Groups in the worlds of the tests. The nodes of a world live in this process and share what a
// test has seen.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/error_test.h"
#include "runtime/worlds_test.h"
#include "systems/spindle/group.h"

namespace pyrdma::spindle {

inline constexpr Time kPatience = 30 * kSecond;

/// Sets what the world asks for: patience where a busy machine may stop a thread for long.
inline Options options_of(const std::string& world, Options options) {
  if (world.rfind("sim", 0) != 0) {
    options.suspicion_timeout = 2 * kSecond;
    options.join_timeout = kPatience;
  } else {
    options.heartbeat = 20 * kMicrosecond;
    options.suspicion_timeout = 400 * kMicrosecond;
    options.join_timeout = 50 * kMillisecond;
    options.idle_after = 200 * kMicrosecond;
    options.timeout_us = 16;
    options.retry_count = 3;
  }
  return options;
}

/// Byte `i` of message `number` of a node.
inline std::byte byte_of(NodeId node, std::uint64_t number, std::size_t i) {
  return static_cast<std::byte>(mix64(node * 1000003ULL + number) >> (i % 7) * 8);
}

struct Delivery {
  std::uint32_t subgroup = 0;
  std::uint64_t view = 0;
  NodeId sender = 0;
  std::uint64_t number = 0;  // of the message at its sender
  bool operator==(const Delivery&) const = default;
};

/// What the nodes of a test have delivered. All nodes lock it.
class Log {
 public:
  explicit Log(std::uint32_t nodes) : deliveries_(nodes), views_(nodes) {}
  void deliver(NodeId node, const Delivery& delivery) {
    const std::lock_guard<std::mutex> lock(mutex_);
    deliveries_[node].push_back(delivery);
  }
  void accept(Member member, const ViewShape& shape) {
    const std::lock_guard<std::mutex> lock(mutex_);
    accepted_[shape.id].push_back(member);
  }
  /// A member has accepted a view before it enters it.
  void enter(NodeId node, const ViewShape& shape) {
    const std::lock_guard<std::mutex> lock(mutex_);
    EXPECT_EQ(std::ranges::count(accepted_[shape.id], node, &Member::node), 1)
        << "node " << node << " has not accepted view " << shape.id;
    views_[node].push_back(shape);
  }
  /// All members have accepted a view before it runs.
  void run(const ViewShape& shape) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Member& member : shape.members) {
      EXPECT_EQ(std::ranges::count(accepted_[shape.id], member), 1)
          << "node " << member.node << " has not accepted view " << shape.id;
    }
  }
  std::size_t count(NodeId node) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return deliveries_[node].size();
  }
  std::vector<Delivery> of(NodeId node) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return deliveries_[node];
  }
  std::vector<ViewShape> views(NodeId node) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return views_[node];
  }

 private:
  std::mutex mutex_;  // of the test, not of the protocol
  std::vector<std::vector<Delivery>> deliveries_;
  std::vector<std::vector<ViewShape>> views_;
  std::map<std::uint64_t, std::vector<Member>> accepted_;
};

/// A node of a test: its group, and upcalls that check each message and log it.
class TestNode {
 public:
  TestNode(Env& env, const std::string& world, const Options& options,
           const std::vector<SubgroupSpec>& specs, Log& log, Bugs bugs = {})
      : env_(env), log_(log) {
    Upcalls upcalls;
    upcalls.deliver = [this](std::uint32_t subgroup, std::span<const Message> messages) {
      for (const Message& message : messages) take(subgroup, message);
    };
    upcalls.view = [this](const ViewShape& shape) {
      view_ = shape.id;
      log_.enter(env_.node(), shape);
    };
    upcalls.accept = [this](const ViewShape& shape) { log_.accept(group_->self(), shape); };
    upcalls.run = [this](const ViewShape& shape) { log_.run(shape); };
    upcalls.save = [this](std::uint32_t subgroup) {
      Bytes state;
      ByteWriter(state).put(taken(subgroup));
      return state;
    };
    upcalls.load = [this](std::uint32_t subgroup, ByteView state) {
      const std::lock_guard<std::mutex> lock(mutex_);
      taken_[subgroup] = ByteReader(state).get<std::uint64_t>();
    };
    group_ = std::make_unique<Group>(env, options_of(world, options), specs, upcalls, bugs);
  }
  Group& group() { return *group_; }
  /// Messages of the subgroup that this node knows of: by its state, or delivered.
  std::uint64_t taken(std::uint32_t subgroup) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return taken_[subgroup];
  }

  /// Sends a message of so many bytes, at least 12: node, number, pattern.
  bool send(std::uint32_t subgroup, std::uint32_t bytes, Time deadline = kForever) {
    const std::span<std::byte> slot = group_->reserve(subgroup, deadline);
    if (slot.empty()) return false;
    const std::uint64_t number = sent_++;
    const NodeId node = env_.node();
    std::memcpy(slot.data(), &node, 4);
    std::memcpy(slot.data() + 4, &number, 8);
    for (std::size_t i = 12; i < bytes; ++i) slot[i] = byte_of(node, number, i);
    group_->send(subgroup, bytes);
    return true;
  }
  /// Sends a message of 12 bytes if a slot is free; makes no turn.
  bool try_send(std::uint32_t subgroup) {
    Bytes message;
    ByteWriter writer(message);
    writer.put(env_.node());
    writer.put(sent_);
    const bool is_sent = group_->try_send(subgroup, message);
    sent_ += is_sent ? 1 : 0;
    return is_sent;
  }
  bool wait_for(const std::function<bool()>& ready) {
    return group_->wait_until(ready, env_.now() + kPatience);
  }

 private:
  void take(std::uint32_t subgroup, const Message& message) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++taken_[subgroup];
    }
    Delivery delivery{subgroup, view_, 0, 0};
    ASSERT_GE(message.bytes.size(), 12U);
    std::memcpy(&delivery.sender, message.bytes.data(), 4);
    std::memcpy(&delivery.number, message.bytes.data() + 4, 8);
    EXPECT_EQ(delivery.sender, message.node);
    for (std::size_t i = 12; i < message.bytes.size(); ++i)
      ASSERT_EQ(message.bytes[i], byte_of(delivery.sender, delivery.number, i));
    log_.deliver(env_.node(), delivery);
  }
  Env& env_;
  Log& log_;
  std::uint64_t view_ = 0, sent_ = 0;
  std::mutex mutex_;
  std::map<std::uint32_t, std::uint64_t> taken_;
  std::unique_ptr<Group> group_;
};

inline std::vector<NodeId> all_nodes(std::uint32_t nodes) {
  std::vector<NodeId> all(nodes);
  std::iota(all.begin(), all.end(), NodeId{0});
  return all;
}

/// Runs `per_node` on every node of a group of all nodes, then waits until all are done.
inline void run_group(const std::string& world, std::uint32_t nodes, const Options& options,
                      const std::vector<SubgroupSpec>& specs, Log& log,
                      const std::function<void(TestNode&, Env&)>& per_node) {
  std::atomic<std::uint32_t> done{0};
  runtime::run_world(world, nodes, [&](Env& env, const runtime::Kill&) {
    TestNode node(env, world, options, specs, log);
    node.group().found(all_nodes(nodes));
    per_node(node, env);
    done.fetch_add(1);
    EXPECT_TRUE(node.wait_for([&] { return done.load() == nodes; }));
  });
}

inline std::vector<std::string> spindle_worlds() {
#if defined(__SANITIZE_THREAD__)
  std::vector<std::string> names{"shm"};
#else
  std::vector<std::string> names{"sim", "sim_strong", "shm"};
#endif
  if (std::getenv("PYRDMA_TEST_VERBS") != nullptr) names.emplace_back("verbs");
  return names;
}

}  // namespace pyrdma::spindle
