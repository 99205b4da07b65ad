// The common parts of LOCO's workloads: a manager per run, and threads that are its callers.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "env/env.h"
#include "measure/params.h"
#include "measure/recorder.h"
#include "systems/loco/manager.h"
#include "systems/loco/ticket_lock.h"

namespace pyrdma::measure {

/// The parameters of every workload that measures for a time on several threads; they precede its
/// own parameters.
inline std::vector<ParameterSpec> with_loco_parameters(std::vector<ParameterSpec> own) {
  std::vector<ParameterSpec> specs = {
      {"threads", std::int64_t{1}, "count", "threads of a node, or ranks", 1, 64},
      {"polling",
       std::string("callers"),
       "",
       "who polls for completions: a thread of its own, as in the paper, or the callers",
       0,
       0,
       {"thread", "callers"}},
      {"warmup_ns", std::int64_t{10'000}, "ns", "time before the measurement; discarded", 0, 1e15},
      {"duration_ns", std::int64_t{1'000'000}, "ns", "measured time; 0: by iterations", 0, 1e15},
      {"iterations", std::int64_t{0}, "count",
       "measured turns per thread, at most; 0: no bound but the time", 0, 1e15},
  };
  specs.insert(specs.end(), own.begin(), own.end());
  return specs;
}

/// The parameter of the preset, and one for each switch of a lock, to set the switch alone.
inline std::vector<ParameterSpec> with_preset(std::vector<ParameterSpec> own) {
  own.push_back({"preset",
                 std::string("best"),
                 "",
                 "LOCO's protocol: as in the paper, or with all that is better",
                 0,
                 0,
                 {"paper", "best"}});
  for (const auto& [name, text] : {
           std::pair("combined_request", "now_serving is read with the ticket, not after it"),
           std::pair("release_by_write", "a release writes now_serving, instead of adding to it"),
           std::pair("unawaited_release", "a release is not waited for"),
           std::pair("unawaited_fence", "a pair fence leaves the order to the queue pair"),
           std::pair("one_doorbell", "requests to one host leave together, writes with a release"),
       }) {
    own.push_back({name,
                   std::string("preset"),
                   "",
                   std::string("of LOCO's locks: ") + text,
                   0,
                   0,
                   {"preset", "on", "off"}});
  }
  return own;
}

inline loco::Preset preset_of(const Params& params) {
  return params.choice<loco::Preset>("preset");
}

inline loco::TicketLockOptions lock_options(const Params& params) {
  loco::TicketLockOptions options = loco::TicketLockOptions::of(preset_of(params));
  const auto set = [&](const char* name, bool& value) {
    if (params.text(name) != "preset") value = params.text(name) == "on";
  };
  set("combined_request", options.combined_request);
  set("release_by_write", options.release_by_write);
  set("unawaited_release", options.unawaited_release);
  set("unawaited_fence", options.unawaited_fence);
  set("one_doorbell", options.one_doorbell);
  return options;
}

/// The parameter of how a node reaches data under a lock in its own memory.
inline ParameterSpec own_memory_parameter() {
  return {"own_memory",
          std::string("preset"),
          "",
          "what a lock protects and this node hosts, is read and written by the nic, as everybody "
          "else does (paper), or by the cpu (best); loco only",
          0,
          0,
          {"preset", "nic", "cpu"}};
}
inline bool by_cpu(const Params& params) {
  const std::string& text = params.text("own_memory");
  return text == "cpu" || (text == "preset" && preset_of(params) == loco::Preset::kBest);
}

inline loco::ManagerOptions loco_options(const Params& params) {
  if (params.integer("duration_ns") == 0 && params.integer("iterations") == 0) {
    throw_parameter(params, "duration_ns", "and iterations are both 0; give one of them");
  }
  loco::ManagerOptions options;
  options.name = params.key("loco");
  options.callers = params.count("threads");
  options.polling = params.choice<loco::Polling>("polling");
  return options;
}

/// One interval for all threads of a node, from the end of the warm-up. A thread that waits for a
/// lock through the whole interval counts no operation; it does not measure later. Threads share it
/// for reading; each thread has its own counts.
class Interval {
 public:
  Interval(Time start, const Params& params)
      : opens_(start + params.integer("warmup_ns")),
        duration_(params.integer("duration_ns")),
        iterations_(static_cast<std::uint64_t>(params.integer("iterations"))) {}

  /// A turn has ended at `now`. Returns true when it counts.
  bool count(Time now) {
    if (now < opens_ || (duration_ != 0 && now >= opens_ + duration_)) return false;
    ++operations_;
    early_ += now < opens_ + duration_ / 2;
    last_ = now;
    return true;
  }
  bool over(Time now) const {
    return (duration_ != 0 && now >= opens_ + duration_) ||
           (iterations_ != 0 && operations_ >= iterations_);
  }
  void add_rates(ThreadRecorder& recorder) const {
    const bool by_count = duration_ == 0 || (iterations_ != 0 && operations_ >= iterations_);
    const auto elapsed = static_cast<double>(by_count ? last_ - opens_ : duration_);
    const auto operations = static_cast<double>(operations_);
    recorder.add("ops", "count", operations);
    if (!by_count) recorder.add("early_ops", "count", static_cast<double>(early_));
    recorder.add("elapsed", "ns", elapsed);
    recorder.add("rate", "op/s", elapsed > 0 ? operations / elapsed * 1e9 : 0);
  }

 private:
  Time opens_, duration_, last_ = 0;
  std::uint64_t iterations_, operations_ = 0, early_ = 0;  // early_: operations in the first half
};

/// Runs body(i) on threads 0 to count-1, with thread 0 the calling thread. Rethrows the error of a
/// thread.
template <class Body>
void on_threads(Env& env, std::uint32_t count, const Body& body) {
  std::vector<std::unique_ptr<Thread>> others;
  for (std::uint32_t i = 1; i < count; ++i) {
    others.push_back(env.spawn("loco/" + std::to_string(i), [&body, i] { body(i); }));
  }
  body(0);
  for (const auto& thread : others) thread->join();
}

}  // namespace pyrdma::measure
