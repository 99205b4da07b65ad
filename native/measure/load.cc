#include "measure/load.h"

namespace pyrdma::measure {

void add_rates(ThreadRecorder& recorder, const Window& window, std::uint64_t bytes_each) {
  const auto operations = static_cast<double>(window.operations());
  const double bytes = operations * static_cast<double>(bytes_each);
  const double seconds = static_cast<double>(window.elapsed()) * 1e-9;
  recorder.add("ops", "count", operations);
  recorder.add("bytes", "B", bytes);
  recorder.add("elapsed", "ns", static_cast<double>(window.elapsed()));
  recorder.add("rate", "op/s", seconds > 0 ? operations / seconds : 0);
  recorder.add("bandwidth", "byte/s", seconds > 0 ? bytes / seconds : 0);
}

}  // namespace pyrdma::measure
