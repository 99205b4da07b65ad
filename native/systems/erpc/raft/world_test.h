// World runs a group of members with clients in virtual time: one loop, no threads. Messages may be
// lost, late, doubled, held back or blocked; members crash, pause, and have clocks and disks that
// err. All draws come from one seed.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "env/env_decorator.h"
#include "env/sim/disk_file.h"
#include "env/sim/sim_env.h"
#include "systems/erpc/fuzz/raft/invariants.h"
#include "systems/erpc/raft/kv_client.h"
#include "systems/erpc/raft/kv_server.h"
#include "systems/erpc/raft/member.h"

namespace pyrdma::erpc::raft {

struct WorldOptions {
  std::uint32_t nodes = 3;  // those beyond `group` wait to be added
  std::uint32_t group = 3;
  std::uint64_t seed = 1;
  double loss = 0, duplicate = 0, reorder = 0;
  Time delay = kMillisecond;  // of a message; one that is reordered takes up to 50 times this
  double torn_writes = 1;     // of unsynced sectors, at a power failure
  MemberOptions member;
  KvState::Options state;
  KvServer::Options server;
  Bugs bugs;
};

class World {
 public:
  using Answered = std::function<void(const KvAnswer&)>;
  explicit World(const WorldOptions& options);
  ~World();

  Time now() const { return now_; }
  void run(Time duration) {
    run_until([] { return false; }, duration);
  }
  /// Returns whether `ready` came true in time.
  bool run_until(const std::function<bool()>& ready, Time limit);

  Member& member(NodeId n) { return *nodes_.at(n)->member; }
  KvState& state(NodeId n) { return *nodes_.at(n)->state; }
  bool up(NodeId n) const { return nodes_.at(n)->member != nullptr; }
  /// The member that leads the highest term, if any.
  std::optional<NodeId> leader() const;
  std::uint32_t nodes() const { return static_cast<std::uint32_t>(nodes_.size()); }
  Invariants& invariants() { return invariants_; }
  const BranchCounts& branches() const { return branches_; }
  Rng& rng() { return rng_; }

  /// `power`: what was not synced is lost or torn.
  void crash(NodeId n, bool power = true);
  /// Returns false if the member cannot start; why() tells the reason.
  bool restart(NodeId n);
  const std::string& why() const { return why_; }
  /// The storage is lost; the member comes back as a new one.
  void wipe(NodeId n);
  void pause(NodeId n, bool paused) { nodes_.at(n)->paused = paused; }
  /// The disk fails this share of the writes and syncs.
  void fail_disk(NodeId n, double rate);
  /// The member's clock runs at `permille` / 1000 of the true rate.
  void set_clock(NodeId n, Time permille);
  void block(NodeId from, NodeId to, bool blocked = true);
  void isolate(NodeId n, bool isolated = true);
  void heal();
  /// Messages wait until release().
  void hold(NodeId from, NodeId to) { held_[{from, to}]; }
  void release(NodeId from, NodeId to);
  /// Keeps a copy of each further message; replay() sends the copies once more.
  void record(NodeId from, NodeId to) { recorded_[{from, to}].clear(); }
  void replay(NodeId from, NodeId to) {
    for (const Bytes& bytes : recorded_[{from, to}])
      later(now_ + options_.delay, [this, from, to, bytes] { inject(from, to, bytes); });
  }
  /// Keeps some of all further messages; deliver_old() sends one of them again, of whatever age.
  void keep_old() { keeps_old_ = true; }
  void deliver_old() {
    if (old_.empty()) return;
    const Old& chosen = old_[rng_.below(old_.size())];
    later(now_ + some_delay(), [this, chosen] { inject(chosen.from, chosen.to, chosen.bytes); });
  }
  /// Only this member's requests for votes pass.
  void let_stand(std::optional<NodeId> candidate) { candidate_ = candidate; }
  bool elect(NodeId n);
  void set_loss(double loss) { options_.loss = loss; }
  void set_duplicate(double rate) { options_.duplicate = rate; }
  void set_reorder(double rate) { options_.reorder = rate; }
  /// Sends bytes to a member as if `from` had sent them.
  void inject(NodeId from, NodeId to, ByteView bytes) {
    if (up(to)) member(to).receive(from, bytes);
  }
  /// Every message that a member sends.
  std::function<void(NodeId from, NodeId to, ByteView bytes)> on_send;

