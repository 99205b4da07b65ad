#include "runtime/runtime.h"

#include <algorithm>
#include <bit>
#include <mutex>

#include "base/error.h"
#include "base/held_flag.h"
#include "fabric/overrun.h"
#include "runtime/mesh.h"
#include "runtime/node_barrier.h"
#include "runtime/scopes.h"

namespace pyrdma::runtime {

namespace {

constexpr std::uint32_t kMaxCallers = 64;

void check(const char* option, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string("option ") + option + " is " + std::to_string(value) + "; it must be " +
                  std::to_string(least) + " to " + std::to_string(most));
}

}  // namespace

Runtime::Runtime(Env& env, const Options& options)
    : env_(env),
      options_(options),
      alone_(options.callers == 1 && options.polling == Polling::kCallers),
      service_(&no_service_),
      peers_(env.nodes()),
      failure_mutex_(env) {
  env.device().open();
  check_options();
  pd_ = env.device().create_protection_domain();
  memory_ = std::make_unique<MemoryPool>(env, *pd_, options_.page_bytes);
  make_queues();
}

Runtime::~Runtime() { stop(); }

void Runtime::check_options() {
  const fabric::Capabilities& can = env_.device().capabilities();
  check("callers", options_.callers, 1, kMaxCallers);
  check("max_in_flight", options_.max_in_flight, 64, can.max_queue_entries);
  check("block_bytes", options_.block_bytes, 8, 64 * kMiB);
  check("blocks", options_.blocks, 1, 1U << 20);
  check("message_entries", options_.message_entries, 0, can.max_queue_entries);
  options_.max_inline = std::min(options_.max_inline, can.max_inline);
}

void Runtime::make_queues() {
  const std::uint64_t entries = std::uint64_t{options_.callers} * options_.max_in_flight +
                                std::uint64_t{nodes()} * 2 * options_.message_entries;
  const std::uint32_t most = env_.device().capabilities().max_completions;
  if (entries > most) {
    throw Error(ErrorCode::kInvalidArgument,
                "one completion queue for " + std::to_string(options_.callers) + " callers with " +
                    std::to_string(options_.max_in_flight) +
                    " requests in flight each would need " + std::to_string(entries) +
                    " entries; the device has " + std::to_string(most) +
                    ": lower max_in_flight or callers");
  }
  completions_ = env_.device().create_completion_queue(static_cast<std::uint32_t>(entries));
  std::vector<Connection*> all;
  for (std::uint32_t i = 0; i < options_.callers; ++i) {
    Caller& caller = *callers_.emplace_back(std::make_unique<Caller>(*this, i));
    for (NodeId peer = 0; peer < nodes(); ++peer) {
      Connection& connection = *caller.connections_.emplace_back(std::make_unique<Connection>());
      connection.caller = &caller;
      connection.peer = peer;
      connection.sizes.resize(std::bit_ceil(options_.max_in_flight));
      connection.qp = make_queue_pair(false);
      all.push_back(&connection);
    }
  }
  messages_.resize(nodes());
  for (NodeId peer = 0; options_.message_entries != 0 && peer < nodes(); ++peer) {
    if (peer == self()) continue;
    messages_[peer] = std::make_unique<Connection>();
    messages_[peer]->peer = peer;
    messages_[peer]->qp = make_queue_pair(true);
    all.push_back(messages_[peer].get());
  }
  table_.assign(all);
}

std::unique_ptr<fabric::QueuePair> Runtime::make_queue_pair(bool for_messages) {
  fabric::QpOptions options;
  options.send_entries = for_messages ? options_.message_entries : options_.max_in_flight;
  options.receive_entries = for_messages ? options_.message_entries : 1;
  options.max_inline = options_.max_inline;
  options.timeout_us = options_.timeout_us;
  return env_.device().create_queue_pair(*pd_, *completions_, *completions_, options);
}

std::vector<Connection*> Runtime::connections_to(NodeId peer) {
  std::vector<Connection*> connections;
  for (const auto& caller : callers_) connections.push_back(caller->connections_[peer].get());
  if (messages_[peer]) connections.push_back(messages_[peer].get());
  return connections;
}

