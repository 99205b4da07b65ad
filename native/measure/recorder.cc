#include "measure/recorder.h"

#include "base/assert.h"

namespace pyrdma::measure {

void ThreadRecorder::add(std::string metric, std::string unit, double value) {
  rows_.push_back({std::move(metric), std::move(unit), value, thread_});
}

Histogram& ThreadRecorder::histogram(const std::string& metric) { return histograms_[metric]; }

void Recorder::prepare_threads(std::uint32_t count) {
  while (threads_.size() < count) threads_.emplace_back(static_cast<int>(threads_.size()));
}

ThreadRecorder& Recorder::thread(std::uint32_t index) {
  PYRDMA_CHECK(index, <, threads_.size());
  return threads_[index];
}

std::vector<Row> Recorder::rows() const {
  std::vector<Row> all = node_.rows();
  for (const ThreadRecorder& thread : threads_)
    all.insert(all.end(), thread.rows().begin(), thread.rows().end());
  return all;
}

std::map<std::string, Histogram> Recorder::histograms() const {
  std::map<std::string, Histogram> merged = node_.histograms();
  for (const ThreadRecorder& thread : threads_) {
    for (const auto& [metric, histogram] : thread.histograms()) merged[metric].merge(histogram);
  }
  return merged;
}

check::History& ThreadRecorder::history() {
  if (!history_) history_.emplace();
  return *history_;
}

std::optional<check::History> Recorder::history() const {
  std::vector<check::History> parts;
  for (const ThreadRecorder& thread : threads_)
    if (thread.recorded_history()) parts.push_back(*thread.recorded_history());
  if (parts.empty()) return std::nullopt;
  return check::History::merge(parts);
}

}  // namespace pyrdma::measure