  /// Asks one member, without a network. `done` may run at once.
  void ask(NodeId n, ByteView command, Answered done);
  /// A client that sends its tries over the network, from outside the group.
  struct Client {
    std::unique_ptr<KvClient> logic;
    std::optional<KvAnswer> answer;
  };
  Client& add_client(std::uint64_t id, std::vector<NodeId> members);
  bool finish(Client& client, Time limit) {
    return run_until([&] { return !client.logic->busy(); }, limit);
  }

 private:
  struct Node;
  /// Shows the clock of the world's node. The scheduler below stands still.
  class ClockedEnv final : public EnvDecorator {
   public:
    ClockedEnv(SimEnv& env, const World& world, const Node& node)
        : EnvDecorator(env), world_(world), node_(node) {}
    Time now() override { return node_.local(world_.now()); }

   private:
    const World& world_;
    const Node& node_;
  };
  struct Node {
    std::unique_ptr<SimEnv> env;
    std::unique_ptr<ClockedEnv> clocked;
    std::unique_ptr<FaultOptions> faults;
    FaultCounters counters;
    std::unique_ptr<FaultStream> stream;
    std::unique_ptr<Links> links;
    std::unique_ptr<KvState> state;
    std::unique_ptr<Member> member;
    std::unique_ptr<KvServer> server;
    std::uint64_t life = 0;
    bool paused = false, wiped = false;
    Time clock = 1000;
    Time clock_from = 0, clock_base = 0;  // the clock showed clock_base at clock_from
    Time local(Time now) const { return clock_base + (now - clock_from) * clock / 1000; }
    Time global(Time local_time) const {
      return clock_from + ((local_time - clock_base) * 1000 + clock - 1) / clock;
    }
  };
  struct TestLinks;
  void make_env(NodeId n);
  void set_stream(NodeId n, const FaultOptions& faults);
  void open(NodeId n);
  void post(NodeId from, NodeId to, Bytes bytes, std::function<void(bool)> done);
  void later(Time when, std::function<void()> what) {
    events_.emplace(std::pair{when, next_event_++}, std::move(what));
  }
  Time some_delay();
  void run_nodes();
  void run_clients();
  Time next_time() const;
  static const SimCpuCosts& costs();

