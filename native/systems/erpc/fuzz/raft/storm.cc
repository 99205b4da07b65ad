#include "systems/erpc/fuzz/raft/storm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "fuzz/simulation.h"

namespace pyrdma::erpc::raft {

namespace {

// Times are a hundredth of a member's usual ones, so that they fit the faults' durations.
constexpr Time kUnit = 10 * kMicrosecond;
constexpr Time kTend = 100 * kMicrosecond;  // between two looks of the operator
constexpr std::string_view kKinds[] = {
    "election safety",      "leader append-only",    "log matching", "leader completeness",
    "state machine safety", "durable term and vote", "durable log",  "exactly once"};

}  // namespace

WorldOptions Storm::world_options(const fuzz::Options& options, FaultCounters& counters) {
  Rng rng(options.seed, -1, "raft/options");
  WorldOptions world;
  world.nodes = world.group = options.nodes;
  world.seed = options.seed;
  world.bugs = Bugs::named(options.mutation);
  world.delay = kUnit;
  world.timeout = 200 * kUnit;
  world.pause = 20 * kUnit;
  world.member.unit = kUnit;
  world.member.election_timeout = 100 * kUnit;
  world.member.heartbeat = 10 * kUnit;
  world.member.snapshot_timeout = 500 * kUnit;
  world.member.pre_vote = rng.below(3) != 0;
  world.member.snapshot_threshold = 24;
  world.member.snapshot_trailing = 6;
  world.faults = &options.faults;
  world.counters = &counters;
  // A minority may lose what it has stored. More would lose what is committed.
  const auto first = static_cast<NodeId>(rng.below(options.nodes));
  for (NodeId i = 0; i < (options.nodes - 1) / 2; ++i)
    world.rotting.push_back((first + i) % options.nodes);
  return world;
}

Storm::Storm(const fuzz::Options& options, fuzz::Outcome& outcome)
    : options_(options),
      outcome_(outcome),
      rng_(options.seed, -1, "raft/storm"),
      world_(world_options(options, outcome.faults)),
      weather_(world_, options.faults, options.seed, outcome.faults,
               {[this](NodeId n, bool power) { crash(n, power); }, [this](NodeId n) { restart(n); },
                [this](const std::string& what) { note(what); }}) {
  // A group of an even number works with one member less.
  world_.invariants().expect_majority_of((options.nodes - 1) / 2 * 2 + 1);
  if (options.trace) {
    world_.on_send = [this](NodeId from, NodeId to, ByteView bytes) {
      note(std::to_string(from) + " -> " + std::to_string(to) + " " + describe(bytes));
    };
  }
  draw_plan();
}

void Storm::draw_plan() {
  constexpr std::array<Time, 4> kPaces{1, 1, 4, 16};
  const Time pace = kPaces[rng_.below(kPaces.size())];
  const std::uint64_t share = 60 + rng_.below(41);  // percent
  end_after_ = static_cast<std::uint32_t>(options_.operations * share / 100);
  std::vector<NodeId> all;
  for (NodeId n = 0; n < options_.nodes; ++n) all.push_back(n);
  for (std::uint64_t i = 0; i <= kClients; ++i) {
    users_.push_back({});
    users_.back().number = i;
    if (i < kClients) users_.back().client = &world_.add_client(100 + i, all);
  }
  const std::uint64_t every = 8 + rng_.below(40);  // that many operations, one of the operator
  for (std::uint32_t id = 0; id < options_.operations; ++id) {
    Planned op;
    op.id = id;
    op.key = rng_.below(kKeys);
    op.node = static_cast<NodeId>(rng_.below(options_.nodes));
    op.pause = static_cast<Time>(rng_.below(20)) * kUnit * pace;
    const std::uint64_t draw = rng_.below(32);
    if (id % every == every - 1) {
      op.act = draw < 10 ? Act::kTransfer : draw < 22 ? Act::kReplace : Act::kDemote;
      users_.back().plan.push_back(op);
    } else {
      op.act = draw < 2 ? Act::kFlood : draw < 17 ? Act::kPut : Act::kGet;
      users_[rng_.below(kClients)].plan.push_back(op);
    }
  }
}

void Storm::found(std::string_view kind, const std::string& text) {
  outcome_.report(kind, world_.now(), text);
}

void Storm::note(const std::string& what) {
  if (options_.trace) outcome_.trace.push_back(std::to_string(world_.now()) + " ns: " + what);
}

std::string Storm::describe(ByteView message) {
  static constexpr const char* kNames[] = {"AppendEntries", "AppendResult",    "RequestVote",
                                           "VoteResult",    "InstallSnapshot", "TimeoutNow"};
  const auto decoded = decode(message);
  if (!decoded) return "a malformed message";
  std::string text = kNames[decoded->index()];
  text += " of term " + std::to_string(std::visit([](const auto& m) { return m.term; }, *decoded));
  if (const auto* append = std::get_if<AppendEntries>(&*decoded))
    text += ", " + std::to_string(append->entries.size()) + " entries after " +
            std::to_string(append->previous_index) + ", commit " + std::to_string(append->commit);
  return text;
}

Key Storm::key_of(std::uint64_t number) {
  Key key{};
  key[3] = static_cast<std::byte>(number);
  return key;
}

// ---- clients ----

void Storm::begin_next(User& user) {
  if (user.next == user.plan.size()) return;
  user.op = user.plan[user.next++];
  world_.at(world_.now() + user.op.pause, [this, &user] { begin(user); });
}

void Storm::begin(User& user) {
  if (outcome_.begun == 0) begin_faults();
  ++outcome_.begun;
  if (faults_on_ && outcome_.begun > end_after_) end_of_faults();
  outcome_.begun_under_faults += faults_on_;
  user.mark = effects();
  const bool of_store = user.op.act == Act::kPut || user.op.act == Act::kGet;
  if (!options_.keeps(user.op.id) || !of_store) {
    if (options_.keeps(user.op.id)) operate(user.op);
    ended(user);
    begin_next(user);
    return;
  }
  user.open = true;
  const auto process = static_cast<std::int32_t>(user.number);
  const auto key = check::Value::integer(static_cast<std::int64_t>(user.op.key));
  KvClient& logic = *user.client->logic;
  user.client->on_answer = [this, &user](const KvAnswer& answer) { take_answer(user, answer); };
  if (user.op.act == Act::kGet) {
    history_.invoke(world_.now(), process, check::Function::kGet, key, check::Value::none());
    logic.get(world_.now(), key_of(user.op.key));
    return;
  }
  ++puts_;
  user.value = ++value_;
  history_.invoke(world_.now(), process, check::Function::kPut, key,
                  check::Value::integer(user.value));
  std::array<std::byte, 12> bytes{};
  std::memcpy(bytes.data(), &user.value, sizeof user.value);
  logic.put(world_.now(), key_of(user.op.key), bytes);
}

void Storm::take_answer(User& user, const KvAnswer& answer) {
  user.open = false;
  if (answer.status != KvStatus::kDone)
    found("answer", "client " + std::to_string(user.number) + " gets status " +
                        std::to_string(static_cast<int>(answer.status)));
  const bool is_put = user.op.act == Act::kPut;
  check::Value got = check::Value::none();
  if (!is_put && answer.found) {
    std::int64_t number = 0;
    std::memcpy(&number, answer.value.bytes.data(), sizeof number);
    got = check::Value::integer(number);
  }
  ++outcome_.ok;
  history_.complete(world_.now(), static_cast<std::int32_t>(user.number), check::EventType::kOk,
                    is_put ? check::Function::kPut : check::Function::kGet,
                    check::Value::integer(static_cast<std::int64_t>(user.op.key)), got);
  digest_ = mix64(digest_ ^ static_cast<std::uint64_t>(world_.now()) ^ mix64(answer.version));
  ended(user);
  begin_next(user);
}

// As FaultPhase counts it, which needs a simulated fabric.
void Storm::ended(const User& user) {
  ++outcome_.ended;
  outcome_.met_fault += effects() != user.mark;
}

std::uint64_t Storm::effects() const {
  const auto& reached = outcome_.faults.reached;
  return std::accumulate(reached.begin(), reached.end(), std::uint64_t{0});
}

// Many puts at once, so that a batch of the log fills several sectors.
void Storm::flood() {
  const auto leader = world_.leader();
  if (!leader) return;
  KvCommand command;
  command.operation = KvOperation::kPut;
  command.client = 50;
  command.key = key_of(kKeys);
  command.value = Value::of(Bytes(kMaxValue, std::byte{1}));
  for (int i = 0; i < kFlood; ++i) {
    command.sequence = ++flooded_;
    world_.ask(*leader, encode(command), [](const KvAnswer&) {});
  }
  puts_ += kFlood;
}

// ---- the operator ----

void Storm::operate(const Planned& op) {
  const auto leader = world_.leader();
  if (op.act == Act::kFlood) return flood();
  if (op.act == Act::kReplace) return replace(op.node);
  if (op.act == Act::kDemote) return demote(op.node);
  if (leader && *leader != op.node) world_.member(*leader).transfer(op.node, [](Outcome) {});
}

bool Storm::may_lose(NodeId n) const {
  const auto rotting = world_options(options_, outcome_.faults).rotting;
  return std::ranges::find(rotting, n) != rotting.end();
}

bool Storm::are_out(NodeId n) const {
  return std::ranges::any_of(
      replacements_, [n](const auto& each) { return each->node() == n && !each->is_over(); });
}

// A standby gets entries and does not vote. tend() makes it a voter again. Until the change is
// committed, others may count the member as a voter, while it does not stand and may have the
// longest log. So the others that do not lose their stores are a majority of the voters with this
// one.
void Storm::demote(NodeId n) {
  const auto leader = world_.leader();
  if (!leader || options_.nodes < 3 || !demoted_.empty() || !replacements_.empty()) return;
  NodeId lasting = 0;
  for (NodeId each = 0; each < options_.nodes; ++each)
    lasting += each != n && !may_lose(each) ? 1 : 0;
  if (2 * lasting <= options_.nodes) return;
  const Outcome begun = world_.member(*leader).assign(n, Role::kStandby, [](Outcome) {});
  if (begun == Outcome::kAccepted) demoted_.insert(n);
}

void Storm::replace(NodeId n) {
  if (!may_lose(n) || are_out(n) || !demoted_.empty()) return;
  note("member " + std::to_string(n) + " loses its store");
  crash(n, true);
  world_.wipe(n);
  ++outcome_.reconnects;
  replacements_.push_back(std::make_unique<Replacement>(world_, n));
}

void Storm::crash(NodeId n, bool power) {
  if (!world_.up(n)) return;
  outcome_.crashed_after.push_back(outcome_.begun);
  world_.crash(n, power);
}

// A store may fail while it is opened. It is opened again. One that is refused is lost, which only
// damage may cause.
void Storm::restart(NodeId n) {
  if (world_.up(n)) return;
  for (const auto& each : replacements_) {
    if (each->node() == n && !each->may_run()) return;
  }
  if (world_.restart(n)) {
    ++outcome_.restarts;
    return;
  }
  note("member " + std::to_string(n) + " cannot start: " + world_.why());
  if (!world_.is_refused()) {
    world_.at(world_.now() + kTend, [this, n] { restart(n); });
    return;
  }
  if (!may_lose(n) ||
      (outcome_.faults.reached[static_cast<std::size_t>(Fault::disk_rot)] == 0 &&
       outcome_.faults.reached[static_cast<std::size_t>(Fault::disk_unreadable)] == 0))
    found("start", "member " + std::to_string(n) + " cannot start: " + world_.why());
  world_.wipe(n);
  if (are_out(n)) return;  // it is out already, and comes back as a new member again
  replacements_.push_back(std::make_unique<Replacement>(world_, n));
}

void Storm::tend() {
  for (std::size_t i = 0; i < replacements_.size(); ++i) {
    Replacement& each = *replacements_[i];
    if (each.is_over()) continue;
    if (each.may_run() && !world_.up(each.node())) restart(each.node());
    each.go_on();
    break;  // one change at a time
  }
  if (const auto leader = world_.leader(); leader && !demoted_.empty()) {
    const NodeId n = *demoted_.begin();
    Member& member = world_.member(*leader);
    const Servers servers = member.servers();
    const auto there = std::ranges::find(servers, std::uint64_t{n} + 1, &Server::id);
    if (there != servers.end() && there->role == Role::kVoter && !faults_on_)
      demoted_.clear();
    else if (rng_.below(4) == 0)
      member.assign(n, Role::kVoter, [](Outcome) {});
  }
  look();
  if (outcome_.violations.empty()) world_.at(world_.now() + kTend, [this] { tend(); });
}

// ---- judgement ----

/// A member that its storage has failed ends, and starts again, often without a power failure.
void Storm::look() {
  const auto& findings = world_.invariants().findings();
  for (; judged_ < findings.size(); ++judged_)
    found(kKinds[static_cast<std::size_t>(findings[judged_].property)], findings[judged_].text);
  for (NodeId n = 0; n < options_.nodes; ++n) {
    if (!world_.up(n) || world_.member(n).failure().empty()) continue;
    if (!world_.member(n).failure().starts_with("the storage"))
      found("failure", "member " + std::to_string(n) + ": " + world_.member(n).failure());
    const auto end = world_.ended_at_sync(n);
    crash(n, end ? *end : rng_.below(2) == 0);
    world_.at(world_.now() + static_cast<Time>(rng_.below(100)) * kUnit, [this, n] { restart(n); });
  }
}

void Storm::begin_faults() {
  if (faults_on_ || !options_.faults.any()) return;
  faults_on_ = true;
  world_.begin_faults();
  weather_.begin();
}

void Storm::end_of_faults() {
  if (!faults_on_) return;
  faults_on_ = false;
  note("all faults end");
  weather_.end();
  world_.heal();
  for (NodeId n = 0; n < options_.nodes; ++n) restart(n);
}

bool Storm::is_settled() {
  if (std::ranges::any_of(
          users_, [](const User& user) { return user.open || user.next < user.plan.size(); }))
    return false;
  if (!demoted_.empty()) return false;
  for (const auto& each : replacements_) {
    if (!each->is_over()) return false;
  }
  for (NodeId n = 0; n < options_.nodes; ++n) {
    if (!world_.up(n) || world_.state(n).snapshot() != world_.state(0).snapshot()) return false;
  }
  return true;
}

void Storm::run() {
  for (User& user : users_) begin_next(user);
  if (options_.faults.at_once) begin_faults();
  if (options_.faults.heal_at != kForever) {
    end_after_ = options_.operations;
    world_.at(options_.faults.heal_at, [this] { end_of_faults(); });
  }
  world_.at(world_.now() + kTend, [this] { tend(); });
  const auto has_begun_all = [this] {
    return outcome_.begun == options_.operations || !outcome_.violations.empty();
  };
  world_.run_until(has_begun_all, Time{options_.operations} * 100 * kMillisecond);
  end_of_faults();
  if (outcome_.violations.empty()) {
    const auto over = [this] { return is_settled() || !outcome_.violations.empty(); };
    if (!world_.run_until(over, 4 * options_.recovery_limit)) end_well();
    if (outcome_.violations.empty()) outcome_.made("equal states");
  }
  look();
  fill();
}

/// Says what is not well.
void Storm::end_well() {
  std::string text;
  for (NodeId n = 0; n < options_.nodes; ++n) {
    if (!world_.up(n)) {
      text += "; member " + std::to_string(n) + " is down: " + world_.why();
      continue;
    }
    const Member& m = world_.member(n);
    text += "; member " + std::to_string(n) + (m.leads() ? " leads" : " follows") + " term " +
            std::to_string(m.term()) + " of " + std::to_string(m.servers().size()) + ", log " +
            std::to_string(m.first_index()) + " to " + std::to_string(m.last_index()) +
            ", committed " + std::to_string(m.commit_index()) + ", applied " +
            std::to_string(m.applied_index());
  }
  for (const User& user : users_) {
    if (user.open) text += "; client " + std::to_string(user.number) + " has no answer";
  }
  for (const NodeId n : demoted_) text += "; member " + std::to_string(n) + " does not vote yet";
  for (const auto& each : replacements_) {
    if (!each->is_over()) text += "; member " + std::to_string(each->node()) + " is not replaced";
  }
  found("liveness", "the group has not settled after all faults" + text);
}

void Storm::fill() {
  const std::uint64_t executions = world_.invariants().executions();
  if (outcome_.violations.empty()) {
    outcome_.made("exactly once");
    std::uint64_t versions = 0;
    for (std::uint64_t key = 0; key <= kKeys; ++key)
      versions += world_.state(0).get(key_of(key)).version;
    if (versions != executions)
      found("exactly once", "the keys have " + std::to_string(versions) + " versions after " +
                                std::to_string(executions) + " executions");
    if (executions > puts_)
      found("exactly once",
            std::to_string(puts_) + " puts were executed " + std::to_string(executions) + " times");
  }
  fuzz::judge(outcome_, options_, history_, "kv", world_.now());
  for (const User& user : users_) outcome_.info += user.open;
  outcome_.virtual_ns = world_.now();
  outcome_.branches = world_.branches();
  outcome_.events = world_.invariants().committed();
  outcome_.fingerprint =
      mix64(digest_ ^ mix64(world_.invariants().committed() ^
                            mix64(world_.invariants().elections() ^
                                  mix64(static_cast<std::uint64_t>(world_.now())))));
  for (NodeId n = 0; n < options_.nodes; ++n) {
    if (world_.up(n))
      outcome_.fingerprint = mix64(outcome_.fingerprint ^ world_.member(n).counters().sent);
  }
}

}  // namespace pyrdma::erpc::raft
