// These tests cover the resources of the simulated NIC: pipelines, engines, the pace of a queue
// pair, requests that the NIC keeps, contexts, atomics and PCIe. NIC.md describes them.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "fabric/sim/endpoint_test.h"
#include "fabric/sim/faulty_world_test.h"

namespace pyrdma::fabric::sim {
namespace {

using Changes = std::map<std::string, double>;

/// Bounds that are not under test are far away, so that one resource decides.
Changes unbounded(Changes changes) {
  Changes all{{"nic.tx_packet_ns", 0},
              {"nic.rx_packet_ns", 0},
              {"nic.tx_message_ns", 1},
              {"nic.rx_write_ns", 0},
              {"nic.rx_read_ns", 0},
              {"nic.rx_atomic_ns", 0},
              {"nic.rx_ack_ns", 0},
              {"nic.completion_ns", 0},
              {"nic.qp_message_ns", 0},
              {"nic.qp_read_ns", 0},
              {"pcie.rate_gbps", 1e5},
              {"cpu.post_ns", 0},
              {"link.rate_gbps", 1e4},
              {"cpu.post_request_ns", 1},
              {"cpu.poll_ns", 1},
              {"nic.request_cache", 1e9},
              {"nic.max_outstanding_reads", 128}};
  for (const auto& [name, value] : changes) all[name] = value;
  return all;
}

/// Returns the time for each of the `count` requests that node 0 has in flight at once, spread over
/// `qps` queue pairs, in nanoseconds. `request` sets what differs.
double time_of_each(const Changes& changes, std::uint32_t qps, std::uint32_t count,
                    const std::function<void(WorkRequest&, std::uint32_t)>& request,
                    NicCounters* counters = nullptr) {
  SimCluster cluster(sim_options(2, unbounded(changes)));
  double time = 0;
  cluster.run([&](Env& env) {
    std::vector<std::unique_ptr<Endpoint>> ends;
    QpOptions options;
    options.max_outstanding_reads = 128;
    options.max_inline = 8;
    for (std::uint32_t i = 0; i < qps; ++i)
      ends.push_back(
          std::make_unique<Endpoint>(env, 1 - env.node(), 1 << 16, options, std::to_string(i)));
    if (env.node() == 0) {
      const Time begin = env.now();
      for (std::uint32_t i = 0; i < count; ++i) {
        Endpoint& end = *ends[i % qps];
        const Sge sge = end.memory->sge(i % 64 * 8, 8);
        WorkRequest one;
        one.sges = &sge;
        one.sge_count = 1;
        one.opcode = Opcode::kWrite;
        one.remote_addr = end.remote.addr;
        one.rkey = end.remote.rkey;
        one.flags = i + qps >= count ? kSignaled : 0;
        request(one, i);
        EXPECT_EQ(end.queue_pair->post({&one, 1}).accepted, 1u);
      }
      for (auto& end : ends) EXPECT_EQ(end->next().status, Status::kSuccess);
      time = static_cast<double>(env.now() - begin) / count;
    }
    for (auto& end : ends) end->meet("end");
  });
  if (counters != nullptr) *counters = cluster.counters(0);
  return time;
}

void as_write(WorkRequest& /*request*/, std::uint32_t /*number*/) {}
void as_read(WorkRequest& request, std::uint32_t /*number*/) { request.opcode = Opcode::kRead; }

TEST(NicModel, TheSendingPipelinesOfBothNodesBoundTheRate) {
  const double out = time_of_each({{"nic.tx_packet_ns", 50}}, 4, 400, as_write);
  EXPECT_NEAR(out, 50, 8) << "requests leave one node, acknowledgements the other";
  const double in = time_of_each({{"nic.rx_packet_ns", 50}}, 4, 400, as_write);
  EXPECT_NEAR(in, 50, 8);
}

TEST(NicModel, TheRequesterServesResponsesToo) {
  const double requests = time_of_each({{"nic.tx_message_ns", 30}}, 4, 400, as_read);
  EXPECT_NEAR(requests, 30, 6);
  const double both =
      time_of_each({{"nic.tx_message_ns", 30}, {"nic.rx_ack_ns", 30}}, 4, 400, as_read);
  EXPECT_NEAR(both, 60, 10);
}

TEST(NicModel, AQueuePairHasAPaceOfItsOwn) {
  const Changes pace{{"nic.qp_message_ns", 60}, {"nic.qp_read_ns", 120}};
  EXPECT_NEAR(time_of_each(pace, 1, 200, as_write), 60, 10);
  EXPECT_NEAR(time_of_each(pace, 1, 120, as_read), 120, 20);
  EXPECT_NEAR(time_of_each(pace, 4, 400, as_write), 15, 5) << "queue pairs do not wait for others";
}

TEST(NicModel, AMissIsALatencyWithSeveralInFlight) {
  // Eight contexts do not fit: most accesses miss. The latency of a miss is 2 us.
  const Changes small{{"nic.cache_bytes", 700}, {"pcie.read_ns", 2000}, {"nic.qp_miss_ns", 40}};
  NicCounters counters;
  const double each = time_of_each(small, 8, 800, as_write, &counters);
  EXPECT_GT(counters.cache_misses, 100u);
  const double one_by_one = static_cast<double>(counters.cache_misses) * 2000 / 800;
  EXPECT_LT(each, one_by_one / 2);
  Changes slow = small;
  slow["nic.qp_miss_ns"] = 1000;
  EXPECT_GT(time_of_each(slow, 8, 800, as_write), 3 * each) << "the fetch unit bounds the rate";
}

TEST(NicModel, ReadsBeyondTheRequestCacheCostTheRequester) {
  const Changes cache{{"nic.request_cache", 64}, {"nic.request_miss_ns", 100}};
  NicCounters counters;
  EXPECT_LT(time_of_each(cache, 4, 60, as_read, &counters), 60);
  EXPECT_EQ(counters.request_misses, 0u);
  EXPECT_GT(time_of_each(cache, 4, 400, as_read, &counters), 60);
  EXPECT_GT(counters.request_misses, 200u);
  time_of_each(cache, 4, 400, as_write, &counters);
  EXPECT_EQ(counters.request_misses, 0u) << "an acknowledgement scatters nothing";
}

TEST(NicModel, AtomicsAtOneAddressWaitForEachOther) {
  const Changes address{{"nic.atomic_address_ns", 300}};
  const auto same = [](WorkRequest& one, std::uint32_t) { one.opcode = Opcode::kFetchAdd; };
  const auto distinct = [](WorkRequest& one, std::uint32_t number) {
    one.opcode = Opcode::kFetchAdd;
    one.remote_addr += number * 8;
  };
  EXPECT_NEAR(time_of_each(address, 1, 100, same), 300, 30);
  EXPECT_LT(time_of_each(address, 1, 100, distinct), 60);
}

TEST(NicModel, AtomicsInTheMemoryOfTheNicWaitLess) {
  const auto each = [](bool on_device) {
    const Changes times{{"nic.atomic_address_ns", 300}, {"nic.device_atomic_address_ns", 120}};
    SimCluster cluster(sim_options(2, unbounded(times)));
    double time = 0;
    cluster.run([&](Env& env) {
      QpOptions options;
      options.max_outstanding_reads = 128;
      Endpoint end(env, 1 - env.node(), 4096, options);
      Rendezvous& r = end.device.rendezvous();
      const auto own = end.device.allocate_device_memory(*end.pd, 64, kAllAccess);
      r.publish_value(end.mine("nic"), own->remote());
      auto target = r.await_value<RemoteRegion>(end.its("nic"), kForever);
      if (!on_device) target = end.remote;
      if (env.node() == 0) {
        const Time begin = env.now();
        for (std::uint64_t i = 0; i < 100; ++i)
          EXPECT_TRUE(end.queue_pair->fetch_add(end.memory->sge(0, 8), target, 0, 1, i));
        for (int i = 0; i < 100; ++i) EXPECT_EQ(end.next().status, Status::kSuccess);
        time = static_cast<double>(env.now() - begin) / 100;
      }
      end.meet("end");
    });
    return time;
  };
  EXPECT_NEAR(each(false), 300, 30);
  EXPECT_NEAR(each(true), 120, 30);
}

// The responder's PCIe takes 4 ns for a byte, the link 1 ns.
TEST(NicModel, PcieBoundsLongReads) {
  const Changes slow{{"pcie.rate_gbps", 2}, {"pcie.header_bytes", 0}, {"link.rate_gbps", 8}};
  SimCluster cluster(sim_options(2, unbounded(slow)));
  constexpr std::uint32_t kBytes = 1 << 20;
  double time = 0;
  cluster.run([&](Env& env) {
    Endpoint end(env, 1 - env.node(), kBytes);
    if (env.node() == 0) {
      const Time begin = env.now();
      EXPECT_TRUE(end.queue_pair->read(end.memory->sge(0, kBytes), end.remote, 0));
      EXPECT_EQ(end.next().status, Status::kSuccess);
      time = static_cast<double>(env.now() - begin);
    }
    end.meet("end");
  });
  EXPECT_NEAR(time / kBytes, 4, 0.1);
}

/// Node 0 sends messages of 8 B to node 1, all at once, over `qps` queue pairs. Returns the time
/// for each in nanoseconds. Node 1 has posted `receives` to each queue pair, for `strides` messages
/// each.
double time_of_each_send(const Changes& changes, std::uint32_t qps, std::uint32_t messages,
                         std::uint32_t strides, NicCounters& counters) {
  SimCluster cluster(sim_options(2, unbounded(changes)));
  double time = 0;
  cluster.run([&](Env& env) {
    std::vector<std::unique_ptr<Endpoint>> ends;
    std::vector<std::unique_ptr<AddressHandle>> handles;
    QpOptions options;
    options.transport = Transport::kUd;
    options.max_inline = 8;
    options.receive_entries = messages / strides;
    options.receive_strides = env.node() == 1 ? strides : 1;
    for (std::uint32_t i = 0; i < qps; ++i)
      ends.push_back(
          std::make_unique<Endpoint>(env, 1 - env.node(), 1 << 16, options, std::to_string(i)));
    for (auto& end : ends) {
      Rendezvous& r = end->device.rendezvous();
      const auto peer = r.await_value<QpAddress>(end->its("qp"), kForever);
      handles.push_back(end->device.create_address_handle(*end->pd, peer));
      for (std::uint32_t i = 0; env.node() == 1 && i < messages / strides; ++i)
        EXPECT_TRUE(end->queue_pair->receive(end->memory->sge(0, 64 * strides)));
      end->meet("posted");
      if (env.node() == 1) continue;
      const Sge sge = end->memory->sge(0, 8);
      WorkRequest one;
      one.sges = &sge;
      one.sge_count = 1;
      one.opcode = Opcode::kSend;
      one.flags = kInline;
      one.address_handle = handles.back().get();
      one.remote_qpn = peer.qp_num;
      one.remote_qkey = options.qkey;
      const std::vector<WorkRequest> list(messages, one);
      EXPECT_EQ(end->queue_pair->post(list).accepted, messages);
    }
    const Time begin = env.now();
    for (auto& end : ends) {
      for (std::uint32_t i = 0; env.node() == 1 && i < messages; ++i)
        EXPECT_EQ(end->next().status, Status::kSuccess);
    }
    if (env.node() == 1) time = static_cast<double>(env.now() - begin) / messages / qps;
    for (auto& end : ends) end->meet("end");
  });
  counters = cluster.counters(1);
  return time;
}

TEST(NicModel, TheNicFetchesReceivesAhead) {
  Changes fetch{{"pcie.read_ns", 2000}, {"nic.receive_prefetch", 4}, {"nic.rx_send_ns", 10}};
  NicCounters counters;
  const double few = time_of_each_send(fetch, 1, 128, 1, counters);
  EXPECT_NEAR(few, 2000 / 4, 60) << "a batch for each round trip";
  EXPECT_EQ(counters.receive_fetches, 128u);
  fetch["nic.receive_prefetch"] = 64;
  EXPECT_LT(time_of_each_send(fetch, 1, 128, 1, counters), few / 4);
}

TEST(NicModel, ReceivesBeyondThoseThatTheNicKeepsMiss) {
  Changes keep{{"pcie.read_ns", 2000}, {"nic.receive_prefetch", 128}, {"nic.qp_miss_ns", 400}};
  NicCounters counters;
  const double warm = time_of_each_send(keep, 1, 128, 1, counters);
  keep["nic.receive_cache"] = 1;
  const double cold = time_of_each_send(keep, 1, 128, 1, counters);
  EXPECT_NEAR(cold - warm, 400, 60) << "nearly all miss; several fetches are in flight";
  EXPECT_NEAR(time_of_each_send(keep, 1, 128, 128, counters), warm, 60) << "one receive fits";
}

TEST(NicModel, StridesSaveFetchesOfReceives) {
  const Changes fetch{{"pcie.read_ns", 2000}, {"nic.receive_prefetch", 1}, {"nic.rx_send_ns", 10}};
  NicCounters counters;
  const double plain = time_of_each_send(fetch, 1, 128, 1, counters);
  EXPECT_NEAR(plain, 2000, 100);
  EXPECT_EQ(counters.receive_fetches, 128u);
  EXPECT_NEAR(time_of_each_send(fetch, 1, 128, 16, counters), 2000 / 16, 40);
  EXPECT_LE(counters.receive_fetches, 128u / 16 + 1);
}

TEST(NicModel, PcieBoundsSmallRequestsByItsHeaders) {
  Changes pcie{{"pcie.rate_gbps", 8}, {"pcie.header_bytes", 24}};  // 1 ns for each byte
  EXPECT_NEAR(time_of_each(pcie, 4, 400, as_write), 8 + 24, 6) << "the NIC reads 8 B of payload";
  pcie["pcie.header_bytes"] = 0;
  EXPECT_NEAR(time_of_each(pcie, 4, 400, as_write), 8, 6);
}

TEST(NicModel, TheNicReadsAListFromTheRing) {
  const auto latency = [](std::size_t count, double carries_any, std::uint8_t flags) {
    SimCluster cluster(sim_options(2, unbounded({{"nic.doorbell_carries_any", carries_any}})));
    Time took = 0;
    cluster.run([&](Env& env) {
      QpOptions options;
      options.max_inline = 8;
      Endpoint end(env, 1 - env.node(), 4096, options);
      if (env.node() == 0) {
        const Sge sge = end.memory->sge(0, 8);
        WorkRequest one;
        one.sges = &sge;
        one.sge_count = 1;
        one.opcode = Opcode::kWrite;
        one.remote_addr = end.remote.addr;
        one.rkey = end.remote.rkey;
        one.flags = flags;
        std::vector<WorkRequest> list(count, one);
        list.back().flags |= kSignaled;
        const Time begin = env.now();
        EXPECT_EQ(end.queue_pair->post(list).accepted, count);
        end.next();
        took = env.now() - begin;
      }
      end.meet("end");
    });
    return static_cast<double>(took);
  };
  const double carried = latency(1, 1, 0);
  EXPECT_NEAR(latency(2, 1, 0) - carried, 400, 30) << "a list waits for a PCIe read";
  EXPECT_NEAR(latency(1, 0, 0) - carried, 400, 30) << "mlx4 carries inline payload only";
  EXPECT_LT(latency(1, 0, kInline), carried + 1);
}

/// Two initiators of a node read from two targets, and from a second one of the first one's node.
/// The first initiator turns from target to target.
TEST(NicModel, AReconnectionDelaysItsQueuePairOnly) {
  FaultyWorld world({}, 2, MemoryModel::strong());
  Side a(world, 0), b(world, 1);
  QpOptions options;
  options.transport = Transport::kDc;
  auto turning = a.queue_pair(options), steady = a.queue_pair(options);
  turning->connect({});
  steady->connect({});
  options.dc_target = true;
  options.qkey = 73;
  auto far_shared = b.device.create_shared_receive_queue(*b.pd, 16);
  auto near_shared = a.device.create_shared_receive_queue(*a.pd, 16);
  auto far = b.queue_pair(options, far_shared.get());
  auto near = a.queue_pair(options, near_shared.get());
  auto beside_far = b.queue_pair(options, far_shared.get());
  far->connect({});
  near->connect({});
  beside_far->connect({});
  auto to_far = a.device.create_address_handle(*a.pd, far->address());
  auto to_near = a.device.create_address_handle(*a.pd, near->address());
  const Sge sge = a.memory->sge(0, 8);
  const auto read = [&](QueuePair& initiator, bool from_far, bool beside = false) {
    WorkRequest request;
    request.sges = &sge;
    request.sge_count = 1;
    request.opcode = Opcode::kRead;
    request.remote_addr = (from_far ? b : a).memory->addr();
    request.rkey = (from_far ? b : a).memory->rkey();
    request.address_handle = (from_far ? to_far : to_near).get();
    request.remote_qpn = (beside ? beside_far : from_far ? far : near)->qp_num();
    request.remote_qkey = options.qkey;
    EXPECT_EQ(initiator.post({&request, 1}).accepted, 1u);
  };
  const auto time = [&](const std::function<void()>& act, int answers) {
    const Time begin = a.env.now();
    act();
    for (int i = 0; i < answers; ++i) EXPECT_EQ(a.await_send().status, Status::kSuccess);
    return static_cast<double>(a.env.now() - begin);
  };
  read(*turning, true);
  read(*steady, true);
  a.await_send();
  a.await_send();
  const double same = time([&] { read(*turning, true); }, 1);
  time([&] { read(*turning, false); }, 1);
  const double turned = time([&] { read(*turning, true); }, 1);
  EXPECT_NEAR(turned - same, test_profile().nic_dc_reconnect_ns, 60);
  const double beside = time([&] { read(*turning, true, true); }, 1);
  EXPECT_NEAR(beside - same, test_profile().nic_dc_reconnect_ns, 60) << "a target of the same NIC";
  // While one reconnects, the other goes on.
  read(*turning, false);
  read(*steady, true);
  EXPECT_EQ(a.await_send().qp_num, steady->qp_num());
  EXPECT_EQ(a.await_send().qp_num, turning->qp_num());
  const double both = time(
      [&] {
        read(*turning, true);
        read(*turning, false);
      },
      2);
  EXPECT_GT(both, 2 * test_profile().nic_dc_reconnect_ns) << "the second waits for the first";
}

}  // namespace
}  // namespace pyrdma::fabric::sim
