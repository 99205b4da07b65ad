// Services in all worlds: connections, one-sided requests, messages, regions.
#include <cstring>

#include "base/error_test.h"
#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

using fabric::Opcode;
using fabric::Status;

class KrcoreService : public KrcoreWorlds {};
INSTANTIATE_TEST_SUITE_P(Worlds, KrcoreService, krcore_worlds(),
                         [](const auto& info) { return info.param; });

void share(Service& service, const std::string& key, const Registration& region) {
  service.env().device().rendezvous().publish_value(
      key, fabric::RemoteRegion{region.addr, region.bytes, region.key, service.env().node()});
}

fabric::RemoteRegion shared(Service& service, const std::string& key) {
  return service.env().device().rendezvous().await_value<fabric::RemoteRegion>(
      key, service.env().now() + runtime::kSetupTimeout);
}

TEST_P(KrcoreService, OneSidedRequestsReachTheRegion) {
  Options kept = options();
  kept.lease = 10 * kSecond;  // an emulated machine takes milliseconds for a request
  run(3, kept, [&](Service& service, const Kill&) {
    App app(service);
    const NodeId self = service.env().node();
    if (self == 2) {
      const Registration region = app.reg_mr(4096);
      share(service, "region", region);
      runtime::node_barrier(service.env(), "done");
      std::uint64_t word = 0;
      std::memcpy(&word, region.data, sizeof word);
      EXPECT_EQ(word, 77u + 2u);
      return;
    }
    if (self == 1) {
      const fabric::RemoteRegion there = shared(service, "region");
      const Registration own = app.reg_mr(4096);
      const Queue queue = app.create_queue();
      app.connect(queue, 2, 7);
      const std::uint64_t value = 77;
      std::memcpy(own.data, &value, sizeof value);
      const fabric::Sge sge = piece(own, 0, 8);
      EXPECT_EQ(do_one(app, queue, one_sided(Opcode::kWrite, sge, there.addr, there.rkey, 5)).wr_id,
                5u);
      fabric::WorkRequest add = one_sided(Opcode::kFetchAdd, sge, there.addr, there.rkey);
      add.compare_add = 2;
      EXPECT_EQ(do_one(app, queue, add).status, Status::kSuccess);
      const fabric::Sge into = piece(own, 64, 8);
      EXPECT_EQ(do_one(app, queue, one_sided(Opcode::kRead, into, there.addr, there.rkey)).status,
                Status::kSuccess);
      std::uint64_t word = 0;
      std::memcpy(&word, own.data + 64, sizeof word);
      EXPECT_EQ(word, 79u);
      EXPECT_EQ(service.counters().region_misses.load(), 1u);
    }
    runtime::node_barrier(service.env(), "done");
  });
}

TEST_P(KrcoreService, MessagesAndReplies) {
  run(3, options(), [&](Service& service, const Kill&) {
    App app(service);
    const NodeId self = service.env().node();
    const Registration own = app.reg_mr(65536);
    if (self == 2) {
      const Queue inbox = app.create_queue();
      app.bind(inbox, 7);
      for (std::uint32_t i = 0; i < 8; ++i) {
        const fabric::Sge sge = piece(own, i * 1024, 1024);
        const fabric::ReceiveRequest receive{i, &sge, 1};
        ASSERT_EQ(app.post_receive(inbox, {&receive, 1}).accepted, 1u);
      }
      runtime::node_barrier(service.env(), "bound");
      for (int i = 0; i < 20; ++i) {
        Message message;
        ASSERT_EQ(app.wait_messages(inbox, {&message, 1}, app.env().now() + 10 * kSecond), 1u);
        EXPECT_EQ(message.status, Status::kSuccess);
        EXPECT_EQ(message.bytes, 8u);
        ASSERT_TRUE(message.reply);
        const fabric::Sge sge = piece(own, message.wr_id * 1024, message.bytes);
        fabric::WorkRequest answer = one_sided(Opcode::kSend, sge, 0, 0);
        EXPECT_EQ(do_one(app, message.reply, answer).status, Status::kSuccess);
        const fabric::Sge again = piece(own, message.wr_id * 1024, 1024);
        const fabric::ReceiveRequest receive{message.wr_id, &again, 1};
        ASSERT_EQ(app.post_receive(inbox, {&receive, 1}).accepted, 1u);
      }
      runtime::node_barrier(service.env(), "done");
      return;
    }
    runtime::node_barrier(service.env(), "bound");
    const Queue queue = app.create_queue();
    app.connect(queue, 2, 7);
    for (std::uint64_t i = 0; i < 10; ++i) {
      const fabric::Sge into = piece(own, 512, 64);
      const fabric::ReceiveRequest receive{9, &into, 1};
      ASSERT_EQ(app.post_receive(queue, {&receive, 1}).accepted, 1u);
      const std::uint64_t value = self * 100 + i;
      std::memcpy(own.data, &value, sizeof value);
      const fabric::Sge sge = piece(own, 0, 8);
      EXPECT_EQ(do_one(app, queue, one_sided(Opcode::kSend, sge, 0, 0)).status, Status::kSuccess);
      Message message;
      ASSERT_EQ(app.wait_messages(queue, {&message, 1}, app.env().now() + 10 * kSecond), 1u);
      std::uint64_t word = 0;
      std::memcpy(&word, own.data + 512, sizeof word);
      EXPECT_EQ(word, value);
    }
    runtime::node_barrier(service.env(), "done");
  });
}

