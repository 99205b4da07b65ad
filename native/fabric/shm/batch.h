// Batch holds the open rings of one call of post: the rings of the receiver, locked from the first
// send on, and the completions owed to the requester's own queue. It writes those after it has
// closed the receiver's rings. It never holds two completion rings at a time, so that nodes that
// post to each other cannot deadlock.
#pragma once
#include "fabric/shm/completion_queue.h"
#include "fabric/shm/queue_pair.h"

namespace pyrdma::fabric::shm {

class Batch {
 public:
  explicit Batch(ShmQueuePair& qp) : qp_(qp) {}
  ~Batch() { finish(); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  /// Returns false when the receiver's rings cannot be opened.
  bool open(Path& path) {
    if (path_ == &path) [[likely]]
      return true;
    close();
    const Node& node = qp_.node_;
    if (!taker_.open(path.receives(), node.holder(), node.session())) return false;
    if (!writer_.open(path.completions(), node.holder(), node.session())) {
      taker_.close();
      return false;
    }
    path_ = &path;
    // The queue pair may have left service before the locks were taken. Its node then takes no
    // completion of it any more.
    if (qp_.reach(path) == Reach::kReady) [[likely]]
      return true;
    close();
    return false;
  }
  /// The path whose receiver's rings are open, or null.
  Path* path() const { return path_; }
  ReceiveTaker& taker() { return taker_; }
  CompletionWriter& writer() { return writer_; }
  void close() {
    if (path_ == nullptr) return;
    writer_.close();
    taker_.close();
    path_ = nullptr;
  }

  /// Returns false when the next complete() writes those noted, which closes the receiver's rings.
  bool has_room() const { return count_ < kMost; }
  /// Notes the completion of a signaled request.
  void complete(const WorkRequest& request, std::uint32_t position) {
    if (count_ == kMost) finish();
    done_[count_++] = {request.wr_id, position, request.opcode};
  }
  void finish() {
    close();
    if (count_ != 0) write_completions();
  }

 private:
  static constexpr std::uint32_t kMost = 32;
  struct Done {
    std::uint64_t wr_id;
    std::uint32_t position;
    Opcode opcode;
  };
  void write_completions() {
    const Node& node = qp_.node_;
    if (writer_.open(qp_.send_queue_.view(), node.holder(), node.session())) {
      for (std::uint32_t i = 0; i < count_; ++i) {
        const Done& done = done_[i];
        if (!writer_.push_send(done.wr_id, done.opcode, qp_.qp_num_, done.position)) break;
      }
      writer_.close();
    }
    count_ = 0;
  }

  ShmQueuePair& qp_;
  Path* path_ = nullptr;
  ReceiveTaker taker_;
  CompletionWriter writer_;
  std::uint32_t count_ = 0;
  Done done_[kMost];
};

}  // namespace pyrdma::fabric::shm
