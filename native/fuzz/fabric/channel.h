// Channel is the send queue of one queue pair with an account of every request. Each signaled
// request completes exactly once, in order, with its own wr_id. After an error the rest is flushed.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "fuzz/fabric/world.h"

namespace pyrdma::fuzz {

constexpr std::uint32_t kQueueEntries = 512;  // entries of a client's completion queue
constexpr Time kRetry = 500;                  // between two attempts to post

/// Pending is a posted request with the values that its result is checked against.
struct Pending {
  const PlannedOperation* op = nullptr;
  std::size_t plan_index = 0;
  std::uint32_t version = 0;  // version written or sent
  std::uint32_t least = 0;    // reads: the oldest version allowed
  std::uint32_t most = 0;     // reads of own records: the newest version allowed, once `closed`
  bool closed = false;
  NodeId target = 0;
  std::uint32_t incarnation = 0;  // incarnation of the target
  std::uint64_t expected = 0, desired = 0;
  Time invoked = 0;
  bool signaled = false;
};

class Channel {
 public:
  static constexpr std::uint64_t kReceiveTag = 1ULL << 63;
  /// `slots` holds kMostBytes for each of `window` requests, in the region of `lkey`.
  Channel(World& world, std::string name, std::uint32_t tag, std::uint32_t window, std::byte* slots,
          std::uint32_t lkey);

  /// Installs a new queue pair. All requests of the old queue pair have ended.
  void use(fabric::QueuePair* qp);
  void set_max_inline(std::uint32_t bytes) { max_inline_ = bytes; }
  std::uint32_t max_inline() const { return max_inline_; }

  std::uint32_t room() const {
    return static_cast<std::uint32_t>(pending_.size() - (tail_ - head_) - prepared_.size());
  }
  bool idle() const { return head_ == tail_; }
  bool broken() const { return broken_; }

  /// Returns the local buffer of the next request.
  std::byte* next_slot() { return slot(tail_ + prepared_.size()); }
  /// Prepares a request to be posted later, with a payload of `length` bytes in next_slot(). The
  /// function fills in the request's wr_id, buffer and signal flag.
  void prepare(const Pending& pending, fabric::WorkRequest request, std::uint32_t length);
  /// Posts the prepared requests, the last one signaled, and calls `accepted` for each accepted
  /// request, in order. It drops the others. Returns false when the queue pair cannot take requests
  /// at all.
  bool post(FunctionRef<void(Pending&)> accepted);

  /// Accounts for a completion of this channel. It calls `ended(pending, known, slot)` for every
  /// request that the completion ends; `known` says whether the outcome is known.
  using Ended = FunctionRef<void(const Pending&, bool, const std::byte*)>;
  void complete(const fabric::Completion& completion, Ended ended);
  /// Ends all outstanding requests: the queue pair is gone, with their completions.
  void abandon(Ended ended);
  /// Visits every outstanding request, oldest first.
  void for_each(FunctionRef<void(Pending&)> visit) {
    for (std::uint64_t i = head_; i < tail_; ++i) visit(pending_[i % pending_.size()]);
  }
  /// Reports requests that should have been flushed and were not.
  void expect_idle(const char* when);

  /// Returns whether a wr_id belongs to this channel's send queue.
  bool owns(std::uint64_t wr_id) const { return (wr_id >> 48) == tag_; }
  const std::string& name() const { return name_; }

 private:
  std::byte* slot(std::uint64_t index) const {
    return slots_ + (index % pending_.size()) * kMostBytes;
  }
  World& world_;
  std::string name_;
  std::uint64_t tag_;
  std::byte* slots_;
  std::uint32_t lkey_;
  fabric::QueuePair* qp_ = nullptr;
  std::vector<Pending> pending_;  // a ring
  std::uint64_t head_ = 0, tail_ = 0;
  std::vector<Pending> prepared_;
  std::vector<fabric::WorkRequest> requests_;
  std::vector<fabric::Sge> sges_;
  std::uint32_t max_inline_ = 0;
  bool broken_ = false;
};

}  // namespace pyrdma::fuzz
