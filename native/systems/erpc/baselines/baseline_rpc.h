// What the baselines of eRPC have in common: an endpoint of one thread that is a client and a
// server of the threads of all other nodes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "env/env.h"
#include "fabric/fabric.h"

namespace pyrdma::erpc {

/// Answers a request: writes the response, and returns its bytes. Runs within poll(), and calls no
/// function of the endpoint. `response` has max_bytes.
using BaselineHandler =
    std::function<std::size_t(std::span<const std::byte> request, std::span<std::byte> response)>;

struct BaselineOptions {
  std::string name = "baseline";         // endpoints of one name form a mesh; used once in a run
  std::uint32_t threads = 1;             // of every node
  std::uint32_t thread = 0;              // the endpoint's
  std::uint32_t in_flight = 60;          // requests of an endpoint without a response, 1..4096
  std::uint32_t max_bytes = 64;          // of a request or response
  std::uint32_t ring_bytes = 16 * 1024;  // of a ring: a power of two, for 16 messages at least
};

/// One thread uses an endpoint. Other nodes' threads are peers 0 to peers()-1.
class BaselineRpc {
 public:
  using Done = FunctionRef<void(std::uint32_t slot, std::span<const std::byte> response)>;
  static constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};

  virtual ~BaselineRpc() = default;
  /// Waits for the peers, which call it too, and connects with them. Requests may be sent once all
  /// nodes have connected. Throws Error(kTimeout).
  virtual void connect(Time deadline) = 0;
  /// Begins a request. The bytes are copied. Returns its slot, below in_flight, or kNoSlot if
  /// there is no room now: poll. Throws Error(kInvalidArgument) for more than max_bytes.
  std::uint32_t send(std::uint32_t peer, std::span<const std::byte> request);
  /// Posts the requests since the last call.
  virtual void flush() = 0;
  /// Answers requests, and calls `done` for each response; the slot is free afterwards. `done` may
  /// not call the endpoint. Returns whether anything came. Throws Error(kUnavailable), naming the
  /// node, if a request to a node has failed: the baselines survive no failure.
  virtual bool poll(Done done) = 0;

  std::uint32_t peers() const { return static_cast<std::uint32_t>(nodes_of_peers_.size()); }
  NodeId node_of(std::uint32_t peer) const { return nodes_of_peers_.at(peer); }
  /// Returns the slots in use.
  std::uint32_t in_flight() const {
    return options_.in_flight - static_cast<std::uint32_t>(free_slots_.size());
  }
  /// Returns the messages that were dropped because a field of them lied.
  std::uint64_t dropped() const { return dropped_; }

 protected:
  /// Throws Error(kInvalidArgument) for an option outside its bounds.
  BaselineRpc(Env& env, const BaselineOptions& options, BaselineHandler handler);
  /// Sends a request of `slot`, and returns whether there was room.
  virtual bool send_request(std::uint32_t peer, std::uint32_t slot,
                            std::span<const std::byte> request) = 0;
  /// Ends the request of `slot` if `peer` has it; otherwise counts a dropped message and returns
  /// false.
  bool end_request(std::uint32_t peer, std::uint32_t slot, std::span<const std::byte> response,
                   Done done);
  std::uint32_t thread_of(std::uint32_t peer) const { return peer % options_.threads; }
  /// The endpoint's number at the node of one of its peers.
  std::uint32_t own_number_at(NodeId node) const;
  [[noreturn]] void throw_failed(std::uint32_t peer, fabric::Status status) const;

  Env& env_;
  const BaselineOptions options_;
  const BaselineHandler handler_;
  std::uint64_t dropped_ = 0;

 private:
  static constexpr std::uint32_t kNoPeer = ~std::uint32_t{0};
  std::vector<NodeId> nodes_of_peers_;
  std::vector<std::uint32_t> peers_of_slots_;  // kNoPeer: free
  std::vector<std::uint32_t> free_slots_;
};

}  // namespace pyrdma::erpc
