// Monitor is one thread per process. It notices the end of other nodes' processes, and retries
// requests that wait while the node's own threads neither post nor poll. It sleeps when it has
// nothing to watch or retry.
#pragma once
#include <memory>
#include <thread>
#include <vector>

#include "fabric/shm/node.h"

namespace pyrdma::fabric::shm {

class Monitor {
 public:
  /// Watches all nodes of `session` that are other processes, and serves the `local` nodes, which
  /// must outlive it. With `watch_controller`, the controller's end stops the local nodes.
  Monitor(std::shared_ptr<Mapping> session, std::vector<Node*> local, bool watch_controller);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;
  /// Reports that requests have begun to wait. Any thread may call it.
  void wake();

 private:
  struct Watched {
    NodeId node;  // kController for the controller
    std::uint32_t incarnation;
    int pid;
    std::uint64_t start;
    int descriptor;  // pidfd of the process; -1 where the kernel has none: then polled
    bool ended;      // or the process is this one, which needs no watching
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
