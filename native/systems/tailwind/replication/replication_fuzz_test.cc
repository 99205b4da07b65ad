// The order of requests and the choice of replicas, by a model: backups die and come back with what
// they had, requests arrive in any order. After each turn the primary dies for a moment: what is
// committed must be found.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>
#include <string>

#include "base/rng.h"
#include "fuzz/small_test.h"
#include "systems/tailwind/recovery/find_log.h"
#include "systems/tailwind/replication/replicated_log.h"

namespace pyrdma::tailwind {
namespace {

/// A primary, its backups and its coordinator. Requests of one replica arrive in order.
class Model : public ReplicaRequests {
 public:
  static constexpr NodeId kBackups = 7;
  static constexpr std::uint32_t kReplicas = 3;
  static constexpr std::uint32_t kFirst = 50, kCapacity = 400;  // bytes of a segment

  Model(std::uint64_t seed, Bugs bugs, bool has_losses = true)
      : has_losses_(has_losses), rng_(seed, 0, "model"), log_(*this, kReplicas, bugs) {
    begin();
  }

  /// Runs `turns` random turns; returns what was wrong, or nothing.
  std::string run(int turns) {
    for (int turn = 0; turn < turns; ++turn) {
      act();
      log_.step();
      const std::string wrong = check();
      if (!wrong.empty()) return "turn " + std::to_string(turn) + ": " + wrong;
    }
    return {};
  }
  /// Ends all faults: everything must be committed.
  bool settles() {
    while (!undetected_.empty()) detect();
    alive_.assign(kBackups, true);
    for (int turn = 0; turn < 10'000; ++turn) {
      log_.step();
      if (pending_.empty() && answers_.empty()) break;
      if (!pending_.empty()) arrive(0);
      while (!answers_.empty()) answer();
    }
    return log_.committed(head_) == ends_[head_] && !log_.is_mending();
  }
  std::uint64_t segments() const { return head_; }
  int losses = 0, stale_returns = 0;

  NodeId open(ReplicaId id, std::uint64_t version, std::uint32_t bytes, bool is_copy) override {
    std::vector<NodeId> free;
    for (NodeId backup = 0; backup < kBackups; ++backup) {
      bool is_free = alive_[backup] || undetected_.contains(backup);
      for (std::uint32_t index = 0; index < kReplicas; ++index)
        is_free = is_free && log_.backup({id.segment, index}) != backup;
      if (is_free) free.push_back(backup);
    }
    if (free.empty()) return kNoBackup;
    const NodeId backup = free[rng_.below(free.size())];
    pending_.push_back({Request::Kind::kOpen, id, backup, version, bytes, is_copy});
    return backup;
  }
  void write(ReplicaId id, std::uint32_t /*from*/, std::uint32_t to) override {
    pending_.push_back({Request::Kind::kWrite, id, log_.backup(id), 0, to, false});
  }
  void set_version(ReplicaId id, std::uint64_t version) override {
    pending_.push_back({Request::Kind::kVersion, id, log_.backup(id), version, 0, false});
  }
  void close(ReplicaId id) override {
    pending_.push_back({Request::Kind::kClose, id, log_.backup(id), 0, 0, false});
  }
  void ask_coordinator(std::uint64_t segment, std::uint64_t version) override {
    pending_.push_back({Request::Kind::kCoordinator, {segment, 0}, kNoBackup, version, 0, false});
  }

 private:
  struct Request {
    enum class Kind : std::uint8_t { kOpen, kWrite, kVersion, kClose, kCoordinator } kind;
    ReplicaId id;
    NodeId backup;
    std::uint64_t version;
    std::uint32_t to;
    bool is_copy;
    bool is_refused = false;
  };
  struct Held {
    std::uint64_t version = 0;
    bool is_copy = false, is_closed = false;
    std::uint32_t bytes = 0;
  };

