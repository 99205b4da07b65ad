// Leases, and what else a server and the coordinator must remember of each other: a server whose
// coordinator is the test, and a coordinator that dies.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "systems/tailwind/backup/backup_world_test.h"
#include "systems/tailwind/cluster_test.h"

namespace pyrdma::tailwind {
namespace {

using fabric::sim::SimCluster;

constexpr std::uint64_t kTable = 1;
const HashRange kAllHashes{kTable, 0, ~std::uint64_t{0}};

/// Speaks for the coordinator to one server, node 0, which has the tablet. Its node is that of
/// another server, too.
class FakeCoordinator {
 public:
  FakeCoordinator(Env& env, const Options& options)
      : transport(env, options, {env.node(), 0}, 64), env_(env) {
    view.epoch = 1;
  }
  /// Turns until `ready`, and answers what comes. Consents to everything.
  void run_until(const std::function<bool()>& ready) {
    while (!ready()) {
      std::vector<std::unique_ptr<Incoming>> requests;
      transport.poll(requests);
      transport.keep_time();
      for (auto& request : requests) {
        const Opcode opcode = request->opcode;
        Bytes answer;
        if (opcode == Opcode::kEnlist) {
          server = request->from;
          view.servers = {{server, ServerState::kUp}};
          view.tablets = {{kAllHashes, server, {}}};
        }
        if (opcode == Opcode::kRenew) {
          asked = env_.now();
          if (grants_after == kForever) continue;
          late_.emplace_back(env_.now() + grants_after, std::move(request));
          continue;
        }
        if (opcode == Opcode::kRaiseVersion) answer = {std::byte{1}};
        if (opcode == Opcode::kLocate) ByteWriter(answer).put(std::uint64_t{0});
        ByteWriter out(answer);
        if (opcode == Opcode::kEnlist || opcode == Opcode::kLocate) view.put(out);
        transport.answer(std::move(request), answer);
      }
      std::erase_if(late_, [&](auto& each) {
        if (env_.now() < each.first) return false;
        transport.answer(std::move(each.second), Bytes{std::byte{1}});
        ++granted;
        return true;
      });
      env_.sleep_until(env_.now() + kMicrosecond);
    }
  }
  Bytes ask(Opcode opcode, const Bytes& payload) {
    std::optional<Bytes> result;
    transport.call(server, opcode, payload, env_.now() + 50 * kMillisecond,
                   [&](CallEnd end, ByteView answer) {
                     EXPECT_EQ(end, CallEnd::kAnswered);
                     result.emplace(answer.begin(), answer.end());
                   });
    run_until([&] { return result.has_value(); });
    return *result;
  }
  StoreStatus update_or_read(Opcode opcode, const std::string& key) {
    StoreRequest request;
    request.table = kTable;
    request.key = bytes_of(key);
    const Bytes answer = ask(opcode, encoded_bytes(request));
    return whole<StoreAnswer>(answer).value_or(StoreAnswer{StoreStatus::kBadRequest, 0, {}}).status;
  }
  StoreStatus read(const std::string& key) { return update_or_read(Opcode::kRead, key); }
  /// The epoch that the server then has.
  std::uint64_t show(const ClusterView& given) {
    const Bytes answer = ask(Opcode::kUpdate, encoded_bytes(given));
    return ByteReader(answer).get<std::uint64_t>();
  }

  Transport transport;
  ServerId server;
  ClusterView view;
  Time grants_after = 0;  // a lease is asked for, or never
  Time asked = 0;         // for the last one
  int granted = 0;

