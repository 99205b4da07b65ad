// User-space verbs with connections that one process caches (KRCore, section 1): a cached one costs
// nothing, not even a system call. Driver data and queues belong to the process, so another process
// of the node shares nothing of it and pays the whole control path, the driver's start included.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "env/sync.h"
#include "fabric/fabric.h"

namespace pyrdma::krcore {

/// The pool of one process. All threads of the process may use it.
class ProcessPool {
 public:
  /// Pools of one `name` meet; `process` numbers those of a node.
  ProcessPool(Env& env, std::string name, std::uint32_t process);

  /// One end of a connection.
  struct Connection {
    std::unique_ptr<fabric::CompletionQueue> completions;
    std::unique_ptr<fabric::QueuePair> qp;
  };
  /// Returns the cached connection to process `process` of the node, or makes it, which takes that
  /// process's call of accept(). Throws Error(kTimeout) after `deadline`.
  Connection& connect(NodeId node, std::uint32_t process, Time deadline);
  /// Makes the passive end for process `process` of the node.
  Connection& accept(NodeId node, std::uint32_t process, Time deadline);
  /// The process's own domain: registered memory is not shared either. Starts the driver.
  fabric::ProtectionDomain& domain();
  std::uint64_t hits() const { return hits_; }

 private:
  using Key = std::pair<NodeId, std::uint32_t>;
  Connection make(NodeId node, const std::string& name, Time deadline);
  std::string name_of(NodeId client, std::uint32_t process, std::uint32_t server_process) const;
  fabric::ProtectionDomain& open();

  Env& env_;
  const std::string name_;
  const std::uint32_t process_;
  Mutex mutex_;
  std::unique_ptr<fabric::ProtectionDomain> domain_;
  std::map<Key, Connection> active_, passive_;
  std::uint64_t hits_ = 0;
};

}  // namespace pyrdma::krcore
