// A queue pair that speaks eRPC by hand: tests send any packets to an endpoint, and see each packet
// that it sends.
#pragma once
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "env/env.h"
#include "fabric/fabric.h"
#include "runtime/exchange.h"
#include "runtime/memory_pool.h"
#include "systems/erpc/endpoint.h"

namespace pyrdma::erpc {

struct RawPacket {
  PacketHeader header;
  std::vector<std::byte> data;
  ManagementMessage message() const {
    ManagementMessage message;
    if (data.size() == sizeof message) std::memcpy(&message, data.data(), sizeof message);
    return message;
  }
};

class RawPeer {
 public:
  explicit RawPeer(Env& env) : env_(env) {
    fabric::Device& device = env.device();
    device.open();
    pd_ = device.create_protection_domain();
    memory_ = std::make_unique<runtime::MemoryPool>(env, *pd_, 256 * kKiB);
    sends_ = device.create_completion_queue(kPlaces);
    receives_ = device.create_completion_queue(kPlaces);
    fabric::QpOptions options;
    options.transport = fabric::Transport::kUd;
    options.send_entries = options.receive_entries = kPlaces;
    options.max_sges = 1;
    options.qkey = 0x0205;
    options.access = fabric::kLocalWrite;
    qp_ = device.create_queue_pair(*pd_, *sends_, *receives_, options);
    qp_->connect({});
    region_ = memory_->allocate(2ULL * kPlaces * kBytes);
    for (std::uint64_t i = 0; i < kPlaces; ++i) post(i);
  }
  fabric::QpAddress address() const { return qp_->address(); }
  /// Other endpoints find this peer as an incarnation of endpoint 0 of its node.
  void publish(const std::string& name, std::uint32_t incarnation = 0) {
    env_.device().rendezvous().publish_value(
        name + "/endpoint/" + std::to_string(env_.node()) + "/0/" + std::to_string(incarnation),
        address());
  }
  void aim(const fabric::QpAddress& at) {
    if (handle_ != nullptr && std::memcmp(&at, &at_, sizeof at) == 0) return;
    at_ = at;
    handle_ = env_.device().create_address_handle(*pd_, at);
  }
  /// Waits for the endpoint 0 of `node`, and aims at it.
  void aim_at(NodeId node, const std::string& name = "erpc") {
    const std::string key = name + "/endpoint/" + std::to_string(node) + "/0/0";
    fabric::QpAddress at;
    std::memcpy(&at, env_.device().rendezvous().await(key, env_.now() + kSecond).data(), sizeof at);
    aim(at);
  }
  void send(const void* bytes, std::size_t count) {
    count = std::min<std::size_t>(count, kBytes - fabric::kGrhBytes);
    std::byte* place = region_.data + (kPlaces + next_) * kBytes;
    std::memcpy(place, bytes, count);
    fabric::Sge piece{reinterpret_cast<std::uint64_t>(place), static_cast<std::uint32_t>(count),
                      region_.lkey};
    next_ = (next_ + 1) % kPlaces;
    fabric::WorkRequest request;
    request.opcode = fabric::Opcode::kSend;
    request.flags = fabric::kSignaled;
    request.sges = &piece;
    request.sge_count = 1;
    request.address_handle = handle_.get();
    request.remote_qpn = at_.qp_num;
    request.remote_qkey = at_.qkey;
    const auto is_posted = [&] { return qp_->post({&request, 1}).accepted == 1; };
    std::array<fabric::Completion, 1> done;
    if (is_posted()) env_.poll_until([&] { return sends_->poll(done) != 0; }, kForever);
  }
  void send(const PacketHeader& header, const void* data = nullptr, std::size_t count = 0) {
    std::vector<std::byte> bytes(kHeaderBytes + count);
    header.store(bytes.data());
    if (count != 0) std::memcpy(bytes.data() + kHeaderBytes, data, count);
    send(bytes.data(), bytes.size());
  }
  void send(const ManagementMessage& message) {
    PacketHeader header;
    header.what = PacketHeader::make_what(PacketKind::kManagement, 0, sizeof message, 0);
    send(header, &message, sizeof message);
  }
  /// Returns the next packet; nothing after `timeout`.
  std::optional<RawPacket> receive(Time timeout = 100 * kMicrosecond) {
    std::array<fabric::Completion, 1> done;
    if (!env_.poll_until([&] { return receives_->poll(done) != 0; }, env_.now() + timeout))
      return std::nullopt;
    const std::byte* place = region_.data + done[0].wr_id * kBytes + fabric::kGrhBytes;
    RawPacket packet;
    packet.header = PacketHeader::at(place);
    packet.data.assign(place + kHeaderBytes, place + (done[0].byte_count - fabric::kGrhBytes));
    post(done[0].wr_id);
    return packet;
  }

 private:
  static constexpr std::uint64_t kPlaces = 64, kBytes = 4096 + 64;
  void post(std::uint64_t place) {
    fabric::Sge piece = region_.sge(place * kBytes, kBytes);
    const fabric::ReceiveRequest request{place, &piece, 1};
    qp_->post_receive({&request, 1});
  }
  Env& env_;
  std::unique_ptr<fabric::ProtectionDomain> pd_;
  std::unique_ptr<runtime::MemoryPool> memory_;
  std::unique_ptr<fabric::CompletionQueue> sends_, receives_;
  std::unique_ptr<fabric::QueuePair> qp_;
  runtime::LocalRegion region_;
  std::unique_ptr<fabric::AddressHandle> handle_;
  fabric::QpAddress at_;
  std::uint64_t next_ = 0;
};

/// The answer of a peer by hand, at `from`, to a message.
inline ManagementMessage answer_message(ManagementMessage message, ManagementKind kind,
                                        const fabric::QpAddress& from) {
  message.kind = kind;
  message.is_for_client = 1;
  if (message.server_token == 0) message.server_token = 77;
  message.sender = from;
  return message;
}

/// What a client by hand, at `from`, asks a server with these options for.
inline ManagementMessage connect_message(const Options& options, const fabric::QpAddress& from) {
  ManagementMessage message;
  message.client_token = 5;
  message.credits = static_cast<std::uint16_t>(options.credits);
  message.slots = static_cast<std::uint16_t>(options.slots);
  message.packet_bytes = static_cast<std::uint16_t>(options.packet_bytes);
  message.sender = from;
  return message;
}

}  // namespace pyrdma::erpc
