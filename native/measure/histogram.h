// A latency histogram in the layout of HdrHistogram (Tene; hdrhistogram.org). The width of its
// buckets doubles, and each bucket is split into 1,024 equal parts, so that a value keeps three
// significant digits.
#pragma once
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>

#include "base/units.h"

namespace pyrdma::measure {

/// Histogram counts nanosecond values from 1 ns to 1 h; greater values count as 1 h. It takes 270
/// KB of address space, of which only pages with counts are resident. One writer.
class Histogram {
 public:
  static constexpr std::int64_t kHighest = 3600 * kSecond;
  static constexpr int kSignificantDigits = 3;

  Histogram();
  Histogram(const Histogram& other);
  Histogram& operator=(const Histogram& other);
  Histogram(Histogram&&) noexcept = default;
  Histogram& operator=(Histogram&&) noexcept = default;

  /// Negative values count as 0. Does not allocate.
  void record(Time value, std::uint64_t times = 1) {
    if (value < 0) [[unlikely]]
      value = 0;
    if (value > kHighest) [[unlikely]]
      value = kHighest;
    counts_[index_of(static_cast<std::uint64_t>(value))] += times;
    total_ += times;
    if (value > max_) max_ = value;
    if (value < min_) min_ = value;
  }
  void merge(const Histogram& other);

  std::uint64_t total() const { return total_; }
  /// Return the extremes, up to the precision of a bucket; 0 when empty.
  Time min() const;
  Time max() const;
  /// Returns the mean of the buckets' middles, as HdrHistogram defines it; 0 when empty.
  double mean() const;
  /// Returns the greatest value of the bucket at or below which `percent` (0..100) of the values
  /// lie; 0 when empty.
  Time percentile(double percent) const;

  /// Returns the uncompressed V2 encoding of HdrHistogram, which its readers in other languages
  /// decode.
  std::string encode() const;
  /// Throws Error(kInvalidArgument) unless `encoded` is a histogram of this range and precision.
  static Histogram decode(std::span<const std::byte> encoded);

 private:
  static constexpr int kSubBucketBits = 11;  // 2,048 sub-buckets: three digits
  static constexpr std::uint32_t kSubBucketHalf = 1U << (kSubBucketBits - 1);
  static constexpr std::uint32_t kBuckets = 32;  // 2,048 << 31 > kHighest
  static constexpr std::uint32_t kCounts = (kBuckets + 1) * kSubBucketHalf;

  static std::uint32_t index_of(std::uint64_t value) {
    const std::uint64_t mask = (1ULL << kSubBucketBits) - 1;
    const auto bucket = static_cast<std::uint32_t>(std::bit_width(value | mask)) - kSubBucketBits;
    return bucket * kSubBucketHalf + static_cast<std::uint32_t>(value >> bucket);
  }
  static Time lowest_at(std::uint32_t index);
  static Time width_at(std::uint32_t index);

  struct Free {
    void operator()(std::uint64_t* counts) const { std::free(counts); }
  };
  std::unique_ptr<std::uint64_t[], Free> counts_;  // calloc: untouched pages cost no memory
  std::uint64_t total_ = 0;
  Time max_ = 0;
  Time min_ = kHighest;
};

}  // namespace pyrdma::measure
