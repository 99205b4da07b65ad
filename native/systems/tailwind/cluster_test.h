// A store in the worlds of the tests: the first nodes are servers, then the coordinator, then
// clients.
#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/worlds_test.h"
#include "systems/tailwind/client/client.h"
#include "systems/tailwind/coordinator/coordinator.h"
#include "systems/tailwind/server.h"

namespace pyrdma::tailwind {

/// How long a client waits for an answer. A disk that other programs write to may take tens of
/// seconds for what the cleaner has it synchronise.
inline Time patience(const std::string& world) {
  return world.rfind("sim", 0) == 0 ? 200 * kMillisecond : 100 * kSecond;
}
inline std::string text_of(const RecoveryReport& report) {
  const auto us = [](Time t) { return std::to_string(t / kMicrosecond); };
  return to_string(report.dead) + ": suspected " + us(report.suspected) + ", declared " +
         us(report.declared) + ", read " + us(report.read) + ", outwaited " + us(report.outwaited) +
         ", assigned " + us(report.assigned) + ", ended " + us(report.ended) + " us; attempts " +
         std::to_string(report.attempts) + ", partitions " + std::to_string(report.partitions) +
         ", replicas " + std::to_string(report.replicas) + ", objects " +
         std::to_string(report.objects) + ". " + report.problem;
}

/// A small store with short times.
inline Options small_options(const std::string& world, Replication replication) {
  Options options;
  options.servers = 4;
  options.coordinator = 4;
  options.replication = replication;
  options.workers = 2;
  options.replicas = 2;  // one server may die
  options.log_bytes = 8U << 20;
  options.segment_bytes = 128U << 10;
  options.buffers = 16;
  options.keys = 10'000;
  if (world.rfind("sim", 0) == 0) {
    options.ping_interval = 200 * kMicrosecond;
    options.ping_timeout = 100 * kMicrosecond;
    options.lease = 500 * kMicrosecond;
    options.call_timeout = 2 * kMillisecond;
    options.retry_pause = 20 * kMicrosecond;
    options.timeout_us = 16;
    options.retry_count = 3;
  } else {
    options.ping_timeout = 200 * kMillisecond;
    options.lease = kSecond;
    options.call_timeout = 2 * kSecond;
  }
  return options;
}

inline ByteView bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }
inline std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Runs a store of options.servers + 2 nodes or more; `load` on each client node. The others end
/// when all clients have; `at_end` looks at each server then.
inline void run_store(const std::string& world, std::uint32_t clients, const Options& options,
                      const std::function<void(Env&, Client&, const runtime::Kill&)>& load,
                      const std::function<void(Server&)>& at_end = nullptr) {
  std::atomic<std::uint32_t> done{0};
  const auto is_over = [&] { return done.load() == clients; };
  runtime::run_world(world, options.servers + 1 + clients,
                     [&](Env& env, const runtime::Kill& kill) {
                       if (env.node() < options.servers) {
                         for (std::uint32_t life = 0; !is_over(); ++life) {
                           Server server(env, options, life);
                           server.run(is_over);
                           if (at_end) at_end(server);
                         }
                       } else if (env.node() == options.coordinator) {
                         Coordinator coordinator(env, options);
                         coordinator.run(is_over);
                         if (testing::Test::HasFailure()) {
                           for (const RecoveryReport& report : coordinator.recoveries())
                             ADD_FAILURE() << text_of(report);
                         }
                       } else {
                         {
                           Client client(env, options, 0, patience(world));
                           client.await_servers(options.servers);
                           try {
                             load(env, client, kill);
                           } catch (const Error& error) {
                             ADD_FAILURE() << "node " << env.node() << ": " << error.what();
                           }
                         }
                         done.fetch_add(1);
                       }
                     });
}

/// A store on a simulated cluster that the load may look into. Who does not run is null.
struct OpenStore {
  std::vector<Server*> servers;  // by node
  Coordinator* coordinator = nullptr;
};

/// Runs `act` with a server or the coordinator, which `place` points to meanwhile.
template <class Role, class Act>
void run_in_view(Role*& place, Role& role, Act&& act) {
  struct Gone {
    Role*& place;
    ~Gone() { place = nullptr; }
  } const gone{place};
  place = &role;
  act(role);
}

/// The same on a simulated cluster that the load may harm, with one client, on the last node, that
/// waits for each answer no longer than `limit`. Nodes between the coordinator and the client run
/// `beside`.
inline void run_store(fabric::sim::SimCluster& cluster, const Options& options, Time limit,
                      const std::function<void(Env&, Client&, OpenStore&)>& load, Bugs bugs = {},
                      const std::function<void(Env&, OpenStore&)>& beside = nullptr) {
  bool is_over = false;
  OpenStore store;
  store.servers.resize(options.servers);
  const auto run = [&](auto& role) { role.run([&] { return is_over; }); };
  cluster.run([&](Env& env) {
    if (env.node() < options.servers) {
      std::uint32_t life = 0;
      while (!is_over) {
        Server server(env, options, life++, bugs);
        run_in_view(store.servers[env.node()], server, run);
      }
    } else if (env.node() == options.coordinator) {
      Coordinator coordinator(env, options, bugs);
      run_in_view(store.coordinator, coordinator, run);
    } else if (env.node() + 1 < env.nodes()) {
      beside(env, store);
    } else {
      Client client(env, options, 0, limit);
      client.await_servers(options.servers);
      load(env, client, store);
      is_over = true;
    }
  });
}
inline void run_store(fabric::sim::SimCluster& cluster, const Options& options, Time limit,
                      const std::function<void(Env&, Client&)>& load) {
  run_store(cluster, options, limit,
            [&](Env& env, Client& client, OpenStore&) { load(env, client); });
}

}  // namespace pyrdma::tailwind
