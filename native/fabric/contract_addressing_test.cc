// The fabric's contract: destinations that are gone or never existed, options at the ends of their
// ranges, bounds of device memory.
#include <unistd.h>

#include "base/error_test.h"
#include "fabric/contract_worlds_test.h"
#include "fabric/shm/segment.h"

namespace pyrdma::fabric {
namespace {

class FabricAddressing : public FabricContract {
 protected:
  /// Sets up datagrams from node 0 (a) to node 1 (b). Returns false if the device has none.
  bool connect_datagrams() {
    start();
    a = std::make_unique<Side>(*world, 0);
    b = std::make_unique<Side>(*world, 1);
    if (!a->device.capabilities().ud) return false;
    datagram.transport = Transport::kUd;
    qa = a->queue_pair(datagram);
    qb = b->queue_pair(datagram);
    qa->connect({});
    qb->connect({});
    return true;
  }
  PostResult send_to(const AddressHandle& handle, std::uint32_t qp_num, std::uint64_t wr_id) {
    const Sge sge = a->memory->sge(0, 8);
    WorkRequest request;
    request.wr_id = wr_id;
    request.sges = &sge;
    request.sge_count = 1;
    request.opcode = Opcode::kSend;
    request.address_handle = &handle;
    request.remote_qpn = qp_num;
    request.remote_qkey = datagram.qkey;
    return qa->post({&request, 1});
  }
  QpOptions datagram;
};
INSTANTIATE_TEST_SUITE_P(Worlds, FabricAddressing, contract_worlds(),
                         [](const auto& info) { return info.param; });

TEST_P(FabricAddressing, DatagramsToNobodyAreLost) {
  if (!connect_datagrams()) GTEST_SKIP() << "the device has no UD";
  auto handle = a->device.create_address_handle(*a->pd, qb->address());
  auto gone = b->queue_pair(datagram);
  gone->connect({});
  ASSERT_TRUE(gone->receive(b->memory->sge(0, 64), 1));
  const std::uint32_t number = gone->qp_num();
  gone.reset();
  ASSERT_EQ(send_to(*handle, number, 1).accepted, 1u);
  expect_send(1);
  ASSERT_EQ(send_to(*handle, number ^ 0x00ff00, 2).accepted, 1u)
      << "no queue pair ever had the number";
  expect_send(2);
  EXPECT_TRUE(b->quiet(*b->receives));
  ASSERT_TRUE(qb->receive(b->memory->sge(0, 64), 3));
  ASSERT_EQ(send_to(*handle, qb->qp_num(), 3).accepted, 1u);
  expect_send(3);
  EXPECT_EQ(b->await_receive().wr_id, 3u) << "the next one arrives";
}

TEST_P(FabricAddressing, AGidThatNobodyHas) {
  if (!connect_datagrams()) GTEST_SKIP() << "the device has no UD";
  QpAddress nowhere = qb->address();
  for (const std::uint8_t last : {std::uint8_t{1}, std::uint8_t{0xfe}}) {
    const std::uint8_t gid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last};
    std::memcpy(nowhere.gid, gid, sizeof gid);
    std::unique_ptr<AddressHandle> handle;
    try {
      handle = a->device.create_address_handle(*a->pd, nowhere);
    } catch (const Error& error) {
      EXPECT_TRUE(error.definite()) << "the network knows no way there: " << error.what();
      continue;
    }
    ASSERT_EQ(send_to(*handle, qb->qp_num(), last).accepted, 1u);
    expect_send(last);
  }
  auto handle = a->device.create_address_handle(*a->pd, qb->address());
  ASSERT_TRUE(qb->receive(b->memory->sge(0, 64), 3));
  ASSERT_EQ(send_to(*handle, qb->qp_num(), 3).accepted, 1u);
  expect_send(3);
  EXPECT_EQ(b->await_receive().wr_id, 3u);
}

TEST_P(FabricAddressing, AHandleOfAnotherDomainIsRefused) {
  if (!connect_datagrams()) GTEST_SKIP() << "the device has no UD";
  auto handle = a->device.create_address_handle(*a->pd, qb->address());
  auto domain = a->device.create_protection_domain();
  auto foreign = a->device.create_address_handle(*domain, qb->address());
  domain.reset();
  for (int i = 0; i < 2; ++i) {
    const PostResult result = send_to(*foreign, qb->qp_num(), 1);
    EXPECT_EQ(result.accepted, 0u);
    EXPECT_STREQ(to_string(result.error), to_string(PostError::kInvalid));
    domain = a->device.create_protection_domain();  // may have the address of the old domain
  }
  ASSERT_TRUE(qb->receive(b->memory->sge(0, 64), 3));
  ASSERT_EQ(send_to(*handle, qb->qp_num(), 3).accepted, 1u);
  expect_send(3);
  EXPECT_EQ(b->await_receive().wr_id, 3u);
}

TEST_P(FabricAddressing, UnknownRightsAreRefused) {
  connect();
  for (const std::uint32_t access : {64U, 1U << 31, ~0U, kAllAccess | 128U}) {
    EXPECT_TRUE(refuses([&] { a->device.allocate(*a->pd, 64, access); },
                        ErrorCode::kInvalidArgument, {"0x3f"}))
        << access;
    std::uint64_t word = 0;
    if (a->device.capabilities().register_own_memory) {
      EXPECT_TRUE(refuses([&] { a->device.register_memory(*a->pd, &word, 8, access); },
                          ErrorCode::kInvalidArgument));
    }
    QpOptions options;
    options.access = access;
    EXPECT_TRUE(refuses([&] { a->queue_pair(options); }, ErrorCode::kInvalidArgument, {"0xf"}))
        << access;
  }
  EXPECT_NO_THROW(a->device.allocate(*a->pd, 64, kAllAccess | kRelaxedOrdering));
}

TEST_P(FabricAddressing, AnotherProcessCanMapMemoryInAFileOfItsOwn) {
  connect();
  EXPECT_EQ(b->device.allocate(*b->pd, 100, kAllAccess)->file(), -1);
  const auto own = b->device.allocate(*b->pd, 100, kAllAccess | kOwnFile);
  EXPECT_EQ(own->file() >= 0, b->device.capabilities().own_files);
  a->memory->data()[7] = std::byte{77};
  ASSERT_TRUE(qa->write(a->memory->sge(0, 8), own->remote(), 64, 1));
  expect_send(1);
  if (own->file() < 0) return;
  EXPECT_EQ(shm::Mapping::adopt(::dup(own->file()), 8192), nullptr) << "it has one page";
  const auto mapped = shm::Mapping::adopt(::dup(own->file()), 4096);
  ASSERT_NE(mapped, nullptr);
  EXPECT_EQ(mapped->data()[71], std::byte{77});
}

TEST_P(FabricAddressing, TimesAtTheEndsOfTheirRanges) {
  for (const std::uint32_t time : {0U, ~0U}) {
    QpOptions options;
    options.timeout_us = options.rnr_timer_us = time;
    options.retry_count = 1;
    connect(options);
    ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 0, 1));
    expect_send(1);
    ASSERT_TRUE(qb->receive(b->memory->sge(0, 8), 2));
    ASSERT_TRUE(qa->send(a->memory->sge(0, 8), 2));
    expect_send(2);
    EXPECT_EQ(b->await_receive().wr_id, 2u);
    if (time == 0) {  // the other setting would take an hour
      ASSERT_TRUE(qa->send(a->memory->sge(0, 8), 3));
      EXPECT_TRUE(a->quiet(*a->sends));
      ASSERT_TRUE(qb->receive(b->memory->sge(0, 8), 4));
      expect_send(3);
      EXPECT_EQ(b->await_receive().wr_id, 4u);
    }
    qb.reset();
    ASSERT_TRUE(qa->write(a->memory->sge(0, 8), b->memory->remote(), 0, 5));
    if (time == 0)
      expect_send(5, Status::kRetryExceeded);
    else
      EXPECT_TRUE(a->quiet(*a->sends, 20 * kMillisecond)) << "it waits for an hour";
  }
}

