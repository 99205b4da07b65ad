// Raft messages as RPCs: what arrives, what fails, and what is dropped.
#include "systems/erpc/raft/rpc_links.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "systems/erpc/worlds_test.h"

namespace pyrdma::erpc::raft {
namespace {

/// Keeps the messages that come; nothing else of a member is called.
class SilentMember final : public Member {
 public:
  void receive(NodeId from, ByteView message) override {
    messages.emplace_back(from, Bytes(message.begin(), message.end()));
  }
  void turn(Time) override {}
  Time next_turn() const override { return kForever; }
  Outcome propose(ByteView, std::function<void(Outcome, const KvAnswer&)>) override {
    return refused();
  }
  Outcome barrier(std::function<void(Outcome)>) override { return refused(); }
  Outcome add(NodeId, std::function<void(Outcome)>) override { return refused(); }
  Outcome assign(NodeId, Role, std::function<void(Outcome)>) override { return refused(); }
  Outcome remove(NodeId, std::function<void(Outcome)>) override { return refused(); }
  Outcome transfer(NodeId, std::function<void(Outcome)>) override { return refused(); }
  bool leads() const override { return false; }
  std::optional<NodeId> leader() const override { return std::nullopt; }
  bool heard_majority() const override { return false; }
  std::uint64_t term() const override { return 0; }
  std::uint64_t vote() const override { return 0; }
  std::uint64_t last_index() const override { return 0; }
  std::uint64_t first_index() const override { return 0; }
  std::uint64_t commit_index() const override { return 0; }
  std::uint64_t applied_index() const override { return 0; }
  Servers servers() const override { return group; }
  const MemberCounters& counters() const override { return counters_; }
  const std::string& failure() const override { return failure_; }

  std::vector<std::pair<NodeId, Bytes>> messages;
  Servers group;

 private:
  static Outcome refused() { return Outcome::kNotLeader; }
  MemberCounters counters_;
  std::string failure_;
};

/// Endpoint 0 of the node with links to one peer.
struct Party {
  Party(Env& env, NodeId peer, const Options& options) : Party(env, std::vector{peer}, options) {}
  Party(Env& env, const std::vector<NodeId>& peers, const Options& options) {
    endpoint = std::make_unique<Endpoint>(env, options);
    links = std::make_unique<RpcLinks>(*endpoint, peers);
    links->connect_to(member);
  }
  ~Party() { endpoint.reset(); }  // before the links
  Party(const Party&) = delete;
  Party& operator=(const Party&) = delete;

