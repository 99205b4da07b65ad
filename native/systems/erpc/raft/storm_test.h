// A storm is one random run of a group: clients put and get while messages are lost, doubled and
// late, members crash, pause and lose touch, and disks and clocks err. Then all heals, and the run
// must end well. Equal seeds give equal runs.
#pragma once
#include <array>
#include <set>
#include <string>
#include <vector>

#include "check/linearizability.h"
#include "systems/erpc/raft/world_test.h"

namespace pyrdma::erpc::raft {

enum class Trouble : std::uint8_t {
  kLoss,
  kDuplicates,
  kReordering,
  kPowerFailure,
  kKill,
  kPartition,
  kOneWay,
  kPause,
  kClock,
  kDisk,
  kTransfer,
  kHold,
  kBlackout,
  kOldMessages,
  kFlood,
  kCount,
};
using Troubles = std::set<Trouble>;

inline Troubles all_troubles() {
  Troubles all;
  for (std::uint8_t i = 0; i < static_cast<std::uint8_t>(Trouble::kCount); ++i)
    all.insert(static_cast<Trouble>(i));
  return all;
}

struct StormOptions {
  std::uint64_t seed = 1;
  Bug bug = Bug::kNone;
  Troubles troubles = all_troubles();
  std::uint32_t nodes = 3;
  Time length = 12 * kSecond;
  bool pre_vote = true;
};

struct StormReport {
  std::vector<std::string> findings;  // empty: all properties hold
  std::uint64_t operations = 0, faults = 0, elections = 0, restarts = 0, committed = 0;
  std::uint64_t truncations = 0, repeated = 0;
  BranchCounts branches;
  std::uint64_t fingerprint = 0;
  std::string text() const {
    std::string all;
    for (std::size_t i = 0; i < findings.size() && i < 3; ++i) all += findings[i] + '\n';
    return all;
  }
};

class Storm {
 public:
  explicit Storm(const StormOptions& options)
      : options_(options), rng_(options.seed, -1, "raft/storm"), world_(world_options(options)) {
    world_.invariants().expect_majority_of(options.nodes);
    // Each seed has a random subset of the troubles.
    for (const Trouble trouble : options.troubles) {
      if (options.troubles.size() <= 3 || rng_.uniform() < 0.5) active_.push_back(trouble);
    }
    if (std::ranges::find(active_, Trouble::kOldMessages) != active_.end()) world_.keep_old();
    std::vector<NodeId> members;
    for (NodeId n = 0; n < options.nodes; ++n) members.push_back(n);
    for (std::uint64_t c = 0; c < kClients; ++c)
      users_.push_back({&world_.add_client(100 + c, members), c});
  }

  StormReport run() {
    const Time end = world_.now() + options_.length;
    while (world_.now() < end && report_.findings.empty()) {
      step(Time{20} * kMillisecond + draw(150) * kMillisecond);
      if (!active_.empty()) trouble(active_[static_cast<std::size_t>(draw(active_.size()))]);
      look();
    }
    if (report_.findings.empty()) end_well();
    return summary();
  }

 private:
  static constexpr std::uint64_t kClients = 3, kKeys = 3;
  struct User {
    World::Client* client;
    std::uint64_t number;
    bool puts = false, open = false;
    std::uint64_t key = 0;
  };

  static WorldOptions world_options(const StormOptions& options) {
    WorldOptions world;
    world.nodes = world.group = options.nodes;
    world.seed = options.seed;
    world.bugs = options.bug;
    world.member.pre_vote = options.pre_vote;
    world.member.snapshot_threshold = 24;
    world.member.snapshot_trailing = 6;
    return world;
  }
  Time draw(std::uint64_t bound) { return static_cast<Time>(rng_.below(bound)); }
  NodeId some_node() { return static_cast<NodeId>(rng_.below(options_.nodes)); }
  void found(std::string what) { report_.findings.push_back(std::move(what)); }

