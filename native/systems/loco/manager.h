// The manager of a node (paper, sections 4.2 and A) holds the runtime, with its callers and
// connections, and the channels by name.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "env/env.h"
#include "env/sync.h"
#include "runtime/runtime.h"
#include "systems/loco/bugs.h"
#include "systems/loco/control.h"
#include "systems/loco/names.h"

namespace pyrdma::loco {

class Channel;

/// `name` identifies the run: managers with the same name connect.
struct ManagerOptions : runtime::Options {
  ManagerOptions() { name = "loco"; }
  Bugs bugs;  // for tests only
};

/// One manager per node and run. The constructor connects to the managers of all other nodes and
/// blocks for that. The manager outlives its channels; its destructor ends the node's part. A node
/// that dies ends the run: a caller that waits for the node gets an error that names it. Two nodes
/// whose messages are lost for longer than the retries of a connection last (8 times timeout_us)
/// have lost each other for the rest of the run, although both live.
class Manager final : private runtime::Service {
 public:
  /// Throws Error(kInvalidArgument) for an option outside its bounds, Error(kUnavailable) if the
  /// device has no atomics or the node was restarted within the run, and Error(kTimeout) naming the
  /// nodes that did not come.
  Manager(Env& env, const ManagerOptions& options);
  ~Manager() override;
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  Env& env() { return runtime_.env(); }
  NodeId self() const { return runtime_.self(); }
  NodeId nodes() const { return runtime_.nodes(); }
  const ManagerOptions& options() const { return options_; }
  const Bugs& bugs() const { return options_.bugs; }
  Caller& caller(std::uint32_t index) { return runtime_.caller(index); }
  runtime::MemoryPool& memory() { return runtime_.memory(); }
  fabric::ProtectionDomain& domain() { return runtime_.domain(); }

  /// Blocks until every channel of this node has connected with its peers. Throws Error(kTimeout),
  /// naming the channels and the missing nodes, and Error(kInvalidArgument) with the view of both
  /// endpoints when two endpoints do not match. Both name the nodes to blame.
  void wait_for_ready();

  /// Ends this node's part in good order; see Runtime::leave.
  void leave() { runtime_.leave(); }

  /// Makes one turn of progress: completions, then join and connect messages. Any caller's thread
  /// may call; returns at once while another thread makes a turn. With one caller it also goes on
  /// with work that was dropped, such as an acquisition that has timed out.
  void turn() { runtime_.turn(); }
  /// The same from the thread of `me`, and goes on with what `me` has dropped; see Runtime::turn().
  bool turn(Caller& me) { return runtime_.turn(me); }

 private:
  friend class Channel;
  friend class Control;

  void connected(runtime::Connection& messages) override;
  void completed(runtime::Connection& messages, const fabric::Completion& completion) override;
  void serve() override;
  void peer_down(NodeId peer, fabric::Status why) override;
  void handle(const ControlMessage& message);
  void check_free(const std::string& name);
  void add(Channel& channel);
  void remove(Channel& channel);
  Channel* find(const std::string& name);
  /// Returns the generation of the last endpoint with this name and this checksum of its
  /// participants; 0 if there was none.
  std::uint32_t made(const std::string& name, std::uint64_t participants);
  bool all_ready();
  [[noreturn]] void throw_missing();

  ManagerOptions options_;
  runtime::Runtime runtime_;
  std::unique_ptr<Control> control_;
  std::atomic<bool> serving_{false};
  Mutex channels_mutex_;
  std::map<std::string, Channel*> channels_;
  std::map<std::pair<std::string, std::uint64_t>, std::uint32_t> made_;
  std::atomic<Channel*> handling_{nullptr};  // the channel whose message is being served
};

}  // namespace pyrdma::loco
