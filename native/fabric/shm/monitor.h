// One thread per process: learns of the death of other nodes' processes, and retries requests that
// wait while the node's own threads neither post nor poll. It sleeps when there is nothing to watch
// or retry.
#pragma once
#include <memory>
#include <thread>
#include <vector>

#include "fabric/shm/node.h"

namespace pyrdma::fabric::shm {

class Monitor {
 public:
  /// Watches all nodes of `session` that are other processes, and serves `local` nodes, which
  /// outlive it. With `watch_controller`, the controller's end stops the local nodes.
  Monitor(std::shared_ptr<Mapping> session, std::vector<Node*> local, bool watch_controller);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;
  /// Requests have begun to wait. Any thread.
  void wake();

 private:
  struct Watched {
    NodeId node;  // kController for the controller
    std::uint32_t incarnation;
    int pid;
    std::uint64_t start;
    int descriptor;  // of the process; -1 where the kernel has none, then it is asked for regularly
    bool ended;      // or of this process, which needs no watching
  };
  void run();
  void find_processes();
  void forget(NodeId node);
  void watch(NodeId node, std::uint32_t incarnation, int pid, std::uint64_t start);
  void check(Watched& watched);
  bool retry();

  std::shared_ptr<Mapping> session_;
  std::vector<Node*> local_;
  std::vector<Watched> watched_;
  bool watch_controller_;
  int event_ = -1;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace pyrdma::fabric::shm
