// An endpoint whose event loop runs in a thread of its own, for scripts. Any thread of the node may
// call it. A call waits for two hand-overs between threads, so a program that measures RPCs runs
// the loop itself.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/function_ref.h"
#include "env/env.h"
#include "env/sync.h"
#include "systems/erpc/endpoint.h"

namespace pyrdma::erpc {

class BackgroundEndpoint {
 public:
  /// Makes the endpoint `number` of this node. Throws like Endpoint.
  BackgroundEndpoint(Env& env, const Options& options, std::uint32_t number);
  /// Ends the thread, then the endpoint. Calls that wait must have ended.
  ~BackgroundEndpoint();
  BackgroundEndpoint(const BackgroundEndpoint&) = delete;
  BackgroundEndpoint& operator=(const BackgroundEndpoint&) = delete;

  /// An error that the handler throws goes to the client (RequestHandle::fail). Throws like
  /// Endpoint::register_handler.
  void register_handler(std::uint8_t type, Handler handler, RunIn where);
  /// Returns a connected session. Throws Error(kTimeout), naming the server, without an answer.
  SessionId connect(EndpointName server, Time timeout);
  /// Ends a session. Throws Error(kInvalidArgument) if it has requests.
  void disconnect(SessionId session);

  struct Reply {
    Outcome outcome = Outcome::kNotSent;
    bool has_ended = false;       // false: the time was over, and the request may still run
    std::vector<std::byte> data;  // the response, or the message of a handler that has failed
  };
  /// Sends the requests, at most kUnderWay at once, and waits until all have ended or the time is
  /// over; requests that were not begun by then never are. A response has at most `most` bytes.
  /// Throws Error(kInvalidArgument) for a message above the limit and for an unknown session.
  std::vector<Reply> call(SessionId session, std::uint8_t type,
                          std::span<const std::string> requests, std::uint32_t most, Time timeout);
  static constexpr std::size_t kUnderWay = 16;  // two for each slot of a session

  const Options& options() const { return endpoint_->options(); }
  /// Why the session is lost, or an empty text.
  std::string why_lost(SessionId session);

 private:
  struct Job {
    FunctionRef<void()> work;
    std::optional<Error> error;
    std::atomic<bool> is_done{false};
  };
  struct Batch;
  struct Pending;

  void run();
  void run_jobs();
  /// Runs `work` in the thread of the loop and waits for it. Rethrows its error.
  void in_loop(FunctionRef<void()> work);
  void begin(const std::shared_ptr<Batch>& batch, std::size_t index);
  static void end(void* context, std::uint64_t tag, Outcome outcome);

  Env& env_;
  std::unique_ptr<Endpoint> endpoint_;
  Mutex mutex_;
  std::vector<Job*> jobs_;
  std::optional<Error> failure_;  // of the loop, which then has ended
  std::atomic<bool> is_called_{false}, is_stopping_{false};
  Watch ended_;  // a job or a batch
  std::unique_ptr<Thread> thread_;
};

}  // namespace pyrdma::erpc
