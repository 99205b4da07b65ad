// What a subgroup has done at a member. The paper compares these counts (sections 4.1.1 to 4.2.1).
#pragma once
#include <cstdint>
#include <vector>

#include "base/units.h"

namespace pyrdma::spindle {

/// How often a batch had each size.
class BatchSizes {
 public:
  void add(std::uint64_t size) {
    if (size >= counts_.size()) counts_.resize(size + 1);
    ++counts_[size];
    ++batches_;
    messages_ += size;
  }
  void add(const BatchSizes& other) {
    if (other.counts_.size() > counts_.size()) counts_.resize(other.counts_.size());
    for (std::size_t i = 0; i < other.counts_.size(); ++i) counts_[i] += other.counts_[i];
    batches_ += other.batches_;
    messages_ += other.messages_;
  }
  double mean() const {
    return batches_ == 0 ? 0 : static_cast<double>(messages_) / static_cast<double>(batches_);
  }
  std::uint64_t batches() const { return batches_; }
  std::uint64_t messages() const { return messages_; }
  const std::vector<std::uint64_t>& counts() const { return counts_; }  // by size

 private:
  std::vector<std::uint64_t> counts_;
  std::uint64_t batches_ = 0, messages_ = 0;
};

struct SubgroupCounters {
  BatchSizes sends, receives, deliveries;  // messages of a batch; nulls count as received
  std::uint64_t pushes = 0;                // multicasts: one write, or two, to each other member
  std::uint64_t nulls = 0;                 // null rounds of this sender
  std::uint64_t null_iterations = 0;       // receive predicates that sent nulls
  std::uint64_t delivered = 0, delivered_bytes = 0;  // messages of the application
  // With Options::timed.
  Time predicate_time = 0;  // in predicates of this subgroup, posts included
  Time post_time = 0;       // of it, posting

  void add(const SubgroupCounters& other) {
    sends.add(other.sends);
    receives.add(other.receives);
    deliveries.add(other.deliveries);
    pushes += other.pushes;
    nulls += other.nulls;
    null_iterations += other.null_iterations;
    delivered += other.delivered;
    delivered_bytes += other.delivered_bytes;
    predicate_time += other.predicate_time;
    post_time += other.post_time;
  }
};

}  // namespace pyrdma::spindle
