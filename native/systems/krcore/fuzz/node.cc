#include "systems/krcore/fuzz/node.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include "base/checksum.h"
#include "base/error.h"
#include "fuzz/patience.h"
#include "systems/krcore/fuzz/client.h"
#include "systems/krcore/fuzz/stranger.h"

namespace pyrdma::krcore::scenario {

namespace {

constexpr std::uint32_t kSlots = 8;  // receives of the inbox

/// Takes the messages of a node, and judges their order.
class Inbox {
 public:
  Inbox(World& world, Service& service)
      : world_(world),
        app_(service),
        memory_(app_.reg_mr(std::uint64_t{kSlots} * kMostMessage)),
        queue_(app_.create_queue(options())) {
    app_.bind(queue_, kPort);
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) receive(slot);
  }

  void run() {
    std::array<Message, 4> messages;
    while (!world_.is_over) {
      const std::size_t count =
          app_.wait_messages(queue_, messages, app_.env().now() + 200 * kMicrosecond);
      for (const Message& message : std::span(messages).first(count)) {
        judge(message);
        receive(message.wr_id);
      }
    }
  }

 private:
  static VqpOptions options() {
    VqpOptions result;
    result.receive_entries = kSlots;
    return result;
  }
  void receive(std::uint64_t slot) {
    const fabric::Sge sge{memory_.addr + slot * kMostMessage, kMostMessage, memory_.key};
    const fabric::ReceiveRequest request{slot, &sge, 1};
    app_.post_receive(queue_, {&request, 1});
  }
  void judge(const Message& message) {
    if (message.status != fabric::Status::kSuccess) {
      world_.violation("message",
                       std::string("a message arrived as ") + fabric::to_string(message.status));
      return;
    }
    const std::byte* at = memory_.data + message.wr_id * kMostMessage;
    MessageStart start;
    std::memcpy(&start, at, sizeof start);
    const auto stream = world_.streams.find(start.stream);
    if (message.bytes < sizeof start || stream == world_.streams.end() ||
        start.sum != sum_of_body(start, std::span(at, message.bytes))) {
      world_.violation("torn", "a message of " + std::to_string(message.bytes) +
                                   " bytes has other bytes than were sent");
      return;
    }
    Stream& known = stream->second;
    if (known.to != app_.env().node() || known.to_life != app_.env().incarnation()) {
      world_.violation("outlived", "a message to life " + std::to_string(known.to_life) +
                                       " of node " + std::to_string(known.to) + " came to another");
    }
    if (start.number != known.received) {
      world_.violation("order", "node " + std::to_string(known.to) + " took message " +
                                    std::to_string(start.number) + " of queue pair " +
                                    std::to_string(start.stream) + " after " +
                                    std::to_string(known.received));
    }
    known.received = start.number + 1;
    ++world_.steps;
  }

  World& world_;
  App app_;
  Registration memory_;
  Queue queue_;
};

/// Notes the end of a life, also by a kill.
struct Ending {
  World& world;
  NodeId node;
  ~Ending() {
    World::Node& self = world.nodes[node];
    self.is_up = false;
    if (world.is_over) return;
    self.died = world.now();
    self.deaths.resize(self.life + 1, self.died);
    world.phase.crashed();
  }
};

void live(World& world, Env& env) {
  const Ending ending{world, env.node()};
  World::Node& self = world.nodes[env.node()];
  self.life = env.incarnation();
  self.keys.clear();
  world.forget(env.node());
  Service service(env, world.shape.service);
  App app(service);
  if (self.life != 0)
    world.loans.push_back({env.node(), self.life - 1, self.cells, true, self.died});
  self.cells = app.reg_mr((kMostShared + world.plans.size() * kPlaces * kWords) * 8);
  self.keys.insert(self.cells.key);
  Inbox inbox(world, service);
  self.is_up = true;
  std::vector<std::unique_ptr<Thread>> threads;
  for (std::uint32_t client = 0; client < world.shape.clients; ++client) {
    threads.push_back(env.spawn("client", [&, client] { Client(world, service, client).run(); }));
  }
  if (world.shape.stranger == env.node())
    threads.push_back(env.spawn("stranger", [&] { send_forged(world, env); }));
  inbox.run();
  for (const auto& thread : threads) thread->join();
  const std::uint64_t most =
      std::uint64_t{service.pools()} *
      (world.shape.service.dc_queue_pairs + 2 * world.shape.service.rc_queue_pairs + 2);
  if (service.physical_queue_pairs() > most) {
    world.violation("pool", "node " + std::to_string(env.node()) + " has " +
                                std::to_string(service.physical_queue_pairs()) +
                                " physical queue pairs; the bound is " + std::to_string(most));
  }
  world.outcome.made("pool");
}

/// Watches whether the run can go on. Not part of the service.
void watch(World& world, Env& env) {
  fuzz::Patience patience(kPatience);
  std::uint64_t steps = 0;
  while (!world.is_over) {
    env.sleep_until(env.now() + 50 * kMicrosecond);
    world.look_at_faults();
    if (world.steps != steps) world.phase.progress();
    steps = world.steps;
    if (world.all_done() && world.cluster->faults_are_on()) world.cluster->heal();
    if (world.outcome.begun == 0 || world.cluster->faults_are_on()) continue;
    const bool has_all = std::ranges::all_of(world.streams, [&](const auto& entry) {
      const Stream& stream = entry.second;
      return world.nodes[stream.to].life != stream.to_life || stream.received >= stream.succeeded;
    });
    const bool all_up =
        std::ranges::all_of(world.nodes, [](const World::Node& node) { return node.is_up; });
    if (world.all_done() && world.all_reached() && has_all && all_up) {
      world.outcome.made("connects");
      world.is_over = true;
    } else if (patience.is_over(world.now(), world.steps)) {
      world.violation("liveness", "not all is done" + world.describe());
      world.is_over = true;
    }
  }
}

}  // namespace

void run_node(World& world, Env& env) {
  if (world.is_over) return;
  std::unique_ptr<Thread> watcher;
  if (env.node() + 1 == world.options.nodes)
    watcher = env.spawn("watch", [&] { watch(world, env); });
  try {
    live(world, env);
  } catch (const Error& error) {
    world.violation("error", "node " + std::to_string(env.node()) + ": " + error.what());
    world.is_over = true;
  }
  if (watcher != nullptr) watcher->join();
}

}  // namespace pyrdma::krcore::scenario
