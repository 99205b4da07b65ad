// The handshake of a reliable connection: offers, confirms and farewells of other lives and nodes.
#include <span>

#include "runtime/node_barrier.h"
#include "systems/krcore/control/stranger_test.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

using fabric::Opcode;
using fabric::Status;

constexpr NodeId kOffers = 2;  // has no service, and makes the offers

Options for_offers(Bug bug = Bug::kNone) {
  Options options = one_core(bug);
  options.rc_queue_pairs = 4;
  return options;
}

/// A life of the node that makes offers to node 0.
class Offering {
 public:
  Offering(Env& env, std::uint32_t life) : env_(env), life_(life), port_(env, 8) {
    env.device().rendezvous().publish_value(key_of(env.node(), life), port_.port());
  }
  /// Sends a message and returns its answer.
  ControlMessage ask(ControlMessage message) {
    message.from = env_.node();
    message.incarnation = life_;
    message.port = port_.port();
    send(env_, port_, 0, message);
    for (;;) {
      const std::vector<std::byte> bytes = port_.take();
      const auto answer = parse_control(bytes.data(), bytes.size());
      if (!answer) {
        ADD_FAILURE() << "no answer";
        return {};
      }
      if (!is_answer_to(message.kind, answer->kind)) continue;  // the service asks, too
      EXPECT_EQ(answer->ticket, message.ticket);
      EXPECT_EQ(answer->to_incarnation, life_);
      return *answer;
    }
  }
  ControlMessage offer(std::uint64_t ticket) {
    ControlMessage message;
    message.kind = ControlKind::kConnect;
    message.ticket = ticket;
    message.queue_pair = port_.port();
    return ask(message);
  }
  ControlKind about(ControlKind kind, std::uint32_t qp_num) {
    ControlMessage message;
    message.kind = kind;
    message.ticket = next_++;
    message.queue_pair.qp_num = qp_num;
    return ask(message).kind;
  }

 private:
  Env& env_;
  const std::uint32_t life_;
  Stranger port_;
  std::uint64_t next_ = 1000;
};

/// Node 0 has a service, node 2 makes offers to it.
void with_offers(
    Bug bug, const std::function<void(Env&)>& offers,
    const std::function<void(Service&)>& then = [](Service&) {}) {
  fabric::sim::SimCluster cluster(runtime::sim_options(3));
  cluster.run([&](Env& env) {
    if (env.node() == kOffers) {
      seem_booted(env);
      offers(env);
      return runtime::node_barrier(env, "done", 100 * kSecond);
    }
    Service service(env, for_offers(bug));
    runtime::node_barrier(env, "done", 100 * kSecond);
    if (env.node() == 0) then(service);
  });
}

TEST(KrcoreReliableSim, AnOfferIsOneOfItsLife) {
  for (const Bug bug : {Bug::kNone, Bug::kOffersOfLastLife}) {
    with_offers(bug, [&](Env& env) {
      Offering first(env, 0);
      const ControlMessage accepted = first.offer(5);
      ASSERT_EQ(accepted.kind, ControlKind::kAccept);
      EXPECT_EQ(first.offer(5).queue_pair.qp_num, accepted.queue_pair.qp_num) << "asked again";
      Offering second(env, 1);
      const ControlMessage again = second.offer(5);
      ASSERT_EQ(again.kind, ControlKind::kAccept);
      EXPECT_EQ(again.queue_pair.qp_num == accepted.queue_pair.qp_num, bug != Bug::kNone);
    });
  }
}

TEST(KrcoreReliableSim, AnUnknownConnectionIsNotConfirmed) {
  for (const Bug bug : {Bug::kNone, Bug::kUnknownConfirmed}) {
    with_offers(bug, [&](Env& env) {
      Offering first(env, 0);
      EXPECT_EQ(first.about(ControlKind::kConfirm, 4711),
                bug == Bug::kNone ? ControlKind::kRefuse : ControlKind::kRegistered);
      const std::uint32_t made = first.offer(5).queue_pair.qp_num;
      EXPECT_EQ(first.about(ControlKind::kConfirm, made), ControlKind::kRegistered);
      EXPECT_EQ(first.about(ControlKind::kConfirm, made), ControlKind::kRegistered)
          << "the first answer may be lost";
      Offering second(env, 1);
      EXPECT_EQ(second.about(ControlKind::kConfirm, made),
                bug == Bug::kNone ? ControlKind::kRefuse : ControlKind::kRegistered)
          << "it has ended with the life of its peer";
    });
  }
}

TEST(KrcoreReliableSim, APoolTakesNoMoreThanItHasRoomFor) {
  with_offers(Bug::kNone, [](Env& env) {
    Offering offering(env, 0);
    for (std::uint64_t ticket = 1; ticket <= 4; ++ticket) {
      const ControlMessage answer = offering.offer(ticket);
      ASSERT_EQ(answer.kind, ControlKind::kAccept);
      EXPECT_EQ(offering.about(ControlKind::kConfirm, answer.queue_pair.qp_num),
                ControlKind::kRegistered);
    }
    EXPECT_EQ(offering.offer(5).kind, ControlKind::kRefuse) << "rc_queue_pairs is 4";
  });
}