TEST_P(FabricAddressing, BoundsOfDeviceMemory) {
  start();
  if (!world->env(0).device().capabilities().device_memory)
    GTEST_SKIP() << "the device has no memory of its own";
  struct Case {
    std::uint64_t offset;
    std::uint32_t length;
    bool good;
  };
  for (const Case& c : {Case{0, 4096, true}, Case{4088, 8, true}, Case{4089, 8, false},
                        Case{4096, 8, false}, Case{0 - std::uint64_t{8}, 8, false}}) {
    for (const bool local : {false, true}) {
      connect();
      auto memory =
          (local ? a : b)->device.allocate_device_memory(*(local ? a : b)->pd, 4096, kAllAccess);
      auto other = (local ? a : b)->device.allocate_device_memory(*(local ? a : b)->pd, 4096);
      Sge sge = a->memory->sge(0, c.length);
      if (local) sge = {memory->addr() + c.offset, c.length, memory->lkey()};
      const RemoteRegion remote = local ? b->memory->remote() : memory->remote();
      ASSERT_TRUE(qa->write(sge, remote, local ? 0 : c.offset, 1));
      expect_send(1, c.good  ? Status::kSuccess
                     : local ? Status::kLocalProtection
                             : Status::kRemoteAccess);
    }
  }
}

}  // namespace
}  // namespace pyrdma::fabric
