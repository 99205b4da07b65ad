// Every order of few requests, losses and jobs of the cleaner. After each step the primary dies for
// a moment, and any backups are there. What replication_fuzz_test.cc draws at random is here
// complete, for few segments.
#include "check/explore.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/small_test.h"
#include "systems/tailwind/replication/replication_world_test.h"

namespace pyrdma::tailwind {

/// The whole state of a log.
class ReplicatedLogProbe {
 public:
  static void add(const ReplicatedLog& log, check::StateHash& hash) {
    hash.add(log.settled_);
    hash.add(log.newest_open_);
    hash.add(log.forgotten_.size());
    for (const auto& [segment, head] : log.forgotten_) add_all(hash, segment, head);
    hash.add(log.segments_.size());
    for (const auto& [number, segment] : log.segments_) {
      add_all(hash, number, segment.first_bytes, segment.end, segment.committed, segment.version,
              segment.is_side, segment.is_complete, segment.was_open, segment.was_closed,
              segment.is_frozen, segment.has_asked);
      for (const ReplicatedLog::Replica& each : segment.replicas)
        add_all(hash, each.state, each.is_copy, each.backup, each.sent, each.done, each.version,
                each.asked_for);
    }
  }

 private:
  template <class... Words>
  static void add_all(check::StateHash& hash, Words... words) {
    (hash.add(static_cast<std::uint64_t>(words)), ...);
  }
};

namespace {

/// How often what may happen.
struct Events {
  std::uint32_t appends = 0, rolls = 0;
  std::uint32_t kills = 0, damages = 0, refusals = 0;
  std::uint32_t cleanings = 0, compactions = 0;
};

struct Plan {
  Events events;
  std::uint32_t closed = 0;  // segments that are closed at the begin; the head is then open
  NodeId backups = 3;
  std::uint32_t replicas = 2;
};

class ExploredReplication final : public ReplicationWorld {
 public:
  enum class Act : std::uint8_t {
    kAppend,
    kRoll,
    kArrive,
    kRefuse,
    kAnswer,
    kKill,
    kDetect,
    kReturn,
    kDamage,
    kReport,
    kClean,
    kMoved,
    kCompact
  };
  struct Choice {
    Act act = Act::kAppend;
    std::uint32_t which = 0;  // request, answer or backup
    std::uint64_t segment = 0;
  };

  ExploredReplication(const Plan& plan, Bugs bugs)
      : ReplicationWorld(plan.backups, plan.replicas, bugs), left_(plan.events) {
    for (std::uint32_t i = 0; i < plan.closed; ++i) {
      append(20);
      roll();
      PYRDMA_ASSERT(settles());
    }
    log_.step();
    note_begin();
  }

  std::vector<Choice> choices() const {
    std::vector<Choice> all;
    if (left_.appends != 0) all.push_back({Act::kAppend});
    if (left_.rolls != 0) all.push_back({Act::kRoll});
    for (std::uint32_t i = 0; i < pending_.size(); ++i) {
      if (!is_oldest(pending_, i)) continue;
      all.push_back({Act::kArrive, i});
      if (left_.refusals != 0 && pending_[i].kind == Request::Kind::kOpen)
        all.push_back({Act::kRefuse, i});
    }
    for (std::uint32_t i = 0; i < answers_.size(); ++i) {
      if (is_oldest(answers_, i)) all.push_back({Act::kAnswer, i});
    }
    for (NodeId backup = 0; backup < backups_; ++backup) {
      if (!alive_[backup])
        all.push_back({undetected_.contains(backup) ? Act::kDetect : Act::kReturn, backup});
      else if (may_lose())
        add_losses(backup, all);
    }
    if (damaged_) all.push_back({Act::kReport});
    for (const std::uint64_t number : all_closed()) {
      if (left_.cleanings != 0 && !cleaning_) all.push_back({Act::kClean, 0, number});
      if (left_.compactions != 0 && ends_.at(number) > kFirst + 1)
        all.push_back({Act::kCompact, 0, number});
    }
    if (cleaning_ && !cleaning_->has_moved) all.push_back({Act::kMoved});
    return all;
  }

