// One reliable connection to a peer, with the positions that this node counts.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "env/env.h"
#include "fabric/fabric.h"

namespace pyrdma::runtime {

class Caller;

/// A queue pair of one caller to one peer, or the queue pair for messages. Positions count its
/// requests. The requests complete in order, one post at a time. The count continues when the
/// connection is made again.
struct Connection {
  std::unique_ptr<fabric::QueuePair> qp;
  Caller* caller = nullptr;  // nullptr for the messages
  NodeId peer = 0;
  bool fence_next = false;  // the next request waits for reads and atomics before it
  std::uint64_t posted = 0;
  std::uint64_t last_write = 0;             // position of the last write
  std::uint64_t last_flush = 0;             // position of the last read or atomic
  std::atomic<std::uint64_t> completed{0};  // written by the polling thread
  // The number of requests of each post in flight, in order. The caller writes at `posts`; the
  // polling thread reads at `ended`.
  std::vector<std::uint8_t> sizes;
  std::uint64_t posts = 0, ended = 0;
  // The first error; written by the polling thread.
  std::atomic<fabric::Status> error{fabric::Status::kSuccess};

  std::uint8_t& size_of(std::uint64_t post) { return sizes[post & (sizes.size() - 1)]; }
};

/// Finds connections by queue pair number. The numbers of a device are dense, so open addressing
/// finds most of them at the first probe. One thread uses it at a time.
class ConnectionTable {
 public:
  void assign(const std::vector<Connection*>& connections) {
    std::size_t slots = 2;
    while (slots < 2 * connections.size()) slots *= 2;
    slots_.assign(slots, {0, nullptr});
    for (Connection* connection : connections) {
      std::size_t at = connection->qp->qp_num() & (slots - 1);
      while (slots_[at].second != nullptr) at = (at + 1) & (slots - 1);
      slots_[at] = {connection->qp->qp_num(), connection};
    }
  }
  /// Requires that the table holds one.
  Connection& find(std::uint32_t qp_num) const {
    std::size_t at = qp_num & (slots_.size() - 1);
    while (slots_[at].first != qp_num || slots_[at].second == nullptr) {
      PYRDMA_ASSERT(slots_[at].second != nullptr);
      at = (at + 1) & (slots_.size() - 1);
    }
    return *slots_[at].second;
  }

 private:
  std::vector<std::pair<std::uint32_t, Connection*>> slots_;
};

}  // namespace pyrdma::runtime
