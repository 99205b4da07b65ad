// What a workload measured: rows of numbers and latency histograms. One Recorder per node, one
// ThreadRecorder per thread in it, so that threads never meet.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "measure/histogram.h"

namespace pyrdma::measure {

struct Row {
  std::string metric;
  std::string unit;
  double value = 0;
  int thread = -1;  // -1: of the node
};

/// Used by one thread. Fetch histograms before the fast path: histogram() allocates,
/// Histogram::record does not.
class ThreadRecorder {
 public:
  explicit ThreadRecorder(int thread) : thread_(thread) {}
  void add(std::string metric, std::string unit, double value);
  /// The histogram (of nanoseconds) of `metric`, made on first use. Stays where it is.
  Histogram& histogram(const std::string& metric);
  const std::vector<Row>& rows() const { return rows_; }
  const std::map<std::string, Histogram>& histograms() const { return histograms_; }

 private:
  int thread_;
  std::vector<Row> rows_;
  std::map<std::string, Histogram> histograms_;
};

class Recorder {
 public:
  /// Makes the recorders of threads 0 to count-1. Call before the threads start.
  void prepare_threads(std::uint32_t count);
  ThreadRecorder& thread(std::uint32_t index);
  /// The node's own rows.
  void add(std::string metric, std::string unit, double value) {
    node_.add(std::move(metric), std::move(unit), value);
  }
  Histogram& histogram(const std::string& metric) { return node_.histogram(metric); }

  /// All rows, the node's first. Call after the threads have ended.
  std::vector<Row> rows() const;
  /// Histograms of equal name merged over the threads.
  std::map<std::string, Histogram> histograms() const;

 private:
  ThreadRecorder node_{-1};
  std::deque<ThreadRecorder> threads_;
};

}  // namespace pyrdma::measure
