// The fabric's contract: objects are destroyed in any order, and created up to the device's limits.
#include <algorithm>
#include <functional>

#include "base/error_test.h"
#include "base/rng.h"
#include "fabric/contract_worlds_test.h"

namespace pyrdma::fabric {
namespace {

class FabricLifetimes : public FabricContract {};
INSTANTIATE_TEST_SUITE_P(Worlds, FabricLifetimes, contract_worlds(),
                         [](const auto& info) { return info.param; });

TEST_P(FabricLifetimes, WhatWasMadeInADomainKeepsIt) {
  connect();
  auto domain = a->device.create_protection_domain();
  auto region = a->device.allocate(*domain, 4096, kAllAccess);
  auto q = a->device.create_queue_pair(*domain, *a->sends, *a->receives);
  auto p = b->queue_pair();
  domain.reset();
  q->connect(p->address());
  p->connect(q->address());
  *reinterpret_cast<std::uint64_t*>(region->data()) = 77;
  ASSERT_TRUE(q->write(region->sge(0, 8), b->memory->remote(), 64, 1));
  EXPECT_EQ(a->await_send().status, Status::kSuccess);
  ASSERT_TRUE(p->read(b->memory->sge(0, 8), region->remote(), 0, 2));
  EXPECT_EQ(b->await_send().status, Status::kSuccess);
  EXPECT_EQ(b->load_word(0), 77u);
  EXPECT_EQ(b->load_word(64), 77u);
  // No later domain takes the place of the destroyed one.
  for (std::uint64_t i = 0; i < 8; ++i) {
    domain = a->device.create_protection_domain();
    auto stranger = a->device.create_queue_pair(*domain, *a->sends, *a->receives);
    auto peer = b->queue_pair();
    stranger->connect(peer->address());
    peer->connect(stranger->address());
    ASSERT_TRUE(stranger->write(region->sge(0, 8), b->memory->remote(), 64, 3 + i));
    const Status status = a->await_send().status;
    EXPECT_TRUE(world->is_local_error(status)) << to_string(status);
  }
}

// Node 0 writes while node 1 closes its end. What node 0 knows as written is there, and nothing
// comes later.
TEST_P(FabricLifetimes, NothingFollowsTheEndOfAQueuePair) {
  constexpr std::uint32_t kBytes = 120 << 10, kWords = kBytes / 8;
  const int rounds = kSanitized ? 40 : 400;
  int in_the_middle = 0;
  Rng rng(6);
  start();
  a = std::make_unique<Side>(*world, 0);
  b = std::make_unique<Side>(*world, 1);
  for (int round = 1; round <= rounds; ++round) {
    const auto value = static_cast<std::uint64_t>(round);
    const std::uint32_t writes = rng.below(2) == 0 ? 1 : 30, each = kBytes / writes;
    for (std::uint32_t i = 0; i < kWords; ++i) *a->word(std::size_t{i} * 8) = value;
    auto q = a->queue_pair(), p = b->queue_pair();
    q->connect(p->address());
    p->connect(q->address());
    auto writer = a->env.spawn("writer", [&] {
      for (std::uint32_t i = 0; i < writes; ++i)
        q->write(a->memory->sge(i * each, each), b->memory->remote(), i * each, i);
    });
    ASSERT_TRUE(b->await_word(rng.below(kWords) * 8, value));
    p->modify(round % 2 == 0 ? QpState::kError : QpState::kReset);
    ASSERT_TRUE(b->env.poll_until([&] { return p->is_quiet(); }, b->env.now() + b->timeout));
    std::vector<std::uint64_t> seen(kWords);
    for (std::uint32_t i = 0; i < kWords; ++i) seen[i] = b->load_word(std::size_t{i} * 8);
    writer->join();
    b->env.sleep_until(b->env.now() + 10 * kMicrosecond);
    for (std::uint32_t i = 0; i < kWords; ++i)
      ASSERT_EQ(b->load_word(std::size_t{i} * 8), seen[i]) << "round " << round << " word " << i;
    q->modify(QpState::kError);
    for (std::uint32_t n = 0; n < writes; ++n) {
      const Completion completion = a->await_send();
      if (completion.status != Status::kSuccess) continue;
      const auto* slot = &seen[completion.wr_id * each / 8];
      ASSERT_EQ(std::count(slot, slot + each / 8, value), each / 8) << "round " << round;
    }
    const auto written = static_cast<std::uint32_t>(std::ranges::count(seen, value));
    in_the_middle += written > 0 && written < kWords;
  }
  // Real threads meet as the machine lets them.
  if (GetParam().starts_with("sim")) {
    EXPECT_GT(in_the_middle, rounds / 20);
  }
}

// A node creates objects of all kinds and destroys them with requests in flight in both directions.
TEST_P(FabricLifetimes, AnyOrderOfDestruction) {
  connect();  // the neighbours
  if (!a->device.capabilities().srq || !a->device.capabilities().ud)
    GTEST_SKIP() << "the device lacks shared receive queues or datagrams";
  Rng rng(5);
  const int rounds = world->soft_roce() || kSanitized ? 60 : 400;
  for (int round = 0; round < rounds; ++round) {
    Device& device = a->device;
    auto domain = device.create_protection_domain();
    auto region = device.allocate(*domain, 1 << 16, kAllAccess);
    auto sends = device.create_completion_queue(64), receives = device.create_completion_queue(64);
    auto shared = device.create_shared_receive_queue(*domain, 8);
    QpOptions options;
    options.retry_count = 0;  // peers of destroyed queue pairs give up at once
    auto q = device.create_queue_pair(*domain, *sends, *receives, options, shared.get());
    options.transport = Transport::kUd;
    auto datagrams = device.create_queue_pair(*domain, *sends, *receives, options);
    auto handle = device.create_address_handle(*domain, datagrams->address());
    options.transport = Transport::kRc;
    Side other(*world, 1, 1 << 16);
    auto p = other.queue_pair(options);
    q->connect(p->address());
    p->connect(q->address());
    datagrams->connect({});
    const Sge all = region->sge(0, 1 << 16), head = region->sge(0, 64);
    for (std::uint64_t i = 0; i < 4; ++i) {
      const ReceiveRequest receive{i, &head, 1};
      shared->post_receive({&receive, 1});
      datagrams->receive(head);
      q->write(all, other.memory->remote(), 0);
      q->read(all, other.memory->remote(), 0);
      p->write(other.memory->sge(0, 1 << 16), region->remote(), 0);
      p->send(other.memory->sge(0, 64));
      const Sge small = region->sge(64, 8);
      WorkRequest request;
      request.sges = &small;
      request.sge_count = 1;
      request.opcode = Opcode::kSend;
      request.address_handle = handle.get();
      request.remote_qpn = datagrams->qp_num();
      request.remote_qkey = options.qkey;
      datagrams->post({&request, 1});
    }
    if (rng.below(2) == 0) {  // some requests complete, and some completions are polled
      a->env.sleep_until(a->env.now() + static_cast<Time>(rng.below(20)) * kMicrosecond);
      Completion polled[4];
      sends->poll(polled);
      receives->poll({polled, 1});
    }
    std::vector<std::function<void()>> users = {[&] { q.reset(); }, [&] { datagrams.reset(); }};
    std::vector<std::function<void()>> used = {[&] { sends.reset(); }, [&] { receives.reset(); },
                                               [&] { shared.reset(); }};
    std::vector<std::function<void()>> free = {[&] { domain.reset(); }, [&] { region.reset(); },
                                               [&] { p.reset(); }};
    while (!users.empty() || !used.empty() || !free.empty()) {
      auto& from = rng.below(2) == 0 && !free.empty() ? free : !users.empty() ? users : used;
      if (from.empty()) continue;
      const auto at = from.begin() + static_cast<std::ptrdiff_t>(rng.below(from.size()));
      (*at)();
      from.erase(at);
    }
    handle.reset();  // no object uses the handle any more
    ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 0, 1));
    ASSERT_TRUE(qa->read(a->memory->sge(8, 8), b->memory->remote(), 0, 2));
    ASSERT_NO_FATAL_FAILURE(expect_send(1));
    ASSERT_NO_FATAL_FAILURE(expect_send(2));
  }
}

