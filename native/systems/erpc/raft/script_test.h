// A small language for tests of a group, one step a line. `#` begins a comment.
//
//   set group 3 | nodes 4 | threshold 8 | trailing 2 | pre_vote off   before the rest
//   elect 1                    member 1 wins an election; others may not stand meanwhile
//   7 put key value            client 7 puts, and tries for 3 s
//   7 put key value > version 2    the same, and the answer is checked; `> pending`: no answer
//   7 get key > value x        `> absent`: there is no such key
//   at 1 get key > value x     asks member 1 alone; `> refused`: it does not lead
//   again 2                    sends the command of the last `at` to member 2
//   record 0 1; replay 0 1     sends copies of all messages since `record`
//   isolate 1; join 1; cut 0 1; mend 0 1; one_way 0 1; hold 0 1; release 0 1; heal
//   crash 1 (power failure); kill 1 (process); restart 1; wipe 1 (the disk is lost)
//   pause 1; resume 1; clock 1 500 (per mille); disk 1 0.5 (share of failing requests)
//   add 3 > done; role 3 voter > done; remove 3 > done; transfer 2
//   lone 0 add 3               begins a change at member 0, whoever leads, and does not wait
//   run 200                    milliseconds
//   servers 0 3 (of the configuration of member 0)
//   leads 1; leads none; equal (all states); branch name (was reached); seen 1 snapshots_installed
#pragma once
#include <gtest/gtest.h>

#include <charconv>
#include <sstream>

#include "systems/erpc/raft/world_test.h"

namespace pyrdma::erpc::raft {

/// Runs a script. The result is empty, or says what was not as expected.
class Script {
 public:
  explicit Script(Bug bug = Bug::kNone) { options_.bugs = bug; }

  std::string run(std::string_view text) {
    std::istringstream lines{std::string(text)};
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
      line.resize(std::min(line.find('#'), line.size()));
      std::istringstream fields(line);
      std::vector<std::string> words;
      for (std::string word; fields >> word;) words.push_back(word);
      if (words.empty()) continue;
      std::string expected;
      const auto mark = std::ranges::find(words, ">");
      for (auto word = mark; word != words.end(); ++word) {
        if (word != mark) expected += (expected.empty() ? "" : " ") + *word;
      }
      words.erase(mark, words.end());
      const std::string got = step(words);
      if (got.starts_with('!') || (!expected.empty() && got != expected))
        return "line " + std::to_string(number) + ", '" + line + "': got '" + got + "'";
      if (world_ == nullptr) continue;
      const auto& findings = world_->invariants().findings();
      if (!findings.empty())
        return "line " + std::to_string(number) + ", '" + line + "': " + findings[0].text;
    }
    return {};
  }
  World& world() { return *world_; }