TEST_P(KrcoreService, LongMessagesAreReadByTheReceiver) {
  Options small = options();
  small.message_bytes = 1024;
  small.zero_copy_above = 512;
  run(2, small, [&](Service& service, const Kill&) {
    App app(service);
    const Registration own = app.reg_mr(65536);
    if (service.env().node() == 1) {
      const Queue inbox = app.create_queue();
      app.bind(inbox, 9);
      runtime::node_barrier(service.env(), "bound");
      const fabric::Sge sge = piece(own, 0, 60000);
      const fabric::ReceiveRequest receive{3, &sge, 1};
      ASSERT_EQ(app.post_receive(inbox, {&receive, 1}).accepted, 1u);
      Message message;
      ASSERT_EQ(app.wait_messages(inbox, {&message, 1}, app.env().now() + 10 * kSecond), 1u);
      EXPECT_EQ(message.bytes, 50000u);
      for (std::size_t i = 0; i < 50000; ++i)
        ASSERT_EQ(own.data[i], static_cast<std::byte>(i * 31)) << i;
      EXPECT_EQ(service.counters().zero_copies.load(), 1u);
    } else {
      runtime::node_barrier(service.env(), "bound");
      for (std::size_t i = 0; i < 50000; ++i) own.data[i] = static_cast<std::byte>(i * 31);
      const Queue queue = app.create_queue();
      app.connect(queue, 1, 9);
      const fabric::Sge sge = piece(own, 0, 50000);
      // It ends only after the READ: the receiver posts its receive later.
      fabric::WorkRequest send = one_sided(Opcode::kSend, sge, 0, 0, 4);
      ASSERT_EQ(app.push(queue, {&send, 1}).accepted, 1u);
      fabric::Completion done;
      ASSERT_EQ(app.wait(queue, {&done, 1}, app.env().now() + 20 * kSecond), 1u);
      EXPECT_EQ(done.wr_id, 4u);
      EXPECT_EQ(done.status, Status::kSuccess);
    }
    runtime::node_barrier(service.env(), "done");
  });
}

// A list that fails midway connects nothing, so it may be tried again. What was posted stays.
TEST_P(KrcoreService, AListOfConnectsIsAllOrNothing) {
  run(2, options(), [&](Service& service, const Kill&) {
    App app(service);
    const Registration own = app.reg_mr(4096);
    const Queue inbox = app.create_queue();
    app.bind(inbox, 7);
    const Queue one = app.create_queue(), two = app.create_queue();
    for (const Queue queue : {inbox, one}) {
      const fabric::Sge sge = piece(own, 1024, 64);
      const fabric::ReceiveRequest receive{queue.number(), &sge, 1};
      ASSERT_EQ(app.post_receive(queue, {&receive, 1}).accepted, 1u);
    }
    runtime::node_barrier(service.env(), "bound");
    const NodeId peer = 1 - service.env().node();
    const App::Target bad[] = {{one, peer, 7}, {two, 9, 7}};
    EXPECT_TRUE(refuses([&] { app.connect(bad); }, ErrorCode::kInvalidArgument, {"9"}));
    const App::Target twice[] = {{one, peer, 7}, {two, peer, 7}, {one, peer, 7}};
    EXPECT_TRUE(refuses([&] { app.connect(twice); }, ErrorCode::kInvalidArgument, {"connected"}));
    EXPECT_EQ(service.state(one), VqpState::kCreated);
    const App::Target good[] = {{one, peer, 7}, {two, peer, 7}};
    app.connect(good);
    EXPECT_EQ(do_one(app, one, one_sided(Opcode::kSend, piece(own, 0, 8), 0, 0)).status,
              Status::kSuccess);
    Message message;
    ASSERT_EQ(app.wait_messages(inbox, {&message, 1}, app.env().now() + 10 * kSecond), 1u);
    ASSERT_TRUE(message.reply);
    EXPECT_EQ(do_one(app, message.reply, one_sided(Opcode::kSend, piece(own, 0, 8), 0, 0)).status,
              Status::kSuccess);
    EXPECT_EQ(app.wait_messages(one, {&message, 1}, app.env().now() + 10 * kSecond), 1u);
    EXPECT_EQ(message.wr_id, one.number());
    runtime::node_barrier(service.env(), "done");
  });
}

TEST(KrcoreOptions, ALeaseHasTwoTurnsOfTheService) {
  Options options;
  options.lease = kShortestLease;
  EXPECT_NO_THROW(options.check(1));
  --options.lease;
  EXPECT_TRUE(refuses([&] { options.check(1); }, ErrorCode::kInvalidArgument));
}

}  // namespace
}  // namespace pyrdma::krcore
