// The controller keeps the set-up exchange of a run: the named blobs and the states of the nodes.
// Each node has two connections. One carries its calls. The other carries the stop message, and its
// end tells the controller that the node has ended.
#pragma once
#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "env/thread/clock.h"
#include "fabric/verbs/cluster.h"
#include "fabric/verbs/socket.h"

namespace pyrdma::fabric::verbs {

enum class Channel : std::uint8_t { kCalls, kEvents };

/// Welcome is the controller's reply to a node that attaches.
struct Welcome {
  std::uint64_t seed = 1;
  Clock clock;  // the run's clock, where controller and node share a machine
  std::uint32_t incarnation = 0;
  std::uint32_t neighbours = 0;  // known other nodes on the same machine
};

class ExchangeServer {
 public:
  explicit ExchangeServer(const SessionOptions& options);
  ~ExchangeServer();
  ExchangeServer(const ExchangeServer&) = delete;
  ExchangeServer& operator=(const ExchangeServer&) = delete;

  const std::string& name() const { return name_; }
  const std::string& token() const { return token_; }
  std::uint32_t nodes() const { return options_.nodes; }
  std::vector<NodeId> dead_nodes() const;
  bool all_attached() const;
  /// Counts the times that `node` has attached again after its death.
  std::uint32_t incarnation(NodeId node) const;
  /// Reports that the node's process has ended: another process may take its place.
  void declare_dead(NodeId node);
  Time now() const { return clock_.now(); }
  void request_stop();

 private:
  enum class State : std::uint8_t { kFree, kAttached, kLeft, kDead };
  struct Connection {
    Link link;
    int descriptor = -1;  // descriptor of the link, which the connection's thread opens
    std::thread thread;
    Time since = 0;
    std::atomic<bool> greeted{false}, ended{false};
  };

  void accept_all();
  void tell_stop();
  void forget_ended();  // under the mutex
  /// Closes connections that took too long to authenticate; returns the milliseconds until the next
  /// call is due.
  int close_unauthenticated();
  void serve(Connection& connection, Socket socket);
  bool greet(Link& link, NodeId* node, Channel* channel);
  bool answer(Link& link, NodeId node, const Bytes& message);
  Bytes publish(Reader& reader);
  Bytes find(Reader& reader) const;
  void end(NodeId node, const Link& link);
  std::string list(State state) const;

  SessionOptions options_;
  std::string name_, token_;
  Clock clock_;
  Socket listener_;
  int stop_event_ = -1;  // written by request_stop, which signal handlers may call
  std::atomic<bool> closing_{false};
  mutable std::mutex mutex_;  // guards the members below
  std::vector<State> states_;
  std::vector<std::uint32_t> incarnations_;
  std::vector<Link*> events_;  // by node
  std::map<std::string, Bytes, std::less<>> blobs_;
  std::list<Connection> connections_;
  std::thread acceptor_;
};

}  // namespace pyrdma::fabric::verbs
