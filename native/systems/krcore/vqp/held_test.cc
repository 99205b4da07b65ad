// Requests and receives that wait until the rights which they were checked for have ended
// (section 4.2).
#include <algorithm>
#include <cstring>
#include <functional>

#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

using fabric::Opcode;
using fabric::Status;

constexpr NodeId kReader = 0, kGone = 1, kOther = 2;

/// Leases that end while a queue pair waits for a dead node.
Options short_lease() {
  Options options = one_core();
  options.dc_queue_pairs = 1;
  options.lease = 2 * kMillisecond;
  return options;
}

/// What may end while a READ of node 2 waits behind one of a dead node.
enum class Ends : std::uint8_t { kLease, kRegion, kBuffer };

struct Ended {
  Status status = Status::kGeneral;
  std::uint64_t lookups = 0;  // by the READ that waited
};

Ended read_behind_a_dead_node(Ends ends) {
  fabric::sim::SimCluster cluster(runtime::sim_options(3));
  fabric::RemoteRegion regions[3];
  bool is_posted = false, is_over = false;
  Ended seen;
  cluster.run([&](Env& env) {
    Service service(env, short_lease());
    App app(service);
    const Registration own = app.reg_mr(4096), buffer = app.reg_mr(64);
    regions[env.node()] = {own.addr, own.bytes, own.key, env.node()};
    runtime::node_barrier(env, "up");
    if (env.node() != kReader) {
      while (!is_posted) env.sleep_until(env.now() + 10 * kMicrosecond);
      if (env.node() == kOther && ends == Ends::kRegion) app.dereg_mr(own);
      while (!is_over) env.sleep_until(env.now() + kMillisecond);
      return;
    }
    Queue queues[3];
    const auto read = [&](NodeId node, const Registration& into, fabric::Sge& sge) {
      sge = piece(into, 0, 8);
      return one_sided(Opcode::kRead, sge, regions[node].addr, regions[node].rkey);
    };
    fabric::Sge sge, last;
    for (const NodeId node : {kGone, kOther}) {
      queues[node] = app.create_queue();
      app.connect(queues[node], node, 7);
      EXPECT_EQ(do_one(app, queues[node], read(node, own, sge)).status, Status::kSuccess);
    }
    cluster.kill(kGone);
    const fabric::WorkRequest first = read(kGone, own, sge), behind = read(kOther, buffer, last);
    EXPECT_EQ(app.push(queues[kGone], {&first, 1}).accepted, 1u);
    EXPECT_EQ(app.push(queues[kOther], {&behind, 1}).accepted, 1u);
    is_posted = true;
    if (ends == Ends::kBuffer) app.dereg_mr(buffer);
    const std::uint64_t before = service.counters().region_misses.load();
    fabric::Completion done;
    done.status = Status::kGeneral;
    EXPECT_EQ(app.wait(queues[kOther], {&done, 1}, env.now() + kSecond), 1u);
    seen = {done.status, service.counters().region_misses.load() - before};
    is_over = true;
  });
  return seen;
}

TEST(KrcoreHeldSim, ARequestThatHasWaitedIsCheckedAgain) {
  const Ended lease = read_behind_a_dead_node(Ends::kLease);
  EXPECT_EQ(lease.status, Status::kSuccess);
  EXPECT_EQ(lease.lookups, 1u);
  EXPECT_EQ(read_behind_a_dead_node(Ends::kRegion).status, Status::kRemoteAccess);
  EXPECT_EQ(read_behind_a_dead_node(Ends::kBuffer).status, Status::kLocalProtection);
}

// A list of two requests: the region of the first one is known, and the lookup of the second one's
// waits behind a dead node. Meanwhile the first region ends.
TEST(KrcoreHeldSim, ALookupOfALaterRequestMakesAListLate) {
  fabric::sim::SimCluster cluster(runtime::sim_options(3));
  fabric::RemoteRegion known, unknown, gone;
  bool is_posted = false, is_over = false;
  cluster.run([&](Env& env) {
    Service service(env, short_lease());
    App app(service);
    const Registration own = app.reg_mr(4096), other = app.reg_mr(4096);
    if (env.node() == kGone) gone = {own.addr, own.bytes, own.key, kGone};
    if (env.node() == kOther) {
      known = {own.addr, own.bytes, own.key, kOther};
      unknown = {other.addr, other.bytes, other.key, kOther};
    }
    runtime::node_barrier(env, "up");
    if (env.node() != kReader) {
      while (!is_posted) env.sleep_until(env.now() + 10 * kMicrosecond);
      if (env.node() == kOther) app.dereg_mr(own);
      while (!is_over) env.sleep_until(env.now() + kMillisecond);
      return;
    }
    fabric::Sge places[3];
    const auto read = [&](const fabric::RemoteRegion& from, std::size_t place) {
      places[place] = piece(own, 64 * place, 8);
      return one_sided(Opcode::kRead, places[place], from.addr, from.rkey);
    };
    Queue queues[3];
    for (const NodeId node : {kGone, kOther}) {
      queues[node] = app.create_queue();
      app.connect(queues[node], node, 7);
      EXPECT_EQ(do_one(app, queues[node], read(node == kGone ? gone : known, 0)).status,
                Status::kSuccess);
    }
    cluster.kill(kGone);
    const fabric::WorkRequest first = read(gone, 0);
    EXPECT_EQ(app.push(queues[kGone], {&first, 1}).accepted, 1u);
    is_posted = true;
    const fabric::WorkRequest list[] = {read(known, 1), read(unknown, 2)};
    EXPECT_EQ(app.push(queues[kOther], list).accepted, 2u);
    fabric::Completion done;
    EXPECT_EQ(app.wait(queues[kOther], {&done, 1}, env.now() + kSecond), 1u);
    EXPECT_EQ(done.status, Status::kRemoteAccess);
    is_over = true;
  });
}