  /// Runs for a while, and keeps the clients at work.
  void step(Time duration) {
    const Time end = world_.now() + duration;
    while (world_.now() < end) {
      for (User& user : users_) serve(user);
      world_.run_until(
          [&] {
            for (const User& user : users_) {
              if (user.open != user.client->logic->busy()) return true;
            }
            return false;
          },
          std::min<Time>(end - world_.now(), 20 * kMillisecond));
    }
  }
  void serve(User& user) {
    const auto process = static_cast<std::int32_t>(user.number);
    const auto key = check::Value::integer(static_cast<std::int64_t>(user.key));
    KvClient& logic = *user.client->logic;
    if (user.open && !logic.busy()) {
      user.open = false;
      const KvAnswer& answer = *user.client->answer;
      if (answer.status != KvStatus::kDone)
        found("a client's command ends with status " +
              std::to_string(static_cast<int>(answer.status)));
      check::Value got = check::Value::none();
      if (user.puts) {
        got = check::Value::integer(value_);
      } else if (answer.found) {
        got = check::Value::integer(number_of(answer.value));
      }
      history_.complete(world_.now(), process, check::EventType::kOk,
                        user.puts ? check::Function::kPut : check::Function::kGet, key,
                        user.puts ? check::Value::none() : got);
      ++report_.operations;
    }
    if (user.open || ending_ || rng_.below(3) == 0) return;
    user.open = true;
    user.puts = rng_.below(2) == 0;
    user.key = rng_.below(kKeys);
    const auto chosen = check::Value::integer(static_cast<std::int64_t>(user.key));
    if (user.puts) {
      ++puts_;
      ++value_;
      history_.invoke(world_.now(), process, check::Function::kPut, chosen,
                      check::Value::integer(value_));
      std::array<std::byte, 12> bytes{};
      std::memcpy(bytes.data(), &value_, sizeof value_);
      logic.put(world_.now(), key_of(user.key), bytes);
    } else {
      history_.invoke(world_.now(), process, check::Function::kGet, chosen, check::Value::none());
      logic.get(world_.now(), key_of(user.key));
    }
  }
  static Key key_of(std::uint64_t number) {
    Key key{};
    key[3] = static_cast<std::byte>(number);
    return key;
  }
  static std::int64_t number_of(const Value& value) {
    std::int64_t number = 0;
    std::memcpy(&number, value.bytes.data(), sizeof number);
    return number;
  }

  void trouble(Trouble kind) {
    ++report_.faults;
    const NodeId n = rng_.below(2) == 0 ? world_.leader().value_or(some_node()) : some_node();
    const NodeId other = some_node();
    switch (kind) {
      case Trouble::kLoss:
        world_.set_loss(rng_.uniform() < 0.5 ? 0 : 0.5 * rng_.uniform());
        break;
      case Trouble::kDuplicates:
        world_.set_duplicate(0.3 * rng_.uniform());
        break;
      case Trouble::kReordering:
        world_.set_reorder(0.3 * rng_.uniform());
        break;
      case Trouble::kPowerFailure:
      case Trouble::kKill:
        if (world_.up(n)) {
          world_.crash(n, kind == Trouble::kPowerFailure);
          if (rng_.below(2) == 0) restart(n);
        } else {
          restart(n);
        }
        break;
      case Trouble::kPartition:
        rng_.below(2) == 0 ? world_.isolate(n) : world_.isolate(n, false);
        break;
      case Trouble::kOneWay:
        if (n != other) world_.block(n, other, rng_.below(2) == 0);
        break;
      case Trouble::kPause:
        world_.pause(n, true);
        step(draw(400) * kMillisecond);
        world_.pause(n, false);
        break;
      case Trouble::kClock:
        world_.set_clock(n, 300 + draw(1500));
        break;
      case Trouble::kDisk:
        if (world_.up(n)) world_.fail_disk(n, 0.5 * rng_.uniform());
        step(draw(40) * kMillisecond);
        if (world_.up(n)) world_.fail_disk(n, 0);
        break;
      case Trouble::kTransfer:
        if (const auto leader = world_.leader(); leader && *leader != other)
          world_.member(*leader).transfer(other, [](Outcome) {});
        break;
      case Trouble::kHold:
        if (n != other) {
          world_.hold(n, other);
          step(draw(300) * kMillisecond);
          world_.release(n, other);
        }
        break;
      case Trouble::kBlackout:  // the members come back at different times, and may fall again
        for (NodeId each = 0; each < options_.nodes; ++each) world_.crash(each);
        for (std::uint64_t i = 0; i < 2 * options_.nodes; ++i) {
          step(draw(150) * kMillisecond);
          const NodeId next = some_node();
          if (world_.up(next)) world_.crash(next);
          restart(next);
        }
        break;
      case Trouble::kOldMessages:
        for (std::uint64_t i = 0; i < 20; ++i) {
          world_.deliver_old();
          step(draw(20) * kMillisecond);
        }
        break;
      case Trouble::kFlood:
        flood();
        break;
      default:
        break;
    }
  }
  /// Many puts at once, so that a batch of the log fills several sectors.
  void flood() {
    const auto leader = world_.leader();
    if (!leader) return;
    KvCommand command;
    command.operation = KvOperation::kPut;
    command.client = 50;
    command.key = key_of(kKeys);
    command.value = Value::of(Bytes(kMaxValue, std::byte{1}));
    for (int i = 0; i < 30; ++i) {
      command.sequence = ++flooded_;
      world_.ask(*leader, encode(command), [](const KvAnswer&) {});
    }
    puts_ += 30;
  }
  void restart(NodeId n) {
    ++report_.restarts;
    if (!world_.restart(n)) found("member " + std::to_string(n) + " cannot start: " + world_.why());
  }
  /// A member that its storage has failed ends, and starts again as after a crash.
  void look() {
    for (const auto& finding : world_.invariants().findings()) found(finding.text);
    for (NodeId n = 0; n < options_.nodes; ++n) {
      if (!world_.up(n) || world_.member(n).failure().empty()) continue;
      if (!world_.member(n).failure().starts_with("the storage"))
        found("member " + std::to_string(n) + ": " + world_.member(n).failure());
      world_.crash(n, rng_.below(2) == 0);
    }
  }

