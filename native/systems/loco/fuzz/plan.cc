#include "systems/loco/fuzz/plan.h"

#include <array>

namespace pyrdma::loco::scenario {
namespace {

constexpr std::uint32_t kLongestPause = 4000;  // ns

// Operations that belong together. A third of the runs use one group only; the others use each
// group with probability 1/2.
constexpr std::array<std::array<Act, 2>, 7> kGroups{{{Act::kPush, Act::kLook},
                                                     {Act::kStore, Act::kPull},
                                                     {Act::kAdd, Act::kAdd},
                                                     {Act::kEnqueue, Act::kDequeue},
                                                     {Act::kBroadcast, Act::kReceive},
                                                     {Act::kCritical, Act::kCritical},
                                                     {Act::kLookup, Act::kChange}}};

std::vector<std::array<Act, 2>> groups_of(const World& world) {
  if (world.locks_alone) return {{Act::kCritical, Act::kCritical}};
  Rng rng(world.options.seed, -1, "fuzz loco groups");
  std::vector<std::array<Act, 2>> drawn;
  if (rng.below(3) == 0) return {kGroups[rng.below(kGroups.size())]};
  for (const auto& group : kGroups) {
    if (rng.below(2) == 0) drawn.push_back(group);
  }
  if (drawn.empty()) drawn.push_back(kGroups[rng.below(kGroups.size())]);
  return drawn;
}

}  // namespace

bool uses_store(const World& world) {
  for (const auto& group : groups_of(world)) {
    if (group[0] == Act::kLookup) return true;
  }
  return false;
}

Shape::Shape(const World& world) : first(world.options) {
  Rng rng(world.options.seed, -1, "fuzz loco shape");
  const auto absent = static_cast<NodeId>(rng.below(world.options.nodes));
  const bool some = world.options.nodes > 2 && rng.below(3) == 0;
  for (NodeId node = 0; node < world.options.nodes; ++node) {
    if (!some || node != absent) members.push_back(node);
  }
  polling_thread = rng.below(4) == 0;
  device_words = rng.below(3) == 0;
  blocking_queue = rng.below(3) == 0;
  slots = 1 + rng.below(3);
}

std::vector<Planned> draw_plan(const World& world, NodeId node, std::uint32_t caller) {
  const fuzz::Options& options = world.options;
  const std::uint32_t clients = options.nodes * kCallers, client = node * kCallers + caller;
  const auto begin = [&](std::uint64_t i) {
    return static_cast<std::uint32_t>(options.operations * i / clients);
  };
  const auto groups = groups_of(world);
  // The number of objects is small, so that clients use the same ones, or unlimited.
  constexpr std::array<std::uint64_t, 3> kObjects{1, 3, 1U << 16};
  const std::uint64_t objects =
      kObjects[Rng(options.seed, -1, "fuzz loco objects").below(kObjects.size())];
  Rng rng(options.seed, client, "fuzz loco operations");
  std::vector<Planned> plan;
  for (std::uint32_t id = begin(client); id < begin(client + 1); ++id) {
    Planned op;
    op.id = id;
    // Most operations start at once, so that they overlap.
    op.pause_ns = rng.below(3) == 0 ? static_cast<std::uint32_t>(rng.below(kLongestPause)) : 0;
    op.pause_ns *= world.phase.pace();
    op.act = groups[rng.below(groups.size())][rng.below(2)];
    op.object = static_cast<std::uint32_t>(rng.below(objects));
    op.draw = static_cast<std::uint32_t>(rng.below(1U << 31));
    plan.push_back(op);
  }
  return plan;
}

}  // namespace pyrdma::loco::scenario