class FabricNumbers : public FabricLifetimes {
 protected:
  using Make = std::function<void()>;
  /// Calls `make` until it is refused, `most` times at most. Returns the text of the refusal.
  static std::string until_refused(const Make& make, int most) {
    for (int made = 0; made < most; ++made) {
      try {
        make();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kExhausted);
        return error.what();
      }
    }
    return "";
  }
  /// Creates as many objects as allowed, if the test can reach the limit. The refusal must name
  /// `limit`.
  template <class Object>
  void check(std::vector<std::unique_ptr<Object>>& objects, const Make& make,
             const std::string& limit) {
    const bool has_limit = GetParam() == "shm";
    const int enough = world->soft_roce() ? 300 : 1000;
    const std::string told = until_refused(make, has_limit ? 1 << 17 : enough);
    EXPECT_EQ(told.empty(), !has_limit) << "after " << objects.size() << ": " << told;
    ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 0, 1));
    expect_send(1);
    if (!has_limit) return;
    EXPECT_TRUE(names(told, {limit}));
    for (int i = 0; i < 1 << 16; ++i) ASSERT_THROW(make(), Error);  // refusals use no room
    for (int i = 0; i < 3; ++i) {
      objects.erase(objects.begin() + 1);
      EXPECT_NO_THROW(make()) << "there is room again";
      EXPECT_THROW(make(), Error) << "for one";
    }
  }
  void make_shared(std::uint32_t entries) {
    shared.push_back(a->device.create_shared_receive_queue(*a->pd, entries, 1));
  }
  void TearDown() override {
    queue_pairs.clear();
    queues.clear();
    shared.clear();
    regions.clear();
  }
  std::vector<std::unique_ptr<QueuePair>> queue_pairs;
  std::vector<std::unique_ptr<MemoryRegion>> regions;
  std::vector<std::unique_ptr<CompletionQueue>> queues;
  std::vector<std::unique_ptr<SharedReceiveQueue>> shared;
};
INSTANTIATE_TEST_SUITE_P(Worlds, FabricNumbers, and_verbs({"sim", "shm"}),
                         [](const auto& info) { return info.param; });

