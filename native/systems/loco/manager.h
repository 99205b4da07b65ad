// The manager of a node (paper, sections 4.2 and A): its callers and their connections, one
// completion queue for all of them, network memory, and the channels by name.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "env/env.h"
#include "env/sync.h"
#include "fabric/fabric.h"
#include "systems/loco/bugs.h"
#include "systems/loco/caller.h"
#include "systems/loco/control.h"
#include "systems/loco/network_memory.h"

namespace pyrdma::loco {

class Channel;

/// Who polls the completion queue.
enum class Polling : std::uint8_t {
  kThread,   // a thread of the manager's own, as in the paper (A.1): callers never touch the queue
  kCallers,  // whichever caller waits: no further thread, for machines that are short of cores
};

struct ManagerOptions {
  std::string name = "loco";  // of the run: managers of one name meet
  std::uint32_t callers = 1;  // threads that use channels, each with its queue pairs; 1..64
  Polling polling = Polling::kCallers;
  std::uint32_t max_in_flight = 256;  // requests per caller
  std::uint64_t page_bytes = 16 * kMiB;
  std::uint32_t block_bytes = 256;  // of a temporary block
  std::uint32_t blocks = 256;       // per caller, at first
  std::uint32_t max_inline = 64;    // bytes of a write that are copied at the post
  Time patience = 10 * kSecond;  // for any one wait; then it is an error that names who is missing
  std::uint32_t timeout_us = 1000;  // of a connection, per attempt
  Bugs bugs;                        // for tests alone
};

/// One per node and run. Making it connects to the managers of all other nodes and blocks for that.
/// It outlives its channels; destroying it ends the node's part.
class Manager {
 public:
  /// Throws Error(kInvalidArgument) for an option out of its bounds, and Error(kTimeout) naming the
  /// nodes that did not come.
  Manager(Env& env, const ManagerOptions& options);
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  Env& env() { return env_; }
  NodeId self() const { return env_.node(); }
  NodeId nodes() const { return env_.nodes(); }
  const ManagerOptions& options() const { return options_; }
  Caller& caller(std::uint32_t index) { return *callers_.at(index); }
  NetworkMemory& memory() { return *memory_; }
  fabric::ProtectionDomain& domain() { return *pd_; }

  /// Blocks until every channel of this node has met its peers. Throws Error(kTimeout), naming the
  /// channels and who is missing, and Error(kInvalidArgument) when two endpoints do not match, with
  /// the view of both.
  void wait_for_ready();

  /// Ends this node's part in good order: waits for the callers' requests, then for all other nodes
  /// to come here, so that nobody uses memory that is gone. Without it a peer's last requests fail.
  /// Throws Error(kTimeout) naming the nodes that did not come.
  void leave();

  /// Blocks until ready(), polling where callers poll. Throws Error(kTimeout), with `what` was
  /// waited for and the peers that do not answer, when the patience is over.
  void wait_until(Caller& caller, FunctionRef<bool()> ready, const char* what);

  /// One turn of progress: completions, then join and connect messages. Any caller's thread;
  /// returns at once when another is at it.
  void turn();

 private:
  friend class Caller;
  friend class Channel;
  friend class Control;

  void make_queues();
  void connect();
  void meet(const std::string& place, Time deadline);
  std::unique_ptr<fabric::QueuePair> make_queue_pair(std::uint32_t send_entries,
                                                     std::uint32_t receive_entries);
  void learn(Lane& lane);
  Lane& lane_of(std::uint32_t qp_num);
  bool progress();
  void complete(const fabric::Completion& completion);
  void serve();
  void handle(const ControlMessage& message);
  void check_free(const std::string& name);
  void add(Channel& channel);
  void remove(Channel& channel);
  Channel* find(const std::string& name);
  bool all_ready();
  std::string missing();

  Env& env_;
  ManagerOptions options_;
  const bool alone_;  // one thread uses this manager
  std::unique_ptr<fabric::ProtectionDomain> pd_;
  std::unique_ptr<fabric::CompletionQueue> completions_;
  std::unique_ptr<NetworkMemory> memory_;
  std::vector<std::pair<std::uint32_t, Lane*>>
      lanes_;  // by queue pair number, which are dense; open addressing
  std::vector<std::unique_ptr<Caller>> callers_;
  std::unique_ptr<Control> control_;
  std::atomic<bool> polling_{false}, serving_{false}, stopping_{false};
  std::array<fabric::Completion, 32> polled_;  // of who is polling
  Mutex channels_mutex_;
  std::map<std::string, Channel*> channels_;
  std::atomic<Channel*> handling_{nullptr};  // the channel whose message is being served
  std::unique_ptr<Thread> poller_;
};

}  // namespace pyrdma::loco
