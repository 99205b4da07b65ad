#include "measure/verbs_load/receivers.h"

#include <array>
#include <string>

#include "base/error.h"

namespace pyrdma::measure::verbs_load {

namespace {

void post_receives(const ReceiveTarget& target, std::span<const fabric::ReceiveRequest> requests) {
  const fabric::PostResult result = target.shared != nullptr ? target.shared->post_receive(requests)
                                                             : target.qp->post_receive(requests);
  if (result.accepted == requests.size()) [[likely]]
    return;
  throw Error(ErrorCode::kInternal, std::string("verbs_load: the device refused a receive: ") +
                                        fabric::to_string(result.error));
}

}  // namespace

Receivers::Receivers(Env& env, const Load& load, std::vector<Receiver>& receivers,
                     Recorder& recorder, std::uint32_t first_thread)
    : env_(env), load_(load), receivers_(receivers) {
  for (Receiver& receiver : receivers_) {
    // All receives share one buffer, because no thread reads the data.
    const fabric::Sge buffer =
        receiver.local->sge(0, static_cast<std::uint32_t>(receiver.local->size()));
    for (std::size_t i = 0; i < receiver.targets.size(); ++i) {
      const std::vector<fabric::ReceiveRequest> requests(receiver.depth, {i, &buffer, 1});
      post_receives(receiver.targets[i], requests);
    }
  }
  for (std::size_t i = 0; i < receivers_.size(); ++i) {
    ThreadRecorder& rows = recorder.thread(first_thread + static_cast<std::uint32_t>(i));
    threads_.push_back(env_.spawn("receive" + std::to_string(i),
                                  [this, i, &rows] { serve(receivers_[i], rows); }));
  }
}

void Receivers::serve(Receiver& receiver, ThreadRecorder& recorder) {
  const fabric::Sge buffer =
      receiver.local->sge(0, static_cast<std::uint32_t>(receiver.local->size()));
  const Time start = env_.now();
  Window window(start, load_.warmup, load_.duration, 0);
  ClockStride stride(start, load_.duration != 0 ? load_.duration : kMillisecond);
  std::array<fabric::Completion, 64> completions;
  std::array<fabric::ReceiveRequest, 64> again;
  std::uint64_t received = 0;
  bool over = false;
  bool is_stopping = false;
  // A slow receiver takes what has arrived by the end too: all peers have counted it. It posts no
  // receive again then, so that this ends though a peer of a failed run goes on.
  for (std::size_t count = 0; !is_stopping || count != 0;) {
    env_.poll_until(
        [&] {
          is_stopping = stopping_.load(std::memory_order_acquire);
          return (count = receiver.cq->poll(completions)) != 0 || is_stopping;
        },
        kForever, &receiver.cq->watch());
    // Receives are reposted in runs of one target, with one doorbell each.
    for (std::size_t i = 0; i < count;) {
      const std::uint64_t target = completions[i].wr_id;
      std::size_t run = 0;
      for (; i < count && completions[i].wr_id == target; ++i) {
        if (completions[i].status != fabric::Status::kSuccess) [[unlikely]] {
          throw Error(ErrorCode::kUnavailable,
                      std::string("verbs_load: a receive failed: ") +
                          fabric::to_string(completions[i].status),
                      false);
        }
        const bool is_used_up = completions[i].stride + 1 == load_.receive_strides;
        if (is_used_up) again[run++] = {target, &buffer, 1};
      }
      if (run != 0 && !is_stopping) post_receives(receiver.targets[target], {again.data(), run});
    }
    received += count;
    if (over || !stride.due(received)) continue;
    const Time now = env_.now();
    stride.read(now, received);
    over = window.over(now, received) && load_.duration != 0;
  }
  if (!over) window.over(env_.now(), received);
  const double seconds = static_cast<double>(window.elapsed()) * 1e-9;
  recorder.add("received", "count", static_cast<double>(received));
  recorder.add("receive_rate", "op/s",
               seconds > 0 ? static_cast<double>(window.operations()) / seconds : 0);
}

void Receivers::end() {
  stopping_.store(true, std::memory_order_release);
  for (Receiver& receiver : receivers_) env_.notify(receiver.cq->watch());
}

void Receivers::stop() {
  end();
  for (auto& thread : threads_) thread->join();
}

Receivers::~Receivers() { end(); }

}  // namespace pyrdma::measure::verbs_load
