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
  running_ = row_of(thread);
  ThreadRow& row = threads_[running_];
  if (thread.clock == row.to) return;
  slice({TimelineRow::kThread, running_}, row.from, row.to, {.name = kRuns});
  row.from = row.to = thread.clock;
}

void Timeline::waits(const SimThread& thread) {
  threads_[row_of(thread)].to = thread.clock;
  running_ = ~0U;
}

void Timeline::slice(TimelinePlace place, Picos from, Picos to, const TimelineWhat& what) {
  from = std::max(from, options_.from);
  to = std::min(to, options_.to);
  if (to > from) add({from, to - from, what, place});
}

void Timeline::mark(TimelinePlace place, Picos at, const TimelineWhat& what) {
  if (at >= options_.from && at < options_.to) add({at, kMark, what, place});
}

void Timeline::add(const Event& event) {
  if (events_.size() < options_.most_events) return events_.push_back(event);
  if (left_out_++ != 0) return;
  const bool of_thread = event.place.row == TimelineRow::kThread;
  complete_until_ = of_thread ? event.at + event.duration : event.at;
  end_slices(complete_until_);
}

// The slices that the threads are in come beyond the limit, because other events lie on them.
void Timeline::end_slices(Picos at) {
  for (std::uint32_t index = 0; index < threads_.size(); ++index) {
    const ThreadRow& row = threads_[index];
    const Picos from = std::max(row.from, options_.from);
    const Picos to = std::min(index == running_ ? at : std::min(row.to, at), options_.to);
    const TimelineWhat runs{.name = kRuns};
    if (to > from) events_.push_back({from, to - from, runs, {TimelineRow::kThread, index}});
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
  if (left_out_ == 0) end_slices(kNever);
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
