// Connections through librdmacm, over the loopback of a device. The tests run only if
// PYRDMA_TEST_VERBS is set.
#include "fabric/verbs/connection.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error_test.h"
#include "fabric/contract_worlds_test.h"

namespace pyrdma::fabric::verbs {
namespace {

struct VerbsConnection : testing::Test {
  void SetUp() override {
    if (std::getenv("PYRDMA_TEST_VERBS") == nullptr)
      GTEST_SKIP() << "PYRDMA_TEST_VERBS is not set: no device is to be used";
    address = choose(find_candidates(), {}).address;
    cluster = std::make_unique<VerbsWorld>(2);
    a = std::make_unique<Side>(*cluster, 0);
    b = std::make_unique<Side>(*cluster, 1);
  }
  std::string address;
  std::unique_ptr<VerbsWorld> cluster;
  std::unique_ptr<Side> a, b;
};

std::span<const std::byte> bytes_of(const RemoteRegion& region) {
  return std::as_bytes(std::span(&region, 1));
}

TEST_F(VerbsConnection, CarriesRequestsBothWaysAndAWordBeforehand) {
  const auto listener = listen(address, 0);
  auto qa = a->queue_pair(), qb = b->queue_pair();
  const Time deadline = a->env.now() + 20 * kSecond;
  std::unique_ptr<Connection> passive;
  const auto server = b->env.spawn("server", [&] {
    passive = listener->accept(b->env, *qb, bytes_of(b->memory->remote()), deadline);
  });
  const auto active =
      connect(a->env, *qa, address, listener->port(), bytes_of(a->memory->remote()), deadline);
  server->join();
  RemoteRegion there{};
  ASSERT_GE(active->private_data().size(), sizeof there);
  std::memcpy(&there, active->private_data().data(), sizeof there);
  EXPECT_EQ(there.rkey, b->memory->rkey());
  *a->word(0) = 77;
  ASSERT_TRUE(qa->write(a->memory->sge(0, 8), there, 64));
  EXPECT_EQ(a->await_send().status, Status::kSuccess);
  ASSERT_TRUE(qa->fetch_add(a->memory->sge(8, 8), there, 64, 1));
  EXPECT_EQ(a->await_send().status, Status::kSuccess);
  EXPECT_EQ(*a->word(8), 77u);
  ASSERT_TRUE(qa->receive(a->memory->sge(128, 64), 5));
  ASSERT_TRUE(qb->send(b->memory->sge(64, 8)));
  EXPECT_EQ(a->await_receive().wr_id, 5u);
  EXPECT_EQ(a->load_word(128), 78u);
  EXPECT_FALSE(active->is_over());
  passive.reset();
  EXPECT_TRUE(a->env.poll_until([&] { return active->is_over(); }, deadline));
  EXPECT_EQ(qa->state(), QpState::kError) << "a peer that hangs up";
}

TEST_F(VerbsConnection, NobodyListens) {
  auto qa = a->queue_pair();
  EXPECT_TRUE(refuses([&] { connect(a->env, *qa, address, 1, {}, a->env.now() + 20 * kSecond); },
                      ErrorCode::kUnavailable, {address + ":1"}));
}

TEST_F(VerbsConnection, ArgumentsAreChecked) {
  auto qa = a->queue_pair();
  const Time deadline = a->env.now() + kSecond;
  EXPECT_THROW(connect(a->env, *qa, "somewhere", 1, {}, deadline), Error);
  EXPECT_THROW(listen("203.0.113.1", 0), Error) << "no device has this address";
  const std::vector<std::byte> much(kMaxPrivateBytes + 1);
  EXPECT_THROW(connect(a->env, *qa, address, 1, much, deadline), Error);
  qa->modify(QpState::kInit);
  EXPECT_THROW(connect(a->env, *qa, address, 1, {}, deadline), Error);
  const auto listener = listen(address, 0);
  auto qb = b->queue_pair();
  try {
    listener->accept(b->env, *qb, {}, b->env.now() + 10 * kMillisecond);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  }
}

}  // namespace
}  // namespace pyrdma::fabric::verbs
