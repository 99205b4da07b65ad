// A model of MPI's windows with passive-target locks, as Open MPI implements them over RDMA. The
// memory that a rank gives to a window has a registration of its own, and the part of each rank has
// one lock. An exclusive lock is a compare-and-swap on the word at the target, repeated at once
// until it succeeds (osc/ucx start_exclusive; osc/rdma with one level of locks). An unlock waits
// until the operations of the window have ended at the target. It then clears the lock by an
// atomic, and does not wait for the atomic.
//
// The model leaves out two costs, in favour of MPI: the time of its software per call, and its
// queue pairs. In MPI every rank has a queue pair to every rank; here a rank shares the queue pairs
// of a LOCO caller.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "systems/loco/channel.h"

namespace pyrdma::loco {

struct MpiWindowsOptions {
  std::uint32_t windows = 1;
  std::uint32_t ranks = 1;  // ranks per node; caller i of a node is one rank
  std::uint64_t bytes = 8;  // bytes that a rank gives to a window
  bool merged = false;      // all parts in large regions: isolates the cost of registrations
};

class MpiWindows : public Channel {
 public:
  MpiWindows(Manager& manager, std::string name, const MpiWindowsOptions& options);
  ~MpiWindows() override;

  /// Reads where the parts of all ranks are. The caller calls it once, when the channel is ready;
  /// blocks for round trips. Throws Error(kUnavailable) for a node that does not answer.
  void open(Caller& me);

  std::uint32_t windows() const { return options_.windows; }
  std::uint32_t ranks() const {
    return static_cast<std::uint32_t>(participants().size()) * per_node();
  }
  NodeId node_of(std::uint32_t rank) const { return participants()[rank / per_node()]; }

  /// MPI_Win_lock(MPI_LOCK_EXCLUSIVE). Blocks. Throws Error(kUnavailable) when the target does not
  /// answer, Error(kTimeout) after the manager's wait_timeout.
  void lock(Caller& me, std::uint32_t window, std::uint32_t rank);
  /// MPI_Win_unlock: waits for `pending`, the puts to that rank, then releases the lock.
  void unlock(Caller& me, std::uint32_t window, std::uint32_t rank, AckKey&& pending);
  /// MPI_Get and MPI_Put of 8 bytes at `offset`. The operation is complete when the key is
  /// complete.
  AckKey get(Caller& me, std::uint32_t window, std::uint32_t rank, std::uint64_t offset,
             const MemRef& into);
  AckKey put(Caller& me, std::uint32_t window, std::uint32_t rank, std::uint64_t offset,
             const MemRef& from);
  /// Returns the part that rank `caller` of this node gave to a window, for plain reads when no
  /// operation is in flight.
  const std::byte* local(std::uint32_t window, std::uint32_t caller) const;

 private:
  std::uint32_t per_node() const { return options_.ranks; }
  const RemoteRegion& part(std::uint32_t window, std::uint32_t rank) const {
    return parts_[std::size_t{rank} * options_.windows + window];
  }
  [[noreturn]] void throw_unreachable(std::uint32_t window, std::uint32_t rank,
                                      fabric::Status status) const;

  MpiWindowsOptions options_;
  std::vector<std::unique_ptr<fabric::MemoryRegion>> memory_;  // one for each part
  std::vector<const std::byte*> own_;                          // by caller, then window
  LocalRegion table_;                // the places of the parts, for other nodes to read
  std::vector<RemoteRegion> parts_;  // the parts of all ranks, by rank, then window
};

}  // namespace pyrdma::loco
