#include "measure/verbs_load/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace pyrdma::measure::verbs_load {
namespace {

Load load_of(NodeId nodes, std::uint32_t servers, std::uint32_t threads, std::uint32_t qps,
             std::uint32_t clients = 0) {
  Load load{};
  load.transport = fabric::Transport::kRc;
  load.pattern = Pattern::kAll;
  load.nodes = nodes;
  load.servers = servers;
  load.threads = threads;
  load.qps = qps;
  load.clients = clients;
  return load;
}

// Returns the clients of the links from `self` to `peer`, in order. Both ends must agree on them.
std::vector<std::uint32_t> between(const Load& load, NodeId self, NodeId peer) {
  std::vector<std::uint32_t> clients;
  for (const Link& link : plan_links(load, self)) {
    EXPECT_NE(link.peer, self);
    if (link.peer == peer) clients.push_back(load.servers == 0 ? link.sender : link.client);
  }
  return clients;
}

TEST(Plan, BothEndsAgree) {
  for (const Load& load : {load_of(2, 0, 3, 4), load_of(8, 0, 2, 50), load_of(7, 0, 1, 9),
                           load_of(10, 1, 2, 3), load_of(6, 2, 2, 5), load_of(10, 1, 1, 2, 25)}) {
    for (NodeId a = 0; a < load.nodes; ++a) {
      for (NodeId b = 0; b < load.nodes; ++b) {
        EXPECT_EQ(between(load, a, b), between(load, b, a)) << a << ' ' << b;
      }
    }
  }
}

TEST(Plan, EveryThreadHasItsQueuePairs) {
  for (const Load& load : {load_of(8, 0, 2, 50), load_of(6, 2, 2, 5), load_of(10, 1, 1, 2, 25)}) {
    std::map<std::uint32_t, std::uint32_t> links_of;
    for (NodeId node = 0; node < load.nodes; ++node) {
      for (const Link& link : plan_links(load, node)) {
        if (link.sender != kNoThread) ++links_of[load.client_number(node, link.sender)];
      }
    }
    EXPECT_EQ(links_of.size(), load.all_clients());
    for (const auto& [client, links] : links_of) EXPECT_EQ(links, load.qps) << client;
  }
}

TEST(Plan, SpreadsOverThePeers) {
  const Load load = load_of(8, 0, 1, 70);
  std::map<NodeId, int> links_to;
  for (const Link& link : plan_links(load, 3)) ++links_to[link.peer];
  EXPECT_EQ(links_to.size(), 7U);
  for (const auto& [peer, links] : links_to) EXPECT_NEAR(links, 10, 2) << peer;
}

TEST(Plan, ConnectionlessRequestsInTurnUseAllQueuePairs) {
  Load load = load_of(5, 0, 1, 3);
  load.transport = fabric::Transport::kDc;
  const std::vector<Link> links = plan_links(load, 2);
  ASSERT_EQ(links.size(), 12U);  // three queue pairs, four peers
  std::map<std::uint32_t, std::vector<NodeId>> peers_of;
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (i != 0) {
      EXPECT_NE(links[i].qp, links[i - 1].qp) << i;
    }
    peers_of[links[i].qp].push_back(links[i].peer);
  }
  for (auto& [qp, peers] : peers_of) {
    std::sort(peers.begin(), peers.end());
    EXPECT_EQ(peers, (std::vector<NodeId>{0, 1, 3, 4})) << qp;
  }
}

TEST(Plan, DealsClientsToNodes) {
  const Load load = load_of(10, 1, 1, 1, 240);
  std::uint32_t all = 0;
  for (NodeId node = 0; node < load.nodes; ++node) all += load.senders(node);
  EXPECT_EQ(all, 240U);
  EXPECT_EQ(load.senders(0), 0U);
  EXPECT_EQ(load.senders(1), 27U);
  EXPECT_EQ(load.senders(9), 26U);
}

}  // namespace
}  // namespace pyrdma::measure::verbs_load
