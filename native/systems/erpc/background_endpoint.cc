#include "systems/erpc/background_endpoint.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace pyrdma::erpc {

/// Requests of one call. It outlives the call when the time is over before they have ended.
struct BackgroundEndpoint::Batch {
  SessionId session = 0;
  std::uint8_t type = 0;
  std::uint32_t most = 0;
  std::vector<std::string> requests;
  std::vector<Reply> replies;
  std::size_t begun = 0, ended = 0;
  bool is_given_up = false;
  std::atomic<bool> is_over{false};
};

struct BackgroundEndpoint::Pending {
  BackgroundEndpoint* owner;
  std::shared_ptr<Batch> batch;
  std::size_t index;
  MsgBuffer *request, *response;
};

BackgroundEndpoint::BackgroundEndpoint(Env& env, const Options& options, std::uint32_t number)
    : env_(env), endpoint_(std::make_unique<Endpoint>(env, options, number)), mutex_(env) {
  thread_ = env_.spawn("erpc/loop", [this] { run(); });
}

BackgroundEndpoint::~BackgroundEndpoint() {
  is_stopping_.store(true, std::memory_order_release);
  env_.notify(endpoint_->watch());
  thread_ = nullptr;
}

void BackgroundEndpoint::run() {
  const auto is_wanted = [this] {
    return is_called_.load(std::memory_order_acquire) ||
           is_stopping_.load(std::memory_order_acquire);
  };
  try {
    while (!is_stopping_.load(std::memory_order_acquire)) {
      endpoint_->run_until(is_wanted, kForever);
      run_jobs();
    }
    endpoint_->close();
  } catch (const Error& error) {
    const std::lock_guard lock(mutex_);
    failure_ = error;
  }
  run_jobs();  // none waits for a loop that has ended
}

void BackgroundEndpoint::run_jobs() {
  is_called_.store(false, std::memory_order_relaxed);
  std::vector<Job*> jobs;
  std::optional<Error> failure;
  {
    const std::lock_guard lock(mutex_);
    jobs = std::exchange(jobs_, {});
    failure = failure_;
  }
  for (Job* job : jobs) {
    try {
      if (failure) throw Error(*failure);
      job->work();
    } catch (const Error& error) {
      job->error = error;
    }
    job->is_done.store(true, std::memory_order_release);
  }
  if (jobs.empty()) return;
  if (!failure) endpoint_->flush();
  env_.notify(ended_);
}

void BackgroundEndpoint::in_loop(FunctionRef<void()> work) {
  Job job{work, {}};
  {
    const std::lock_guard lock(mutex_);
    if (failure_) throw Error(*failure_);
    jobs_.push_back(&job);
  }
  is_called_.store(true, std::memory_order_release);
  env_.notify(endpoint_->watch());
  env_.poll_until([&] { return job.is_done.load(std::memory_order_acquire); }, kForever, &ended_);
  if (job.error) throw Error(*job.error);
}

void BackgroundEndpoint::register_handler(std::uint8_t type, Handler handler, RunIn where) {
  const auto guarded = [handler = std::move(handler)](RequestHandle& handle) {
    try {
      handler(handle);
    } catch (const Error& error) {
      handle.fail(error.what());
    }
  };
  in_loop([&] { endpoint_->register_handler(type, guarded, where); });
}

SessionId BackgroundEndpoint::connect(EndpointName server, Time timeout) {
  const Time deadline = env_.now() + timeout;
  SessionId session = 0;
  in_loop([&] { session = endpoint_->create_session(server, timeout); });
  while (true) {
    bool is_connected = false, is_lost = false;
    in_loop([&] {
      is_connected = endpoint_->is_connected(session);
      is_lost = endpoint_->is_lost(session);
    });
    if (is_connected) return session;
    if (is_lost || env_.now() >= deadline) break;
    env_.sleep_until(env_.now() + 20 * kMicrosecond);
  }
  const std::string why = why_lost(session);
  disconnect(session);
  throw Error(ErrorCode::kTimeout, "connect: endpoint " + std::to_string(server.endpoint) +
                                       " of node " + std::to_string(server.node) +
                                       " did not answer within " +
                                       std::to_string(timeout / kMillisecond) + " ms" +
                                       (why.empty() ? "" : " (" + why + ")") +
                                       "; does that node live and use the same mesh?")
      .blaming({server.node});
}