 private:
  static std::uint64_t number(const std::string& word) {
    std::uint64_t value = 0;
    std::from_chars(word.data(), word.data() + word.size(), value);
    return value;
  }
  static Key key_of(const std::string& name) {
    Key key{};
    const ByteView bytes = std::as_bytes(std::span(name));
    std::copy_n(bytes.begin(), std::min(bytes.size(), key.size()), key.begin());
    return key;
  }
  static std::string text_of(const KvAnswer& answer, bool get) {
    if (answer.status == KvStatus::kNotLeader) return "refused";
    if (answer.status != KvStatus::kDone)
      return "status " + std::to_string(static_cast<int>(answer.status));
    if (!get) return "version " + std::to_string(answer.version);
    if (!answer.found) return "absent";
    const ByteView value = answer.value.view();
    return "value " + std::string(reinterpret_cast<const char*>(value.data()), value.size());
  }
  void set(const std::string& what, const std::string& value) {
    if (what == "group") options_.nodes = options_.group = static_cast<NodeId>(number(value));
    if (what == "nodes") options_.nodes = static_cast<NodeId>(number(value));
    if (what == "threshold")
      options_.member.snapshot_threshold = static_cast<std::uint32_t>(number(value));
    if (what == "trailing")
      options_.member.snapshot_trailing = static_cast<std::uint32_t>(number(value));
    if (what == "pre_vote") options_.member.pre_vote = value == "on";
    if (what == "memory") options_.member.durability = Durability::kMemory;
    if (what == "seed") options_.seed = number(value);
  }
  World::Client& client(std::uint64_t id) {
    if (!clients_.contains(id)) {
      std::vector<NodeId> members;
      for (NodeId n = 0; n < options_.nodes; ++n) members.push_back(n);
      clients_[id] = &world_->add_client(id, members);
    }
    return *clients_[id];
  }
  std::string operate(World::Client& who, const std::vector<std::string>& words) {
    const bool get = words[1] == "get";
    if (who.logic->busy()) who.logic->abandon();
    if (get)
      who.logic->get(world_->now(), key_of(words[2]));
    else
      who.logic->put(world_->now(), key_of(words[2]), std::as_bytes(std::span(words[3])));
    if (!world_->finish(who, 3 * kSecond)) return "pending";
    return text_of(*who.answer, get);
  }
  std::string ask(NodeId n, const std::vector<std::string>& words) {
    KvCommand command;
    const bool get = words[2] == "get";
    command.operation = get ? KvOperation::kGet : KvOperation::kPut;
    command.client = 1000 + n;
    command.sequence = ++asked_;
    command.key = key_of(words[3]);
    if (!get) command.value = Value::of(std::as_bytes(std::span(words[4])));
    asked_get_ = get;
    last_ = encode(command);
    return again(n);
  }
  std::string again(NodeId n) {
    auto answer = std::make_shared<std::optional<KvAnswer>>();
    world_->ask(n, last_, [answer](const KvAnswer& got) { *answer = got; });
    if (!world_->run_until([&] { return answer->has_value(); }, 20 * kMillisecond))
      return "pending";
    return text_of(**answer, asked_get_);
  }
  static Outcome begin_change(Member& member, const std::vector<std::string>& words,
                              const std::function<void(Outcome)>& done) {
    const auto node = static_cast<NodeId>(number(words[1]));
    if (words[0] == "add") return member.add(node, done);
    if (words[0] == "remove") return member.remove(node, done);
    if (words[0] == "transfer") return member.transfer(node, done);
    return member.assign(node,
                         words[2] == "voter"     ? Role::kVoter
                         : words[2] == "standby" ? Role::kStandby
                                                 : Role::kSpare,
                         done);
  }
  std::string change(const std::vector<std::string>& words) {
    const auto leader = world_->leader();
    if (!leader) return "no leader";
    auto ended = std::make_shared<std::optional<Outcome>>();
    Outcome outcome =
        begin_change(world_->member(*leader), words, [ended](Outcome done) { *ended = done; });
    if (outcome == Outcome::kAccepted) {
      if (!world_->run_until([&] { return ended->has_value(); }, 8 * kSecond)) return "pending";
      outcome = **ended;
    }
    constexpr const char* kNames[] = {"accepted", "done", "not_leader",
                                      "unknown",  "busy", "invalid"};
    return kNames[static_cast<std::size_t>(outcome)];
  }
  std::string equal() {
    std::optional<Bytes> first;
    for (NodeId n = 0; n < world_->nodes(); ++n) {
      if (!world_->up(n)) continue;
      const Bytes bytes = world_->state(n).snapshot();
      if (first && *first != bytes) return "!the state of member " + std::to_string(n) + " differs";
      first = bytes;
    }
    return "yes";
  }
  std::string seen(const Member& member, const std::string& what) {
    const MemberCounters& c = member.counters();
    const std::map<std::string, std::uint64_t> all{{"snapshots_installed", c.snapshots_installed},
                                                   {"snapshots_taken", c.snapshots_taken},
                                                   {"elections_won", c.elections_won},
                                                   {"malformed", c.malformed},
                                                   {"refused", c.refused},
                                                   {"compacted", member.first_index() - 1}};
    return all.at(what) > 0 ? "yes" : "!none";
  }

