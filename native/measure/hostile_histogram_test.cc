// Any bytes as an encoded histogram: the decoder refuses them, or the histogram is written again
// without change.
#include "base/error.h"
#include "base/hostile_test.h"
#include "measure/histogram.h"

namespace pyrdma::measure {
namespace {

std::vector<std::string> good_histograms() {
  std::vector<std::string> seeds;
  for (const Time highest : {Time{0}, Time{1}, Time{5000}, 3600 * kSecond}) {
    Histogram histogram;
    for (Time value = 1; value <= highest; value = value * 3 + 1) histogram.record(value, 7);
    seeds.push_back(histogram.encode());
  }
  return seeds;
}

void decode_any(std::string_view input) {
  try {
    const Histogram read = Histogram::decode(std::as_bytes(std::span(input)));
    const std::string written = read.encode();
    const Histogram again = Histogram::decode(std::as_bytes(std::span(written)));
    PYRDMA_MUST(again.total() == read.total());
    PYRDMA_MUST(again.min() == read.min() && again.max() == read.max());
    PYRDMA_MUST(again.percentile(50) == read.percentile(50));
  } catch (const Error& error) {
    PYRDMA_MUST(error.code() == ErrorCode::kInvalidArgument);
  }
}

PYRDMA_HOSTILE(Histogram, good_histograms(), decode_any)

}  // namespace
}  // namespace pyrdma::measure
