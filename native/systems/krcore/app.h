// An application's door to the service of its node: the extended verbs of figure 7 (section 4.1).
// Each function is one call of the paper's kernel and charges Cost::kSystemCall.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "systems/krcore/service.h"

namespace pyrdma::krcore {

/// A virtual queue pair of an application. Plain data: the App owns what it names.
using Queue = VqpId;

/// Threads: one at a time uses a queue in each direction; all others may use the App meanwhile.
class App {
 public:
  explicit App(Service& service);
  /// Ends all queues. Regions end too; their memory is used again after the lease.
  ~App();
  App(const App&) = delete;
  App& operator=(const App&) = delete;

  Service& service() { return service_; }
  Env& env() { return service_.env(); }
  std::uint64_t number() const { return number_; }

  /// Throws Error(kExhausted) that names the option to raise: all queues of the node, or those that
  /// one application may have, are in use.
  Queue create_queue(VqpOptions options = {});
  void destroy(Queue queue);
  /// qreg_mr: allocates registered memory, by default for all rights of peers. Throws
  /// Error(kExhausted) beyond the application's quota, and as Regions::allocate does.
  Registration reg_mr(std::uint64_t bytes, std::uint32_t access = fabric::kAllAccess);
  void dereg_mr(const Registration& region);
  /// qbind. Throws Error(kInvalidArgument) for a port that another queue has, or out of bounds.
  void bind(Queue queue, std::uint32_t port);
  /// qconnect. Throws Error(kInvalidArgument) for an unknown node and for a queue that is
  /// connected, Error(kUnavailable) where no meta server answers and the node does not either.
  void connect(Queue queue, NodeId node, std::uint32_t port);
  struct Target {
    Queue queue;
    NodeId node = 0;
    std::uint32_t port = 0;
  };
  /// Connects many queues in one call: all of them, or none when it throws.
  void connect(std::span<const Target> targets);

  /// qpush: posts a list, then with `completions` takes up to so many completions as they come, all
  /// in one call. A list of a bad request posts nothing.
  PushResult push(Queue queue, std::span<const fabric::WorkRequest> list,
                  std::span<fabric::Completion> completions = {}, std::size_t* taken = nullptr);
  struct Post {
    Queue queue;
    fabric::WorkRequest request;
  };
  /// Posts requests of many queues in one call. Returns how many were accepted before one was not.
  std::size_t push(std::span<const Post> posts);
  /// qpop: takes completions that are ready.
  std::size_t pop(Queue queue, std::span<fabric::Completion> out);
  /// Waits for `out.size()` completions in one call; returns less after `deadline`.
  std::size_t wait(Queue queue, std::span<fabric::Completion> out, Time deadline = kForever);
  /// Waits for a completion of each queue, in one call. Returns how many completion queues of the
  /// pool stand behind them, each of which a round of polls visits.
  std::size_t wait_each(std::span<const Post> posts);
  fabric::PostResult post_receive(Queue queue, std::span<const fabric::ReceiveRequest> requests);
  /// Why the peer took no message of a queue that has failed; kSuccess: another reason.
  fabric::Status refusal(Queue queue) { return service_.refusal(queue); }
  /// qpop_msgs.
  std::size_t pop_messages(Queue queue, std::span<Message> out);
  /// Waits for at least one message in one call; returns 0 after `deadline`.
  std::size_t wait_messages(Queue queue, std::span<Message> out, Time deadline = kForever);

 private:
  void enter() { env().charge(Cost::kSystemCall); }
  void check_connected(ConnectResult result, NodeId node);
  Service& service_;
  const std::uint64_t number_;
  Mutex mutex_;
  std::map<std::uint32_t, std::uint64_t> regions_;  // bytes of each key
  std::uint64_t bytes_ = 0;                         // of all regions
};

}  // namespace pyrdma::krcore
