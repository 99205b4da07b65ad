// The queue pairs by which a receiver answers its senders (section 4.4).
#include <functional>
#include <optional>

#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

using fabric::Opcode;
using fabric::Status;

/// A node with inboxes at ports, and one with clients. Both in one service's virtual time.
struct Talk {
  App& app;
  Registration own;

  Queue inbox(std::uint32_t port) {
    const Queue made = app.create_queue();
    app.bind(made, port);
    for (std::uint64_t slot = 0; slot < 64; ++slot) receive(made, slot);
    return made;
  }
  void receive(Queue at, std::uint64_t slot) {
    const fabric::Sge sge = piece(own, slot * 64, 64);
    const fabric::ReceiveRequest request{slot, &sge, 1};
    app.post_receive(at, {&request, 1});
  }
  Queue client(std::uint32_t port) {
    const Queue made = app.create_queue();
    app.connect(made, app.env().node(), port);
    return made;
  }
  Status send(Queue by) {
    const fabric::Sge sge = piece(own, 8000, 8);
    return do_one(app, by, one_sided(Opcode::kSend, sge, 0, 0)).status;
  }
  /// Takes a message, and returns what answers it.
  Queue take(Queue at) {
    Message message;
    EXPECT_EQ(app.wait_messages(at, {&message, 1}, app.env().now() + kSecond), 1u);
    receive(at, message.wr_id);
    return message.reply;
  }
};

/// Runs an application with inboxes, which may have few queues, and one with clients.
void run_talk(std::uint32_t app_queues,
              const std::function<void(Talk& server, Talk& clients)>& talk) {
  fabric::sim::SimCluster cluster(runtime::sim_options(1));
  cluster.run([&](Env& env) {
    Options options = one_core();
    options.app_queues = app_queues;
    options.inbox_messages = 1;
    Service service(env, options);
    App serving(service), calling(service);
    Talk server{serving, serving.reg_mr(8192)}, clients{calling, calling.reg_mr(8192)};
    talk(server, clients);
    EXPECT_LE(service.queues_of(serving.number()), app_queues);
  });
}

TEST(KrcoreRepliesSim, OneThatTheApplicationHasEndedIsMadeAnew) {
  run_talk(8, [](Talk& server, Talk& clients) {
    const Queue inbox = server.inbox(7), client = clients.client(7);
    Queue last;
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(clients.send(client), Status::kSuccess);
      const Queue reply = server.take(inbox);
      EXPECT_NE(reply, last);
      EXPECT_EQ(server.send(reply), Status::kSuccess);
      server.app.destroy(reply);
      last = reply;
    }
  });
}

// 200 clients come and go, and the application may have 8 queues. A client that stays is answered
// by the same queue all the time.
TEST(KrcoreRepliesSim, ClientsThatHaveEndedLeaveRoom) {
  run_talk(8, [](Talk& server, Talk& clients) {
    const Queue inboxes[] = {server.inbox(7), server.inbox(8)};
    const Queue stays = clients.client(7);
    std::optional<Queue> known;
    for (std::uint32_t i = 0; i < 200; ++i) {
      const std::uint32_t port = i < 50 ? 0 : i < 100 ? 1 : i % 2;
      const Queue client = clients.client(7 + port);
      EXPECT_EQ(clients.send(client), Status::kSuccess);
      const Queue reply = server.take(inboxes[port]);
      ASSERT_TRUE(reply) << i;
      EXPECT_EQ(server.send(reply), Status::kSuccess) << i;
      clients.app.destroy(client);
      if (i % 2 != 0) continue;
      EXPECT_EQ(clients.send(stays), Status::kSuccess);
      const Queue same = server.take(inboxes[0]);
      EXPECT_EQ(same, known.value_or(same)) << i;
      known = same;
    }
  });
}

// What an application has posted or not taken yet keeps its queue.
TEST(KrcoreRepliesSim, OneThatIsInUseStays) {
  run_talk(3, [](Talk& server, Talk& clients) {
    const Queue inbox = server.inbox(7);
    Queue replies[2];
    const auto call = [&] {
      const Queue client = clients.client(7);
      EXPECT_EQ(clients.send(client), Status::kSuccess);
      clients.app.destroy(client);
      return server.take(inbox);
    };
    for (Queue& reply : replies) {
      reply = call();
      const fabric::Sge sge = piece(server.own, 8000, 8);
      const fabric::WorkRequest answer = one_sided(Opcode::kSend, sge, 0, 0);
      EXPECT_EQ(server.app.push(reply, {&answer, 1}).accepted, 1u);
    }
    EXPECT_FALSE(call()) << "all have completions to take";
    for (const Queue& reply : replies) {
      fabric::Completion done;
      EXPECT_EQ(server.app.wait(reply, {&done, 1}, server.app.env().now() + kSecond), 1u);
    }
    EXPECT_TRUE(call());
  });
}

// A client whose messages find no room begins anew, again and again. What is known of it does not
// grow.
TEST(KrcoreRepliesSim, ARefusedConnectionIsForgottenWithTheNextOne) {
  run_talk(8, [](Talk& server, Talk& clients) {
    VqpOptions few;
    few.receive_entries = 1;
    const Queue inbox = server.app.create_queue(few);
    server.app.bind(inbox, 7);
    Service& service = server.app.service();
    const Queue client = clients.client(7);
    for (int i = 0; i < 20; ++i) {
      const fabric::Sge sge = piece(clients.own, 8000, 8);
      const fabric::WorkRequest send = one_sided(Opcode::kSend, sge, 0, 0);
      for (int sent = 0; sent < 4; ++sent) clients.app.push(client, {&send, 1});
      server.app.env().sleep_until(server.app.env().now() + kMillisecond);
      EXPECT_EQ(service.refusal(client), Status::kRnrRetryExceeded) << i;
      service.reset(client);
      clients.app.connect(client, 0, 7);
    }
    EXPECT_GE(service.counters().refused_messages.load(), 20u);
    EXPECT_EQ(service.find(inbox)->refused.size(), 1u);
  });
}

}  // namespace
}  // namespace pyrdma::krcore
