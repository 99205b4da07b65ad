// Partition, service level and traffic class. The tests of a device run only if PYRDMA_TEST_VERBS
// is set.
#include <gtest/gtest.h>

#include "fabric/contract_worlds_test.h"
#include "fabric/verbs/ib/library.h"
#include "fabric/verbs/ib/queue_pair.h"
#include "fabric/verbs/ib/translate.h"

namespace pyrdma::fabric::verbs {
namespace {

TEST(VerbsPort, HasTheRateOfItsLanes) {
  EXPECT_EQ(link_gbps_of(2, 32, true), 100) << "4 lanes of EDR";
  EXPECT_EQ(link_gbps_of(2, 32, false), 100);
  EXPECT_EQ(link_gbps_of(2, 4, false), 32) << "QDR, 40 Gbaud";
  EXPECT_EQ(link_gbps_of(2, 4, true), 40) << "40 GbE";
  EXPECT_EQ(link_gbps_of(1, 32, true), 25) << "25 GbE";
  EXPECT_NEAR(link_gbps_of(2, 16, false), 54.5, 0.1) << "FDR";
  EXPECT_EQ(link_gbps_of(16, 64, false), 100) << "HDR100 has 2 lanes";
  EXPECT_EQ(link_gbps_of(0, 32, false), 0);
  EXPECT_EQ(link_gbps_of(2, 3, false), 0) << "no code";
  EXPECT_EQ(link_gbps_of(255, 255, true), 0);
}

TEST(VerbsRoute, TakesThePathOfTheOptions) {
  ibv_ah_attr route{};
  set_path(route, {});
  EXPECT_EQ(route.sl, 0);
  EXPECT_EQ(route.is_global, 0);
  set_path(route, {kMaxServiceLevel, 0});
  EXPECT_EQ(route.sl, 15);
  EXPECT_EQ(route.is_global, 0);
  set_path(route, {3, kMaxTrafficClass});
  EXPECT_EQ(route.sl, 3);
  EXPECT_EQ(route.grh.traffic_class, 255);
  EXPECT_EQ(route.is_global, 1) << "the traffic class travels in the global header";
}

struct VerbsPath : testing::Test {
  void SetUp() override {
    if (std::getenv("PYRDMA_TEST_VERBS") == nullptr)
      GTEST_SKIP() << "PYRDMA_TEST_VERBS is not set: no device is to be used";
    cluster = std::make_unique<VerbsWorld>(2);
    a = std::make_unique<Side>(*cluster, 0);
    b = std::make_unique<Side>(*cluster, 1);
  }
  std::unique_ptr<VerbsWorld> cluster;
  std::unique_ptr<Side> a, b;
};

TEST_F(VerbsPath, AConnectionHasIt) {
  for (const Transport transport : {Transport::kRc, Transport::kUc}) {
    QpOptions options;
    options.transport = transport;
    options.path = {3, 32};
    auto qa = a->queue_pair(options), qb = b->queue_pair(options);
    qa->connect(qb->address());
    qb->connect(qa->address());
    ibv_qp_attr attributes{};
    ibv_qp_init_attr unused{};
    ASSERT_EQ(Library::get().query_qp(dynamic_cast<VerbsQueuePair&>(*qa).qp(), &attributes,
                                      IBV_QP_AV | IBV_QP_PKEY_INDEX, &unused),
              0);
    if (!cluster->soft_roce()) {  // which forgets it
      EXPECT_EQ(attributes.ah_attr.sl, 3);
    }
    EXPECT_EQ(attributes.ah_attr.grh.traffic_class, 32);
    EXPECT_EQ(attributes.pkey_index, 0);
    ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 0));
    EXPECT_EQ(a->await_send().status, Status::kSuccess);
  }
}

TEST_F(VerbsPath, ADatagramArrivesWithIt) {
  QpOptions options;
  options.transport = Transport::kUd;
  auto qa = a->queue_pair(options), qb = b->queue_pair(options);
  qa->connect({});
  qb->connect({});
  for (const std::uint32_t traffic_class : {0U, 32U, 184U}) {
    const auto handle = a->device.create_address_handle(*a->pd, qb->address(), {3, traffic_class});
    ASSERT_TRUE(qb->receive(b->memory->sge(0, 64), 1));
    const Sge sge = a->memory->sge(0, 8);
    WorkRequest request;
    request.sges = &sge;
    request.sge_count = 1;
    request.opcode = Opcode::kSend;
    request.address_handle = handle.get();
    request.remote_qpn = qb->qp_num();
    request.remote_qkey = options.qkey;
    ASSERT_EQ(qa->post({&request, 1}).accepted, 1U);
    EXPECT_EQ(a->await_send().status, Status::kSuccess);
    ASSERT_EQ(b->await_receive().status, Status::kSuccess);
    // The header is that of IPv6 or InfiniBand, or its last 20 bytes are that of IPv4.
    const auto byte = [&](std::size_t at) {
      return std::to_integer<unsigned>(b->memory->data()[at]);
    };
    const bool v4 = byte(0) >> 4 != 6;
    EXPECT_EQ(v4 ? byte(21) : (byte(0) & 15) << 4 | byte(1) >> 4, traffic_class);
  }
}

}  // namespace
}  // namespace pyrdma::fabric::verbs