/// Registers memory until an application has that which another one had.
Registration same_memory(App& app, const Registration& earlier, std::vector<Registration>& others) {
  for (;;) {
    const Registration made = app.reg_mr(earlier.bytes);
    if (made.addr == earlier.addr) return made;
    others.push_back(made);
  }
}

// The region of a posted receive ends, and another application gets the memory. A message that
// comes then is not written there.
TEST(KrcoreHeldSim, AMessageDoesNotReachMemoryThatItsReceiveHasLost) {
  for (const std::uint32_t bytes : {64U, 4096U}) {  // the longer one is read by the receiver
    fabric::sim::SimCluster cluster(runtime::sim_options(2));
    cluster.run([&](Env& env) {
      Options options = short_lease();
      options.zero_copy_above = 1024;
      Service service(env, options);
      App app(service);
      const Registration own = app.reg_mr(8192);
      std::fill_n(own.data, own.bytes, std::byte{1});
      if (env.node() == 0) {
        const Queue inbox = app.create_queue();
        app.bind(inbox, 7);
        const fabric::Sge sge = piece(own, 0, bytes);
        const fabric::ReceiveRequest receive{5, &sge, 1};
        ASSERT_EQ(app.post_receive(inbox, {&receive, 1}).accepted, 1u);
        app.dereg_mr(own);
        env.sleep_until(env.now() + 2 * service.regions().grace());
        App next(service);
        std::vector<Registration> others;
        const Registration reused = same_memory(next, own, others);
        runtime::node_barrier(env, "reused");
        Message message;
        ASSERT_EQ(app.wait_messages(inbox, {&message, 1}, env.now() + kSecond), 1u);
        EXPECT_EQ(message.status, Status::kLocalProtection);
        EXPECT_EQ(message.wr_id, 5u);
        EXPECT_EQ(reused.data[0], std::byte{0});
      } else {
        runtime::node_barrier(env, "reused");
        const Queue queue = app.create_queue();
        app.connect(queue, 0, 7);
        const fabric::Sge sge = piece(own, 0, bytes);
        const fabric::WorkRequest send = one_sided(Opcode::kSend, sge, 0, 0);
        EXPECT_EQ(app.push(queue, {&send, 1}).accepted, 1u);
        env.sleep_until(env.now() + 10 * kMillisecond);
        service.poll(queue, {});
        EXPECT_EQ(service.refusal(queue), kNotTaken);
      }
      runtime::node_barrier(env, "done");
    });
  }
}

// A long message waits for a receive for many leases. If its sender has ended, and its memory is
// another application's, nothing of that is read. If the sender lives, the message arrives.
TEST(KrcoreHeldSim, AnAnnouncementEndsWithItsLease) {
  for (const bool lives : {true, false}) {
    fabric::sim::SimCluster cluster(runtime::sim_options(2));
    std::size_t messages = 0;
    bool has_leaked = false;
    cluster.run([&](Env& env) {
      Options options = short_lease();
      options.zero_copy_above = 1024;
      Service service(env, options);
      App app(service);
      const Registration own = app.reg_mr(8192);
      if (env.node() == 0) {
        const Queue inbox = app.create_queue();
        app.bind(inbox, 7);
        runtime::node_barrier(env, "bound");
        runtime::node_barrier(env, "reused");
        const fabric::Sge sge = piece(own, 0, 4096);
        const fabric::ReceiveRequest receive{1, &sge, 1};
        ASSERT_EQ(app.post_receive(inbox, {&receive, 1}).accepted, 1u);
        Message message;
        messages = app.wait_messages(inbox, {&message, 1}, env.now() + 100 * kMillisecond);
        has_leaked = own.data[0] == std::byte{9};
      } else {
        auto sender = std::make_unique<App>(service);
        const Registration payload = sender->reg_mr(4096);
        const Queue queue = sender->create_queue();
        runtime::node_barrier(env, "bound");
        sender->connect(queue, 0, 7);
        const fabric::Sge sge = piece(payload, 0, 4096);
        const fabric::WorkRequest send = one_sided(Opcode::kSend, sge, 0, 0);
        EXPECT_EQ(sender->push(queue, {&send, 1}).accepted, 1u);
        if (!lives) sender.reset();
        env.sleep_until(env.now() + 2 * service.regions().grace());
        std::vector<Registration> others;
        if (!lives) std::memset(same_memory(app, payload, others).data, 9, 4096);
        runtime::node_barrier(env, "reused");
        fabric::Completion done;
        if (lives) {
          EXPECT_EQ(sender->wait(queue, {&done, 1}, env.now() + kSecond), 1u);
          EXPECT_EQ(done.status, Status::kSuccess);
        }
      }
      runtime::node_barrier(env, "done");
    });
    EXPECT_EQ(messages, lives ? 1u : 0u);
    EXPECT_FALSE(has_leaked);
  }
}

}  // namespace
}  // namespace pyrdma::krcore
