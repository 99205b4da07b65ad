// Requests whose payload is taken at the post.
#include <cstring>

#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

using fabric::Opcode;
using fabric::Status;

// The queue pair moves to another core, so a write waits in it. The owner uses its buffer for
// something else when push() has returned.
TEST(KrcoreInlineSim, AWriteThatWaitsHasThePayloadOfItsPost) {
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  std::byte arrived[2] = {};
  cluster.run([&](Env& env) {
    Options options = one_core();
    options.cores = 2;
    Service service(env, options);
    App app(service);
    const Registration own = app.reg_mr(1 << 20);
    fabric::Rendezvous& rendezvous = env.device().rendezvous();
    if (env.node() == 1) {
      rendezvous.publish_value("region",
                               fabric::RemoteRegion{own.addr, own.bytes, own.key, env.node()});
      runtime::node_barrier(env, "written");
      std::memcpy(arrived, own.data + (1 << 19), sizeof arrived);
      return;
    }
    const auto there =
        rendezvous.await_value<fabric::RemoteRegion>("region", env.now() + runtime::kSetupTimeout);
    VqpOptions inlined;
    inlined.max_inline = 64;
    const Queue queue = app.create_queue(inlined);
    app.connect(queue, 1, 7);
    const fabric::Sge large = piece(own, 0, 1 << 19);
    fabric::WorkRequest before = one_sided(Opcode::kWrite, large, there.addr, there.rkey);
    before.flags = 0;
    ASSERT_EQ(app.push(queue, {&before, 1}).accepted, 1u);
    service.start_transfer(queue, (env.core() + 1) % 2);
    std::byte payload[2] = {std::byte{3}, std::byte{4}};  // in no region
    const fabric::Sge pieces[2] = {{reinterpret_cast<std::uint64_t>(&payload[0]), 1, 0},
                                   {reinterpret_cast<std::uint64_t>(&payload[1]), 1, 0}};
    fabric::WorkRequest write =
        one_sided(Opcode::kWrite, *pieces, there.addr + (1 << 19), there.rkey);
    write.sge_count = 2;
    write.flags = fabric::kSignaled | fabric::kInline;
    ASSERT_EQ(app.push(queue, {&write, 1}).accepted, 1u);
    payload[0] = payload[1] = std::byte{9};
    fabric::Completion done;
    ASSERT_EQ(app.wait(queue, {&done, 1}, env.now() + kSecond), 1u);
    EXPECT_EQ(done.status, Status::kSuccess);
    EXPECT_EQ(service.counters().transfers.load(), 1u);
    runtime::node_barrier(env, "written");
  });
  EXPECT_EQ(arrived[0], std::byte{3});
  EXPECT_EQ(arrived[1], std::byte{4});
}

// An inline payload is in no region, so it must fit the shared queue pair together with its header.
// A longer one is refused before it can end that queue pair for its other users.
TEST(KrcoreInlineSim, ASendThatIsTooLongFailsAlone) {
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  cluster.run([&](Env& env) {
    Service service(env, one_core());
    App app(service);
    if (env.node() == 0) {
      const Queue inbox = app.create_queue();
      app.bind(inbox, 7);
      runtime::node_barrier(env, "bound");
      Message message;
      EXPECT_EQ(app.wait_messages(inbox, {&message, 1}, env.now() + kMillisecond), 0u);
    } else {
      runtime::node_barrier(env, "bound");
      VqpOptions inlined;
      inlined.max_inline = 1024;
      const Queue queue = app.create_queue(inlined);
      app.connect(queue, 0, 7);
      std::vector<std::byte> payload(env.device().capabilities().max_inline);
      const fabric::Sge sge{reinterpret_cast<std::uint64_t>(payload.data()),
                            static_cast<std::uint32_t>(payload.size()), 0};
      fabric::WorkRequest send = one_sided(Opcode::kSend, sge, 0, 0);
      send.flags = fabric::kSignaled | fabric::kInline;
      EXPECT_EQ(do_one(app, queue, send).status, Status::kLocalQpOperation);
      EXPECT_EQ(service.state(queue), VqpState::kConnected);
      EXPECT_EQ(service.pool(0).dynamic.front()->has_failed, false);
    }
    runtime::node_barrier(env, "done");
  });
}

// The NIC takes an inline payload at the post, before the READ in front of the fence has brought
// it.
TEST(KrcoreInlineSim, AFencedMessageHasWhatAReadHasBrought) {
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  Registration there;
  cluster.run([&](Env& env) {
    Service service(env, one_core());
    App app(service);
    const Registration own = app.reg_mr(64);
    const Queue queue = app.create_queue();
    if (env.node() == 0) {
      there = own;
      own.data[0] = std::byte{7};
      const fabric::Sge into = piece(own, 8, 8);
      const fabric::ReceiveRequest receive{1, &into, 1};
      ASSERT_EQ(app.post_receive(queue, {&receive, 1}).accepted, 1u);
      app.bind(queue, 7);
      runtime::node_barrier(env, "bound");
      Message message;
      EXPECT_EQ(app.wait_messages(queue, {&message, 1}, env.now() + kSecond), 1u);
      EXPECT_EQ(own.data[8], std::byte{7});
    } else {
      runtime::node_barrier(env, "bound");
      app.connect(queue, 0, 7);
      const fabric::Sge word = piece(own, 0, 8);
      fabric::WorkRequest list[] = {one_sided(Opcode::kRead, word, there.addr, there.key),
                                    one_sided(Opcode::kSend, word, 0, 0)};
      list[1].flags |= fabric::kFence;
      EXPECT_EQ(app.push(queue, list).accepted, 2u);
      fabric::Completion done[2];
      EXPECT_EQ(app.wait(queue, done, env.now() + kSecond), 2u);
      EXPECT_EQ(done[1].status, Status::kSuccess);
    }
    runtime::node_barrier(env, "done");
  });
}

}  // namespace
}  // namespace pyrdma::krcore
