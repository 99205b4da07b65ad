#include "measure/histogram.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "base/error.h"

namespace pyrdma::measure {

Histogram::Histogram()
    : counts_(static_cast<std::uint64_t*>(std::calloc(kCounts, sizeof(std::uint64_t)))) {
  if (!counts_) throw std::bad_alloc();
}

Histogram::Histogram(const Histogram& other) : Histogram() { merge(other); }

Histogram& Histogram::operator=(const Histogram& other) {
  if (this != &other) *this = Histogram(other);
  return *this;
}

Time Histogram::lowest_at(std::uint32_t index) {
  if (index < 2 * kSubBucketHalf) return index;
  const std::uint32_t bucket = index / kSubBucketHalf - 1;
  return static_cast<Time>(index % kSubBucketHalf + kSubBucketHalf) << bucket;
}

Time Histogram::width_at(std::uint32_t index) {
  return index < 2 * kSubBucketHalf ? 1 : Time{1} << (index / kSubBucketHalf - 1);
}

void Histogram::merge(const Histogram& other) {
  if (other.total_ == 0) return;
  const std::uint32_t last = index_of(static_cast<std::uint64_t>(other.max_));
  // Zero counts are skipped: writing zeros would make the pages resident.
  for (std::uint32_t i = index_of(static_cast<std::uint64_t>(other.min_)); i <= last; ++i) {
    if (other.counts_[i] != 0) counts_[i] += other.counts_[i];
  }
  total_ += other.total_;
  max_ = std::max(max_, other.max_);
  min_ = std::min(min_, other.min_);
}

Time Histogram::min() const {
  return total_ == 0 ? 0 : lowest_at(index_of(static_cast<std::uint64_t>(min_)));
}

Time Histogram::max() const {
  if (total_ == 0) return 0;
  const std::uint32_t index = index_of(static_cast<std::uint64_t>(max_));
  return lowest_at(index) + width_at(index) - 1;
}

double Histogram::mean() const {
  if (total_ == 0) return 0;
  double sum = 0;
  for (std::uint32_t i = 0; i <= index_of(static_cast<std::uint64_t>(max_)); ++i) {
    if (counts_[i] == 0) continue;
    sum += static_cast<double>(counts_[i]) * static_cast<double>(lowest_at(i) + width_at(i) / 2);
  }
  return sum / static_cast<double>(total_);
}

Time Histogram::percentile(double percent) const {
  if (total_ == 0) return 0;
  const double wanted = std::clamp(percent, 0.0, 100.0) * static_cast<double>(total_) / 100 + 0.5;
  const auto target = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(wanted));
  std::uint64_t seen = 0;
  const std::uint32_t last = index_of(static_cast<std::uint64_t>(max_));
  for (std::uint32_t i = 0; i <= last; ++i) {
    seen += counts_[i];
    if (seen >= target || i == last)
      return percent > 0 ? lowest_at(i) + width_at(i) - 1 : lowest_at(i);
  }
  return 0;
}

}  // namespace pyrdma::measure
