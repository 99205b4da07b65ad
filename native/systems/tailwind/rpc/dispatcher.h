// The threads of a server (Tailwind, section 4, figure 1): one dispatch thread polls the network
// and hands requests to workers; a worker runs one request to its end and spins while it waits for
// others. Answers leave through the dispatch thread.
//
// A worker may wait for a request of a lower level at another server, whose workers may wait for
// this one. So a level with no running request gets a worker beyond the configured number
// (RAMCloud's rule: "it can over-allocate resources to avoid deadlocks", section 4.5).
//
// Without workers the dispatch thread runs requests itself. While such a request waits, the thread
// serves requests of lower levels. It may run all requests of clients that it has together.
//
// When no request has come for Options::idle_after, the threads sleep between two looks. The first
// request then waits for two sleeps at most: of the dispatch thread and of the first worker.
#pragma once
#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "systems/tailwind/rpc/transport.h"

namespace pyrdma::tailwind {

class Dispatcher;

/// The thread that serves a request.
class Worker {
 public:
  /// Waits for ready(), which others' requests make true. Returns false at the deadline.
  template <class Ready>
  bool wait(Ready&& ready, Time deadline, Watch* only = nullptr) {
    return wait_for(FunctionRef<bool()>(ready), deadline, only);
  }
  /// Time that requests have waited for replication, for reports; the server adds it.
  Time replicating = 0;

 private:
  friend class Dispatcher;
  Worker(Dispatcher& dispatcher, bool is_dispatch)
      : dispatcher_(dispatcher), is_dispatch_(is_dispatch) {}
  bool wait_for(FunctionRef<bool()> ready, Time deadline, Watch* only);

  Dispatcher& dispatcher_;
  const bool is_dispatch_;
  std::uint32_t level_ = 0;
  std::unique_ptr<Incoming> request_;
  Bytes answer_;
  enum class State : std::uint8_t { kIdle, kBusy, kDone };
  std::atomic<State> state_{State::kIdle};
  Watch watch_;
  std::unique_ptr<Thread> thread_;
};

/// Time that threads were busy, in ns.
struct CpuTimes {
  Time dispatch = 0, workers = 0, replicating = 0;
  std::uint64_t requests = 0;
};

class Dispatcher {
 public:
  /// Serves a request and appends the answer. Runs on any of the threads.
  using Serve = std::function<void(Worker&, const Incoming&, Bytes& answer)>;

  /// Serves clients' requests together; each has an answer at the same index.
  using ServeTogether = std::function<void(
      Worker&, std::span<const std::unique_ptr<Incoming>> requests, std::span<Bytes> answers)>;

  /// `serve_together` may be empty; it is called without workers alone.
  /// `refusal` is the answer to clients' requests that have waited for so long that the client has
  /// sent them again (Options::call_timeout), or that find kMostWaiting others.
  Dispatcher(Transport& transport, std::uint32_t workers, Serve serve,
             ServeTogether serve_together = nullptr, Bytes refusal = {});
  /// Requires that run() has returned.
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  /// The dispatch thread: runs until is_over(), or until a request throws Error. Then requests that
  /// run end, and no others begin. Rethrows the first Error. is_over() is called once more after
  /// has_failed(), so that it can end what requests wait for.
  void run(FunctionRef<bool()> is_over);
  /// A request has thrown Error.
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  /// The dispatch thread: waits for ready() and serves meanwhile; for set-up. Returns false at the
  /// deadline.
  bool run_until(FunctionRef<bool()> ready, Time deadline);
  /// Any thread; sums of what has ended.
  CpuTimes times() const;
  /// The same from the first request of a client to the end of the last one, and how long that was.
  /// Requires that run() has returned.
  CpuTimes load_times() const;
  Time load_duration() const { return load_ended_ - load_began_; }
  /// Most workers that were busy at once.
  std::uint32_t most_workers() const { return most_workers_.load(); }
  Transport& transport() { return transport_; }

 private:
  friend class Worker;
  static constexpr std::uint32_t kNoLevel = ~0U;
  static constexpr std::size_t kMostTogether = 64;
  static constexpr std::size_t kMostWaiting = 256;  // half of the receives for clients
  /// One look at network and workers. Begins requests below `level`, on this thread if there are no
  /// workers; 0: none. Returns true if there was something to do.
  bool turn(std::uint32_t level);
  bool take_turn(std::uint32_t level);
  void take_done();
  void refuse_late(Time now);
  void count_until(Time now);
  void hand_out();
  void start(Worker& worker, std::unique_ptr<Incoming> request, std::uint32_t level);
  void run_here(std::uint32_t below);
  void run_together();
  void begin_load();
  void end_load();
  void work(Worker& worker, std::uint32_t number);
  void fail(const Error& error);
  void note_idle(Time now);

  Transport& transport_;
  Env& env_;
  const std::uint32_t count_;
  const Time idle_after_, idle_sleep_;
  const Serve serve_;
  const ServeTogether serve_together_;
  const Bytes refusal_;
  std::array<std::deque<std::unique_ptr<Incoming>>, kLevels> waiting_;
  std::array<std::uint32_t, kLevels> running_{};
  std::uint32_t busy_ = 0;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<Incoming>> arrived_;
  std::vector<std::unique_ptr<Incoming>> together_;
  std::vector<Bytes> answers_;          // to them
  std::atomic<std::uint32_t> done_{0};  // workers in state kDone
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> is_idle_{false};  // nothing has come for long
  Time next_tick_ = 0;
  std::uint32_t turns_ = 0;  // under way, one within the other
  bool was_busy_ = false;    // the last turn had something to do
  Time turn_began_ = 0, counted_until_ = 0;
  std::atomic<Time> dispatch_time_{0}, worker_time_{0}, replicating_{0};
  std::atomic<std::uint64_t> requests_{0};
  std::atomic<std::uint32_t> most_workers_{0};
  CpuTimes before_load_, after_load_;  // of the dispatch thread
  Time load_began_ = 0, load_ended_ = 0;
  Mutex failure_mutex_;
  std::optional<Error> failure_;
  std::atomic<bool> has_failed_{false};
};

}  // namespace pyrdma::tailwind
