#include "fuzz/fault_phase.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <string>

namespace pyrdma::fuzz {
namespace {

constexpr std::array<std::uint32_t, 4> kPaces{1, 1, 8, 32};
// Reads of half of the runs take their samples far apart, and writes of half of the runs become
// visible very late. So a whole operation of another node fits between.
constexpr Time kLongGap = 20 * kMicrosecond, kLongDelay = 40 * kMicrosecond;
// Without another operation the faults end after this time.
constexpr Time kQuiet = 20 * kMillisecond;

}  // namespace

FaultPhase::FaultPhase(Options& options, Outcome& outcome, std::uint64_t least_share)
    : faults_(options.faults), outcome_(outcome) {
  Rng rng(options.seed, -1, "fuzz phase");
  pace_ = kPaces[rng.below(kPaces.size())];
  if (options.memory.is_weak() && rng.below(2) == 0) options.memory.read_gap_ns = kLongGap;
  if (options.memory.is_weak() && rng.below(2) == 0) options.memory.max_delay_ns = kLongDelay;
  options.faults.at_once = rng.below(4) == 0;
  const std::uint64_t share = least_share + rng.below(101 - least_share);  // percent
  const std::uint64_t last = 1 + std::uint64_t{options.operations} * share / 100;
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    if (options.faults[fault].rate <= 0) continue;
    // A stream of its own: the kind is on only if the first number of its stream is small.
    Rng places(options.seed, -1, std::string(fault_info(fault).key) + " places");
    for (std::uint32_t left = options.faults[fault].windows; left > 0; --left)
      windows_.emplace_back(1 + places.below(last), fault);
  }
  std::ranges::sort(windows_, std::greater());
  if (options.faults.heal_at != kForever) return;
  end_after_ = last;
  options.faults.heal_at = kQuiet;
}

void FaultPhase::attach(fabric::sim::SimCluster& cluster, Time patience) {
  cluster_ = &cluster;
  patience_ = patience;
}

std::uint64_t FaultPhase::operation() {
  if (outcome_.begun == 0) cluster_->begin_faults();
  ++outcome_.begun;
  progress();
  if (end_after_ != 0) cluster_->postpone_heal(cluster_->now() + kQuiet);
  if (outcome_.begun == end_after_ + 1 && end_after_ != 0) cluster_->heal();
  while (!windows_.empty() && windows_.back().first <= outcome_.begun) {
    const Fault fault = windows_.back().second;
    windows_.pop_back();
    if (std::ranges::find(left_, fault) == left_.end())
      cluster_->open_fault(fault);
    else
      due_.push_back(fault);
  }
  outcome_.begun_under_faults += cluster_->faults_are_on();
  return effects();
}

bool FaultPhase::begins(Fault fault, Time step, Rng& rng) {
  const FaultOptions::Setting& setting = faults_[fault];
  if (setting.windows == 0)
    return rng.uniform() < setting.rate * static_cast<double>(step) / kMillisecond;
  const auto due = std::ranges::find(due_, fault);
  if (due == due_.end()) return false;
  due_.erase(due);
  return true;
}

void FaultPhase::ended(std::uint64_t mark) {
  ++outcome_.ended;
  outcome_.met_fault += effects() != mark;
  progress();
}

void FaultPhase::progress() { cluster_->postpone_time_limit(cluster_->now() + patience_); }

std::uint64_t FaultPhase::effects() const {
  const auto& reached = cluster_->fault_counters().reached;
  return std::accumulate(reached.begin(), reached.end(), std::uint64_t{0});
}

}  // namespace pyrdma::fuzz