  void take(const Choice& choice) {
    switch (choice.act) {
      case Act::kAppend:
        --left_.appends;
        append(10);
        break;
      case Act::kRoll:
        --left_.rolls;
        roll();
        break;
      case Act::kRefuse:
        --left_.refusals;
        is_refused_ = true;
        [[fallthrough]];
      case Act::kArrive:
        arrive(choice.which);
        is_refused_ = false;
        break;
      case Act::kAnswer:
        answer(choice.which);
        break;
      case Act::kKill:
        --left_.kills;
        kill(choice.which);
        break;
      case Act::kDetect:
        detect();
        break;
      case Act::kReturn:
        alive_[choice.which] = true;
        break;
      case Act::kDamage:
        --left_.damages;
        damage(choice.which, choice.segment);
        break;
      case Act::kReport:
        report_damaged();
        break;
      case Act::kClean:
        --left_.cleanings;
        begin_cleaning({choice.segment}, 1);
        break;
      case Act::kMoved:
        has_moved_ = true;
        break;
      case Act::kCompact:
        --left_.compactions;
        begin_compaction(choice.segment);
        break;
    }
    // The host goes on with the job of the cleaner as far as it can. clean() makes one step of it.
    for (std::uint32_t i = 0; i < kSteps; ++i) {
      clean();
      log_.step();
    }
    note_begin();
    has_moved_ = false;
  }

  std::string describe(const Choice& choice) const {
    static constexpr std::array<const char*, 13> kNames{
        "append",        "roll",          "arrive",    "refuse", "answer",
        "kill backup",   "find dead:",    "return of", "damage", "report that",
        "clean segment", "all has moved", "compact"};
    static constexpr std::array<const char*, 6> kKinds{"open",  "write",       "version",
                                                       "close", "coordinator", "free"};
    std::string text = kNames[static_cast<std::size_t>(choice.act)];
    const auto add = [&](const Request& request) {
      text += std::string(" ") + kKinds[static_cast<std::size_t>(request.kind)] + " of segment " +
              std::to_string(request.id.segment) + ", replica " + std::to_string(request.id.index);
    };
    if (choice.act == Act::kArrive || choice.act == Act::kRefuse)
      add(pending_[choice.which]);
    else if (choice.act == Act::kAnswer)
      add(answers_[choice.which]);
    else if (choice.act >= Act::kKill)
      text += " " + std::to_string(choice.which) + " " + std::to_string(choice.segment);
    return text;
  }

  check::StateHash hash() const {
    check::StateHash hash;
    ReplicatedLogProbe::add(log_, hash);
    add_host(hash);
    add_requests(hash, pending_);
    add_requests(hash, answers_);
    for (const auto& [node, backup] : held_) {
      if (!backup.replicas.empty()) hash.add(node);
      for (const auto& [number, held] : backup.replicas)
        add_all(hash, number, held.version, held.is_copy, held.is_closed, held.bytes,
                held.generation, held.attempt);
    }
    return hash;
  }

  // Each set of backups may be there when the primary dies.
  std::string wrong() {
    for (std::uint32_t set = 0; set < 1U << backups_; ++set) {
      std::vector<bool> here(backups_);
      for (NodeId backup = 0; backup < backups_; ++backup) here[backup] = (set >> backup & 1U) != 0;
      bool must_be_whole = true;
      for (const auto& [number, end] : ends_) {
        must_be_whole =
            must_be_whole &&
            (log_.committed(number) == 0 ||
             std::ranges::any_of(living(number), [&](NodeId each) { return here[each]; }));
      }
      if (std::string text = judge(here, must_be_whole); !text.empty()) return text;
    }
    return "";
  }
  std::string finish() {
    has_moved_ = true;
    return settles() ? "" : "not all is committed though the faults have ended";
  }

