// The application's end of a ring. It has the functions of App, of which each is a call of the
// daemon; taking completions and messages is none.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>

#include "env/sync.h"
#include "systems/krcore/app.h"
#include "systems/krcore/ring/layout.h"

namespace pyrdma::krcore::ring {

/// What lies beside the shared memory.
class Link {
 public:
  virtual ~Link() = default;
  /// Returns the memory of the registration that the daemon has just made, or null.
  virtual std::byte* take_memory(std::uint32_t key, std::uint64_t bytes) = 0;
  virtual void give_back(std::uint32_t key) = 0;
  virtual void ring_doorbell() = 0;
  virtual bool has_daemon() = 0;
};

/// Threads: any number; calls exclude each other. Every function throws Error(kUnavailable) when
/// the daemon has ended, and what App's function throws.
class Application {
 public:
  /// Throws Error(kUnavailable) for memory that is no ring of this version.
  Application(Env& env, Shared& shared, Link& link);
  Application(const Application&) = delete;
  Application& operator=(const Application&) = delete;

  Env& env() { return env_; }
  NodeId node() const { return shared_.header.node; }
  NodeId nodes() const { return shared_.header.nodes; }
  /// An empty call.
  void nothing();
  /// A call of `slots` slots, for a measurement.
  void nothing(std::uint32_t slots);
  Queue create_queue(VqpOptions options = {});
  void destroy(Queue queue);
  /// `data` is this process's mapping of the memory; requests name it by `addr`, as the daemon has
  /// mapped it.
  Registration reg_mr(std::uint64_t bytes, std::uint32_t access = fabric::kAllAccess);
  void dereg_mr(const Registration& region);
  void bind(Queue queue, std::uint32_t port);
  void connect(Queue queue, NodeId node, std::uint32_t port);
  void connect(std::span<const App::Target> targets);
  /// A list of at most kRequests requests, each with at most one piece, in one call.
  PushResult push(Queue queue, std::span<const fabric::WorkRequest> list);
  fabric::PostResult post_receive(Queue queue, std::span<const fabric::ReceiveRequest> requests);
  std::size_t pop(Queue queue, std::span<fabric::Completion> out);
  std::size_t wait(Queue queue, std::span<fabric::Completion> out, Time deadline = kForever);
  std::size_t pop_messages(Queue queue, std::span<Message> out);
  std::size_t wait_messages(Queue queue, std::span<Message> out, Time deadline = kForever);
  fabric::Status refusal(Queue queue);

 private:
  struct Arrived {
    std::deque<fabric::Completion> completions;
    std::deque<Message> messages;
  };
  using Values = std::array<std::uint64_t, 4>;
  /// Fills `count` slots by `fill(slot, i)`, publishes them, and waits for the result.
  Values call(std::uint32_t count, const std::function<void(RequestSlot&, std::uint32_t)>& fill);
  Values call(Command command, Queue queue, std::uint64_t first = 0, std::uint64_t second = 0);
  void take_arrived();
  void check_daemon();
  template <class Take>
  std::size_t wait_for(std::size_t wanted, Time deadline, const Take& take);

  Env& env_;
  Shared& shared_;
  Link& link_;
  Mutex call_mutex_, arrived_mutex_;
  std::uint64_t position_ = 0, calls_ = 0, taken_ = 0;
  std::map<std::uint32_t, Arrived> arrived_;  // by queue
};

}  // namespace pyrdma::krcore::ring
