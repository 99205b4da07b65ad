// The daemon of a node: applications in other processes use the node's service through rings.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "systems/krcore/ring/socket.h"
#include "systems/krcore/service.h"

namespace pyrdma::krcore::ring {

/// Listens at a private Unix socket. Each application has a thread of the daemon, which sleeps when
/// the application has nothing for it. When an application ends, killed or not, its queues end at
/// once, and its memory is used again after the lease.
class Daemon {
 public:
  /// Listens in `folder`, which is made with mode 0700. Throws as listen_in does, and
  /// Error(kInvalidArgument) on a simulated node, which no other process can reach.
  Daemon(Service& service, const std::string& folder);
  /// Hangs up: each application gets Error(kUnavailable) at its next call.
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  /// The socket's path: FOLDER/node-N.
  const std::string& path() const { return path_; }
  std::uint32_t applications() const { return applications_.load(std::memory_order_relaxed); }
  /// Calls that no correct application makes.
  std::uint64_t malformed() const { return malformed_.load(std::memory_order_relaxed); }

 private:
  struct Client;
  void listen();
  void serve(Client& client);

  Service& service_;
  Env& env_;
  std::string path_;
  Descriptor listener_;
  std::atomic<bool> stops_{false};
  std::atomic<std::uint32_t> applications_{0};
  std::atomic<std::uint64_t> malformed_{0};
  std::vector<std::unique_ptr<Client>> clients_;  // of the thread that listens
  std::unique_ptr<Thread> thread_;
};

}  // namespace pyrdma::krcore::ring