void BackgroundEndpoint::disconnect(SessionId session) {
  in_loop([&] { endpoint_->destroy_session(session); });
}

std::string BackgroundEndpoint::why_lost(SessionId session) {
  std::string why;
  in_loop([&] { why = endpoint_->why_lost(session); });
  return why;
}

std::vector<BackgroundEndpoint::Reply> BackgroundEndpoint::call(
    SessionId session, std::uint8_t type, std::span<const std::string> requests, std::uint32_t most,
    Time timeout) {
  const std::uint32_t limit = options().max_message;
  const auto check = [&](const char* what, std::size_t bytes) {
    if (bytes > limit) {
      throw Error(ErrorCode::kInvalidArgument, std::string(what) + " of " + std::to_string(bytes) +
                                                   " bytes: messages have at most " +
                                                   std::to_string(limit) +
                                                   " bytes; send it in parts");
    }
  };
  for (const std::string& request : requests) check("a request", request.size());
  check("a response", most);
  const auto batch = std::make_shared<Batch>();
  batch->session = session;
  batch->type = type;
  batch->most = most;
  batch->requests.assign(requests.begin(), requests.end());
  batch->replies.resize(requests.size());
  if (requests.empty()) return {};
  const Time deadline = timeout < kForever - env_.now() ? env_.now() + timeout : kForever;
  in_loop([&] {
    while (batch->begun < std::min(requests.size(), kUnderWay)) begin(batch, batch->begun++);
  });
  const auto is_over = [&] { return batch->is_over.load(std::memory_order_acquire); };
  if (env_.poll_until(is_over, deadline, &ended_)) return std::move(batch->replies);
  std::vector<Reply> replies;
  in_loop([&] {
    batch->is_given_up = true;
    replies = std::move(batch->replies);
    for (std::size_t i = batch->begun; i < replies.size(); ++i) replies[i].has_ended = true;
  });
  return replies;
}

void BackgroundEndpoint::begin(const std::shared_ptr<Batch>& batch, std::size_t index) {
  const std::string& data = batch->requests[index];
  MsgBuffer* request = endpoint_->allocate(static_cast<std::uint32_t>(data.size()));
  MsgBuffer* response = endpoint_->allocate(batch->most);
  std::copy_n(reinterpret_cast<const std::byte*>(data.data()), data.size(), request->data());
  std::unique_ptr<Pending> pending(new Pending{this, batch, index, request, response});
  endpoint_->enqueue_request(
      {batch->session, batch->type, request, response, &BackgroundEndpoint::end, pending.get()});
  pending.release();
}

void BackgroundEndpoint::end(void* context, std::uint64_t /*tag*/, Outcome outcome) {
  const std::unique_ptr<Pending> pending(static_cast<Pending*>(context));
  BackgroundEndpoint& self = *pending->owner;
  Batch& batch = *pending->batch;
  if (!batch.is_given_up) {
    Reply& reply = batch.replies[pending->index];
    // A buffer may be longer than was asked for.
    const bool is_short = outcome != Outcome::kOk || pending->response->size() <= batch.most;
    reply.outcome = outcome = is_short ? outcome : Outcome::kResponseSize;
    reply.has_ended = true;
    if (outcome == Outcome::kOk || outcome == Outcome::kFailed) {
      const auto bytes = pending->response->bytes();
      reply.data.assign(bytes.begin(), bytes.end());
    }
  }
  self.endpoint_->free(pending->request);
  self.endpoint_->free(pending->response);
  if (batch.is_given_up) return;
  if (batch.begun < batch.requests.size()) self.begin(pending->batch, batch.begun++);
  if (++batch.ended < batch.requests.size()) return;
  batch.is_over.store(true, std::memory_order_release);
  self.env_.notify(self.ended_);
}

}  // namespace pyrdma::erpc
