// The worlds of the tests of the fabric's contract, behind one interface, and the tests' fixture.
#pragma once
#include <gtest/gtest.h>
#include <sys/utsname.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "env/env_decorator.h"
#include "env/faults.h"
#include "fabric/fabric.h"
#include "fabric/hooks/faulty_device.h"
#include "fabric/shm/cluster.h"
#include "fabric/sim/cluster.h"
#include "fabric/sim/profile_test.h"
#include "fabric/verbs/cluster.h"

namespace pyrdma::fabric {

/// Tests do fewer rounds under the sanitizers, because many rounds take too long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

class World {
 public:
  virtual ~World() = default;
  virtual Env& env(NodeId node) = 0;
  virtual void kill(NodeId node) = 0;
  /// Returns whether the device is Soft-RoCE; fabric/verbs/README.md lists its differences from
  /// NICs.
  virtual bool soft_roce() { return false; }
  /// Returns whether a request that its own side refuses may end as flushed. Soft-RoCE after
  /// Linux 6.1 flushes the queue pair before it reports the error.
  virtual bool loses_local_errors() { return false; }
  bool is_local_error(Status status) {
    return status == Status::kLocalProtection ||
           (status == Status::kFlushed && loses_local_errors());
  }
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
  SimWorld(std::uint32_t nodes, sim::MemoryModel memory) : cluster_(options(nodes, memory)) {}
  ~SimWorld() override { expect_same_run(cluster_.fingerprint()); }
  Env& env(NodeId node) override { return cluster_.env(node); }
  void kill(NodeId node) override { cluster_.kill(node); }

