// Requests of the control path that wait for their answers. Datagrams may be lost, so a request is
// sent again until its answer comes.
#pragma once
#include <algorithm>
#include <mutex>
#include <vector>

#include "env/sync.h"
#include "systems/krcore/wire.h"

namespace pyrdma::krcore {

class Inquiry;

/// The open inquiries of a node. Any thread may ask; the thread that takes datagrams answers.
class Inquiries {
 public:
  explicit Inquiries(Env& env) : env_(env), mutex_(env) {}
  /// Takes an answer of the node `from`. One that nobody waits for, or that the node asked may not
  /// give, is dropped.
  void answer(const ControlMessage& message);
  /// An answer has come.
  Watch& watch() { return watch_; }

 private:
  friend class Inquiry;
  Env& env_;
  Mutex mutex_;
  std::vector<Inquiry*> open_;
  Watch watch_;
};

/// A request to one node.
class Inquiry {
 public:
  /// The asker gives up at `end`.
  Inquiry(Inquiries& all, const ControlMessage& request, Time end)
      : request(request), end(end), all_(all) {
    const std::lock_guard<Mutex> lock(all_.mutex_);
    all_.open_.push_back(this);
  }
  ~Inquiry() {
    const std::lock_guard<Mutex> lock(all_.mutex_);
    std::erase(all_.open_, this);
  }
  Inquiry(const Inquiry&) = delete;
  Inquiry& operator=(const Inquiry&) = delete;

  const ControlMessage request;
  const Time end;
  Time again = 0, interval = 0;  // when it is sent next; 0: it has not been sent
  bool is_answered() {
    const std::lock_guard<Mutex> lock(all_.mutex_);
    return is_answered_;
  }
  /// Of one that is answered.
  const ControlMessage& answer() const { return answer_; }

 private:
  friend class Inquiries;
  Inquiries& all_;
  bool is_answered_ = false;
  ControlMessage answer_;
};

inline void Inquiries::answer(const ControlMessage& message) {
  {
    const std::lock_guard<Mutex> lock(mutex_);
    for (Inquiry* each : open_) {
      if (each->is_answered_ || each->request.ticket != message.ticket ||
          each->request.to != message.from || !is_answer_to(each->request.kind, message.kind))
        continue;
      each->answer_ = message;
      each->is_answered_ = true;
    }
  }
  env_.notify(watch_);
}

}  // namespace pyrdma::krcore
