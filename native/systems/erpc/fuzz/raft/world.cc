#include "systems/erpc/fuzz/raft/world.h"

#include <algorithm>

namespace pyrdma::erpc::raft {

struct World::WorldLinks final : Links {
  WorldLinks(World& of, NodeId node) : world(of), self(node) {}
  void send(NodeId to, std::span<const std::byte> message,
            std::function<void(bool)> done) override {
    world.post(self, to, Bytes(message.begin(), message.end()), std::move(done));
  }
  World& world;
  NodeId self;
};

const SimCpuCosts& World::costs() {
  static const SimCpuCosts none{};
  return none;
}

World::World(const WorldOptions& options)
    : options_(options),
      rng_(options.seed, -1, "raft/world"),
      held_back_(options.faults != nullptr) {
  for (NodeId n = 0; n < options.nodes; ++n) {
    nodes_.push_back(std::make_unique<Node>());
    make_env(n);
    open(n);
  }
}

World::~World() {
  for (auto& node : nodes_) {
    node->server.reset();
    node->member.reset();
  }
}

void World::make_env(NodeId n) {
  Node& node = *nodes_[n];
  node.env = std::make_unique<SimEnv>(scheduler_, n, options_.nodes, 1, options_.seed, costs(), 0,
                                      pyrdma::kNever, trace_, branches_);
  node.clocked = std::make_unique<ClockedEnv>(*node.env, *this, node);
  set_stream(n, 0);
}

void World::set_stream(NodeId n, double io_errors) {
  Node& node = *nodes_[n];
  const bool drawn = options_.faults != nullptr && !healed_;
  auto wanted = std::make_unique<FaultOptions>(drawn ? *options_.faults : FaultOptions{});
  if (std::ranges::find(options_.rotting, n) == options_.rotting.end())
    (*wanted)[Fault::disk_rot].rate = (*wanted)[Fault::disk_unreadable].rate = 0;
  if (options_.faults == nullptr) (*wanted)[Fault::disk_torn].rate = options_.torn_writes;
  if (io_errors > 0) (*wanted)[Fault::disk_io_error].rate = io_errors;
  auto stream = std::make_unique<FaultStream>(
      *wanted, options_.seed + node.life, n,
      options_.counters == nullptr ? node.counters : *options_.counters);
  if (held_back_) stream->hold();
  node.env->disk().set_faults(stream.get());
  node.stream = std::move(stream);
  node.faults = std::move(wanted);
}

void World::open(NodeId n) {
  Node& node = *nodes_[n];
  KvState::Options state = options_.state;
  state.bugs = options_.bugs;
  state.observer = &invariants_;
  node.state = std::make_unique<KvState>(*node.clocked, state);
  node.links = std::make_unique<WorldLinks>(*this, n);
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

bool World::Node::ends_at_sync(std::uint64_t unsynced) {
  if (!end || end->has_come || unsynced <= DiskFile::kSector) return false;
  end->has_come = end->passed-- == 0;
  return end->has_come;
}

void World::crash(NodeId n, bool power) {
  Node& node = *nodes_.at(n);
  if (node.member == nullptr) return;
  ++node.life;
  node.has_failed = !node.member->failure().empty() && !ended_at_sync(n);
  node.lost_power = power;
  node.end.reset();
  node.server.reset();
  node.member.reset();
  node.state.reset();
  invariants_.follows(n);
  node.env->disk().crash(power);
  node.env->restarted();
}

bool World::restart(NodeId n) {
  if (up(n)) return true;
  Node& node = *nodes_.at(n);
  ++node.life;  // other draws than the last try
  set_stream(n, 0);
  node.paused = false;
  try {
    open(n);
    if (!node.lost_power)
      node.env->reached(node.has_failed ? "erpc/raft/failed_opened" : "erpc/raft/ended_opened");
    node.has_failed = false;
    return true;
  } catch (const Error& error) {
    node.has_failed = true;
    if (const auto power = ended_at_sync(n)) node.env->disk().crash(*power);
    node.end.reset();
    why_ = error.what();
    refused_ = error.code() == ErrorCode::kUnavailable && error.definite();
    return false;
  }
}

void World::wipe(NodeId n) {
  crash(n, false);
  nodes_.at(n)->wiped = nodes_.at(n)->lost_power = true;
  make_env(n);
  invariants_.forget(n);
}

void World::fail_disk(NodeId n, double rate) { set_stream(n, rate); }

void World::fill_disk(NodeId n, bool full) {
  nodes_.at(n)->env->disk().set_full_until(full ? kNever : 0);
}

void World::set_clock(NodeId n, Time permille) {
  Node& node = *nodes_.at(n);
  node.clock_base = node.local(now_);
  node.clock_from = now_;
  node.clock = permille;
}

void World::block(NodeId from, NodeId to, bool blocked) {
  if (blocked)
    blocked_.insert({from, to});
  else
    blocked_.erase({from, to});
}

void World::isolate(NodeId n, bool isolated) {
  for (NodeId other = 0; other < nodes(); ++other) {
    if (other == n) continue;
    block(n, other, isolated);
    block(other, n, isolated);
  }
}

void World::begin_faults() {
  held_back_ = false;
  for (auto& node : nodes_) node->stream->begin();
}

void World::heal() {
  healed_ = true;
  blocked_.clear();
  cuts_.clear();
  late_until_.clear();
  while (!held_.empty()) release(held_.begin()->first.first, held_.begin()->first.second);
  candidate_.reset();
  for (NodeId n = 0; n < nodes(); ++n) {
    nodes_[n]->paused = false;
    if (!ended_at_sync(n)) nodes_[n]->end.reset();
    set_clock(n, 1000);
    fill_disk(n, false);
    set_stream(n, 0);
  }
}

void World::release(NodeId from, NodeId to) {
  auto held = held_.extract({from, to});
  if (held.empty()) return;
  for (auto& message : held.mapped()) at(now_ + options_.delay, std::move(message));
}

Time World::some_delay() {
  if (rng_.uniform() >= options_.reorder) return options_.delay;
  return options_.delay +
         static_cast<Time>(rng_.below(static_cast<std::uint64_t>(50 * options_.delay)));
}

// When a message arrives. A late one makes all later ones of its link late.
Time World::arrival(Node& from, std::pair<NodeId, NodeId> link) {
  Time when = now_ + some_delay();
  FaultStream& faults = *from.stream;
  if (faults.fire(Fault::reorder)) {
    when += 50 * faults.duration(Fault::reorder);
    faults.reach(Fault::reorder);
    return when;
  }
  if (faults.fire(Fault::delay)) {
    late_until_[link] = when + 10 * faults.duration(Fault::delay);
    faults.reach(Fault::delay);
  }
  const auto late = late_until_.find(link);
  return late == late_until_.end() ? when : std::max(when, late->second);
}

void World::post(NodeId from, NodeId to, Bytes bytes, std::function<void(bool)> done) {
  if (on_send) on_send(from, to, bytes);
  const std::pair link{from, to};
  if (const auto copies = recorded_.find(link); copies != recorded_.end())
    copies->second.push_back(bytes);
  FaultStream& faults = *nodes_[from]->stream;
  const bool asks_vote = bytes.size() > 1 && bytes[1] == std::byte{3};
  const auto cut = cuts_.find(link);
  bool lost = to >= nodes() || blocked_.contains(link) || (cut != cuts_.end() && cut->second > 0) ||
              (asks_vote && candidate_ && *candidate_ != from) || rng_.uniform() < options_.loss;
  if (faults.fire(Fault::loss)) {
    lost = true;
    faults.reach(Fault::loss);
  }
  const Time report = now_ + 2 * options_.delay;
  if (lost) {
    at(report + 20 * options_.delay, [done] { done(false); });
    return;
  }
  const auto deliver = [this, from, to, bytes] {
    if (up(to)) member(to).receive(from, bytes);
  };
  at(report, [done] { done(true); });
  const auto held = held_.find(link);
  if (held != held_.end()) {
    held->second.push_back(deliver);
    return;
  }
  at(arrival(*nodes_[from], link), deliver);
  if (rng_.uniform() < options_.duplicate) at(now_ + some_delay(), deliver);
  if (!faults.fire(Fault::duplicate)) return;
  // A copy of any age, up to some thousand times the time of its way.
  at(now_ + options_.delay * (Time{1} << rng_.below(13)), deliver);
  faults.reach(Fault::duplicate);
}

std::optional<NodeId> World::leader() const {
  std::optional<NodeId> best;
  for (NodeId n = 0; n < nodes_.size(); ++n) {
    const Node& node = *nodes_[n];
    if (node.member == nullptr || node.paused || !node.member->leads()) continue;
    if (!best || node.member->term() > nodes_[*best]->member->term()) best = n;
  }
  return best;
}

Time World::next_time() const {
  Time next = events_.empty() ? kForever : events_.begin()->first.first;
  for (const auto& node : nodes_) {
    if (node->member == nullptr || node->paused) continue;
    const Time due = node->member->next_turn();
    if (due != kForever) next = std::min(next, due == 0 ? now_ : node->global(due));
  }
  for (const auto& client : clients_) next = std::min(next, client->logic->next());
  return std::max(next, now_);
}

void World::run_nodes() {
  for (auto& node : nodes_) {
    if (node->member == nullptr || node->paused) continue;
    const Time local = node->local(now_);
    for (int i = 0; i < 8 && node->member->next_turn() <= local; ++i) {
      node->member->turn(local);
    }
  }
}

void World::run_clients() {
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    Client& client = *clients_[i];
    const auto request = client.logic->request(now_);
    if (!request || rng_.uniform() < options_.loss) continue;
    const NodeId to = client.logic->target();
    at(now_ + some_delay(), [this, &client, to, bytes = *request] {
      if (!up(to) || nodes_[to]->paused) return;
      nodes_[to]->server->submit(bytes, [this, &client, to](const KvAnswer& answer) {
        if (rng_.uniform() < options_.loss) return;
        const auto arrive = [this, &client, reply = encode(answer)] {
          const auto result = client.logic->answer(now_, reply);
          if (!result) return;
          client.answer = result;
          if (client.on_answer) client.on_answer(*result);
        };
        at(now_ + some_delay(), arrive);
        FaultStream& faults = *nodes_[to]->stream;
        if (!faults.fire(Fault::duplicate)) return;
        at(now_ + options_.delay * (Time{1} << rng_.below(10)), arrive);
        faults.reach(Fault::duplicate);
      });
    });
  }
}

bool World::run_until(const std::function<bool()>& ready, Time limit) {
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

bool World::elect(NodeId n) {
  let_stand(n);
  const bool won = run_until([&] { return leader() == n; }, 20 * kSecond);
  let_stand(std::nullopt);
  return won;
}

void World::ask(NodeId n, ByteView command, Answered done) {
  nodes_.at(n)->server->submit(command, std::move(done));
}

World::Client& World::add_client(std::uint64_t id, std::vector<NodeId> members) {
  auto client = std::make_unique<Client>();
  KvClient::Options options;
  options.members = std::move(members);
  options.timeout = options_.timeout;
  options.pause = options_.pause;
  options.bugs = options_.bugs;
  client->logic = std::make_unique<KvClient>(id, options);
  clients_.push_back(std::move(client));
  return *clients_.back();
}

}  // namespace pyrdma::erpc::raft