  void end_well() {
    world_.heal();
    world_.set_loss(0);
    world_.set_duplicate(0);
    world_.set_reorder(0);
    look();
    for (NodeId n = 0; n < options_.nodes; ++n) {
      if (!world_.up(n)) restart(n);
    }
    if (!report_.findings.empty()) return;
    // A while with operations, then the last ones end.
    step(kSecond);
    ending_ = true;
    step(4 * kSecond);
    look();
    for (const User& user : users_) {
      if (user.open)
        found("client " + std::to_string(user.number) + " gets no answer after all is healed" +
              describe());
    }
    if (!report_.findings.empty()) return;
    std::uint64_t versions = 0;
    for (std::uint64_t key = 0; key <= kKeys; ++key)
      versions += world_.state(0).get(key_of(key)).version;
    if (versions != world_.invariants().executions())
      found("the keys have " + std::to_string(versions) + " versions after " +
            std::to_string(world_.invariants().executions()) + " executions");
    if (world_.invariants().executions() > puts_)
      found(std::to_string(puts_) + " puts were executed " +
            std::to_string(world_.invariants().executions()) + " times");
    for (NodeId n = 1; n < options_.nodes; ++n) {
      if (world_.state(n).snapshot() != world_.state(0).snapshot())
        found("the states of members 0 and " + std::to_string(n) + " differ at the end");
    }
    check::SearchLimits limits;
    limits.explain = false;
    const auto verdict = check::check_linearizability(history_, check::ModelKind::kKv, limits);
    if (verdict.answer == check::Answer::kNo) found("not linearizable: " + verdict.text);
  }

  std::string describe() {
    std::string text;
    for (NodeId n = 0; n < options_.nodes; ++n) {
      const Member& m = world_.member(n);
      text += "; member " + std::to_string(n) + (m.leads() ? " leads" : " follows") + " term " +
              std::to_string(m.term()) + ", log " + std::to_string(m.first_index()) + " to " +
              std::to_string(m.last_index()) + ", committed " + std::to_string(m.commit_index()) +
              ", applied " + std::to_string(m.applied_index());
    }
    return text;
  }
  StormReport summary() {
    for (const auto& finding : world_.invariants().findings()) found(finding.text);
    report_.elections = world_.invariants().elections();
    report_.committed = world_.invariants().committed();
    report_.truncations = world_.invariants().truncations();
    report_.branches = world_.branches();
    report_.fingerprint =
        mix64(report_.committed ^
              mix64(report_.elections ^
                    mix64(static_cast<std::uint64_t>(world_.now()) ^ mix64(report_.operations))));
    for (NodeId n = 0; n < options_.nodes; ++n) {
      if (!world_.up(n)) continue;
      report_.repeated += world_.state(n).repeated();
      report_.fingerprint = mix64(report_.fingerprint ^ world_.member(n).counters().sent);
    }
    return report_;
  }

  StormOptions options_;
  Rng rng_;
  World world_;
  std::vector<Trouble> active_;
  std::vector<User> users_;
  check::History history_;
  std::int64_t value_ = 0;
  std::uint64_t puts_ = 0, flooded_ = 0;
  bool ending_ = false;
  StormReport report_;
};

inline StormReport storm(const StormOptions& options) { return Storm(options).run(); }

}  // namespace pyrdma::erpc::raft
