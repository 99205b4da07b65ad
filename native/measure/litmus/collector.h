// Collector is node 0's side of a litmus test: it starts batches, gathers registers and memories,
// and counts outcomes.
#pragma once
#include <unordered_map>

#include "measure/litmus/agent.h"
#include "measure/litmus/model.h"

namespace pyrdma::measure::litmus {

/// Count is an outcome that a round showed or the model allows.
struct Count {
  Outcome outcome;
  Level level;
  std::uint64_t seen;
};

class Collector {
 public:
  /// `own` is the agent that runs on the collecting thread.
  Collector(Node& node, const Program& program, const Layout& layout, Agent& own, std::size_t test);

  /// Runs at least `rounds` rounds.
  void run(std::uint64_t rounds);
  std::uint64_t rounds() const { return rounds_; }
  /// `levels` are the levels of the allowed outcomes.
  std::vector<Count> counts(std::map<Outcome, Level> levels) const;

 private:
  void command(std::uint64_t number);
  /// Returns the largest answer.
  std::uint64_t phase(std::uint64_t number);
  void count_batch();
  const std::byte* fetch(std::uint8_t node, bool relaxed, std::size_t offset, std::size_t bytes);

  Node& node_;
  const Program& program_;
  const Layout& layout_;
  Agent& own_;
  std::uint16_t tag_;
  std::uint64_t rounds_ = 0;
  std::vector<Outcome> batch_;
  std::unordered_map<Outcome, std::uint64_t> seen_;
};

}  // namespace pyrdma::measure::litmus