 private:
  static sim::SimOptions options(std::uint32_t nodes, sim::MemoryModel memory) {
    sim::SimOptions result;
    result.nodes = nodes;
    result.profile = sim::test_profile();
    result.memory = memory;
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

/// A world whose devices are decorated.
class HookedWorld final : public World {
 public:
  HookedWorld(std::unique_ptr<World> inner, std::uint32_t nodes, const FaultOptions& faults)
      : inner_(std::move(inner)), options_(faults) {
    for (NodeId node = 0; node < nodes; ++node)
      nodes_.push_back(std::make_unique<Node>(inner_->env(node), options_, node));
  }
  Env& env(NodeId node) override { return nodes_[node]->env; }
  void kill(NodeId node) override { inner_->kill(node); }
  const FaultCounters& counters(NodeId node) const { return nodes_[node]->counters; }

 private:
  struct Node {
    Node(Env& inner, const FaultOptions& options, NodeId node)
        : faults(options, 7, node, counters),
          device(wrap_with_faults(inner.device(), inner, faults, kHookFaults)),
          env(inner, *device) {}
    FaultCounters counters;
    FaultStream faults;
    std::unique_ptr<Device> device;
    EnvWithDevice env;
  };
  std::unique_ptr<World> inner_;
  FaultOptions options_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

/// Over a real RDMA device, loopback included. Several nodes open it once each.
class VerbsWorld final : public World {
 public:
  explicit VerbsWorld(std::uint32_t nodes) : cluster_(verbs::VerbsOptions{nodes, 1, {}}) {}
  Env& env(NodeId node) override { return cluster_.env(node); }
  void kill(NodeId node) override { cluster_.kill(node); }
  bool soft_roce() override { return env(0).device().name().rfind("rxe", 0) == 0; }
  bool loses_local_errors() override {
    utsname kernel{};
    int major = 0, minor = 0;
    if (uname(&kernel) != 0 || std::sscanf(kernel.release, "%d.%d", &major, &minor) != 2)
      return false;
    return soft_roce() && std::pair(major, minor) > std::pair(6, 1);
  }

 private:
  verbs::VerbsCluster cluster_;
};

/// Worlds that stand on these and come from layers above, by name. They are registered before
/// main().
struct OtherWorld {
  std::unique_ptr<World> (*make)(std::uint32_t nodes) = nullptr;
  std::map<std::string, std::string> leaves_out;  // tests, and why each does not hold there
};
inline std::map<std::string, OtherWorld>& other_worlds() {
  static std::map<std::string, OtherWorld> worlds;
  return worlds;
}

/// Makes the world "sim" (with weak memory), "sim_strong", "shm" or "verbs". "_hooked" adds
/// decorators, whose faults are on and never fire.
inline std::unique_ptr<World> make_world(const std::string& name, std::uint32_t nodes) {
  if (name == "sim") return std::make_unique<SimWorld>(nodes, sim::MemoryModel::weak());
  if (name == "sim_strong") return std::make_unique<SimWorld>(nodes, sim::MemoryModel::strong());
  if (name == "verbs") return std::make_unique<VerbsWorld>(nodes);
  if (name == "shm") return std::make_unique<ShmWorld>(nodes);
  if (const auto other = other_worlds().find(name); other != other_worlds().end())
    return other->second.make(nodes);
  FaultOptions faults;
  for (std::size_t i = 0; i < kFaults; ++i)
    if (kHookFaults.has(static_cast<Fault>(i))) faults.settings[i].rate = 1e-18;
  return std::make_unique<HookedWorld>(make_world(name.substr(0, 3), nodes), nodes, faults);
}
/// A real device is used only when PYRDMA_TEST_VERBS is set, as tests/softroce does.
inline auto and_verbs(std::vector<std::string> names) {
  if (std::getenv("PYRDMA_TEST_VERBS") != nullptr) names.emplace_back("verbs");
  return testing::ValuesIn(names);
}
inline auto contract_worlds() {
  std::vector<std::string> names{"sim", "sim_strong", "shm", "sim_hooked", "shm_hooked"};
  for (const auto& [name, world] : other_worlds()) names.push_back(name);
  return and_verbs(names);
}

/// The objects of one node in a test: a domain, a region, a completion queue for each direction.
struct Side {
  Side(World& world, NodeId node, std::size_t bytes = 1 << 17, std::uint32_t queue_entries = 256)
      : timeout(world.soft_roce() ? 30 * kSecond : 2 * kSecond),  // its CPU may be emulated
        env(world.env(node)),
        device(env.device()),
        pd(device.create_protection_domain()),
        memory(device.allocate(*pd, bytes, kAllAccess)),
        sends(device.create_completion_queue(queue_entries)),
        receives(device.create_completion_queue(queue_entries)) {}

  std::unique_ptr<QueuePair> queue_pair(QpOptions options = {},
                                        SharedReceiveQueue* shared = nullptr) {
    return device.create_queue_pair(*pd, *sends, *receives, options, shared);
  }
  Completion await(CompletionQueue& queue) { return await(queue, timeout); }
  /// Returns the next completion; status kGeneral and wr_id ~0 if none came within `timeout`.
  Completion await(CompletionQueue& queue, Time timeout) {
    Completion completion;
    const bool found = env.poll_until(
        [&] {
          return queue.poll({&completion, 1}) == 1;
        },
        env.now() + timeout, &queue.watch());
    if (found) return completion;
    Completion none;
    none.wr_id = ~0ULL;
    none.status = Status::kGeneral;
    return none;
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
    return env.poll_until([&] { return load_word(offset) == value; }, env.now() + timeout);
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

  Time timeout;
  Env& env;
  Device& device;
  std::unique_ptr<ProtectionDomain> pd;
  std::unique_ptr<MemoryRegion> memory;
  std::unique_ptr<CompletionQueue> sends, receives;
};

class FabricContract : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto other = other_worlds().find(GetParam());
    if (other == other_worlds().end()) return;
    const std::string whole = testing::UnitTest::GetInstance()->current_test_info()->name();
    const auto reason = other->second.leaves_out.find(whole.substr(0, whole.find('/')));
    if (reason != other->second.leaves_out.end()) GTEST_SKIP() << reason->second;
  }
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