// Who offers more than two at a time has given up the first. So has who does not confirm for 2 s.
TEST(KrcoreReliableSim, AnOfferThatIsNotConfirmedEnds) {
  with_offers(Bug::kNone, [](Env& env) {
    Offering offering(env, 0);
    std::vector<std::uint32_t> made;
    for (std::uint64_t ticket = 1; ticket <= 8; ++ticket) {
      const ControlMessage answer = offering.offer(ticket);
      ASSERT_EQ(answer.kind, ControlKind::kAccept);
      made.push_back(answer.queue_pair.qp_num);
    }
    EXPECT_EQ(offering.offer(6).kind, ControlKind::kRefuse) << "asked again";
    EXPECT_EQ(offering.about(ControlKind::kConfirm, made[5]), ControlKind::kRefuse);
    EXPECT_EQ(offering.about(ControlKind::kConfirm, made[6]), ControlKind::kRegistered);
    env.sleep_until(env.now() + 3 * kSecond);
    EXPECT_EQ(offering.about(ControlKind::kConfirm, made[7]), ControlKind::kRefuse);
  });
}

// Node 2 names the connection of nodes 0 and 1 as its own.
TEST(KrcoreReliableSim, AFarewellEndsOnlyTheSendersConnections) {
  fabric::sim::SimCluster cluster(runtime::sim_options(3));
  std::uint32_t number = 0;
  cluster.run([&](Env& env) {
    const auto meet = [&](const char* name) { runtime::node_barrier(env, name, 100 * kSecond); };
    if (env.node() == kOffers) {
      seem_booted(env);
      Offering offering(env, 0);
      meet("made");
      EXPECT_EQ(offering.about(ControlKind::kDisconnect, number), ControlKind::kRegistered);
      meet("left");
      return meet("done");
    }
    Service service(env, for_offers());
    if (env.node() == 0) {
      service.make_one_more(0, 1);
      ASSERT_EQ(service.pool(0).reliable.size(), 1u);
      number = service.pool(0).reliable.begin()->second->qp().qp_num();
    }
    meet("made");
    meet("left");
    if (env.node() == 0) {
      env.sleep_until(env.now() + kMillisecond);
      EXPECT_EQ(service.pool(0).reliable.size(), 1u);
      EXPECT_TRUE(service.pool(0).leaving.empty());
    }
    meet("done");
  });
}

// A node that comes back makes its first connection under the numbers of its last life. Requests of
// the peer use it, too, instead of the dead one.
TEST(KrcoreReliableSim, AConnectionOfANodeThatComesBackLives) {
  fabric::sim::SimCluster cluster(runtime::sim_options(3));
  bool has_second = false, is_over = false;
  fabric::RemoteRegion regions[3];
  cluster.run([&](Env& env) {
    const auto await = [&](const bool& flag) {
      while (!flag) env.sleep_until(env.now() + 100 * kMicrosecond);
    };
    Service service(env, for_offers());
    App app(service);
    const Registration own = app.reg_mr(4096);
    regions[env.node()] = {own.addr, own.bytes, own.key, env.node()};
    const auto read = [&](NodeId node) {
      const Queue queue = app.create_queue();
      app.connect(queue, node, 7);
      const bool is_reliable = service.uses_reliable(queue);
      const fabric::Sge into = piece(own, 0, 8);
      const fabric::Completion done = do_one(
          app, queue, one_sided(Opcode::kRead, into, regions[node].addr, regions[node].rkey));
      EXPECT_EQ(done.status, Status::kSuccess) << "from " << env.node() << " to " << node;
      EXPECT_TRUE(is_reliable) << "from " << env.node() << " to " << node;
      app.destroy(queue);
    };
    const auto make = [&] {
      service.want_reliable(0, 2);
      env.sleep_until(env.now() + 50 * kMillisecond);
      EXPECT_EQ(service.counters().rc_made.load(), 1u);
    };
    if (env.node() == 1 && env.incarnation() == 0) {
      env.sleep_until(env.now() + kMillisecond);
      make();
      read(2);
      cluster.kill_later(1, kMillisecond);
      cluster.restart_later(1, 20 * kMillisecond);
      env.sleep_until(kForever);
    } else if (env.node() == 1) {
      make();
      for (int i = 0; i < 3; ++i) read(2);
      has_second = true;
      await(is_over);
    } else if (env.node() == 2) {
      await(has_second);
      for (int i = 0; i < 3; ++i) read(1);
      is_over = true;
    } else {
      await(is_over);
    }
  });
}

}  // namespace
}  // namespace pyrdma::krcore