 private:
  Env& env_;
  std::vector<std::pair<Time, std::unique_ptr<Incoming>>> late_;
};

/// Runs a server without backups, and the test in place of its coordinator.
void run_with_fake(const Options& options,
                   const std::function<void(Env&, FakeCoordinator&)>& test) {
  SimCluster cluster(runtime::sim_options(2));
  bool is_over = false;
  cluster.run([&](Env& env) {
    if (env.node() == 0) {
      Server server(env, options, 0);
      return server.run([&] { return is_over; });
    }
    FakeCoordinator coordinator(env, options);
    coordinator.run_until([&] { return coordinator.granted > 0; });
    test(env, coordinator);
    is_over = true;
  });
}

Options lone_options() {
  Options options = small_options("sim", Replication::kTailwind);
  options.servers = 2;
  options.coordinator = 1;
  options.replicas = 0;
  options.lease = 20 * kMillisecond;
  return options;
}

// The coordinator counts it from before its answer, which may be late.
TEST(TailwindLeasesSim, CountFromWhenTheyWereAskedFor) {
  const Options options = lone_options();
  run_with_fake(options, [&](Env& env, FakeCoordinator& coordinator) {
    EXPECT_EQ(coordinator.read("key"), StoreStatus::kNoObject);
    coordinator.grants_after = options.lease / 4;
    const int before = coordinator.granted;
    coordinator.run_until([&] { return coordinator.asked != 0 && coordinator.granted > before; });
    const Time asked = coordinator.asked;
    coordinator.grants_after = kForever;
    coordinator.run_until([&] { return env.now() > asked + options.lease * 9 / 10; });
    EXPECT_EQ(coordinator.read("key"), StoreStatus::kNoObject);
    coordinator.run_until([&] { return env.now() > asked + options.lease; });
    EXPECT_EQ(coordinator.read("key"), StoreStatus::kRetry);
  });
}

TEST(TailwindToldServerSim, KeepsTheNewestView) {
  run_with_fake(lone_options(), [](Env&, FakeCoordinator& coordinator) {
    ClusterView newer = coordinator.view;
    newer.epoch += 2;
    EXPECT_EQ(coordinator.show(newer), newer.epoch);
    EXPECT_EQ(coordinator.show(coordinator.view), newer.epoch);
  });
}

// Else a backup would free what only it has.
TEST(TailwindToldServerSim, IsWholeForBackupsThatItKnows) {
  run_with_fake(lone_options(), [](Env&, FakeCoordinator& coordinator) {
    EXPECT_EQ(coordinator.ask(Opcode::kAskWhole, {}), Bytes{std::byte{0}});
    ++coordinator.view.epoch;
    coordinator.view.servers.push_back({coordinator.transport.self(), ServerState::kUp});
    coordinator.show(coordinator.view);
    EXPECT_EQ(coordinator.ask(Opcode::kAskWhole, {}), Bytes{std::byte{1}});
  });
}

// No backup takes the replica, so nothing is committed when the time of the request is over.
TEST(TailwindToldServerSim, AnswersNoUpdateThatNoBackupHas) {
  for (const bool group_commit : {false, true}) {
    Options options = lone_options();
    options.replicas = 1;
    options.workers = 0;
    options.group_commit = group_commit;
    run_with_fake(options, [](Env&, FakeCoordinator& coordinator) {
      for (const Opcode opcode : {Opcode::kWrite, Opcode::kRead, Opcode::kRemove, Opcode::kRead})
        EXPECT_EQ(coordinator.update_or_read(opcode, "key"), StoreStatus::kRetry);
    });
  }
}

// What the first attempt has stored may be older than what the second one recovers: the tablet was
// another server's meanwhile, and the key was removed there.
TEST(TailwindToldServerSim, ARecoveryForgetsWhatAnEarlierAttemptHasStored) {
  run_with_fake(lone_options(), [](Env&, FakeCoordinator& coordinator) {
    const ServerId dead = coordinator.transport.self();
    Replica replica = segment(dead, 1);
    EntryHeader header;
    header.type = EntryType::kObject;
    header.table = kTable;
    header.version = 1;
    replica.append(header, "key", "value");
    OpenRequest open = open_request({1, 1}, written(replica));
    open.is_written_by_cpu = true;
    coordinator.ask(Opcode::kOpen, encoded_bytes(open));
    RecoverRequest work{dead, {{kAllHashes, dead, {}}}, {}};
    work.parts.push_back({1, static_cast<std::uint32_t>(replica.end()), {coordinator.server}});
    const auto recover = [&] {
      const Bytes answer = coordinator.ask(Opcode::kRecover, encoded_bytes(work));
      const auto told = whole<RecoverAnswer>(answer);
      EXPECT_TRUE(told && told->is_done);
    };
    recover();
    EXPECT_EQ(coordinator.read("key"), StoreStatus::kOk);
    work.parts.clear();
    recover();
    EXPECT_EQ(coordinator.read("key"), StoreStatus::kNoObject);
  });
}

// A server that nobody but clients reaches may serve until its lease ends, also when the
// coordinator that granted it has died.
TEST(TailwindLeasesSim, AreOutwaitedAlsoByTheNextCoordinator) {
  for (const bool restarts : {false, true}) {
    Options options = small_options("sim", Replication::kTailwind);
    options.lease = 20 * kMillisecond;
    SimCluster cluster(runtime::sim_options(options.servers + 2));
    run_store(cluster, options, 200 * kMillisecond,
              [&](Env& env, Client& client, OpenStore& store) {
                const std::uint64_t table = client.create_table("first", {0});
                client.write(table, bytes_of("key"), bytes_of("value"));
                env.sleep_until(env.now() + options.lease);
                const Time cut = env.now();
                for (NodeId other = 1; other <= options.coordinator; ++other) {
                  cluster.block(0, other, kSecond);
                  cluster.block(other, 0, kSecond);
                }
                if (restarts) {
                  cluster.kill(options.coordinator);
                  cluster.restart_later(options.coordinator, kMillisecond);
                }
                Time outwaited = 0;
                client.run_until(
                    [&] {
                      if (store.coordinator == nullptr) return false;
                      for (const RecoveryReport& report : store.coordinator->recoveries())
                        if (report.dead.node == 0) outwaited = report.outwaited;
                      return outwaited != 0;
                    },
                    cut + 200 * kMillisecond);
                EXPECT_GT(outwaited, cut + options.lease * 3 / 4) << restarts;
              });
  }
}

}  // namespace
}  // namespace pyrdma::tailwind
