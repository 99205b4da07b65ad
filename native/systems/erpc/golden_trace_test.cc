// Figures 2 and 3 of the paper as golden traces: the whole traffic of an RPC in the simulator,
// without the times, which depend on the profile. A change may alter a trace only on purpose.
#include <string>

#include "env/trace.h"
#include "fabric/sim/cluster.h"
#include "systems/erpc/worlds_test.h"

namespace pyrdma::erpc {

namespace {

// Bytes of messages. A packet of 1,024 bytes has 24 for its header, which takes 16 of them.
constexpr std::uint32_t kOnePiece = 200, kThreePieces = 2500;

/// What the NICs of client (node 0) and server (node 1) did.
struct Traffic {
  std::string trace;
  std::uint64_t reads_of_client = 0, reads_of_server = 0;  // of payloads, over PCIe
};

/// Runs one request after the session is connected, with two credits.
Traffic traffic_of(std::uint32_t request, std::uint32_t response) {
  Options options;
  options.credits = 2;
  options.packet_bytes = 1024;
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  Traffic found;
  std::size_t first = 0, last = 0;
  bool is_over = false;
  cluster.run([&](Env& env) {
    Endpoint endpoint(env, options);
    if (env.node() == 1) {
      serve_sized(endpoint);
      while (!is_over) endpoint.run_for(20 * kMicrosecond);
      return;
    }
    const SessionId session = connect_to(endpoint, {1, 0});
    const auto reads = [&](NodeId node) { return cluster.counters(node).payload_dma_reads; };
    found.reads_of_client = reads(0);
    found.reads_of_server = reads(1);
    for (NodeId node = 0; node < 2; ++node) cluster.env(node).trace().enable(true);
    first = cluster.trace().size();
    TestCall call(endpoint, request, response);
    ASSERT_TRUE(call.send(session).wait());
    EXPECT_TRUE(call.is_right());
    for (NodeId node = 0; node < 2; ++node) cluster.env(node).trace().enable(false);
    last = cluster.trace().size();
    found.reads_of_client = reads(0) - found.reads_of_client;
    found.reads_of_server = reads(1) - found.reads_of_server;
    is_over = true;
  });
  // "45232 ns  node 0  sends  send 2, 64 bytes" becomes "client, 64 bytes".
  for (std::size_t i = first; i < last; ++i) {
    const std::string& line = cluster.trace()[i];
    EXPECT_NE(line.find("  sends  send "), std::string::npos) << line;
    found.trace += line.find("node 0") != std::string::npos ? "client" : "server";
    found.trace += line.substr(line.rfind(',')) + "\n";
  }
  return found;
}

}  // namespace

// Figure 3, left: the fewest packets possible.
TEST(ErpcGoldenTrace, Figure3ARequestOfOnePacket) {
  EXPECT_EQ("\n" + traffic_of(kOnePiece, kOnePiece).trace, R"(
client, 216 bytes
server, 216 bytes
)");
}

// Figure 3, right: a credit return for each piece of the request but the last, and a request for
// each piece of the response but the first. These packets have 16 bytes.
TEST(ErpcGoldenTrace, Figure3ThreePacketsEachWay) {
  EXPECT_EQ("\n" + traffic_of(kThreePieces, kThreePieces).trace, R"(
client, 1016 bytes
client, 1016 bytes
server, 16 bytes
server, 16 bytes
client, 516 bytes
server, 1016 bytes
client, 16 bytes
client, 16 bytes
server, 1016 bytes
server, 516 bytes
)");
}

// Figure 2: header and data of the first packet are together, so the NIC reads them at once. A
// later packet's header lies behind the data, so that the NIC reads twice. Packets without data are
// handed to the NIC by the CPU.
TEST(ErpcGoldenTrace, Figure2TheFirstPacketIsReadAtOnce) {
  const Traffic one = traffic_of(kOnePiece, kOnePiece);
  EXPECT_EQ(one.reads_of_client, 1U);
  EXPECT_EQ(one.reads_of_server, 1U);
  const Traffic three = traffic_of(kThreePieces, kThreePieces);
  EXPECT_EQ(three.reads_of_client, 1U + 2 * 2);
  EXPECT_EQ(three.reads_of_server, 1U + 2 * 2);
}

}  // namespace pyrdma::erpc