void Runtime::connect(Service* service) {
  if (service != nullptr) service_ = service;
  begin_incarnation();
  if (is_restarted()) {
    rejoin();
  } else {
    const Time deadline = env_.now() + options_.wait_timeout;
    // The name holds the first incarnations and attempts: the same for all nodes.
    Mesh mesh(env_, exchange_name(self()));
    for (NodeId peer = 0; peer < nodes(); ++peer) {
      for (Connection* connection : connections_to(peer)) mesh.add(peer, *connection->qp);
      peers_[peer].attempt = 1;
    }
    mesh.connect(deadline);
    for (const auto& connection : messages_) {
      if (connection) service_->connected(*connection);
    }
    mesh.meet(std::max<Time>(deadline - env_.now(), 0));
  }
  start_polling();
}

void Runtime::start_polling() {
  if (options_.polling != Polling::kThread) return;
  env_.reached("runtime/polling thread");
  callers_poll_.store(false, std::memory_order_relaxed);
  poller_ = spawn("poll", [this] {
    while (!stopping_.load(std::memory_order_acquire)) {
      const Scope all(env_, scope::poller);
      env_.poll_until(
          [this] {
            const Scope step(env_, scope::poller_turn);
            const bool any = progress();
            if (service_wanted()) service_->serve();
            return any || stopping_.load(std::memory_order_acquire);
          },
          kForever, &completions_->watch());
    }
  });
}

void Runtime::stop() {
  stopping_.store(true, std::memory_order_release);
  env_.notify(completions_->watch());
  poller_ = nullptr;
  callers_poll_.store(true, std::memory_order_relaxed);
}

void Runtime::drain() {
  end_requests();
  report_dropped();
}

void Runtime::report_dropped() {
  for (const auto& caller : callers_) caller->dropped_.report_all();
}

void Runtime::end_requests() {
  for (const auto& caller : callers_) {
    finish_dropped(*caller);
    // Not wait_until(): another thread may still use this caller.
    const auto idle = [&] {
      const Scope step(env_, scope::turn);
      turn();
      return caller->completed_.load(std::memory_order_acquire) ==
             caller->posted_.load(std::memory_order_relaxed);
    };
    if (!env_.poll_until(idle, env_.now() + options_.wait_timeout))
      throw_overdue(*caller, "completion of its requests");
  }
}

// Other nodes may wait for what dropped work holds. It is given up when it waits in vain itself:
// for a node that is gone, or for a lock that nobody gives back.
void Runtime::finish_dropped(Caller& caller) {
  const Time deadline = env_.now() + options_.wait_timeout;
  while (caller.has_unfinished() && env_.poll_until(
                                        [&] {
                                          const Scope step(env_, scope::turn);
                                          return turn(caller) || !caller.has_unfinished();
                                        },
                                        deadline)) {
  }
  if (caller.dropped_.give_up()) return;
  throw_overdue(caller, "end of operations that were dropped");
}

void Runtime::leave() {
  end_requests();
  node_barrier(env_, options_.name + "/left", options_.wait_timeout);
  report_dropped();
}

// Each counter has one writer: the thread that polls now.
inline void Runtime::end_post(Connection& connection) {
  const std::uint64_t requests = connection.size_of(connection.ended++);
  connection.completed.store(connection.completed.load(std::memory_order_relaxed) + requests,
                             std::memory_order_release);
  std::atomic<std::uint64_t>& all = connection.caller->completed_;
  all.store(all.load(std::memory_order_relaxed) + requests, std::memory_order_release);
}

// A waiter that sees that its request has ended sees its status too.
void Runtime::fail(Connection& connection, const fabric::Completion& completion) {
  const fabric::Status why = note_failure(connection, completion.status);
  if (connection.caller == nullptr) return service_->completed(connection, completion);
  AckBits::fail(completion.wr_id, why, connection.peer);
  if (!AckBits::ends_post(completion.wr_id)) return;
  end_post(connection);
  AckBits::end(completion.wr_id);
}

