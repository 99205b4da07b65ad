// A model of MPI's windows with passive-target locks, as Open MPI has them over RDMA: memory that
// every rank gives for a window is registered by itself, and each rank's part has one lock. An
// exclusive lock is a compare-and-swap on the target's word that is tried again at once until it
// succeeds (osc/ucx start_exclusive; osc/rdma with one level of locks); an unlock waits until the
// window's operations have ended at the target, then takes the lock off by an atomic that it does
// not wait for.
//
// What the model leaves out, in favour of MPI: its software's time per call, and its queue pairs,
// of which every rank has one to every rank; here a rank shares those of a LOCO caller.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "systems/loco/channel.h"

namespace pyrdma::loco {

struct MpiWindowsOptions {
  std::uint32_t windows = 1;
  std::uint32_t ranks = 1;  // per node; caller i of a node is one
  std::uint64_t bytes = 8;  // that a rank gives to a window
  bool merged = false;      // all in large regions, as LOCO's are: to tell the cause
};

class MpiWindows : public Channel {
 public:
  MpiWindows(Manager& manager, std::string name, const MpiWindowsOptions& options);
  ~MpiWindows() override;

  /// Learns where the parts of all ranks are. Once, when the channel is ready; blocks for round
  /// trips. Throws Error(kUnavailable) for a node that does not answer.
  void open(Caller& me);

  std::uint32_t windows() const { return options_.windows; }
  std::uint32_t ranks() const {
    return static_cast<std::uint32_t>(participants().size()) * per_node();
  }
  NodeId node_of(std::uint32_t rank) const { return participants()[rank / per_node()]; }
  std::size_t registrations() const { return memory_.size(); }

  /// MPI_Win_lock(MPI_LOCK_EXCLUSIVE). Blocks. Throws Error(kUnavailable) when the target does not
  /// answer, Error(kTimeout) after the manager's wait_timeout.
  void lock(Caller& me, std::uint32_t window, std::uint32_t rank);
  /// MPI_Win_unlock: waits for `pending`, the puts to that rank, then gives the lock back.
  void unlock(Caller& me, std::uint32_t window, std::uint32_t rank, AckKey&& pending);
  /// MPI_Get and MPI_Put of 8 bytes at `offset`; complete when the key is.
  AckKey get(Caller& me, std::uint32_t window, std::uint32_t rank, std::uint64_t offset,
             const MemRef& into);
  AckKey put(Caller& me, std::uint32_t window, std::uint32_t rank, std::uint64_t offset,
             const MemRef& from);
  /// What this node's rank `caller` gave to a window, for plain reads when all is quiet.
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
  LocalRegion table_;                // where they are, for the others to read
  std::vector<RemoteRegion> parts_;  // of all, by rank, then window
};

}  // namespace pyrdma::loco