  void begin() {
    log_.begin(++newest_, kFirst);
    ends_[newest_] = kFirst;
    for (std::uint64_t number = 1; number <= newest_; ++number) digests_[newest_].push_back(number);
    head_ = newest_;
  }
  void act() {
    switch (rng_.below(12)) {
      case 0:
      case 1:
        return append();
      case 2:
        return kill();
      case 3:
        if (!undetected_.empty() && rng_.below(2) == 0) {
          detect();
        }
        return;
      case 4: {  // a backup comes back, and may be asked for new replicas
        const NodeId backup = static_cast<NodeId>(rng_.below(kBackups));
        if (!alive_[backup] && !undetected_.contains(backup)) alive_[backup] = true;
        return;
      }
      default:
        if (rng_.below(2) == 0 && !answers_.empty())
          answer();
        else if (!pending_.empty())
          arrive(rng_.below(pending_.size()));
    }
  }
  void append() {
    std::uint32_t& end = ends_[head_];
    if (end + 60 > kCapacity) {
      const std::uint64_t last = head_;
      begin();
      log_.complete(last);
      return;
    }
    end += 10 + static_cast<std::uint32_t>(rng_.below(50));
    log_.append(head_, end);
  }
  void kill() {
    const NodeId backup = static_cast<NodeId>(rng_.below(kBackups));
    // Fewer than kReplicas die at a time, until the log is whole again.
    if (!has_losses_ || !alive_[backup] || !undetected_.empty() || log_.is_mending()) return;
    alive_[backup] = false;
    undetected_.insert(backup);
    ++losses;
    end_requests(backup);
  }
  void detect() {
    const NodeId backup = *undetected_.begin();
    undetected_.erase(backup);
    end_requests(backup);
    log_.lost(backup);
  }
  void end_requests(NodeId backup) {
    std::erase_if(pending_, [&](const Request& request) { return request.backup == backup; });
    std::erase_if(answers_, [&](const Request& request) { return request.backup == backup; });
  }
  /// The oldest request of the replica arrives.
  void arrive(std::size_t chosen) {
    const ReplicaId id = pending_[chosen].id;
    const auto at = std::ranges::find(pending_, id, &Request::id);
    Request request = *at;
    pending_.erase(at);
    if (request.kind != Request::Kind::kCoordinator && !alive_[request.backup]) return;
    if (request.kind == Request::Kind::kCoordinator) {
      known_[id.segment] = std::max(known_[id.segment], request.version);
      return answers_.push_back(request);
    }
    auto& mine = held_[request.backup];
    if (request.kind == Request::Kind::kOpen) {
      request.is_refused = rng_.below(10) == 0;
      if (!request.is_refused)
        mine[id.segment] = {request.version, request.is_copy, false, request.to};
      return answers_.push_back(request);
    }
    const auto found = mine.find(id.segment);
    if (found == mine.end()) return;
    Held& held = found->second;
    switch (request.kind) {
      case Request::Kind::kWrite:
        held.bytes = request.to;
        break;
      case Request::Kind::kVersion:
        held.version = request.version;
        held.is_copy = false;
        break;
      default:
        held.is_closed = true;
    }
    answers_.push_back(request);
  }
  void answer() {
    const Request request = answers_.front();
    answers_.pop_front();
    switch (request.kind) {
      case Request::Kind::kOpen:
        return request.is_refused ? log_.refused(request.id) : log_.opened(request.id);
      case Request::Kind::kWrite:
        return log_.written(request.id, request.to);
      case Request::Kind::kVersion:
        return log_.versioned(request.id, request.version);
      case Request::Kind::kClose:
        return log_.closed(request.id);
      case Request::Kind::kCoordinator:
        return log_.consented(request.id.segment, request.version);
    }
  }