 private:
  static constexpr std::uint32_t kSteps = 4;  // of a job

  std::uint64_t pick(std::uint64_t /*count*/) override { return 0; }
  bool has_moved_all() override { return has_moved_; }
  bool refuses_open() override { return is_refused_; }
  bool forgets() override { return false; }

  /// The requests of a replica arrive and end in order.
  template <class Requests>
  static bool is_oldest(const Requests& requests, std::size_t chosen) {
    for (std::size_t i = 0; i < chosen; ++i) {
      if (requests[i].id == requests[chosen].id) return false;
    }
    return true;
  }
  void add_losses(NodeId backup, std::vector<Choice>& all) const {
    if (left_.kills != 0) all.push_back({Act::kKill, backup});
    const auto mine = held_.find(backup);
    if (left_.damages == 0 || mine == held_.end()) return;
    for (const auto& [number, held] : mine->second.replicas)
      if (ends_.contains(number)) all.push_back({Act::kDamage, backup, number});
  }
  template <class... Words>
  static void add_all(check::StateHash& hash, Words... words) {
    (hash.add(static_cast<std::uint64_t>(words)), ...);
  }
  static void add_request(check::StateHash& hash, const Request& each) {
    add_all(hash, each.kind, each.id.segment, each.id.index, each.backup, each.version, each.to,
            each.is_copy, each.is_refused, each.generation, each.attempt);
  }
  // The order of the requests of a replica matters, and no other.
  template <class Requests>
  static void add_requests(check::StateHash& hash, const Requests& requests) {
    std::map<ReplicaId, check::StateHash> by_replica;
    for (const Request& each : requests) add_request(by_replica[each.id], each);
    hash.add(by_replica.size());
    for (const auto& each : by_replica) hash.add(each.second);
  }
  template <class Numbers>
  static void add_list(check::StateHash& hash, const Numbers& numbers) {
    hash.add(numbers.size());
    for (const auto& each : numbers) hash.add(each);
  }
  static void add_job(check::StateHash& hash, const Cleaning& job) {
    add_list(hash, job.cleaned);
    add_list(hash, job.survivors);
    add_all(hash, job.has_moved, job.end_of_work.word(), job.has_begun, job.is_listed);
  }
  // What the primary's host, the coordinator and the judge know.
  void add_host(check::StateHash& hash) const {
    add_all(hash, left_.appends, left_.rolls, left_.kills, left_.damages, left_.refusals,
            left_.cleanings, left_.compactions, newest_, head_, last_.word(), newest_attempt_,
            has_begun_);
    for (const auto& [number, end] : ends_) add_all(hash, number, end);
    add_list(hash, listed_);
    add_list(hash, freed_);
    for (const auto& [number, digest] : digests_) add_list(hash, digest);
    for (const auto& [number, end] : compacting_) add_all(hash, number, end.word());
    for (const auto& [number, lengths] : lengths_)
      for (const std::uint32_t length : lengths) add_all(hash, number, length);
    for (const auto& each : replaced_before_)
      for (const Position& end : each.second) add_all(hash, each.first, end.word());
    for (const Cleaning& job : jobs_) add_job(hash, job);
    if (cleaning_) add_job(hash, *cleaning_);
    for (const auto* holders : {&holders_, &moved_}) {
      hash.add(holders->size());
      for (const auto& [number, held_by] : *holders) add_list(hash, held_by);
    }
    for (const auto& [id, attempt] : attempts_) add_all(hash, id.segment, id.index, attempt);
    if (damaged_) add_all(hash, damaged_->segment, damaged_->index);
    for (const bool each : alive_) hash.add(each);
    add_list(hash, undetected_);
    for (const auto& [segment, version] : known_) add_all(hash, segment, version);
  }

