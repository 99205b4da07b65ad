#include "measure/verbs_load/rate_loop.h"

namespace pyrdma::measure::verbs_load {

void run_rate(Env& env, const Load& load, Sender& sender, ThreadRecorder& recorder, Rng rng) {
  Requester requester(env, load, sender, rng);
  Histogram* latency =
      load.record_latency ? &recorder.histogram(fabric::to_string(load.op)) : nullptr;
  const Time start = env.now();
  Window window(start, load.warmup, load.duration, load.iterations);
  ClockStride stride(start, load.duration);
  const Time deadline = window.deadline();
  Time now = start;
  for (;;) {
    const bool may_post = requester.may_refill();
    while (may_post && requester.has_room()) {
      if (latency != nullptr) now = env.now();
      requester.post_batch(now, deadline);
    }
    bool taken;
    if (latency == nullptr) {
      taken = requester.take(deadline, [](Time) {});
    } else {
      Time seen = 0;  // one reading serves all completions of a poll
      taken = requester.take(deadline, [&](Time stamp) {
        if (seen == 0) seen = env.now();
        if (window.open()) latency->record(Requester::since(seen, stamp));
      });
    }
    if (!taken) requester.stuck();
    if (!stride.due(requester.completed())) continue;
    now = env.now();
    stride.read(now, requester.completed());
    if (window.over(now, requester.completed())) break;
  }
  requester.finish(deadline);
  add_rates(recorder, window, load.size);
}

void run_open(Env& env, const Load& load, Sender& sender, ThreadRecorder& recorder, Rng rng) {
  Rng arrival_rng = rng;
  Requester requester(env, load, sender, Rng(rng()));
  Histogram& latency = recorder.histogram(fabric::to_string(load.op));
  const Time start = env.now();
  Window window(start, load.warmup, load.duration, load.iterations);
  const Time deadline = window.deadline();
  Arrivals arrivals(arrival_rng, load.interval, start);
  for (Time now = start; !window.over(now, requester.completed()); now = env.now()) {
    while (arrivals.next() <= now && requester.has_room()) {
      requester.post_batch(arrivals.next(), deadline);
      arrivals.advance();
    }
    const Time wake = requester.has_room() ? std::min(arrivals.next(), deadline) : deadline;
    const bool taken = requester.take(wake, [&](Time stamp) {
      if (window.open()) latency.record(Requester::since(env.now(), stamp));
    });
    if (!taken && wake == deadline) requester.stuck();
  }
  requester.finish(deadline);
  add_rates(recorder, window, load.size);
}

}  // namespace pyrdma::measure::verbs_load
