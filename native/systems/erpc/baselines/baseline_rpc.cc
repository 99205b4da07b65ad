#include "systems/erpc/baselines/baseline_rpc.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace pyrdma::erpc {

namespace {

constexpr std::uint32_t kMostThreads = 64, kMostInFlight = 4096;

void check_bound(const char* option, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string("RPC baseline: ") + option + " is " + std::to_string(value) +
                  "; give a value from " + std::to_string(least) + " to " + std::to_string(most));
}

}  // namespace

BaselineRpc::BaselineRpc(Env& env, const BaselineOptions& options, BaselineHandler handler)
    : env_(env), options_(options), handler_(std::move(handler)) {
  check_bound("nodes", env.nodes(), 2, 1 << 16);
  check_bound("threads", options.threads, 1, kMostThreads);
  check_bound("thread", options.thread, 0, options.threads - 1);
  check_bound("in_flight", options.in_flight, 1, kMostInFlight);
  check_bound("max_bytes", options.max_bytes, 1, 1 << 16);
  for (NodeId node = 0; node < env.nodes(); ++node) {
    if (node != env.node()) nodes_of_peers_.insert(nodes_of_peers_.end(), options.threads, node);
  }
  peers_of_slots_.assign(options.in_flight, kNoPeer);
  free_slots_.resize(options.in_flight);
  std::iota(free_slots_.rbegin(), free_slots_.rend(), 0U);
}

std::uint32_t BaselineRpc::send(std::uint32_t peer, std::span<const std::byte> request) {
  check_bound("the size of a request", request.size(), 0, options_.max_bytes);
  check_bound("the peer", peer, 0, peers() - 1);
  if (free_slots_.empty()) return kNoSlot;
  const std::uint32_t slot = free_slots_.back();
  if (!send_request(peer, slot, request)) return kNoSlot;
  free_slots_.pop_back();
  peers_of_slots_[slot] = peer;
  return slot;
}

bool BaselineRpc::end_request(std::uint32_t peer, std::uint32_t slot,
                              std::span<const std::byte> response, Done done) {
  if (slot >= peers_of_slots_.size() || peers_of_slots_[slot] != peer) {
    ++dropped_;
    return false;
  }
  done(slot, response);
  peers_of_slots_[slot] = kNoPeer;
  free_slots_.push_back(slot);
  return true;
}

std::uint32_t BaselineRpc::own_number_at(NodeId node) const {
  const NodeId before = env_.node() - (env_.node() > node ? 1U : 0U);
  return before * options_.threads + options_.thread;
}

void BaselineRpc::throw_failed(std::uint32_t peer, fabric::Status status) const {
  throw Error(ErrorCode::kUnavailable,
              "RPC baseline: a request to node " + std::to_string(node_of(peer)) + " failed (" +
                  fabric::to_string(status) + "); the baselines survive no failure: run again",
              false)
      .blaming({node_of(peer)});
}

}  // namespace pyrdma::erpc
