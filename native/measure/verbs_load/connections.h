// Connections sets up a node's part: its regions, its queues, and the exchange that connects them.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "fabric/fabric.h"
#include "measure/verbs_load/doorbell.h"
#include "measure/verbs_load/plan.h"

namespace pyrdma::measure::verbs_load {

/// Route is a path for a sender's requests.
struct Route {
  fabric::QueuePair* qp = nullptr;
  const fabric::AddressHandle* handle = nullptr;  // UD, DC
  std::uint32_t remote_qpn = 0, remote_qkey = 0;
  const std::vector<fabric::RemoteRegion>* regions = nullptr;
  NodeId peer = 0;
  std::uint32_t client = 0;
  Doorbell* doorbell = nullptr;  // shared with other queue pairs
};

/// Sender is the property of one sending thread, or of one side of a ping-pong.
struct Sender {
  std::unique_ptr<fabric::MemoryRegion> local;
  std::unique_ptr<fabric::CompletionQueue> cq;
  std::unique_ptr<fabric::CompletionQueue> receives;  // ping-pong only
  std::vector<Route> routes;
};

/// ReceiveTarget is a queue to which a receiving thread posts its buffers.
struct ReceiveTarget {
  fabric::QueuePair* qp = nullptr;
  fabric::SharedReceiveQueue* shared = nullptr;  // DC targets
};

struct Receiver {
  std::unique_ptr<fabric::MemoryRegion> local;
  std::unique_ptr<fabric::CompletionQueue> cq;
  std::vector<ReceiveTarget> targets;
  std::uint32_t depth = 0;  // receives posted per target
};

/// Connections holds everything of one node; all of it is connected when the constructor returns.
/// Each thread takes its Sender or Receiver.
class Connections {
 public:
  Connections(Env& env, const Params& params, const Load& load);
  std::vector<Sender>& senders() { return senders_; }
  std::vector<Receiver>& receivers() { return receivers_; }
  /// Returns this node's own target region, in which a ping-pong sees the peer's writes; nullptr
  /// for sends.
  const fabric::MemoryRegion* inbox() const {
    return regions_.empty() ? nullptr : regions_.front().get();
  }
  /// Returns the offset of a client's own place in a region.
  static std::uint64_t place_of(const Load& load, std::uint32_t client);

 private:
  void make_regions();
  void make_senders();
  void make_receivers();
  void connect_links();
  void address_targets();
  void make_targets();
  void publish_targets();
  fabric::QpOptions options() const;
  fabric::CompletionQueue& receive_queue(const Link& link, std::size_t position);
  const std::vector<fabric::RemoteRegion>& regions_of(NodeId peer);
  Doorbell* doorbell_of(std::size_t queue_pair);
  std::string key(const char* what, NodeId a) const;

  Env& env_;
  const Params& params_;
  const Load& load_;
  fabric::Device& device_;
  Time deadline_;
  std::vector<Link> links_;

  // The order of creation: each member needs only members above it.
  std::unique_ptr<fabric::ProtectionDomain> pd_;
  std::vector<std::unique_ptr<fabric::MemoryRegion>> regions_;
  std::map<NodeId, std::vector<fabric::RemoteRegion>> peer_regions_;
  std::unique_ptr<fabric::CompletionQueue> idle_cq_;  // for queues without completions
  std::vector<Sender> senders_;
  std::vector<Receiver> receivers_;
  std::vector<std::unique_ptr<fabric::SharedReceiveQueue>> shared_receives_;
  std::vector<std::unique_ptr<fabric::AddressHandle>> handles_;
  std::vector<std::unique_ptr<fabric::QueuePair>> qps_;
  std::vector<std::unique_ptr<Doorbell>> doorbells_;
};

}  // namespace pyrdma::measure::verbs_load