  /// Sends and returns whether it was delivered.
  bool send(NodeId to, std::size_t bytes) {
    int ended = -1;
    links->send(to, Bytes(bytes, std::byte{7}), [&](bool delivered) { ended = delivered; });
    EXPECT_EQ(ended, -1) << "never inside send()";
    links->turn();
    endpoint->run_until([&] { return ended >= 0; }, endpoint->env().now() + kPatience);
    EXPECT_GE(ended, 0);
    return ended == 1;
  }
  bool send_until_delivered(NodeId to) {
    const Time deadline = endpoint->env().now() + kPatience;
    while (!send(to, 100)) {
      if (endpoint->env().now() > deadline) return false;
      endpoint->run_for(kMillisecond);
    }
    return true;
  }
  SilentMember member;
  std::unique_ptr<RpcLinks> links;
  std::unique_ptr<Endpoint> endpoint;
};

Options small_options(const std::string& world) {
  Options options = options_of(world);
  options.max_message = 20'000;
  return options;
}

class ErpcRaftLinks : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Worlds, ErpcRaftLinks, erpc_worlds(),
                         [](const auto& each) { return each.param; });

TEST_P(ErpcRaftLinks, CarryMessagesUpToTheirLongest) {
  const Options options = small_options(GetParam());
  runtime::run_world(GetParam(), 2, [&](Env& env, const runtime::Kill&) {
    Meeting meeting(env, "test");
    Party party(env, 1 - env.node(), options);
    meeting.wait(*party.endpoint, kPatience);
    if (env.node() == 0) {
      EXPECT_TRUE(party.send_until_delivered(1));
      const std::size_t most = RpcLinks::max_message(options);
      EXPECT_EQ(most, options.max_message);
      EXPECT_TRUE(party.send(1, most));
      EXPECT_EQ(party.links->counters().parts, 0U);
      EXPECT_TRUE(party.send(1, most + 1));
      EXPECT_TRUE(party.send(1, 10 * most));
      EXPECT_EQ(party.links->counters().parts, 2U + 11U);
      EXPECT_FALSE(party.send(9, 5)) << "no peer";
    }
    meeting.wait(*party.endpoint, kPatience);
    if (env.node() == 1) {
      ASSERT_EQ(party.member.messages.size(), 4U);
      EXPECT_EQ(party.member.messages[0].first, 0U);
      EXPECT_EQ(party.member.messages[1].second,
                Bytes(RpcLinks::max_message(options), std::byte{7}));
      EXPECT_EQ(party.member.messages[2].second.size(), RpcLinks::max_message(options) + 1);
      EXPECT_EQ(party.member.messages[3].second,
                Bytes(10 * RpcLinks::max_message(options), std::byte{7}));
    }
    meeting.wait(*party.endpoint, kPatience);
  });
}

// Node 2 is a client. What it sends, in whosever name, reaches no member.
TEST_P(ErpcRaftLinks, DropRequestsOfStrangers) {
  const Options options = small_options(GetParam());
  runtime::run_world(GetParam(), 3, [&](Env& env, const runtime::Kill&) {
    Meeting meeting(env, "test");
    Party party(env, env.node() == 0 ? 1 : 0, options);
    party.member.group = {{1}, {2}};
    if (env.node() == 2) {
      const SessionId session = party.endpoint->create_session({0, 0});
      party.endpoint->connect({&session, 1});
      const auto send = [&](const Bytes& bytes, RequestType type) {
        TestCall call(*party.endpoint, static_cast<std::uint32_t>(bytes.size()), 1);
        std::ranges::copy(bytes, call.request().data());
        ASSERT_TRUE(call.send(session, type).wait());
        EXPECT_EQ(call.outcome(), erpc::Outcome::kOk);
      };
      send({}, kMessageRequest);
      const NodeId other = 1;
      Bytes message = encode(AppendResult{kMaxNumber, 0, 0});
      send(message, kMessageRequest);
      message.insert(message.begin(), sizeof other, std::byte{0});
      std::memcpy(message.data(), &other, sizeof other);
      send(message, kMessageRequest);
      send(message, kPartRequest);
    }
    meeting.wait(*party.endpoint, kPatience);
    if (env.node() == 0) {
      EXPECT_EQ(party.links->counters().malformed, 1U);
      EXPECT_EQ(party.links->counters().strangers, 3U);
      EXPECT_TRUE(party.member.messages.empty());
    }
    meeting.wait(*party.endpoint, kPatience);
  });
}

// Node 0 has not heard of node 2, which its peer, node 1, knows as a member. Node 3 is nobody's.
TEST_P(ErpcRaftLinks, TakeMessagesOfMembersThatAPeerVouchesFor) {
  const Options options = small_options(GetParam());
  runtime::run_world(GetParam(), 4, [&](Env& env, const runtime::Kill&) {
    Meeting meeting(env, "test");
    Party party(env, env.node() == 0 ? 1 : 0, options);
    party.member.group = {{1}, {2}};
    if (env.node() == 1) party.member.group.push_back({3});
    meeting.wait(*party.endpoint, kPatience);
    if (env.node() == 2 || env.node() == 3) {
      EXPECT_TRUE(party.send_until_delivered(0));
      const Time end = env.now() + 100 * kMillisecond;
      while (env.now() < end) {
        party.send(0, 100);
        party.endpoint->run_for(kMillisecond);
      }
    }
    meeting.wait(*party.endpoint, kPatience);
    if (env.node() == 0) {
      EXPECT_FALSE(party.member.messages.empty());
      for (const auto& [from, bytes] : party.member.messages) EXPECT_EQ(from, 2U);
      EXPECT_GT(party.links->counters().strangers, 0U);
    }
    meeting.wait(*party.endpoint, kPatience);
  });
}

// A member that waits to be added knows nobody. Once it knows its group, it hears its members only.
TEST_P(ErpcRaftLinks, AMemberThatWaitsHearsAllUntilItKnowsItsGroup) {
  const Options options = small_options(GetParam());
  runtime::run_world(GetParam(), 3, [&](Env& env, const runtime::Kill&) {
    Meeting meeting(env, "test");
    Party party(env, env.node() == 0 ? std::vector<NodeId>{} : std::vector<NodeId>{0}, options);
    meeting.wait(*party.endpoint, kPatience);
    if (env.node() != 0) {
      EXPECT_TRUE(party.send_until_delivered(0));
    }
    meeting.wait(*party.endpoint, kPatience);
    if (env.node() == 0) {
      EXPECT_GE(party.member.messages.size(), 2U);
      party.member.messages.clear();
      party.member.group = {{1}, {2}};
    }
    meeting.wait(*party.endpoint, kPatience);
    if (env.node() != 0) {
      EXPECT_TRUE(party.send(0, 10));
    }
    meeting.wait(*party.endpoint, kPatience);
    if (env.node() == 0) {
      ASSERT_EQ(party.member.messages.size(), 1U);
      EXPECT_EQ(party.member.messages[0].first, 1U);
      EXPECT_TRUE(party.send_until_delivered(1)) << "a peer that it has learnt";
    }
    meeting.wait(*party.endpoint, kPatience);
  });
}

TEST_P(ErpcRaftLinks, DropPartsThatBelongToNoMessage) {
  const Options options = small_options(GetParam());
  runtime::run_world(GetParam(), 2, [&](Env& env, const runtime::Kill&) {
    Meeting meeting(env, "test");
    Party party(env, 1 - env.node(), options);
    if (env.node() == 1) {
      const SessionId session = party.endpoint->create_session({0, 0});
      party.endpoint->connect({&session, 1});
      const auto send = [&](const PartHeader& header, std::uint32_t bytes, bool is_right = false) {
        TestCall call(*party.endpoint, sizeof header + bytes, 1);
        std::memcpy(call.request().data(), &header, sizeof header);
        EXPECT_TRUE(call.send(session, kPartRequest).wait());
        const bool is_taken =
            call.response().size() == 1 && call.response().data()[0] == std::byte{1};
        EXPECT_EQ(is_taken, is_right) << header.number << ", " << header.at;
      };
      send({1, 30, 10}, 10);                     // no first part
      send({2, RpcLinks::kLongest + 1, 0}, 10);  // too long
      send({3, 30, 0}, 31);                      // longer than it says
      send({4, 30, 0}, 10, true);                // right
      send({4, 31, 10}, 10);                     // another length
      send({5, 30, 10}, 10);                     // another message
      send({4, 30, 20}, 10);                     // a gap
      send({4, 30, 10}, 0);                      // nothing
      send({4, 30, 10}, 10, true);               // right
      send({4, 30, 10}, 10);                     // again
      send({4, 30, ~std::uint64_t{0} - 4}, 10);  // beyond
      send({4, 30, 20}, 10, true);               // the message is whole
      send({4, 30, 20}, 10);                     // after its end
      send({6, 50, 0}, 20, true);                // given up
      send({7, 20, 0}, 20, true);                // whole
    }
    meeting.wait(*party.endpoint, kPatience);
    if (env.node() == 0) {
      EXPECT_EQ(party.links->counters().malformed, 10U);
      ASSERT_EQ(party.member.messages.size(), 2U);
      EXPECT_EQ(party.member.messages[0].second.size(), 30U);
      EXPECT_EQ(party.member.messages[1].second.size(), 20U);
    }
    meeting.wait(*party.endpoint, kPatience);
  });
}

// A message that begins at one sender does not go on at another one, though number, length and
// place fit.
TEST_P(ErpcRaftLinks, PartsOfTwoSendersAreNotJoined) {
  const Options options = small_options(GetParam());
  runtime::run_world(GetParam(), 3, [&](Env& env, const runtime::Kill&) {
    Meeting meeting(env, "test");
    Party party(env, env.node() == 0 ? std::vector<NodeId>{1, 2} : std::vector<NodeId>{0}, options);
    SessionId session{};
    if (env.node() != 0) {
      session = party.endpoint->create_session({0, 0});
      party.endpoint->connect({&session, 1});
    }
    const auto send = [&](const PartHeader& header, std::uint32_t bytes) {
      TestCall call(*party.endpoint, sizeof header + bytes, 1);
      std::memcpy(call.request().data(), &header, sizeof header);
      EXPECT_TRUE(call.send(session, kPartRequest).wait());
      return call.response().size() == 1 && call.response().data()[0] == std::byte{1};
    };
    if (env.node() == 1) {
      EXPECT_TRUE(send({1, 30, 0}, 10));
    }
    meeting.wait(*party.endpoint, kPatience);
    if (env.node() == 2) {
      EXPECT_FALSE(send({1, 30, 10}, 20));
    }
    meeting.wait(*party.endpoint, kPatience);
    if (env.node() == 1) {
      EXPECT_TRUE(send({1, 30, 10}, 20));
    }
    meeting.wait(*party.endpoint, kPatience);
    if (env.node() == 0) {
      ASSERT_EQ(party.member.messages.size(), 1U);
      EXPECT_EQ(party.member.messages[0].first, 1U);
    }
    meeting.wait(*party.endpoint, kPatience);
  });
}

// A late part of a message of the life before would else fit into one of this life.
TEST_P(ErpcRaftLinks, EachLifeNumbersItsMessagesAnew) {
  const Options options = small_options(GetParam());
  runtime::run_world(GetParam(), 2, [&](Env& env, const runtime::Kill&) {
    Meeting meeting(env, "test");
    if (env.node() == 0) {
      Endpoint endpoint(env, options);
      std::set<std::uint64_t> numbers;
      endpoint.register_handler(kMessageRequest, [](RequestHandle& handle) { handle.respond(); });
      endpoint.register_handler(kPartRequest, [&numbers](RequestHandle& handle) {
        PartHeader header;
        std::memcpy(&header, handle.request().data(), sizeof header);
        numbers.insert(header.number);
        handle.response(1)[0] = std::byte{1};
        handle.respond();
      });
      EXPECT_TRUE(endpoint.run_until([&] { return numbers.size() == 2; }, env.now() + kPatience));
      return meeting.wait(endpoint, kPatience);
    }
    auto party = std::make_unique<Party>(env, 0, options);
    for (int life = 0; life < 2; ++life) {
      if (life != 0) {
        party->endpoint->close();
        party = std::make_unique<Party>(env, 0, options);
      }
      EXPECT_TRUE(party->send_until_delivered(0));
      EXPECT_TRUE(party->send(0, 3 * RpcLinks::max_message(options)));
    }
    meeting.wait(*party->endpoint, kPatience);
  });
}

// A newer long message ends the one before, and neither mixes with the other.
TEST_P(ErpcRaftLinks, ANewerLongMessageEndsTheOneBefore) {
  const Options options = small_options(GetParam());
  runtime::run_world(GetParam(), 2, [&](Env& env, const runtime::Kill&) {
    Meeting meeting(env, "test");
    Party party(env, 1 - env.node(), options);
    meeting.wait(*party.endpoint, kPatience);
    if (env.node() == 0) {
      EXPECT_TRUE(party.send_until_delivered(1));
      const std::size_t part = RpcLinks::max_message(options);
      int ended[3] = {-1, -1, -1};
      for (int i = 0; i < 3; ++i) {
        party.links->send(1, Bytes(10 * part, static_cast<std::byte>(i)),
                          [&ended, i](bool delivered) { ended[i] = delivered; });
      }
      const auto are_over = [&] { return ended[0] >= 0 && ended[1] >= 0 && ended[2] >= 0; };
      EXPECT_TRUE(party.endpoint->run_until(are_over, env.now() + kPatience));
      EXPECT_EQ(ended[0] + ended[1], 0);
      EXPECT_EQ(ended[2], 1);
      EXPECT_EQ(party.links->counters().superseded, 2U);
      EXPECT_EQ(party.links->counters().parts, 2U + 11U);
    }
    meeting.wait(*party.endpoint, kPatience);
    if (env.node() == 1) {
      ASSERT_EQ(party.member.messages.size(), 2U);
      EXPECT_EQ(party.member.messages[1].second,
                Bytes(10 * RpcLinks::max_message(options), std::byte{2}));
    }
    meeting.wait(*party.endpoint, kPatience);
  });
}

TEST_P(ErpcRaftLinks, FailWhileThePeerIsGoneAndGoOnWithItsSuccessor) {
  Options options = small_options(GetParam());
  options.failure_timeout = 50 * kMillisecond;
  runtime::run_world(GetParam(), 2, [&](Env& env, const runtime::Kill&) {
    Meeting meeting(env, "test");
    auto party = std::make_unique<Party>(env, 1 - env.node(), options);
    if (env.node() == 0) {
      EXPECT_TRUE(party->send_until_delivered(1));
    } else {
      const auto came = [&] { return !party->member.messages.empty(); };
      EXPECT_TRUE(party->endpoint->run_until(came, env.now() + kPatience));
      party->endpoint->run_for(kMillisecond);  // the response leaves
      party->endpoint->close();
      party = std::make_unique<Party>(env, 0, options);
    }
    if (env.node() == 0) {
      const Time deadline = env.now() + kPatience;
      while (party->links->sessions_made_again() == 0 && env.now() < deadline) {
        party->send(1, 10);
        party->endpoint->run_for(kMillisecond);
      }
      EXPECT_GE(party->links->sessions_made_again(), 1U);
      EXPECT_TRUE(party->send_until_delivered(1));
    }
    meeting.wait(*party->endpoint, kPatience);
  });
}

TEST_P(ErpcRaftLinks, RefuseMoreThanTheirRequestsUnderWay) {
  const Options options = small_options(GetParam());
  runtime::run_world(GetParam(), 2, [&](Env& env, const runtime::Kill&) {
    Meeting meeting(env, "test");
    Party party(env, 1 - env.node(), options);
    if (env.node() == 0) {
      EXPECT_TRUE(party.send_until_delivered(1));
      std::uint32_t delivered = 0, failed = 0;
      for (std::uint32_t i = 0; i < RpcLinks::kMostUnderWay + 3; ++i)
        party.links->send(1, Bytes(9), [&](bool ok) { ++(ok ? delivered : failed); });
      EXPECT_TRUE(party.links->has_failures());
      party.links->turn();
      EXPECT_EQ(failed, 3U);
      const auto are_over = [&] { return delivered == RpcLinks::kMostUnderWay; };
      EXPECT_TRUE(party.endpoint->run_until(are_over, env.now() + kPatience));
    }
    meeting.wait(*party.endpoint, kPatience);
  });
}

}  // namespace
}  // namespace pyrdma::erpc::raft
