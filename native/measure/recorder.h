// A recorder holds the measurements of a workload: rows of numbers and latency histograms. Each
// node has one Recorder, with one ThreadRecorder per thread, so that threads share nothing.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "check/history.h"
#include "measure/histogram.h"

namespace pyrdma::measure {

struct Row {
  std::string metric;
  std::string unit;
  double value = 0;
  int thread = -1;  // -1: the whole node
};

/// One thread uses it. Fetch histograms before the fast path: histogram() allocates,
/// Histogram::record does not.
class ThreadRecorder {
 public:
  explicit ThreadRecorder(int thread) : thread_(thread) {}
  void add(std::string metric, std::string unit, double value);
  /// Returns the histogram (of nanoseconds) of `metric`, and makes it on first use. Its address is
  /// stable.
  Histogram& histogram(const std::string& metric);
  /// Returns the history of the thread's operations, and makes it on first use. Its address is
  /// stable. Each process number has one operation open at a time.
  check::History& history();
  const std::vector<Row>& rows() const { return rows_; }
  const std::optional<check::History>& recorded_history() const { return history_; }
  const std::map<std::string, Histogram>& histograms() const { return histograms_; }

 private:
  int thread_;
  std::vector<Row> rows_;
  std::map<std::string, Histogram> histograms_;
  std::optional<check::History> history_;
};

class Recorder {
 public:
  /// Makes the recorders of threads 0 to count-1. Must precede the start of the threads.
  void prepare_threads(std::uint32_t count);
  ThreadRecorder& thread(std::uint32_t index);
  /// Adds a row of the node itself.
  void add(std::string metric, std::string unit, double value) {
    node_.add(std::move(metric), std::move(unit), value);
  }
  Histogram& histogram(const std::string& metric) { return node_.histogram(metric); }
  /// Tells the user of a condition at the node, as a warning.
  void notice(std::string text) { notices_.push_back(std::move(text)); }
  const std::vector<std::string>& notices() const { return notices_; }

  /// Returns all rows, the node's first. Call it after the threads have ended.
  std::vector<Row> rows() const;
  /// Returns the histograms, merged over the threads by name.
  std::map<std::string, Histogram> histograms() const;
  /// Returns the threads' histories as one, if a thread has recorded one.
  std::optional<check::History> history() const;

 private:
  ThreadRecorder node_{-1};
  std::deque<ThreadRecorder> threads_;
  std::vector<std::string> notices_;
};

}  // namespace pyrdma::measure
