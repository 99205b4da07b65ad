// Deliberate bugs that random runs seldom or never show, each beside the correct code.
#include <cstring>

#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

using fabric::Opcode;
using fabric::Status;

Options with_bug(Bug bug) {
  Options options;
  options.cores = 2;
  options.send_entries = 32;
  options.lease = 2 * kMillisecond;
  options.arena_bytes = 4 << 20;
  options.rc_policy = RcPolicy::kNever;
  options.bugs = bug;
  return options;
}

/// Runs `per_node` on services of a simulated cluster, and returns how often it called `wrong`.
int count_wrong(std::uint32_t nodes, Options options,
                const std::function<void(Service&, fabric::sim::SimCluster&, int&)>& per_node) {
  fabric::sim::SimCluster cluster(runtime::sim_options(nodes));
  int wrong = 0;
  cluster.run([&](Env& env) {
    Service service(env, options);
    per_node(service, cluster, wrong);
  });
  return wrong;
}

Registration share(Service& service, App& app, std::uint64_t bytes) {
  const Registration region = app.reg_mr(bytes);
  service.env().device().rendezvous().publish_value(
      "region/" + std::to_string(service.env().node()),
      fabric::RemoteRegion{region.addr, region.bytes, region.key, service.env().node()});
  return region;
}

fabric::RemoteRegion region_of(Service& service, NodeId node) {
  return service.env().device().rendezvous().await_value<fabric::RemoteRegion>(
      "region/" + std::to_string(node), service.env().now() + runtime::kSetupTimeout);
}

TEST(KrcoreBugsSim, ABadRequestLeavesNothingOfItsList) {
  for (const Bug bug : {Bug::kNone, Bug::kErrorMidList}) {
    const int wrong = count_wrong(2, with_bug(bug), [](Service& service, auto&, int& count) {
      App app(service);
      if (service.env().node() == 1) {
        share(service, app, 64);
      } else {
        const fabric::RemoteRegion there = region_of(service, 1);
        const Registration own = app.reg_mr(64);
        const Queue queue = app.create_queue();
        app.connect(queue, 1, 1);
        const fabric::Sge sge = piece(own, 0, 8);
        fabric::WorkRequest list[2] = {
            one_sided(Opcode::kWrite, sge, there.addr, there.rkey, 1),
            one_sided(Opcode::kWrite, sge, there.addr + 64, there.rkey, 2)};
        EXPECT_EQ(app.push(queue, list).error, fabric::PostError::kInvalid);
        fabric::Completion done;
        EXPECT_EQ(app.push(queue, {list, 1}).accepted, 1u);
        count += app.wait(queue, {&done, 1}, app.env().now() + kMillisecond) != 1;
      }
      runtime::node_barrier(service.env(), "done");
    });
    EXPECT_EQ(wrong != 0, bug != Bug::kNone);
  }
}

TEST(KrcoreBugsSim, ANumberOfAnEarlierQueueIsNobody) {
  for (const Bug bug : {Bug::kNone, Bug::kGenerationIgnored}) {
    const int wrong = count_wrong(1, with_bug(bug), [](Service& service, auto&, int& count) {
      App app(service);
      std::vector<Queue> old;
      // The places of destroyed queues come again after others.
      for (std::uint32_t i = 0; i <= service.options().virtual_queue_pairs; ++i) {
        const Queue queue = service.create({});
        if (i == 0) old.push_back(queue);
        service.destroy(queue);
      }
      const Queue again = service.create({});
      EXPECT_NE(again, old.front());
      for (std::uint32_t i = 1; i < service.options().virtual_queue_pairs; ++i) service.create({});
      count += service.find(old.front()) != nullptr;
    });
    EXPECT_EQ(wrong != 0, bug != Bug::kNone);
  }
}

TEST(KrcoreBugsSim, ANumberBeyondTheTableIsNobody) {
  const int wrong = count_wrong(1, with_bug(Bug::kNone), [](Service& service, auto&, int& count) {
    const auto beyond = static_cast<std::uint16_t>(service.options().virtual_queue_pairs);
    count += service.find({beyond, 1}) != nullptr;
    count += service.find({65535, 1}) != nullptr;
  });
  EXPECT_EQ(wrong, 0);
}

