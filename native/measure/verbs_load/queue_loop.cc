// The closed loop that counts unsignaled requests by queue pair. The first of so many requests is
// signaled, and has completed before the thread posts the last of them. A read is over when its
// data is in memory.
#include <utility>

#include "base/remote_word.h"
#include "measure/verbs_load/rate_loop.h"

namespace pyrdma::measure::verbs_load {

namespace {

/// QueuePosts posts single requests to the routes of a sender, and signals some of each.
class QueuePosts {
 public:
  QueuePosts(Env& env, const Load& load, Sender& sender, Rng rng)
      : load_(load), sender_(sender), requester_(env, load, sender, rng) {
    progress_.resize(sender.routes.size());
  }

  /// Posts a request at `offset` of the local buffer to route `index`.
  void post(std::size_t index, std::uint64_t offset, Time deadline, bool last = false) {
    Progress& route = progress_[index];
    const std::uint64_t place = route.posted++ % load_.signal_every;
    const bool signaled = place == 0 || last;
    if (signaled || place + 1 == load_.signal_every) await(route, deadline);
    ++route.unconfirmed;
    fabric::WorkRequest& request = requester_.aim(sender_.routes[index]);
    fabric::Sge sge = sender_.local->sge(offset, load_.size);
    request.sges = &sge;
    request.wr_id = index;
    request.flags = static_cast<std::uint8_t>((load_.inlined ? fabric::kInline : 0) |
                                              (signaled ? fabric::kSignaled : 0));
    requester_.post(sender_.routes[index], {&request, 1}, deadline);
    if (signaled) route.pending = std::exchange(route.unconfirmed, 0);
  }
  /// Completes all requests of all routes.
  void finish(Time deadline) {
    for (std::size_t i = 0; i < progress_.size(); ++i) {
      if (progress_[i].unconfirmed != 0) post(i, 0, deadline, true);
    }
    for (Progress& route : progress_) await(route, deadline);
  }
  std::uint64_t completed() const { return completed_; }
  [[noreturn]] void stuck() const { requester_.stuck(); }

 private:
  struct Progress {
    std::uint64_t posted = 0;
    std::uint32_t unconfirmed = 0;  // requests since the last signaled one
    std::uint32_t pending = 0;      // requests that the signaled one in flight confirms
  };

  void await(Progress& route, Time deadline) {
    while (route.pending != 0) {
      const bool some = requester_.take_raw(deadline, [this](std::uint64_t index) {
        completed_ += std::exchange(progress_[index].pending, 0);
      });
      if (!some) stuck();
    }
  }

  const Load& load_;
  Sender& sender_;
  Requester requester_;
  std::vector<Progress> progress_;
  std::uint64_t completed_ = 0;
};

}  // namespace

void run_rate_by_queue(Env& env, const Load& load, Sender& sender, ThreadRecorder& recorder,
                       Rng rng) {
  constexpr std::uint8_t kUnread = 0xff;  // the region that the reads read holds zeros
  Rng choice(rng());
  QueuePosts posts(env, load, sender, rng);
  const bool reads = load.op == fabric::Opcode::kRead;
  const Time start = env.now();
  Window window(start, load.warmup, load.duration, load.iterations);
  ClockStride stride(start, load.duration);
  const Time deadline = window.deadline();
  std::uint64_t done = 0;
  for (std::uint64_t turn = 0;; ++turn) {
    const std::uint64_t offset = reads ? turn % load.depth * load.stride() : 0;
    if (reads) {
      auto* last = reinterpret_cast<std::uint8_t*>(sender.local->data() + offset) + load.size - 1;
      const auto arrived = [&] { return load_acquire(last) != kUnread; };
      if (turn >= load.depth && !env.poll_until(arrived, deadline)) posts.stuck();
      *last = kUnread;
    }
    posts.post(choice.below(sender.routes.size()), offset, deadline);
    done = reads ? turn : posts.completed();
    if (!stride.due(done)) continue;
    const Time now = env.now();
    stride.read(now, done);
    if (window.over(now, done)) break;
  }
  posts.finish(deadline);
  add_rates(recorder, window, load.size);
}

}  // namespace pyrdma::measure::verbs_load
