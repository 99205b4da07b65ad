// The controller keeps the set-up exchange of a run: the named blobs and the states of the nodes.
// Each node has two connections. One carries its calls. The other carries the stop message, and its
// end tells the controller that the node has ended. One thread serves all connections.
#pragma once
#include <atomic>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "env/thread/clock.h"
#include "fabric/verbs/accepted_link.h"
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
    AcceptedLink link;
    Time since;
    std::list<Connection>::iterator self{};
    bool greeted = false;      // it has proved the token
    bool ending = false;       // it ends once its last bytes are sent
    bool awaits_room = false;  // epoll waits until the descriptor is writable
    NodeId node = 0;
    Channel channel = Channel::kCalls;
  };

  void raise_descriptor_limit() const;
  void run();
  // The thread of run() calls these under the mutex.
  void tell_stop();
  void admit();
  void close_late_strangers();
  int milliseconds_to_next_close() const;
  void serve(Connection& connection);
  // Both return false when the connection is to end.
  bool greet(Connection& connection, const Bytes& message);
  bool answer(Connection& connection, const Bytes& message);
  Bytes publish(Reader& reader);
  Bytes find(Reader& reader) const;
  /// Tells epoll whether the connection waits to read or to send.
  void watch(Connection& connection);
  void drop(Connection& connection);
  std::string list(State state) const;

  SessionOptions options_;
  std::string name_, token_;
  Clock clock_;
  std::string boot_;
  Socket listener_, poller_;
  Socket stop_event_;  // written by request_stop, which signal handlers may call
  std::atomic<bool> closing_{false};
  mutable std::mutex mutex_;  // guards the members below
  std::vector<State> states_;
  std::vector<std::uint32_t> incarnations_;
  std::vector<Connection*> events_;  // by node
  std::map<std::string, Bytes, std::less<>> blobs_;
  std::size_t table_bytes_ = 0;
  std::list<Connection> strangers_;  // have not proved the token yet; the oldest is the first
  std::list<Connection> greeted_;
  std::thread thread_;
};

}  // namespace pyrdma::fabric::verbs