  WorldOptions options_;
  Rng rng_;
  SimScheduler scheduler_;
  std::vector<std::string> trace_;
  BranchCounts branches_;
  Invariants invariants_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::map<std::pair<Time, std::uint64_t>, std::function<void()>> events_;
  std::uint64_t next_event_ = 0;
  std::set<std::pair<NodeId, NodeId>> blocked_;
  std::map<std::pair<NodeId, NodeId>, std::vector<std::function<void()>>> held_;
  std::map<std::pair<NodeId, NodeId>, std::vector<Bytes>> recorded_;
  struct Old {
    NodeId from, to;
    Bytes bytes;
  };
  static constexpr std::size_t kMostOld = 256;
  bool keeps_old_ = false;
  std::vector<Old> old_;
  std::optional<NodeId> candidate_;
  Time now_ = kMillisecond;
  std::string why_;
};

// The members of World are inline, because several tests include this file.

struct World::TestLinks final : Links {
  TestLinks(World& of, NodeId node) : world(of), self(node) {}
  void send(NodeId to, std::span<const std::byte> message,
            std::function<void(bool)> done) override {
    world.post(self, to, Bytes(message.begin(), message.end()), std::move(done));
  }
  World& world;
  NodeId self;
};

inline const SimCpuCosts& World::costs() {
  static const SimCpuCosts none{};
  return none;
}

inline World::World(const WorldOptions& options)
    : options_(options), rng_(options.seed, -1, "raft/world") {
  for (NodeId n = 0; n < options.nodes; ++n) {
    nodes_.push_back(std::make_unique<Node>());
    make_env(n);
    open(n);
  }
}

inline World::~World() {
  for (auto& node : nodes_) {
    node->server.reset();
    node->member.reset();
  }
}

inline void World::make_env(NodeId n) {
  Node& node = *nodes_[n];
  node.env = std::make_unique<SimEnv>(scheduler_, n, options_.nodes, 1, options_.seed, costs(), 0,
                                      pyrdma::kNever, trace_, branches_);
  node.clocked = std::make_unique<ClockedEnv>(*node.env, *this, node);
  set_stream(n, FaultOptions{});
}

inline void World::set_stream(NodeId n, const FaultOptions& faults) {
  Node& node = *nodes_[n];
  auto wanted = std::make_unique<FaultOptions>(faults);
  (*wanted)[Fault::disk_torn].rate = options_.torn_writes;
  auto stream = std::make_unique<FaultStream>(*wanted, options_.seed + node.life, n, node.counters);
  node.env->disk().set_faults(stream.get());
  node.stream = std::move(stream);
  node.faults = std::move(wanted);
}

inline void World::open(NodeId n) {
  Node& node = *nodes_[n];
  KvState::Options state = options_.state;
  state.bugs = options_.bugs;
  state.observer = &invariants_;
  node.state = std::make_unique<KvState>(*node.clocked, state);
  node.links = std::make_unique<TestLinks>(*this, n);
  MemberOptions member = options_.member;
  member.bugs = options_.bugs;
  member.observer = &invariants_;
  for (NodeId other = 0; n < options_.group && !node.wiped && other < options_.group; ++other)
    member.group.push_back(other);
  node.member = open_member(*node.clocked, *node.links, *node.state, member);
  KvServer::Options server = options_.server;
  server.bugs = options_.bugs;
  node.server = std::make_unique<KvServer>(*node.clocked, *node.member, *node.state, server);
}

inline void World::crash(NodeId n, bool power) {
  Node& node = *nodes_.at(n);
  if (node.member == nullptr) return;
  ++node.life;
  node.server.reset();
  node.member.reset();
  node.state.reset();
  invariants_.follows(n);
  node.env->disk().crash(power);
  node.env->restarted();
}

inline bool World::restart(NodeId n) {
  if (up(n)) return true;
  set_stream(n, FaultOptions{});
  nodes_.at(n)->paused = false;
  try {
    open(n);
    return true;
  } catch (const Error& error) {
    why_ = error.what();
    return false;
  }
}

inline void World::wipe(NodeId n) {
  crash(n, false);
  nodes_.at(n)->wiped = true;
  make_env(n);
  invariants_.forget(n);
}

inline void World::fail_disk(NodeId n, double rate) {
  FaultOptions faults;
  faults[Fault::disk_io_error].rate = rate;
  set_stream(n, faults);
}

inline void World::set_clock(NodeId n, Time permille) {
  Node& node = *nodes_.at(n);
  node.clock_base = node.local(now_);
  node.clock_from = now_;
  node.clock = permille;
}

inline void World::block(NodeId from, NodeId to, bool blocked) {
  if (blocked)
    blocked_.insert({from, to});
  else
    blocked_.erase({from, to});
}

inline void World::isolate(NodeId n, bool isolated) {
  for (NodeId other = 0; other < nodes(); ++other) {
    if (other == n) continue;
    block(n, other, isolated);
    block(other, n, isolated);
  }
}

inline void World::heal() {
  blocked_.clear();
  while (!held_.empty()) release(held_.begin()->first.first, held_.begin()->first.second);
  candidate_.reset();
  for (NodeId n = 0; n < nodes(); ++n) {
    nodes_[n]->paused = false;
    set_clock(n, 1000);
    if (up(n)) fail_disk(n, 0);
  }
}

inline void World::release(NodeId from, NodeId to) {
  auto held = held_.extract({from, to});
  if (held.empty()) return;
  for (auto& message : held.mapped()) later(now_ + options_.delay, std::move(message));
}

inline Time World::some_delay() {
  if (rng_.uniform() >= options_.reorder) return options_.delay;
  return options_.delay +
         static_cast<Time>(rng_.below(static_cast<std::uint64_t>(50 * options_.delay)));
}

inline void World::post(NodeId from, NodeId to, Bytes bytes, std::function<void(bool)> done) {
  if (on_send) on_send(from, to, bytes);
  if (const auto copies = recorded_.find({from, to}); copies != recorded_.end())
    copies->second.push_back(bytes);
  if (keeps_old_ && old_.size() < kMostOld)
    old_.push_back({from, to, bytes});
  else if (keeps_old_ && rng_.below(8) == 0)
    old_[rng_.below(kMostOld)] = {from, to, bytes};
  const bool asks_vote = bytes.size() > 1 && bytes[1] == std::byte{3};
  const bool lost = to >= nodes() || blocked_.contains({from, to}) ||
                    (asks_vote && candidate_ && *candidate_ != from) ||
                    rng_.uniform() < options_.loss;
  const Time report = now_ + 2 * options_.delay;
  if (lost) {
    later(report + 20 * options_.delay, [done] { done(false); });
    return;
  }
  const auto deliver = [this, from, to, bytes] {
    if (up(to)) member(to).receive(from, bytes);
  };
  const auto held = held_.find({from, to});
  if (held != held_.end()) {
    held->second.push_back(deliver);
    later(report, [done] { done(true); });
    return;
  }
  later(now_ + some_delay(), deliver);
  if (rng_.uniform() < options_.duplicate) later(now_ + some_delay(), deliver);
  later(report, [done] { done(true); });
}

inline std::optional<NodeId> World::leader() const {
  std::optional<NodeId> best;
  for (NodeId n = 0; n < nodes_.size(); ++n) {
    const Node& node = *nodes_[n];
    if (node.member == nullptr || node.paused || !node.member->leads()) continue;
    if (!best || node.member->term() > nodes_[*best]->member->term()) best = n;
  }
  return best;
}

inline Time World::next_time() const {
  Time next = events_.empty() ? kForever : events_.begin()->first.first;
  for (const auto& node : nodes_) {
    if (node->member == nullptr || node->paused) continue;
    const Time due = node->member->next_turn();
    if (due != kForever) next = std::min(next, due == 0 ? now_ : node->global(due));
  }
  for (const auto& client : clients_) next = std::min(next, client->logic->next());
  return std::max(next, now_);
}

inline void World::run_nodes() {
  for (auto& node : nodes_) {
    if (node->member == nullptr || node->paused) continue;
    const Time local = node->local(now_);
    for (int i = 0; i < 8 && node->member->next_turn() <= local; ++i) {
      node->member->turn(local);
    }
  }
}

inline void World::run_clients() {
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    Client& client = *clients_[i];
    const auto request = client.logic->request(now_);
    if (!request || rng_.uniform() < options_.loss) continue;
    const NodeId to = client.logic->target();
    later(now_ + some_delay(), [this, &client, to, bytes = *request] {
      if (!up(to) || nodes_[to]->paused) return;
      nodes_[to]->server->submit(bytes, [this, &client](const KvAnswer& answer) {
        if (rng_.uniform() < options_.loss) return;
        later(now_ + some_delay(), [this, &client, reply = encode(answer)] {
          if (auto result = client.logic->answer(now_, reply)) client.answer = result;
        });
      });
    });
  }
}

inline bool World::run_until(const std::function<bool()>& ready, Time limit) {
  const Time end = now_ + limit;
  while (!ready()) {
    const Time next = next_time();
    if (next > end) {
      now_ = end;
      return ready();
    }
    now_ = next;
    while (!events_.empty() && events_.begin()->first.first <= now_) {
      auto event = events_.extract(events_.begin());
      event.mapped()();
    }
    run_clients();
    run_nodes();
  }
  return true;
}

inline bool World::elect(NodeId n) {
  let_stand(n);
  const bool won = run_until([&] { return leader() == n; }, 20 * kSecond);
  let_stand(std::nullopt);
  return won;
}

inline void World::ask(NodeId n, ByteView command, Answered done) {
  nodes_.at(n)->server->submit(command, std::move(done));
}

inline World::Client& World::add_client(std::uint64_t id, std::vector<NodeId> members) {
  auto client = std::make_unique<Client>();
  KvClient::Options options;
  options.members = std::move(members);
  options.bugs = options_.bugs;
  client->logic = std::make_unique<KvClient>(id, options);
  clients_.push_back(std::move(client));
  return *clients_.back();
}

}  // namespace pyrdma::erpc::raft
