// Test helper: the order of requests and the choice of replicas, as a random model. After each turn
// the primary dies for a moment: what is committed must be found, and what was freed must not be
// used.
#pragma once
#include <string>
#include <vector>

#include "base/rng.h"
#include "systems/tailwind/replication/replication_world_test.h"

namespace pyrdma::tailwind {

class ReplicationModel final : public ReplicationWorld {
 public:
  static constexpr NodeId kBackups = 7;
  static constexpr std::uint32_t kReplicas = 3;

  ReplicationModel(std::uint64_t seed, Bugs bugs, bool has_losses = true)
      : ReplicationWorld(kBackups, kReplicas, bugs),
        has_losses_(has_losses),
        rng_(seed, 0, "model") {}

  /// Runs `turns` random turns; returns what was wrong, or nothing.
  std::string run(int turns) {
    for (int turn = 0; turn < turns; ++turn) {
      act();
      clean();
      log_.step();
      note_begin();
      const std::string wrong = check();
      if (!wrong.empty()) return "turn " + std::to_string(turn) + ": " + wrong;
    }
    return {};
  }

 private:
  std::uint64_t pick(std::uint64_t count) override { return rng_.below(count); }
  bool has_moved_all() override { return rng_.below(64) == 0; }
  bool refuses_open() override { return rng_.below(10) == 0; }
  bool forgets() override { return has_losses_ && rng_.below(60) == 0; }

  void act() {
    if (has_cleaner_ && rng_.below(12) == 0) {
      if (rng_.below(2) == 0)
        begin_compaction(any_closed());
      else if (!cleaning_)
        begin_random_cleaning();
      return;
    }
    if (has_losses_ && rng_.below(12) == 0)
      return rng_.below(2) == 0 ? damage_one() : report_damaged();
    switch (rng_.below(12)) {
      case 0:
      case 1:
        return append_or_roll();
      case 2:
        return kill_one();
      case 3:
        if (!undetected_.empty() && rng_.below(2) == 0) detect();
        return;
      case 4: {  // a backup comes back, and may be asked for new replicas
        const NodeId backup = static_cast<NodeId>(rng_.below(kBackups));
        if (!alive_[backup] && !undetected_.contains(backup)) alive_[backup] = true;
        return;
      }
      default:
        if (rng_.below(2) == 0 && !answers_.empty())
          answer(0);
        else if (!pending_.empty())
          arrive(rng_.below(pending_.size()));
    }
  }
  void begin_random_cleaning() {
    std::vector<std::uint64_t> cleaned;
    const std::uint64_t most = 1 + rng_.below(4);
    for (std::uint64_t i = 0; i < most; ++i) {
      const std::uint64_t number = any_closed();
      if (number != 0 && std::ranges::find(cleaned, number) == cleaned.end())
        cleaned.push_back(number);
    }
    if (!cleaned.empty()) begin_cleaning(std::move(cleaned), 1 + rng_.below(4) / 3);
  }
  void append_or_roll() {
    if (ends_[head_] + 60 > kCapacity) return roll();
    append(10 + static_cast<std::uint32_t>(rng_.below(50)));
  }
  void kill_one() {
    const NodeId backup = static_cast<NodeId>(rng_.below(kBackups));
    if (alive_[backup] && has_losses_ && may_lose()) kill(backup);
  }
  void damage_one() {
    const NodeId backup = static_cast<NodeId>(rng_.below(kBackups));
    auto& mine = held_[backup].replicas;
    if (!alive_[backup] || mine.empty() || !has_losses_ || !may_lose()) return;
    const auto chosen = std::next(mine.begin(), static_cast<int>(rng_.below(mine.size())));
    damage(backup, chosen->first);
  }

  /// It is whole if a backup of each segment is there that was not lost.
  std::string check() {
    std::vector<bool> here(kBackups);
    for (NodeId backup = 0; backup < kBackups; ++backup) here[backup] = rng_.below(3) == 0;
    bool must_be_whole = rng_.below(2) == 0;
    for (const auto& [number, end] : ends_) {
      if (!must_be_whole || log_.committed(number) == 0) continue;
      const std::vector<NodeId> all = living(number);
      if (all.empty())
        must_be_whole = false;  // beyond what replicas can bear
      else if (std::ranges::none_of(all, [&](NodeId backup) { return here[backup]; }))
        here[all[rng_.below(all.size())]] = true;
    }
    return judge(here, must_be_whole);
  }

  const bool has_losses_;
  Rng rng_;
  const bool has_cleaner_ = rng_.below(4) != 0;
};

}  // namespace pyrdma::tailwind