// A queue pair that has failed serves again after the builder's next turn, at any time in 100 us.
// Others serve meanwhile.
TEST(KrcoreBugsSim, AFailedQueuePairIsNotChosen) {
  for (const Bug bug : {Bug::kNone, Bug::kDeadQueuePairKept}) {
    const int wrong = count_wrong(2, with_bug(bug), [](Service& service, auto&, int& count) {
      App app(service);
      if (service.env().node() == 1) {
        share(service, app, 64);
      } else {
        const fabric::RemoteRegion there = region_of(service, 1);
        const Registration own = app.reg_mr(64);
        const Queue queue = app.create_queue();
        app.connect(queue, 1, 1);
        const fabric::Sge sge = piece(own, 0, 8);
        EXPECT_EQ(do_one(app, queue, one_sided(Opcode::kRead, sge, there.addr, there.rkey)).status,
                  Status::kSuccess);
        for (int i = 0; i < 5; ++i) {
          app.env().sleep_until(app.env().now() + kMillisecond + 30 * kMicrosecond);
          service.break_physical(queue);
          const Time begin = app.env().now();
          EXPECT_EQ(
              do_one(app, queue, one_sided(Opcode::kRead, sge, there.addr, there.rkey)).status,
              Status::kSuccess);
          count += app.env().now() - begin > 20 * kMicrosecond;
        }
      }
      runtime::node_barrier(service.env(), "done");
    });
    EXPECT_EQ(wrong != 0, bug != Bug::kNone);
  }
}

// A lease counts from before its READ: a slow answer makes it no longer.
TEST(KrcoreBugsSim, ASlowAnswerDoesNotLengthenALease) {
  for (const Bug bug : {Bug::kNone, Bug::kLeaseFromAnswer}) {
    Options options = with_bug(bug);
    options.timeout_us = 10'000;
    const int wrong = count_wrong(2, options, [](Service& service, auto& cluster, int& count) {
      App app(service);
      if (service.env().node() == 1) {
        share(service, app, 64);
      } else {
        const fabric::RemoteRegion there = region_of(service, 1);
        const Registration own = app.reg_mr(64);
        const Queue queue = app.create_queue();
        app.connect(queue, 1, 1);
        const fabric::Sge sge = piece(own, 0, 8);
        const Time begin = app.env().now();
        cluster.block(1, 0, kMillisecond);
        EXPECT_EQ(do_one(app, queue, one_sided(Opcode::kRead, sge, there.addr, there.rkey)).status,
                  Status::kSuccess);
        EXPECT_GT(app.env().now() - begin, kMillisecond);
        const std::uint64_t misses = service.counters().region_misses.load();
        app.env().sleep_until(begin + service.options().lease + 100 * kMicrosecond);
        do_one(app, queue, one_sided(Opcode::kRead, sge, there.addr, there.rkey));
        count += service.counters().region_misses.load() == misses;
      }
      runtime::node_barrier(service.env(), "done");
    });
    EXPECT_EQ(wrong != 0, bug != Bug::kNone);
  }
}

// A read behind a long write sees it, also after a transfer to another queue pair.
TEST(KrcoreBugsSim, ATransferWaitsForWhatWasBefore) {
  for (const Bug bug : {Bug::kNone, Bug::kTransferWithoutFake}) {
    const int wrong = count_wrong(2, with_bug(bug), [](Service& service, auto&, int& count) {
      constexpr std::uint32_t kBytes = 1 << 20;
      App app(service);
      if (service.env().node() == 1) {
        share(service, app, kBytes);
      } else {
        const fabric::RemoteRegion there = region_of(service, 1);
        const Registration own = app.reg_mr(kBytes + 64);
        const Queue queue = app.create_queue();
        app.connect(queue, 1, 1);
        for (std::uint64_t round = 1; round <= 8; ++round) {
          std::memset(own.data, static_cast<int>(round), kBytes);
          const fabric::Sge all = piece(own, 0, kBytes), last = piece(own, kBytes, 8);
          fabric::WorkRequest write = one_sided(Opcode::kWrite, all, there.addr, there.rkey);
          write.flags = 0;
          EXPECT_EQ(app.push(queue, {&write, 1}).accepted, 1u);
          service.start_transfer(queue, app.env().core() % service.pools());
          do_one(app, queue, one_sided(Opcode::kRead, last, there.addr + kBytes - 8, there.rkey));
          count += own.data[kBytes] != static_cast<std::byte>(round);
        }
      }
      runtime::node_barrier(service.env(), "done");
    });
    EXPECT_EQ(wrong != 0, bug != Bug::kNone);
  }
}

