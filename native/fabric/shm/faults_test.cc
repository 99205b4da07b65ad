// Faults of nodes over shared memory, set by the options of the cluster.
#include "env/faults.h"

#include <gtest/gtest.h>

#include "base/error_test.h"
#include "fabric/fabric.h"
#include "fabric/shm/cluster.h"

namespace pyrdma::fabric::shm {
namespace {

/// Sends datagrams in one lossy direction and returns the number that the receiver gets.
std::uint64_t received_of(ShmCluster& cluster, int count) {
  Env &from = cluster.env(0), &to = cluster.env(1);
  QpOptions options;
  options.transport = Transport::kUd;
  struct End {
    explicit End(Env& env)
        : device(env.device()),
          pd(device.create_protection_domain()),
          memory(device.allocate(*pd, 4096, kAllAccess)),
          completions(device.create_completion_queue(256)) {}
    Device& device;
    std::unique_ptr<ProtectionDomain> pd;
    std::unique_ptr<MemoryRegion> memory;
    std::unique_ptr<CompletionQueue> completions;
  };
  End a(from), b(to);
  auto qa = a.device.create_queue_pair(*a.pd, *a.completions, *a.completions, options);
  auto qb = b.device.create_queue_pair(*b.pd, *b.completions, *b.completions, options);
  qa->connect({});
  qb->connect({});
  auto handle = a.device.create_address_handle(*a.pd, qb->address());
  std::uint64_t received = 0;
  for (int i = 0; i < count; ++i) {
    EXPECT_TRUE(qb->receive(b.memory->sge(0, 64)));
    const Sge sge = a.memory->sge(0, 8);
    WorkRequest request;
    request.sges = &sge;
    request.sge_count = 1;
    request.opcode = Opcode::kSend;
    request.address_handle = handle.get();
    request.remote_qpn = qb->qp_num();
    request.remote_qkey = options.qkey;
    EXPECT_EQ(qa->post({&request, 1}).accepted, 1u);
    Completion completion;
    EXPECT_EQ(a.completions->poll({&completion, 1}), 1u);
    EXPECT_EQ(completion.status, Status::kSuccess);
    received += b.completions->poll({&completion, 1});
    if (received < static_cast<std::uint64_t>(i) + 1 && i % 100 == 99) {  // drops unused receives
      qb->modify(QpState::kReset);
      qb->connect({});
      while (b.completions->poll({&completion, 1}) != 0) {
      }
    }
  }
  return received;
}

TEST(ShmFaults, ALossyClusterLoses) {
  ShmOptions options{2, 5, {}};
  options.faults[Fault::loss].rate = 0.3;
  ShmCluster lossy(options), again(options), sound(ShmOptions{2, 5, {}});
  const std::uint64_t received = received_of(lossy, 1000);
  const auto loss = static_cast<std::size_t>(Fault::loss);
  EXPECT_EQ(received + lossy.fault_counters(0).reached[loss], 1000u);
  EXPECT_NEAR(static_cast<double>(received), 700, 80);
  EXPECT_EQ(lossy.fault_counters(1).fired[loss], 0u) << "the other end sends nothing";
  EXPECT_EQ(received_of(again, 1000), received) << "equal seeds draw equally";
  EXPECT_EQ(received_of(sound, 1000), 1000u);
}

TEST(ShmFaults, HealEndsThem) {
  ShmOptions options{2, 5, {}};
  options.faults[Fault::delay] = {1, kMillisecond, kMillisecond};
  options.faults[Fault::loss].rate = 1;
  options.faults.heal_at = 0;
  ShmCluster cluster(options);
  EXPECT_EQ(received_of(cluster, 100), 100u);
}

// The faults of an initiator's node stop the initiator, not the target.
TEST(ShmFaults, ADynamicInitiatorFailsAndComesBack) {
  ShmOptions options{2, 5, {}};
  options.faults[Fault::malformed].rate = 0.1;
  options.faults[Fault::qp_error].rate = 0.05;
  options.faults[Fault::queue_full].rate = 0.2;
  ShmCluster cluster(options);
  Device &from = cluster.env(0).device(), &to = cluster.env(1).device();
  const auto pd = from.create_protection_domain(), far_pd = to.create_protection_domain();
  const auto memory = from.allocate(*pd, 4096, kAllAccess);
  const auto far_memory = to.allocate(*far_pd, 4096, kAllAccess);
  const auto completions = from.create_completion_queue(256);
  const auto far_completions = to.create_completion_queue(256);
  const auto shared = to.create_shared_receive_queue(*far_pd, 16);
  QpOptions wanted;
  wanted.transport = Transport::kDc;
  const auto initiator = from.create_queue_pair(*pd, *completions, *completions, wanted);
  wanted.dc_target = true;
  const auto target =
      to.create_queue_pair(*far_pd, *far_completions, *far_completions, wanted, shared.get());
  initiator->connect({});
  target->connect({});
  const auto handle = from.create_address_handle(*pd, target->address());
  const Sge sge = memory->sge(0, 8);
  WorkRequest request;
  request.sges = &sge;
  request.sge_count = 1;
  request.opcode = Opcode::kFetchAdd;
  request.compare_add = 1;
  request.remote_addr = far_memory->addr();
  request.rkey = far_memory->rkey();
  request.address_handle = handle.get();
  request.remote_qpn = target->qp_num();
  request.remote_qkey = wanted.qkey;
  constexpr int kBurst = 4;
  std::uint64_t good = 0, bad = 0;
  for (int i = 0; i < 500; ++i) {
    bool failed = false;
    const auto poll = [&] {
      Completion completion;
      while (completions->poll({&completion, 1}) == 1) {
        ++(completion.status == Status::kSuccess ? good : bad);
        failed = failed || completion.status != Status::kSuccess;
      }
    };
    for (int posted = 0; posted < kBurst;) {  // one by one: a full queue needs pending requests
      const PostResult result = initiator->post({&request, 1});
      ASSERT_TRUE(result.accepted == 1 || result.error == PostError::kQueueFull);
      posted += static_cast<int>(result.accepted);
      if (result.accepted == 0) poll();
    }
    poll();
    EXPECT_EQ(target->state(), QpState::kReadyToSend);
    EXPECT_EQ(initiator->state(), failed ? QpState::kError : QpState::kReadyToSend);
    if (!failed) continue;
    initiator->modify(QpState::kReset);
    initiator->connect({});
  }
  EXPECT_EQ(good + bad, 2000u);
  EXPECT_EQ(*reinterpret_cast<std::uint64_t*>(far_memory->data()), good);
  EXPECT_GT(good, 1000u);
  for (const Fault fault : {Fault::malformed, Fault::qp_error, Fault::queue_full})
    EXPECT_GT(cluster.fault_counters(0).reached[static_cast<std::size_t>(fault)], 10u);
}

TEST(ShmFaults, KindsOfTheSimulatorAreRefused) {
  ShmOptions options{2, 1, {}};
  options.faults[Fault::partition].rate = 1;
  EXPECT_TRUE(
      refuses([&] { ShmCluster cluster(options); }, ErrorCode::kInvalidArgument, {"partition"}));
}

}  // namespace
}  // namespace pyrdma::fabric::shm
