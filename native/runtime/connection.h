// One reliable connection to a peer, with the positions that this node counts.
#pragma once
#include <algorithm>
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

/// The requests that a connection has lost. The first request of a queue pair that fails takes all
/// later ones of the queue pair with it. Whether writes or atomics were among them is known when
/// somebody asks: a failed completion does not name its operation. Atomic members are written by
/// the polling thread, the others under the lock of the caller, and also read under it.
class Losses {
 public:
  /// Returns true if a request has ever failed. Cost: a load.
  bool any() const { return any_.load(std::memory_order_acquire); }
  /// Returns how often the connection has failed.
  std::uint32_t failures() const { return failures_.load(std::memory_order_acquire); }
  /// All requests from `position` on fail until the connection is made again.
  void begin(std::uint64_t position, fabric::Status why) {
    from_.store(position, std::memory_order_relaxed);
    until_.store(kOpen, std::memory_order_relaxed);
    why_.store(why, std::memory_order_relaxed);
    failures_.store(failures() + 1, std::memory_order_release);
    any_.store(true, std::memory_order_release);
  }
  /// The connection is made again: later requests than `posted` go over another queue pair.
  void end(std::uint64_t posted, std::uint64_t last_change) {
    if (until_.load(std::memory_order_relaxed) != kOpen) return;  // this queue pair lost nothing
    change_ = newest(last_change);
    until_.store(posted, std::memory_order_relaxed);
  }
  /// Returns the position of the newest write or atomic that is lost; 0: none. `last_change` is the
  /// position of the last one that was posted.
  std::uint64_t newest(std::uint64_t last_change) const {
    return includes(last_change) ? last_change : change_;
  }
  /// Returns true if the request at `position` failed, unless others have failed after the
  /// connection was made again.
  bool includes(std::uint64_t position) const {
    return any() && from_.load(std::memory_order_relaxed) <= position &&
           position <= until_.load(std::memory_order_relaxed);
  }
  /// Returns why the first request of those failed.
  fabric::Status why() const { return why_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint64_t kOpen = ~std::uint64_t{0};
  std::atomic<bool> any_{false};
  std::atomic<std::uint32_t> failures_{0};
  std::atomic<std::uint64_t> from_{0}, until_{0};
  std::atomic<fabric::Status> why_{fabric::Status::kSuccess};
  std::uint64_t change_ = 0;  // of earlier queue pairs
};

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
  std::uint64_t last_atomic = 0;            // position of the last atomic
  std::atomic<std::uint64_t> completed{0};  // written by the polling thread
  // The number of requests of each post in flight, in order. The caller writes at `posts`; the
  // polling thread reads at `ended`.
  std::vector<std::uint8_t> sizes;
  std::uint64_t posts = 0, ended = 0;
  // The first error; written by the polling thread.
  std::atomic<fabric::Status> error{fabric::Status::kSuccess};
  Losses losses;

  std::uint64_t last_change() const { return std::max(last_write, last_atomic); }
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
