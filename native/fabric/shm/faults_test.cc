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

TEST(ShmFaults, KindsOfTheSimulatorAreRefused) {
  ShmOptions options{2, 1, {}};
  options.faults[Fault::partition].rate = 1;
  EXPECT_TRUE(
      refuses([&] { ShmCluster cluster(options); }, ErrorCode::kInvalidArgument, {"partition"}));
}

}  // namespace
}  // namespace pyrdma::fabric::shm
