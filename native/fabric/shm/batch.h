// Batch holds the open rings of one call of post: the rings of the receiver, locked from the first
// send on, and the completions owed to the requester's own queue. A thread never holds two
// completion rings at a time, so that nodes that post to each other cannot deadlock.
#pragma once
#include "fabric/shm/completion_queue.h"
#include "fabric/shm/queue_pair.h"

namespace pyrdma::fabric::shm {

class Batch {
 public:
  enum class Of : std::uint8_t { kPost, kRetry };
  /// A retry does not wait for locks, and its caller has locked the waiting requests.
  Batch(ShmQueuePair& qp, Of of) : qp_(qp), is_retry_(of == Of::kRetry) {}
  ~Batch() { finish(); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  /// Opens the receiver's rings.
  Opened open(Path& path) {
    if (path_ == &path) [[likely]]
      return Opened::kYes;
    return open_all(path, true);
  }
  /// Opens the receiver's completions only, for a receive that has been taken before.
  Opened open_completions(Path& path) {
    if (begun_ == &path && writer_.is_open()) [[likely]]
      return Opened::kYes;
    return open_all(path, false);
  }
  /// The last open() found the completions held, not the receives.
  bool is_held_by_completions() const { return is_held_by_completions_; }
  /// The path whose receiver's rings are open, or null.
  Path* path() const { return path_; }
  ReceiveTaker& taker() { return taker_; }
  CompletionWriter& writer() { return writer_; }
  /// Lets other requesters complete into the receiver's queue. open() follows.
  void close_completions() {
    if (writer_.is_open()) writer_.close();
    path_ = nullptr;
  }
  void close() {
    close_completions();
    if (taker_.is_open()) taker_.close();
    begun_ = nullptr;
  }

  /// Notes the completion of a signaled request.
  void complete(const WorkRequest& request, std::uint32_t position) {
    if (count_ == kMost) [[unlikely]]
      write_completions();
    done_[count_++] = {request.wr_id, position, request.opcode, Status::kSuccess};
  }
  void finish() {
    close();
    if (count_ != 0) write_completions();
    if (has_overrun_) [[unlikely]]
      qp_.lose_completion(is_retry_);
    has_overrun_ = false;
  }

 private:
  static constexpr std::uint32_t kMost = 32;

  // Keeps the receives open that close_completions() has left open.
  Opened open_all(Path& path, bool with_receives) {
    if (begun_ != &path) close();
    const Node& node = qp_.node_;
    const Time patience = is_retry_ ? 0 : kPatience;
    begun_ = &path;
    Opened opened = Opened::kYes;
    if (with_receives && !taker_.is_open())
      opened = taker_.open(path.receives(), node.holder(), node.session(), patience);
    if (opened == Opened::kYes && !writer_.is_open()) {
      opened = writer_.open(path.completions(), node.holder(), node.session(), patience);
      is_held_by_completions_ = opened == Opened::kBusy;
    }
    // The queue pair may have left service before the locks were taken. Its node then takes no
    // completion of it any more.
    if (opened == Opened::kYes && qp_.reach(path) != Reach::kReady) [[unlikely]]
      opened = Opened::kGone;
    if (opened != Opened::kYes) [[unlikely]] {
      close();
      return opened;
    }
    if (with_receives) path_ = &path;
    return Opened::kYes;
  }
  void write_completions() {
    has_overrun_ |= !qp_.send_queue_.push(done_, count_, qp_.qp_num_);
    count_ = 0;
  }

  ShmQueuePair& qp_;
  Path* path_ = nullptr;   // both rings are open
  Path* begun_ = nullptr;  // a ring may be open
  ReceiveTaker taker_;
  CompletionWriter writer_;
  bool is_retry_;
  bool is_held_by_completions_ = false;
  bool has_overrun_ = false;  // of the requester's own queue
  std::uint32_t count_ = 0;
  SendCompletion done_[kMost];
};

}  // namespace pyrdma::fabric::shm