  std::string step(const std::vector<std::string>& words) {
    const std::string& verb = words[0];
    if (verb == "set") {
      set(words[1], words[2]);
      return "";
    }
    if (world_ == nullptr) {
      world_ = std::make_unique<World>(options_);
      if (options_.nodes == options_.group) world_->invariants().expect_majority_of(options_.group);
    }
    World& world = *world_;
    if (std::isdigit(static_cast<unsigned char>(verb[0])) != 0)
      return operate(client(number(verb)), words);
    const auto node = [&](std::size_t i) { return static_cast<NodeId>(number(words.at(i))); };
    if (verb == "run") {
      world.run(static_cast<Time>(number(words[1])) * kMillisecond);
    } else if (verb == "elect") {
      if (!world.elect(node(1))) return "!not elected";
    } else if (verb == "at") {
      return ask(node(1), words);
    } else if (verb == "isolate" || verb == "join") {
      world.isolate(node(1), verb == "isolate");
    } else if (verb == "cut" || verb == "mend") {
      world.block(node(1), node(2), verb == "cut");
      world.block(node(2), node(1), verb == "cut");
    } else if (verb == "one_way") {
      world.block(node(2), node(1));
    } else if (verb == "again") {
      return again(node(1));
    } else if (verb == "record") {
      world.record(node(1), node(2));
    } else if (verb == "replay") {
      world.replay(node(1), node(2));
    } else if (verb == "hold") {
      world.hold(node(1), node(2));
    } else if (verb == "release") {
      world.release(node(1), node(2));
    } else if (verb == "heal") {
      world.heal();
    } else if (verb == "crash" || verb == "kill") {
      world.crash(node(1), verb == "crash");
    } else if (verb == "restart") {
      if (!world.restart(node(1))) return "!" + world.why();
    } else if (verb == "wipe") {
      world.wipe(node(1));
    } else if (verb == "pause" || verb == "resume") {
      world.pause(node(1), verb == "pause");
    } else if (verb == "clock") {
      world.set_clock(node(1), static_cast<Time>(number(words[2])));
    } else if (verb == "disk") {
      world.fail_disk(node(1), std::stod(words[2]));
    } else if (verb == "leads") {
      const auto leader = world.leader();
      const std::string who = leader ? std::to_string(*leader) : "none";
      return who == words[1] ? "yes" : "!" + who + " leads";
    } else if (verb == "equal") {
      return equal();
    } else if (verb == "servers") {
      const std::size_t count = world.member(node(1)).servers().size();
      return count == number(words[2]) ? "yes" : "!" + std::to_string(count);
    } else if (verb == "branch") {
      return world.branches().contains(words[1]) ? "yes" : "!not reached";
    } else if (verb == "seen") {
      return seen(world.member(node(1)), words[2]);
    } else if (verb == "failed") {
      return world.member(node(1)).failure().empty() ? "!it runs" : "yes";
    } else if (verb == "add" || verb == "role" || verb == "remove" || verb == "transfer") {
      return change(words);
    } else if (verb == "lone") {
      begin_change(world.member(node(1)), {words.begin() + 2, words.end()}, [](Outcome) {});
    } else {
      return "!no such step";
    }
    return "";
  }

  WorldOptions options_;
  std::unique_ptr<World> world_;
  std::map<std::uint64_t, World::Client*> clients_;
  std::uint64_t asked_ = 0;
  bool asked_get_ = false;
  Bytes last_;
};

struct ScriptCase {
  const char* name;
  Bug bug;
  const char* script;
};

class ErpcRaftScripts : public testing::TestWithParam<ScriptCase> {};

}  // namespace pyrdma::erpc::raft
