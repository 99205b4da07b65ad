// RPCs in the style of FaSST (Kalia, Kaminsky, Andersen: FaSST, OSDI 2016), to compare eRPC with.
//
// A thread has one UD queue pair. A request and a response are one datagram each. Sends are
// unsignaled but for a few, and those of a batch, responses included, share a doorbell. Nothing
// handles loss: the slot of a lost request stays in use. There is no congestion control, and no
// flow control but in_flight: the receive queue must hold what all peers may send at once.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "fabric/fabric.h"
#include "systems/erpc/baselines/baseline_rpc.h"

namespace pyrdma::erpc {

class FasstRpc final : public BaselineRpc {
 public:
  /// Makes the queues and publishes their address. Throws Error(kUnavailable) for a device without
  /// UD, and Error(kInvalidArgument) for options outside their bounds; a datagram bounds max_bytes.
  FasstRpc(Env& env, const BaselineOptions& options, BaselineHandler handler);
  void connect(Time deadline) override;
  void flush() override;
  bool poll(Done done) override;

 private:
  enum class Kind : std::uint8_t { kRequest = 1, kResponse = 2 };
  struct Header {
    std::uint32_t sender;  // peer number of the sender at the receiver
    std::uint32_t slot;
    std::uint32_t bytes;
    Kind kind;
    std::uint8_t unused[3];
  };
  static_assert(sizeof(Header) == 16);
  struct Target {
    const fabric::AddressHandle* handle = nullptr;
    fabric::QpAddress address;
    std::uint32_t own_number = 0;  // of this endpoint there
  };

  bool send_request(std::uint32_t peer, std::uint32_t slot,
                    std::span<const std::byte> request) override;
  void make_queues();
  void make_buffers();
  bool has_room() const { return queued_ - completed_ < send_entries_; }
  std::byte* next_payload();
  void queue(std::uint32_t peer, std::uint32_t slot, Kind kind, std::size_t bytes);
  void await_room();
  void reap();
  void refill();
  void handle(const fabric::Completion& completion, Done done);
  std::string address_key(NodeId node, std::uint32_t thread) const;

  fabric::Device& device_;
  const std::uint32_t buffer_bytes_;
  std::uint32_t send_entries_ = 0, receive_entries_ = 0, max_inline_ = 0;
  std::unique_ptr<fabric::ProtectionDomain> pd_;
  std::unique_ptr<fabric::MemoryRegion> sends_, receives_;  // a buffer per entry
  std::unique_ptr<fabric::CompletionQueue> send_queue_, receive_queue_;
  std::vector<std::unique_ptr<fabric::AddressHandle>> handles_;
  std::unique_ptr<fabric::QueuePair> qp_;
  std::vector<Target> targets_;                // by peer
  std::vector<fabric::WorkRequest> requests_;  // by send buffer
  std::vector<fabric::Sge> pieces_;            // by send buffer
  std::vector<std::uint32_t> receivers_;       // peers, by send buffer
  std::vector<fabric::Sge> receive_pieces_;    // by receive buffer
  std::vector<fabric::ReceiveRequest> to_refill_;
  std::uint64_t queued_ = 0, posted_ = 0, completed_ = 0;  // sends so far
};

}  // namespace pyrdma::erpc
