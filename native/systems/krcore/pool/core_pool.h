// The hybrid pool of one core (section 4.2): dynamic queue pairs made at boot, reliable ones made
// in the background, and where messages for the core arrive.
#pragma once
#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "env/sync.h"
#include "systems/krcore/options.h"
#include "systems/krcore/pool/physical_qp.h"

namespace pyrdma::krcore {

/// The paper's kernel does not preempt a call, so it needs no lock (ambiguity
/// algorithm2_shared_state). Here the lock is free unless threads of one core meet.
class CorePool {
 private:
  // First, since the queue pairs below use them, and go before them.
  std::unique_ptr<fabric::MemoryRegion> buffers_;
  std::unique_ptr<fabric::CompletionQueue> receives_, dynamic_completions_, idle_;
  std::unique_ptr<fabric::SharedReceiveQueue> shared_;
  std::unique_ptr<fabric::QueuePair> target_;

 public:
  CorePool(Env& env, fabric::ProtectionDomain& domain, const Options& options, std::uint32_t core);
  CorePool(const CorePool&) = delete;
  CorePool& operator=(const CorePool&) = delete;

  const std::uint32_t core;
  /// Guards the queue pairs, and the sending side of the virtual queue pairs that use them.
  Mutex mutex;
  std::vector<std::unique_ptr<PhysicalQp>> dynamic;
  std::multimap<NodeId, std::unique_ptr<PhysicalQp>> reliable;
  std::vector<std::unique_ptr<PhysicalQp>>
      leaving;                                      // reliable ones that nobody may choose any more
  std::vector<std::unique_ptr<PhysicalQp>> ending;  // that have failed; the builder's
  /// Requests of the service that found no place: its messages, and READs of the zero-copy
  /// protocol.
  std::deque<Prepared> deferred;

  /// Returns the next dynamic queue pair in service, or null (algorithm 1, line 4).
  PhysicalQp* next_dynamic(bool also_failed = false);
  /// Returns the reliable queue pair to the node with the fewest users, or null (algorithm 1, line
  /// 2). `least`: the earliest life of the node to which it may lead.
  PhysicalQp* reliable_to(NodeId node, std::uint32_t least = 0);
  /// Returns what a request to the node takes: a reliable queue pair, else the next dynamic one if
  /// the destination is known, else null.
  PhysicalQp* next_to(NodeId node, const Destination& to);
  PhysicalQp* by_number(std::uint32_t qp_num);
  std::unique_ptr<PhysicalQp> make_reliable(NodeId peer);
  /// Moves all receives of failed dynamic queue pairs that have drained back into service. Control
  /// path.
  void revive(PhysicalQp& dead);

  /// The target of this core, or an empty value on a device without dynamic connections.
  DctMeta target() const { return target_meta_; }

  /// Guards the receives, `received` and `repeated`.
  Mutex receive_mutex;
  fabric::CompletionQueue& receives() { return *receives_; }
  fabric::CompletionQueue* dynamic_completions() { return dynamic_completions_.get(); }
  const std::byte* buffer(std::uint64_t slot) const;
  std::uint64_t buffers() const { return options_.receive_buffers; }
  void post_buffer(std::uint64_t slot);

  std::vector<std::uint64_t> dynamic_requests;  // to each node since the last sample
  std::vector<std::uint32_t> frequent;          // samples in a row, of each node
  std::vector<fabric::WorkRequest> requests;    // of a post
  /// Completions of a poll. They stay here, since to make them anew costs as much as to poll.
  using Batch = std::array<fabric::Completion, 16>;
  Batch sent, received;
  /// Messages that come again, and wait until all cores have taken what came before them.
  std::vector<MessageHeader> repeated;

 private:
  fabric::QpOptions queue_pair_options(fabric::Transport transport) const;
  /// The printed listing asks for the send queue alone (ambiguity algorithm2_cq_depth).
  std::uint32_t depth() const {
    return options_.bugs.has(Bug::kSendDepthOnly)
               ? options_.send_entries
               : std::min(options_.send_entries, options_.completion_entries);
  }
  std::size_t buffer_bytes() const { return sizeof(MessageHeader) + options_.message_bytes; }
  Env& env_;
  fabric::ProtectionDomain& domain_;
  const Options& options_;
  DctMeta target_meta_;
  std::size_t next_dynamic_ = 0;
};

}  // namespace pyrdma::krcore
