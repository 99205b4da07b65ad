#include "measure/verbs_load/latency_loop.h"

#include "measure/verbs_load/rate_loop.h"

namespace pyrdma::measure::verbs_load {

void run_latency(Env& env, const Load& load, Sender& sender, ThreadRecorder& recorder, Rng rng) {
  Requester requester(env, load, sender, rng);
  Histogram& latency = recorder.histogram(fabric::to_string(load.op));
  Histogram* post = load.record_post ? &recorder.histogram("post") : nullptr;
  Time now = env.now();
  Window window(now, load.warmup, load.duration, load.iterations);
  const Time deadline = window.patience();
  while (!window.over(now, requester.completed())) {
    const Time begin = env.now();
    requester.post_batch(begin, deadline);
    if (post != nullptr && window.open()) post->record(env.now() - begin);
    if (!requester.take(deadline, [](Time) {})) requester.stuck();
    now = env.now();
    if (window.open()) latency.record(now - begin);
  }
  add_rates(recorder, window, load.size);
}

}  // namespace pyrdma::measure::verbs_load
