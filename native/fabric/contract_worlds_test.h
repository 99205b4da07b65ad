// The worlds in which the fabric's contract is tested, behind one face, and what the tests share.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/shm/cluster.h"
#include "fabric/sim/cluster.h"
#include "fabric/sim/profile_test.h"

namespace pyrdma::fabric {

class World {
 public:
  virtual ~World() = default;
  virtual Env& env(NodeId node) = 0;
  virtual void kill(NodeId node) = 0;
};

/// Equal programs on equal seeds give equal runs: under --gtest_repeat=2 each simulated world of
/// each test must end with the fingerprint that it had the first time.
inline void expect_same_run(std::uint64_t fingerprint) {
  static std::map<std::string, std::vector<std::uint64_t>> first_runs;
  static std::string last_name;
  static std::size_t world = 0;  // within the running test
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  if (test == nullptr) return;
  const std::string name = std::string(test->test_suite_name()) + "." + test->name();
  world = name == last_name ? world + 1 : 0;
  last_name = name;
  std::vector<std::uint64_t>& first = first_runs[name];
  if (world == first.size())
    first.push_back(fingerprint);
  else
    EXPECT_EQ(first[world], fingerprint)
        << "world " << world << " of " << name << " ran differently";
}

class SimWorld final : public World {
 public:
  explicit SimWorld(std::uint32_t nodes) : cluster_(options(nodes)) {}
  ~SimWorld() override { expect_same_run(cluster_.fingerprint()); }
  Env& env(NodeId node) override { return cluster_.env(node); }
  void kill(NodeId node) override { cluster_.kill(node); }

 private:
  static sim::SimOptions options(std::uint32_t nodes) {
    sim::SimOptions result;
    result.nodes = nodes;
    result.profile = sim::test_profile();
    return result;
  }
  sim::SimCluster cluster_;
};

class ShmWorld final : public World {
 public:
  explicit ShmWorld(std::uint32_t nodes) : cluster_(shm::ShmOptions{nodes, 1}) {}
  Env& env(NodeId node) override { return cluster_.env(node); }
  void kill(NodeId node) override { cluster_.kill(node); }

 private:
  shm::ShmCluster cluster_;
};

inline std::unique_ptr<World> make_world(const std::string& name, std::uint32_t nodes) {
  if (name == "sim") return std::make_unique<SimWorld>(nodes);
  return std::make_unique<ShmWorld>(nodes);
}

/// What one node has in a test: a domain, a region, a queue for completions of each direction.
struct Side {
  Side(World& world, NodeId node, std::size_t bytes = 1 << 17, std::uint32_t queue_entries = 256)
      : env(world.env(node)),
        device(env.device()),
        pd(device.create_protection_domain()),
        memory(device.allocate(*pd, bytes)),
        sends(device.create_completion_queue(queue_entries)),
        receives(device.create_completion_queue(queue_entries)) {}

  std::unique_ptr<QueuePair> queue_pair(QpOptions options = {},
                                        SharedReceiveQueue* shared = nullptr) {
    return device.create_queue_pair(*pd, *sends, *receives, options, shared);
  }
  /// The next completion; status kGeneral with wr_id ~0 when none came within `timeout`.
  Completion await(CompletionQueue& queue, Time timeout = 2 * kSecond) {
    Completion completion;
    completion.wr_id = ~0ULL;
    completion.status = Status::kGeneral;
    env.poll_until(
        [&] {
          return queue.poll({&completion, 1}) == 1;
        },
        env.now() + timeout, &queue.watch());
    return completion;
  }
  Completion await_send() { return await(*sends); }
  Completion await_receive() { return await(*receives); }
  bool quiet(CompletionQueue& queue, Time time = 2 * kMillisecond) {
    return await(queue, time).wr_id == ~0ULL;
  }
  std::uint64_t* word(std::size_t offset) {
    return reinterpret_cast<std::uint64_t*>(memory->data() + offset);
  }
  bool await_word(std::size_t offset, std::uint64_t value) {
    return env.poll_until(
        [&] {
          env.charge(Cost::kPredicate);
          return load_word(offset) == value;
        },
        env.now() + 2 * kSecond);
  }
  std::uint64_t load_word(std::size_t offset) {
    return __atomic_load_n(word(offset), __ATOMIC_ACQUIRE);
  }
  void fill(std::size_t offset, std::size_t bytes, unsigned seed) {
    for (std::size_t i = 0; i < bytes; ++i)
      memory->data()[offset + i] = static_cast<std::byte>(seed + i * 7);
  }
  bool matches(std::size_t offset, std::size_t bytes, unsigned seed) {
    for (std::size_t i = 0; i < bytes; ++i)
      if (memory->data()[offset + i] != static_cast<std::byte>(seed + i * 7)) return false;
    return true;
  }

  Env& env;
  Device& device;
  std::unique_ptr<ProtectionDomain> pd;
  std::unique_ptr<MemoryRegion> memory;
  std::unique_ptr<CompletionQueue> sends, receives;
};

class FabricContract : public testing::TestWithParam<std::string> {
 protected:
  void start(std::uint32_t nodes = 2) {
    qa.reset();
    qb.reset();
    a.reset();
    b.reset();
    world = make_world(GetParam(), nodes);
  }
  /// Nodes 0 (a) and 1 (b) with one connected queue pair.
  void connect(QpOptions options = {}) {
    start();
    a = std::make_unique<Side>(*world, 0);
    b = std::make_unique<Side>(*world, 1);
    if (options.max_inline > a->device.capabilities().max_inline)
      options.max_inline = a->device.capabilities().max_inline;
    qa = a->queue_pair(options);
    qb = b->queue_pair(options);
    qa->connect(qb->address());
    qb->connect(qa->address());
  }
  void expect_send(std::uint64_t wr_id, Status status = Status::kSuccess) {
    const Completion completion = a->await_send();
    EXPECT_EQ(completion.wr_id, wr_id);
    EXPECT_STREQ(to_string(completion.status), to_string(status));
    EXPECT_EQ(completion.qp_num, qa->qp_num());
  }

  std::unique_ptr<World> world;
  std::unique_ptr<Side> a, b;
  std::unique_ptr<QueuePair> qa, qb;
};

}  // namespace pyrdma::fabric