inline void Runtime::complete(const fabric::Completion& completion) {
  const Scope step(env_, scope::completion);
  Connection& connection = table_.find(completion.qp_num);
  if (completion.status != fabric::Status::kSuccess) [[unlikely]]
    return fail(connection, completion);
  if (connection.caller == nullptr) return service_->completed(connection, completion);
  if (AckBits::ends_post(completion.wr_id)) [[likely]] {
    end_post(connection);
    AckBits::end(completion.wr_id);
  }
}

bool Runtime::progress() {
  const Scope step(env_, scope::progress);
  // A single caller that polls has no other thread to exclude.
  if (!alone_ && (polling_.load(std::memory_order_relaxed) ||
                  polling_.exchange(true, std::memory_order_acquire))) {
    return false;
  }
  std::size_t count = 0, all = 0;
  {
    const HeldFlag polling(alone_ ? nullptr : &polling_);
    do {  // until the queue is empty: a completion that is already there never wakes a waiter again
      count = completions_->poll(polled_);
      for (std::size_t i = 0; i < count; ++i) complete(polled_[i]);
      all += count;
    } while (count == polled_.size());
  }
  if (all == 0 && completions_->overrun()) [[unlikely]]
    throw_overrun();
  if (closing_.load(std::memory_order_relaxed)) [[unlikely]]
    close_connections();
  return all != 0;
}

std::unique_ptr<Thread> Runtime::spawn(const std::string& name, std::function<void()> body) {
  return env_.spawn(name, [this, name, body = std::move(body)] {
    try {
      body();
    } catch (const Error& error) {
      keep_failure(name, error);
    } catch (const std::exception& error) {
      keep_failure(name, Error(ErrorCode::kInternal, error.what()));
    }
  });
}

void Runtime::keep_failure(const std::string& thread, const Error& error) {
  const std::lock_guard lock(failure_mutex_);
  if (failure_) return;
  failure_ = Error(error.code(),
                   "thread '" + thread + "' of node " + std::to_string(self()) +
                       " ended with an error: " + error.what(),
                   false)
                 .blaming(error.nodes());
  // The polling thread may have failed: requests in flight still end.
  callers_poll_.store(true, std::memory_order_relaxed);
  failed_.store(true, std::memory_order_release);
}

void Runtime::throw_failure() {
  const std::lock_guard lock(failure_mutex_);
  throw Error(*failure_);
}

inline void Runtime::check_threads() {
  if (failed_.load(std::memory_order_relaxed)) [[unlikely]]
    throw_failure();
}

void Runtime::turn() {
  check_threads();
  make_turn();
  if (callers_.size() == 1) callers_.front()->go_on();
}

bool Runtime::turn(Caller& caller) {
  check_threads();
  make_turn();
  return caller.go_on();
}

void Runtime::make_turn() {
  poll_if_callers_poll();
  if (service_wanted()) [[unlikely]]
    service_->serve();
}

void Runtime::wait_until(Caller& caller, FunctionRef<bool()> ready, const char* what) {
  const Scope all(env_, scope::wait);
  const Time deadline = env_.now() + options_.wait_timeout;
  bool done = false;
  const auto step = [&] {
    const Scope one(env_, scope::turn);
    done = ready();
    if (done) return true;
    const bool ended = turn(caller);
    done = ready();
    return done || ended;
  };
  while (!done) {
    if (!env_.poll_until(step, deadline)) throw_overdue(caller, what);
  }
}

void Runtime::throw_overrun() {
  throw fabric::overrun_error(*completions_, self(), "runtime '" + options_.name + "'");
}

void Runtime::throw_overdue(Caller& caller, const char* what) {
  const std::vector<NodeId> silent = caller.silent_peers();
  throw Error(ErrorCode::kTimeout,
              "node " + std::to_string(self()) + ": no " + what + " within " +
                  std::to_string(options_.wait_timeout / kMillisecond) + " ms; " +
                  (silent.empty() ? "all nodes answer, so check that every node makes the matching "
                                    "call; otherwise raise wait_timeout"
                                  : "no answer from node" + text_of(silent)),
              false)
      .blaming(silent);
}

}  // namespace pyrdma::runtime
