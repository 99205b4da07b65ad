#include "systems/erpc/fuzz/raft/weather.h"

#include <cmath>
#include <utility>

namespace pyrdma::erpc::raft {

namespace {

constexpr Fault kWindows[] = {Fault::loss_burst,
                              Fault::clog,
                              Fault::pause,
                              Fault::clock_jump,
                              Fault::crash,
                              Fault::host_crash,
                              Fault::disk_full,
                              Fault::partition,
                              Fault::isolation,
                              Fault::partition_partial,
                              Fault::partition_one_way,
                              Fault::partition_flapping};

}  // namespace

Weather::Weather(World& world, const FaultOptions& faults, std::uint64_t seed,
                 FaultCounters& counters, Hooks hooks)
    : world_(world),
      faults_(faults),
      stream_(faults, seed, -1, counters),
      rng_(seed, -1, "raft/weather"),
      hooks_(std::move(hooks)) {}

void Weather::begin() {
  for (NodeId n = 0; n < world_.nodes(); ++n) {
    if (!stream_.fire(Fault::clock_skew)) continue;
    world_.set_clock(n, 300 + static_cast<Time>(rng_.below(1500)));
    stream_.reach(Fault::clock_skew);
  }
  for (const Fault kind : kWindows) {
    if (faults_[kind].rate > 0) wait_for(kind);
  }
}

void Weather::wait_for(Fault kind) {
  const double mean = static_cast<double>(kMillisecond) / faults_[kind].rate;
  const double gap = -std::log(1 - stream_.stream(kind).uniform()) * mean;
  world_.at(world_.now() + 1 + static_cast<Time>(gap), [this, kind] {
    if (over_) return;
    if (stream_.is_chosen()) {
      stream_.count_fired(kind);
      open(kind);
    }
    wait_for(kind);
  });
}

NodeId Weather::target() {
  const NodeId any = some_node();
  return rng_.below(2) == 0 ? world_.leader().value_or(any) : any;
}

void Weather::after(Time duration, std::function<void()> what) {
  world_.at(world_.now() + duration, [this, what = std::move(what)] {
    if (!world_.is_healed()) what();
  });
}

std::vector<std::pair<NodeId, NodeId>> Weather::links_between(
    const std::vector<NodeId>& side) const {
  std::vector<std::pair<NodeId, NodeId>> links;
  for (const NodeId n : side) {
    for (NodeId other = 0; other < world_.nodes(); ++other) {
      if (std::ranges::find(side, other) != side.end()) continue;
      links.emplace_back(n, other);
      links.emplace_back(other, n);
    }
  }
  return links;
}

void Weather::cut(const std::vector<std::pair<NodeId, NodeId>>& links, Time duration) {
  for (const auto& [from, to] : links) world_.cut(from, to, 1);
  after(duration, [this, links] {
    for (const auto& [from, to] : links) world_.cut(from, to, -1);
  });
}

void Weather::flap(NodeId n, Time end) {
  if (world_.now() >= end || over_) return;
  const Time phase = 50 * kMicrosecond + static_cast<Time>(rng_.below(200)) * kMicrosecond;
  cut(links_between({n}), phase);
  after(2 * phase, [this, n, end] { flap(n, end); });
}

// All members are down at once, and start again one by one.
void Weather::fail_power_of_all(Time duration) {
  for (NodeId n = 0; n < world_.nodes(); ++n) {
    hooks_.crash(n, true);
    const auto most = static_cast<std::uint64_t>(duration);
    after(static_cast<Time>(rng_.below(most + 1)), [this, n] { hooks_.restart(n); });
  }
}

void Weather::open(Fault kind) {
  const Time duration = stream_.duration(kind);
  const NodeId n = target(), other = (n + 1 + some_node() % (world_.nodes() - 1)) % world_.nodes();
  hooks_.note(std::string(fault_info(kind).key) + " at member " + std::to_string(n) + " for " +
              std::to_string(duration) + " ns");
  stream_.reach(kind);
  std::vector<NodeId> side;
  std::vector<std::pair<NodeId, NodeId>> links;
  switch (kind) {
    case Fault::crash:
    case Fault::host_crash:
      if (kind == Fault::host_crash && rng_.below(8) == 0) return fail_power_of_all(duration);
      // At once, or within a sync, if one comes.
      if (rng_.below(2) == 0)
        hooks_.crash(n, kind == Fault::host_crash);
      else
        world_.end_at_sync(n, kind == Fault::host_crash, static_cast<unsigned>(rng_.below(4)));
      after(duration, [this, n] { hooks_.restart(n); });
      // Another one ends amid the election that may follow.
      if (rng_.below(2) != 0) return;
      after(static_cast<Time>(rng_.below(2 * kMillisecond)), [this, other, duration, kind] {
        hooks_.crash(other, kind == Fault::host_crash);
        after(duration, [this, other] { hooks_.restart(other); });
      });
      return;
    case Fault::pause:
      world_.pause(n, true);
      after(duration, [this, n] { world_.pause(n, false); });
      return;
    case Fault::clock_jump:
      world_.jump_clock(n, duration);
      return;
    case Fault::disk_full:
      world_.fill_disk(n, true);
      after(duration, [this, n] { world_.fill_disk(n, false); });
      return;
    case Fault::clog:
      for (NodeId from = 0; from < world_.nodes(); ++from) world_.hold(from, n);
      after(duration, [this, n] {
        for (NodeId from = 0; from < world_.nodes(); ++from) world_.release(from, n);
      });
      return;
    case Fault::loss_burst:
      for (NodeId from = 0; from < world_.nodes(); ++from) links.emplace_back(from, n);
      return cut(links, duration);
    case Fault::partition:
      while (side.size() < world_.nodes() / 2) {
        const NodeId next = some_node();
        if (std::ranges::find(side, next) == side.end()) side.push_back(next);
      }
      return cut(links_between(side), duration);
    case Fault::isolation:
      return cut(links_between({n}), duration);
    case Fault::partition_partial:
      return cut({{n, other}, {other, n}}, duration);
    case Fault::partition_one_way:
      return cut({{n, other}}, duration);
    default:  // partition_flapping
      return flap(n, world_.now() + duration);
  }
}

}  // namespace pyrdma::erpc::raft
