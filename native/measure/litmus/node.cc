#include "measure/litmus/node.h"

#include <algorithm>

#include "base/error.h"
#include "runtime/mesh.h"

namespace pyrdma::measure::litmus {

namespace {

constexpr std::uint32_t kSendEntries = 2 * kMaxRequests;
constexpr std::size_t kPolled = 8;

std::string memory_key(const Params& params, NodeId node) {
  return params.key("litmus-memory/" + std::to_string(node));
}

}  // namespace

Node::Node(Env& env, const Params& params, std::span<const Layout> layouts) : env_(env) {
  fabric::Device& device = env.device();
  device.open();
  if (device.capabilities().max_inline < kInlineBytes)
    throw Error(ErrorCode::kUnavailable, "litmus: " + device.name() + " has " +
                                             std::to_string(device.capabilities().max_inline) +
                                             " B of inline data; choose a device with at least " +
                                             std::to_string(kInlineBytes));
  pd_ = device.create_protection_domain();
  const NodeId self = env.node();
  std::size_t plain = kWord, relaxed = kWord;
  std::uint32_t entries = 1;
  peers_.resize(env.nodes());
  const auto nodes = static_cast<NodeId>(std::min<std::size_t>(env.nodes(), kMaxNodes));
  std::vector<std::size_t> control(env.nodes());
  for (const Layout& layout : layouts) {
    for (const std::uint32_t receives : layout.receives) entries = std::max(entries, receives);
    for (NodeId peer = 0; peer < nodes && self < nodes; ++peer) {
      peers_[peer].channels =
          std::max<std::size_t>(peers_[peer].channels, layout.channels[self][peer]);
      if (peer != self && (peer == 0 || self == 0))
        control[peer] = std::max<std::size_t>(control[peer], layout.agents_on[peer + self]);
    }
    if (self < nodes) plain = std::max(plain, layout.plain[self]);
    if (self < nodes) relaxed = std::max(relaxed, layout.relaxed[self]);
  }
  regions_[0] = device.allocate(*pd_, plain, fabric::kAllAccess);
  regions_[1] = device.allocate(*pd_, relaxed, fabric::kAllAccess | fabric::kRelaxedOrdering);
  fabric::Rendezvous& rendezvous = device.rendezvous();
  const std::array<fabric::RemoteRegion, 2> own = {regions_[0]->remote(), regions_[1]->remote()};
  rendezvous.publish_value(memory_key(params, self), own);

  fabric::QpOptions options;
  options.send_entries = kSendEntries;
  options.receive_entries = entries;
  options.max_sges = 1;
  options.max_inline = kInlineBytes;
  options.max_outstanding_reads = device.capabilities().max_outstanding_reads;
  runtime::Mesh mesh(env, params.key("litmus"));
  for (NodeId peer = 0; peer < nodes; ++peer) {
    Peer& there = peers_[peer];
    for (std::size_t i = 0; i < there.channels + control[peer]; ++i) {
      Connection& made = there.connections.emplace_back();
      made.sends = device.create_completion_queue(2 * kSendEntries);
      made.receives = device.create_completion_queue(entries);
      made.qp = device.create_queue_pair(*pd_, *made.sends, *made.receives, options);
      mesh.add(peer, *made.qp);
    }
  }
  const Time deadline = env.now() + runtime::kSetupTimeout;
  mesh.connect(deadline);
  for (NodeId peer = 0; peer < nodes; ++peer) {
    peers_[peer].regions = rendezvous.await_value<std::array<fabric::RemoteRegion, 2>>(
        memory_key(params, peer), deadline);
  }
  mesh.meet(runtime::kSetupTimeout);
}

void Node::await(fabric::CompletionQueue& queue, std::uint32_t count, NodeId peer) {
  if (count == 0) return;
  std::array<fabric::Completion, kPolled> done;
  const Time deadline = env_.now() + kWaitTimeout;
  while (count > 0) {
    std::size_t got = 0;
    const bool came = env_.poll_until(
        [&] {
          got = queue.poll(std::span(done).first(std::min<std::size_t>(kPolled, count)));
          return got != 0;
        },
        deadline, &queue.watch());
    if (!came) throw_waited("a completion", kWaitTimeout);
    for (std::size_t i = 0; i < got; ++i) {
      if (done[i].status != fabric::Status::kSuccess)
        throw Error(ErrorCode::kUnavailable,
                    "litmus: a request to node " + std::to_string(peer) +
                        " failed: " + fabric::to_string(done[i].status),
                    false);
    }
    count -= static_cast<std::uint32_t>(got);
  }
}

void Node::post(fabric::QueuePair& qp, const fabric::WorkRequest& request) {
  const fabric::PostResult result = qp.post({&request, 1});
  if (result.accepted != 1)
    throw Error(ErrorCode::kInternal, std::string("litmus: a request cannot be posted: ") +
                                          fabric::to_string(result.error));
}

void Node::throw_waited(const char* what, Time limit) const {
  const std::string node = "litmus: node " + std::to_string(env_.node());
  if (failed_.load())
    throw Error(
        ErrorCode::kInternal,
        node + " could not finish its wait for " + what + ": another thread of this node failed",
        false);
  throw Error(ErrorCode::kTimeout,
              node + " waited " + std::to_string(limit / kSecond) + " s for " + what, false);
}

}  // namespace pyrdma::measure::litmus
