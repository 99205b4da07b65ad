// One queue pair's send queue, with an account of every request: each signaled one completes
// exactly once, in order, with its own wr_id; after an error the rest is flushed.
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

constexpr std::uint32_t kQueueEntries = 512;  // of a client's completion queue
constexpr Time kRetry = 500;                  // between attempts to post

/// A request that has been posted, and what its result is held against.
struct Pending {
  const PlannedOperation* op = nullptr;
  std::size_t plan_index = 0;
  std::uint32_t version = 0;  // written or sent
  std::uint32_t least = 0;    // reads: the oldest version allowed
  std::uint32_t most = 0;     // reads of what this client writes: the newest, once `closed`
  bool closed = false;
  NodeId target = 0;
  std::uint32_t incarnation = 0;  // of the target
  std::uint64_t expected = 0, desired = 0;
  Time invoked = 0;
  bool signaled = false;
};

class Channel {
 public:
  static constexpr std::uint64_t kReceiveTag = 1ULL << 63;
  /// `slots`: kMostBytes for each of `window` requests, in the region of `lkey`.
  Channel(World& world, std::string name, std::uint32_t tag, std::uint32_t window, std::byte* slots,
          std::uint32_t lkey);

  /// Puts a new queue pair in place; all requests of the old one have ended.
  void use(fabric::QueuePair* qp);
  void set_max_inline(std::uint32_t bytes) { max_inline_ = bytes; }
  std::uint32_t max_inline() const { return max_inline_; }

  std::uint32_t room() const {
    return static_cast<std::uint32_t>(pending_.size() - (tail_ - head_) - prepared_.size());
  }
  bool idle() const { return head_ == tail_; }
  bool broken() const { return broken_; }

  /// The local buffer of the next request.
  std::byte* next_slot() { return slot(tail_ + prepared_.size()); }
  /// Takes a request whose payload, of `length` bytes, stands in next_slot(); posted later. The
  /// request's wr_id, buffer and signal are filled in here.
  void prepare(const Pending& pending, fabric::WorkRequest request, std::uint32_t length);
  /// Posts what was prepared, the last one signaled, and tells of each that was accepted, in order.
  /// The others are forgotten. False when the queue pair cannot take requests at all.
  bool post(FunctionRef<void(Pending&)> accepted);

  /// Accounts for a completion of this channel. `ended(pending, known, slot)` is called of every
  /// request that it ends; not known: whether it happened.
  using Ended = FunctionRef<void(const Pending&, bool, const std::byte*)>;
  void complete(const fabric::Completion& completion, Ended ended);
  /// The queue pair is gone, with the completions of what was outstanding.
  void abandon(Ended ended);
  /// Of everything outstanding, oldest first.
  void for_each(FunctionRef<void(Pending&)> visit) {
    for (std::uint64_t i = head_; i < tail_; ++i) visit(pending_[i % pending_.size()]);
  }
  /// Reports requests that should have been flushed and were not.
  void expect_idle(const char* when);

  /// Whether a wr_id is one of this channel's send queue.
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
