#include "env/sim/timeline.h"

#include <algorithm>

#include "env/sim/scheduler.h"

namespace pyrdma {
namespace {
constexpr const char* kRuns = "runs";
}

Timeline::Timeline(const TimelineOptions& options,
                   const std::vector<const SimNodeThreads*>& threads,
                   std::uint32_t devices_per_node)
    : options_(options),
      nodes_(static_cast<std::uint32_t>(threads.size())),
      devices_(devices_per_node) {
  for (std::uint32_t node = 0; node < nodes_; ++node) node_of_[threads[node]] = node;
}

// The caller of the simulation is a process behind the nodes and the network.
std::uint32_t Timeline::row_of(const SimThread& thread) {
  const auto next = static_cast<std::uint32_t>(threads_.size());
  const auto [found, is_new] = rows_.try_emplace(&thread, next);
  if (is_new) {
    const std::uint32_t process = thread.node == nullptr ? nodes_ + 1 : node_of_.at(thread.node);
    threads_.push_back({thread.name, process, thread.clock, thread.clock});
  }
  return found->second;
}

// A thread that lets others catch up goes on where it stopped: its slice grows.
void Timeline::resumes(const SimThread& thread) {
  const std::uint32_t index = row_of(thread);
  ThreadRow& row = threads_[index];
  if (thread.clock != row.to) {
    slice({TimelineRow::kThread, index}, row.from, row.to, {.name = kRuns});
    row.from = row.to = thread.clock;
  }
  running_ = &thread;
}

void Timeline::waits(const SimThread& thread) {
  threads_[row_of(thread)].to = thread.clock;
  running_ = nullptr;
}

void Timeline::slice(TimelinePlace place, Picos from, Picos to, const TimelineWhat& what) {
  from = std::max(from, options_.from);
  to = std::min(to, options_.to);
  if (to > from) add({from, to - from, what, place});
}

void Timeline::mark(TimelinePlace place, Picos at, const TimelineWhat& what) {
  if (at >= options_.from && at < options_.to) add({at, kMark, what, place});
}

void Timeline::end_faults(Picos now, std::uint32_t node, const char* what) {
  const auto ends = [=](const Event& event) {
    const bool is_fault =
        event.place.row == TimelineRow::kFaults || event.place.row == TimelineRow::kCluster;
    if (!is_fault || event.at + event.duration <= now) return false;
    return node == kAllNodes ||
           (event.place.index == node && event.what.name == std::string_view(what));
  };
  // One that began before the window has been cut at its begin.
  std::erase_if(events_, [&](const Event& event) { return event.at > now && ends(event); });
  for (Event& event : events_)
    if (ends(event)) event.duration = event.at < now ? now - event.at : kMark;
}

// Slices come when they end, so one that is left out may begin before others that are there.
void Timeline::add(const Event& event) {
  if (events_.size() < options_.most_events) return events_.push_back(event);
  if (!is_full_) {
    is_full_ = true;
    end_slices();
    if (event.what.name == kRuns) return;  // it has just come with those of the other threads
  }
  ++left_out_;
  complete_until_ = std::min(complete_until_, event.at);
}

// The slices that the threads are in come beyond the limit, because other events lie on them.
void Timeline::end_slices() {
  for (std::uint32_t index = 0; index < threads_.size(); ++index) {
    ThreadRow& row = threads_[index];
    if (running_ != nullptr && rows_.at(running_) == index) row.to = running_->clock;
    const Picos from = std::max(row.from, options_.from), to = std::min(row.to, options_.to);
    const TimelineWhat runs{.name = kRuns};
    if (to > from) events_.push_back({from, to - from, runs, {TimelineRow::kThread, index}});
    row.from = row.to;
  }
}

TimelineRequest Timeline::take_delivery(const void* queue, std::uint64_t position) {
  const auto found = deliveries_.find({queue, position});
  if (found == deliveries_.end()) return {};
  const TimelineRequest request = found->second;
  deliveries_.erase(found);
  return request;
}

void Timeline::forget_deliveries(const void* queue) {
  deliveries_.erase(deliveries_.lower_bound({queue, 0}), deliveries_.upper_bound({queue, ~0ULL}));
}

void Timeline::finish() {
  if (!is_full_) return end_slices();
  for (std::uint32_t index = 0; index < threads_.size(); ++index)
    slice({TimelineRow::kThread, index}, threads_[index].from, threads_[index].to, {.name = kRuns});
}

void SimScheduler::start_timeline(Timeline& timeline) {
  timeline_ = &timeline;
  timeline.resumes(*current_);
}

void SimScheduler::stop_timeline() {
  timeline_->waits(*current_);
  timeline_ = nullptr;
}

}  // namespace pyrdma