TEST_P(FabricNumbers, QueuePairs) {
  connect();
  QpOptions least;
  least.send_entries = least.receive_entries = least.max_sges = 1;
  check(
      queue_pairs, [&] { queue_pairs.push_back(a->queue_pair(least)); }, "65535 queue pairs");
  auto peer = b->queue_pair();
  QueuePair& last = *queue_pairs.back();
  last.connect(peer->address());
  peer->connect(last.address());
  ASSERT_TRUE(last.write(a->memory->sge(0, 8), b->memory->remote(), 8, 2));
  EXPECT_EQ(a->await_send().status, Status::kSuccess) << "the last works as the first";
}

TEST_P(FabricNumbers, QueuePairsWithLongQueues) {
  connect();
  QpOptions longest;
  longest.receive_entries = GetParam() == "shm" ? a->device.capabilities().max_queue_entries : 1024;
  longest.max_sges = 1;
  check(
      queue_pairs, [&] { queue_pairs.push_back(a->queue_pair(longest)); }, "MiB; use fewer");
}

TEST_P(FabricNumbers, Regions) {
  connect();
  check(
      regions, [&] { regions.push_back(a->device.allocate(*a->pd, 64)); }, "65536 regions");
}

TEST_P(FabricNumbers, SharedReceiveQueues) {
  connect();
  if (!a->device.capabilities().srq) GTEST_SKIP() << "the device has no shared receive queues";
  const std::uint32_t entries =
      GetParam() == "shm" ? a->device.capabilities().max_queue_entries : 16;
  check(
      shared, [&] { make_shared(entries); }, "MiB; use fewer");
}

TEST_P(FabricNumbers, CompletionQueues) {
  connect();
  const std::uint32_t entries = GetParam() == "shm" ? 2048 : 16;
  if (GetParam() == "shm")  // other queues take most of the room; their pages stay unused
    until_refused([&] { make_shared(a->device.capabilities().max_queue_entries); }, 1 << 17);
  check(
      queues, [&] { queues.push_back(a->device.create_completion_queue(entries)); },
      "MiB; use fewer");
}

TEST_P(FabricLifetimes, DeviceMemoryIsUsedUpAndComesBack) {
  connect();
  const std::uint64_t all = a->device.capabilities().device_memory_bytes;
  if (all == 0) GTEST_SKIP() << "the device has no memory of its own";
  std::vector<std::unique_ptr<MemoryRegion>> regions;
  for (int i = 0; i < 4; ++i)
    regions.push_back(a->device.allocate_device_memory(*a->pd, all / 4 / 8 * 8));
  const auto one_more = [&] { return a->device.allocate_device_memory(*a->pd, all / 4 / 8 * 8); };
  EXPECT_THROW(one_more(), Error);
  regions.erase(regions.begin() + 1);
  regions.push_back(one_more());
  EXPECT_THROW(one_more(), Error);
  ASSERT_TRUE(qa->write(regions.back()->sge(0, 8), b->memory->remote(), 0, 1));
  expect_send(1);
}

}  // namespace
}  // namespace pyrdma::fabric
