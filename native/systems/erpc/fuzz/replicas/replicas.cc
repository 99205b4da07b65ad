#include "systems/erpc/fuzz/replicas/replicas.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "systems/erpc/packet_header.h"

namespace pyrdma::erpc::replicas {
namespace {

constexpr std::uint64_t kMostSnapshotGap = 40;

raft::Key key_named(std::uint64_t number) {
  raft::Key key{};
  key[0] = static_cast<std::byte>(number);
  return key;
}

NodeId members_of(NodeId nodes) { return nodes <= 3 ? nodes - 1 : nodes <= 5 ? 3 : 5; }

/// The member that a node runs, as others see it; it may end by an exception at any time.
struct Running {
  World& world;
  NodeId node;
  Running(World& of, NodeId at, raft::RpcMember& member) : world(of), node(at) {
    world.running[node] = &member;
  }
  ~Running() {
    world.running[node] = nullptr;
    world.invariants.follows(node);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

}  // namespace

World::World(const fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& faults)
    : options(wanted),
      outcome(result),
      phase(faults),
      members(members_of(wanted.nodes)),
      group(members),
      running(members),
      plans(wanted.nodes - members),
      next(plans.size()),
      finished(plans.size()) {
  Rng rng(wanted.seed, -1, "fuzz replicas");
  std::iota(group.begin(), group.end(), NodeId{0});
  invariants.expect_majority_of(members);
  // The options of an endpoint are drawn as those of all RPCs.
  endpoint = scenario::draw_shape(wanted).options;
  endpoint.workers = 0;
  endpoint.backlog = 1U << 20U;
  endpoint.retransmission_timeout = 50 * kMicrosecond + static_cast<Time>(rng.below(200'000));
  endpoint.least_timeout = endpoint.retransmission_timeout / 4;
  endpoint.failure_timeout = Time{500} * kMicrosecond << rng.below(4);
  endpoint.connect_interval = 50 * kMicrosecond;
  endpoint.connect_timeout = 10 * kMillisecond;
  endpoint.max_message = 256 * 1024;
  endpoint.receive_entries = 4096;
  endpoint.overcommit = true;
  snapshot_threshold = 8 + static_cast<std::uint32_t>(rng.below(kMostSnapshotGap));
  pre_vote = rng.below(3) != 0;
  Rng messages(wanted.seed, -1, "fuzz replicas messages");  // in half of the seeds they have parts
  if (messages.below(2) == 0) longest_request = 64 + messages.below(192);
  const std::uint64_t keys = std::array<std::uint64_t, 4>{1, 3, 3, 10}[rng.below(4)];
  const std::uint64_t puts_of_4 = 1 + rng.below(3);
  for (std::uint32_t id = 0; id < wanted.operations; ++id) {
    PlannedOperation op{id, rng.below(4) < puts_of_4, rng.below(keys),
                        static_cast<Time>(rng.below(20)) * 5 * kMicrosecond * faults.pace()};
    plans[rng.below(plans.size())].push_back(op);
  }
}

raft::RpcMemberOptions World::member_options() {
  raft::RpcMemberOptions made;
  made.endpoint = endpoint;
  made.endpoint.preallocated_bytes =
      std::min(128U, endpoint.packet_bytes == 0 ? ~0U : endpoint.packet_bytes - kHeaderRoom);
  made.longest_request = longest_request;
  made.member.group = group;
  made.member.unit = 20 * kMicrosecond;
  made.member.election_timeout = 2 * kMillisecond;
  made.member.heartbeat = 200 * kMicrosecond;
  made.member.snapshot_timeout = 5 * kMillisecond;
  made.member.snapshot_threshold = snapshot_threshold;
  made.member.snapshot_trailing = 6;
  made.member.pre_vote = pre_vote;
  made.member.bugs = made.state.bugs = made.server.bugs = raft::Bugs::named(options.mutation);
  made.member.observer = made.state.observer = &observer;
  return made;
}

bool World::is_settled() const {
  if (std::ranges::find(running, nullptr) != running.end()) return false;
  const Bytes first = running[0]->state().snapshot();
  return std::ranges::all_of(
      running, [&](raft::RpcMember* each) { return each->state().snapshot() == first; });
}

std::uint64_t World::applied() const {
  std::uint64_t sum = 0;
  for (raft::RpcMember* const each : running) {
    if (each != nullptr) sum += each->member().applied_index();
  }
  return sum;
}

std::string World::describe() const {
  std::string text;
  for (NodeId n = 0; n < members; ++n) {
    if (running[n] == nullptr) {
      text += "; member " + std::to_string(n) + " is down";
      continue;
    }
    const raft::Member& m = running[n]->member();
    text += "; member " + std::to_string(n) + (m.leads() ? " leads" : " follows") + " term " +
            std::to_string(m.term()) + ", log to " + std::to_string(m.last_index()) + ", applied " +
            std::to_string(m.applied_index());
  }
  return text;
}

void run_member(World& world, Env& env) {
  while (!world.over) {
    bool has_run = false;
    try {
      raft::RpcMember member(env, world.member_options());
      const Running running(world, env.node(), member);
      has_run = true;
      member.run_until([&] { return world.over; }, kForever);
    } catch (const Error& error) {
      // A disk may fail or be full while a member starts or runs. No store may be refused.
      if (error.code() == ErrorCode::kInvalidArgument ||
          (!has_run && error.code() == ErrorCode::kUnavailable && error.definite())) {
        world.violation("start", "member " + std::to_string(env.node()) + ": " + error.what());
        return;
      }
      ++world.outcome.reconnects;
      env.sleep_until(env.now() + 50 * kMicrosecond);
    }
  }
}

Client::Client(World& world, Env& env)
    : world_(world),
      env_(env),
      number_(env.node() - world.members),
      process_(world.processes++),
      endpoint_(env, world.endpoint),
      sessions_(endpoint_, world.group),
      logic_(1 + static_cast<std::uint64_t>(process_),
             {world.group, 3 * kMillisecond, 200 * kMicrosecond,
              raft::Bugs::named(world.options.mutation)}) {}

bool Client::run() {
  const auto& plan = world_.plans[number_];
  std::size_t& next = world_.next[number_];
  while (next < plan.size()) {
    const PlannedOperation& op = plan[next++];
    endpoint_.run_for(op.pause);
    const std::uint64_t mark = world_.phase.operation();
    if (world_.options.keeps(op.id) && !carry_out(op)) return false;
    world_.phase.ended(mark);
  }
  return true;
}

// An operation may wait for the end of the faults, and then for an election.
bool Client::carry_out(const PlannedOperation& op) {
  op_ = op;
  const auto key = check::Value::integer(static_cast<std::int64_t>(op.key));
  const Time now = env_.now();
  if (op.is_put) {
    ++world_.puts;
    const std::int64_t value = ++world_.value;
    world_.history.invoke(world_.cluster->now(), process_, check::Function::kPut, key,
                          check::Value::integer(value));
    std::array<std::byte, 16> bytes{};
    std::memcpy(bytes.data(), &value, sizeof value);
    logic_.put(now, key_named(op.key), bytes);
  } else {
    world_.history.invoke(world_.cluster->now(), process_, check::Function::kGet, key,
                          check::Value::none());
    logic_.get(now, key_named(op.key));
  }
  Time healed = kForever;
  while (logic_.busy()) {
    try_now();
    const Time due = std::min(logic_.next(), env_.now() + kMillisecond);
    endpoint_.run_until([&] { return !logic_.busy() || logic_.next() < due; }, due);
    if (world_.cluster->faults_are_on()) continue;
    healed = std::min(healed, world_.cluster->now());
    if (world_.cluster->now() < healed + 2 * world_.options.recovery_limit) continue;
    world_.violation("liveness", "an operation of node " + std::to_string(env_.node()) +
                                     " has not ended after all faults" + world_.describe());
    return false;
  }
  return true;
}

// A member without a connected session counts as one that does not answer.
void Client::try_now() {
  const auto bytes = logic_.request(env_.now());
  if (!bytes) return;
  const auto session = sessions_.find(logic_.target());
  if (!session) return logic_.failed(env_.now());
  auto free = std::ranges::find(tries_, false, &Try::is_open);
  if (free == tries_.end()) {
    tries_.push_back({this, endpoint_.allocate(128), endpoint_.allocate(128)});
    free = tries_.end() - 1;
  }
  free->is_open = true;
  free->number = logic_.tries();
  free->request->resize(static_cast<std::uint32_t>(bytes->size()));
  std::ranges::copy(*bytes, free->request->data());
  endpoint_.enqueue_request(
      {*session, raft::kCommandRequest, free->request, free->response, &Client::end, &*free, 0});
}

void Client::end(void* context, std::uint64_t, Outcome outcome) {
  Try& ended = *static_cast<Try*>(context);
  Client& client = *ended.client;
  ended.is_open = false;
  if (outcome != Outcome::kOk) {
    if (ended.number == client.logic_.tries()) client.logic_.failed(client.env_.now());
  } else if (const auto answer = client.logic_.answer(client.env_.now(), ended.response->bytes())) {
    client.take(*answer);
  }
}

void Client::take(const raft::KvAnswer& answer) {
  if (answer.status != raft::KvStatus::kDone)
    world_.violation("answer", "node " + std::to_string(env_.node()) + " gets status " +
                                   std::to_string(static_cast<int>(answer.status)));
  check::Value got = check::Value::none();
  if (!op_.is_put && answer.found) {
    std::int64_t value = 0;
    std::memcpy(&value, answer.value.bytes.data(), sizeof value);
    got = check::Value::integer(value);
  }
  ++world_.outcome.ok;
  world_.history.complete(world_.cluster->now(), process_, check::EventType::kOk,
                          op_.is_put ? check::Function::kPut : check::Function::kGet,
                          check::Value::integer(static_cast<std::int64_t>(op_.key)), got);
}

}  // namespace pyrdma::erpc::replicas