  /// The primary dies now. Any backups are there, among them some that were lost and have come
  /// back. Either the log is known not to be whole, or all that was committed is found; it is whole
  /// if a backup of each segment is there that was not lost.
  std::string check() {
    std::vector<bool> here(kBackups);
    for (NodeId backup = 0; backup < kBackups; ++backup) here[backup] = rng_.below(3) == 0;
    bool must_be_whole = rng_.below(2) == 0;
    for (const auto& [number, end] : ends_) {
      if (!must_be_whole || log_.committed(number) == 0) continue;
      std::vector<NodeId> living;
      for (std::uint32_t index = 0; index < kReplicas; ++index) {
        const NodeId backup = log_.backup({number, index});
        if (backup != kNoBackup && alive_[backup] && is_valid(backup, number))
          living.push_back(backup);
      }
      if (living.empty())
        must_be_whole = false;  // beyond what replicas can bear
      else if (std::ranges::none_of(living, [&](NodeId backup) { return here[backup]; }))
        here[living[rng_.below(living.size())]] = true;
    }
    std::vector<FoundReplica> found;
    for (NodeId backup = 0; backup < kBackups; ++backup) {
      if (!here[backup]) continue;
      for (const auto& [number, held] : held_[backup]) {
        found.push_back({backup, number, held.version, held.is_closed, held.is_copy, held.bytes,
                         digests_[number]});
        stale_returns += !alive_[backup];
      }
    }
    const FoundLog log = find_log(found, known_);
    if (!log.missing.empty()) return must_be_whole && log_.committed(1) > 0 ? log.missing : "";
    for (const auto& [number, end] : ends_) {
      const std::uint32_t committed = log_.committed(number);
      if (committed <= kFirst) continue;
      const auto part = std::ranges::find(log.parts, number, &FoundLog::Part::segment);
      if (part == log.parts.end()) return "segment " + std::to_string(number) + " is not found";
      if (part->valid < committed)
        return "segment " + std::to_string(number) + ": " + std::to_string(part->valid) + " of " +
               std::to_string(committed) + " committed bytes are found";
    }
    return {};
  }
  bool is_valid(NodeId backup, std::uint64_t number) {
    const auto held = held_[backup].find(number);
    const auto known = known_.find(number);
    return held != held_[backup].end() &&
           (held->second.is_closed ||
            (!held->second.is_copy &&
             held->second.version >= (known == known_.end() ? 0 : known->second)));
  }

  bool has_losses_;
  Rng rng_;
  std::map<std::uint64_t, std::uint32_t> ends_;
  std::map<std::uint64_t, std::vector<std::uint64_t>> digests_;
  std::uint64_t newest_ = 0, head_ = 0;
  std::vector<bool> alive_ = std::vector<bool>(kBackups, true);
  std::set<NodeId> undetected_;
  std::map<NodeId, std::map<std::uint64_t, Held>> held_;
  KnownVersions known_;
  std::vector<Request> pending_;
  std::deque<Request> answers_;
  ReplicatedLog log_;
};

TEST(TailwindReplicationFuzz, WhatIsCommittedIsFoundWheneverThePrimaryDies) {
  std::uint64_t segments = 0;
  int losses = 0, stale_returns = 0;
  const std::uint64_t seeds = fuzz::kSlowed ? 10 : 100 * fuzz::search_factor();
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    Model model(seed, {});
    ASSERT_EQ(model.run(1'500), "") << "seed " << seed;
    ASSERT_TRUE(model.settles()) << "seed " << seed;
    segments += model.segments();
    losses += model.losses;
    stale_returns += model.stale_returns;
  }
  EXPECT_GT(segments, seeds * 10);
  EXPECT_GT(losses, static_cast<int>(seeds) * 5);
  EXPECT_GT(stale_returns, static_cast<int>(seeds) * 100);
}

/// The first seed that finds the bug, or 0.
int first_seed(Bug bug, bool has_losses) {
  for (int seed = 1; seed <= 30; ++seed)
    if (!Model(static_cast<std::uint64_t>(seed), bug, has_losses).run(1'500).empty()) return seed;
  return 0;
}

TEST(TailwindReplicationBugs, EachBugIsFound) {
  for (const Bug bug :
       {Bug::kClosedBeforeNextIsOpen, Bug::kDataBeforeLastIsClosed, Bug::kVersionNotRaised,
        Bug::kCommitsWithoutConsent, Bug::kCopyIsValidAtOnce}) {
    const bool needs_losses = bug >= Bug::kVersionNotRaised;
    EXPECT_NE(first_seed(bug, true), 0) << "bug " << static_cast<int>(bug);
    EXPECT_EQ(first_seed(bug, false) == 0, needs_losses) << "bug " << static_cast<int>(bug);
  }
}

}  // namespace
}  // namespace pyrdma::tailwind