  Events left_;
  bool has_moved_ = false, is_refused_ = false;
};

check::Explored explore(const Plan& plan, Bugs bugs = {}) {
  return check::Explorer([&] { return std::make_unique<ExploredReplication>(plan, bugs); }).run();
}

struct Case {
  std::string name;
  Plan plan;
  std::uint64_t least = 0;  // states
};

TEST(TailwindExploreSim, WhatIsCommittedIsFoundInEveryOrderOfFewEvents) {
  std::vector<Case> all{
      {"heads", {{.appends = 1, .rolls = 2}}, 800},
      {"three replicas", {{.appends = 1, .rolls = 1}, 0, 4, 3}, 2'000},
      {"a loss", {{.appends = 1, .kills = 1}}, 1'200},
      {"a loss between heads", {{.rolls = 1, .kills = 1}}, 8'500},
      {"two losses", {{.appends = 1, .kills = 2}}, 6'000},
      {"a damaged replica", {{.appends = 1, .rolls = 1, .damages = 1}}, 10'000},
      {"cleaning", {{.appends = 1, .rolls = 1, .cleanings = 1}, 1}, 24'000},
      {"cleaning without room", {{.rolls = 1, .refusals = 1, .cleanings = 1}, 1}, 23'000},
      {"compaction", {{.appends = 1, .damages = 1, .compactions = 1}, 1}, 1'200},
  };
  if (fuzz::search_factor() > 1) {
    all.push_back(
        {"a loss, and no room", {{.appends = 1, .rolls = 1, .kills = 1, .refusals = 1}}, 500'000});
    all.push_back(
        {"a loss behind a closed segment", {{.appends = 1, .rolls = 1, .kills = 1}, 1}, 300'000});
    all.push_back({"compaction between heads",
                   {{.appends = 1, .rolls = 1, .damages = 1, .compactions = 1}, 1},
                   35'000});
    all.push_back(
        {"two appends beside the cleaner", {{.appends = 2, .rolls = 2, .cleanings = 1}}, 130'000});
  }
  for (const Case& each : all) {
    if (fuzz::kSlowed && each.least > 9'000) continue;
    const check::Explored explored = explore(each.plan);
    EXPECT_EQ(explored.wrong, "") << each.name << ": " << explored.text();
    EXPECT_GE(explored.states, each.least) << each.name << ": " << explored.text();
    EXPECT_FALSE(explored.is_cut) << each.name;
  }
}

/// A bug, and the fewest choices that show it.
struct Known {
  Bug bug = Bug::kNone;
  Plan plan;
  std::size_t choices = 0;
};

TEST(TailwindExploreBugs, AreFound) {
  const std::vector<Known> all{
      {Bug::kClosedBeforeNextIsOpen, {{.rolls = 1}}, 6},
      {Bug::kVersionNotRaised, {{.appends = 1, .kills = 1}}, 12},
      {Bug::kCommitsWithoutConsent, {{.appends = 1, .kills = 1}}, 12},
      {Bug::kCopyIsValidAtOnce, {{.appends = 1, .kills = 1}}, 12},
      {Bug::kCommittedWithoutLast, {{.appends = 1}}, 6},
      {Bug::kFreedBeforeNextIsOpen, {{.cleanings = 1}, 1}, 18},
      {Bug::kSurvivorNotInDigest, {{.cleanings = 1}, 1}, 23},
      {Bug::kCleanedBeforeCommit, {{.appends = 1, .rolls = 1, .cleanings = 1}, 1}, 25},
      {Bug::kCleanedBeforeCommit, {{.appends = 1, .damages = 1, .compactions = 1}, 1}, 10},
  };
  for (const Known& known : all) {
    const check::Explored explored = explore(known.plan, known.bug);
    const int bug = static_cast<int>(known.bug);
    EXPECT_NE(explored.wrong, "") << "bug " << bug << ": " << explored.text();
    EXPECT_EQ(explored.trace.size(), known.choices) << "bug " << bug << ": " << explored.text();
  }
}

}  // namespace
}  // namespace pyrdma::tailwind