// The messages of a queue pair whose peer moves to another core arrive in order: the peer has
// dispatched what came by the old way.
TEST(KrcoreBugsSim, ATransferWaitsForThePeer) {
  for (const Bug bug : {Bug::kNone, Bug::kTransferWithoutAck}) {
    const int wrong = count_wrong(2, with_bug(bug), [](Service& service, auto&, int& count) {
      constexpr std::uint64_t kQueues = 16, kEach = 200;
      App app(service);
      Env& env = service.env();
      const Registration own = app.reg_mr(1 << 16);
      if (env.node() == 1) {
        Event is_bound(env);
        const auto receiver = env.spawn(
            "receiver",
            [&] {
              const Queue inbox = app.create_queue();
              app.bind(inbox, 7);
              const auto receive = [&](std::uint64_t slot) {
                const fabric::Sge sge = piece(own, slot * 64, 64);
                const fabric::ReceiveRequest request{slot, &sge, 1};
                app.post_receive(inbox, {&request, 1});
              };
              for (std::uint64_t slot = 0; slot < 128; ++slot) receive(slot);
              is_bound.set();
              std::uint64_t expected[kQueues] = {};
              for (std::uint64_t left = kQueues * kEach; left != 0;) {
                Message messages[32];
                env.sleep_until(env.now() + 15 * kMicrosecond);
                const std::size_t found = app.pop_messages(inbox, messages);
                left -= found;
                for (const Message& message : std::span(messages).first(found)) {
                  std::uint64_t word[2] = {};
                  std::memcpy(word, own.data + message.wr_id * 64, sizeof word);
                  count += word[1] != expected[word[0]];
                  expected[word[0]] = word[1] + 1;
                  receive(message.wr_id);
                }
              }
            },
            1);
        is_bound.wait();
        runtime::node_barrier(env, "bound");
        receiver->join();
      } else {
        runtime::node_barrier(env, "bound");
        for (std::uint64_t queue_number = 0; queue_number < kQueues; ++queue_number) {
          const Queue queue = app.create_queue();
          app.connect(queue, 1, 7);
          for (std::uint64_t i = 0; i < kEach; ++i) {
            const std::uint64_t word[2] = {queue_number, i};
            std::memcpy(own.data, word, sizeof word);
            do_one(app, queue, one_sided(Opcode::kSend, piece(own, 0, 16), 0, 0));
          }
        }
      }
      runtime::node_barrier(env, "done");
    });
    EXPECT_EQ(wrong != 0, bug != Bug::kNone);
  }
}

// The error of a dead node's queue goes to its owner, and its neighbours go on.
TEST(KrcoreBugsSim, AnErrorGoesToItsOwner) {
  for (const Bug bug : {Bug::kNone, Bug::kErrorByOpcode}) {
    Options options = with_bug(bug);
    options.cores = 1;
    options.dc_queue_pairs = 1;
    options.timeout_us = 100;
    const int wrong = count_wrong(3, options, [](Service& service, auto& cluster, int& count) {
      App app(service);
      Env& env = service.env();
      if (env.node() != 0) {
        share(service, app, 64);
        if (env.node() == 2) env.sleep_until(kForever);  // it is killed
        runtime::node_barrier(env, "done", runtime::kSetupTimeout, std::vector<NodeId>{0, 1});
        return;
      }
      const fabric::RemoteRegion alive = region_of(service, 1), dead = region_of(service, 2);
      const Registration own = app.reg_mr(64);
      const fabric::Sge sge = piece(own, 0, 8);
      const Queue a = app.create_queue(), b = app.create_queue();
      app.connect(a, 2, 1);
      app.connect(b, 1, 1);
      EXPECT_EQ(do_one(app, a, one_sided(Opcode::kRead, sge, dead.addr, dead.rkey)).status,
                Status::kSuccess);
      EXPECT_EQ(do_one(app, b, one_sided(Opcode::kRead, sge, alive.addr, alive.rkey)).status,
                Status::kSuccess);
      cluster.kill(2);
      fabric::WorkRequest to_dead = one_sided(Opcode::kWrite, sge, dead.addr, dead.rkey, 1);
      fabric::WorkRequest to_alive = one_sided(Opcode::kWrite, sge, alive.addr, alive.rkey, 2);
      EXPECT_EQ(app.push(a, {&to_dead, 1}).accepted, 1u);
      EXPECT_EQ(app.push(b, {&to_alive, 1}).accepted, 1u);
      fabric::Completion done;
      const bool has_ended = app.wait(a, {&done, 1}, env.now() + 50 * kMillisecond) == 1;
      count += !has_ended || done.status != Status::kRetryExceeded;
      runtime::node_barrier(env, "done", runtime::kSetupTimeout, std::vector<NodeId>{0, 1});
    });
    EXPECT_EQ(wrong != 0, bug != Bug::kNone);
  }
}

}  // namespace
}  // namespace pyrdma::krcore
