// Unreliable packets of an endpoint (eRPC, sections 4.1.1 and 4.2): one UD queue pair with its
// receives, which the endpoint posts again after each batch.
//
// Sending is unsignaled: no completion says that the NIC has read a buffer. drain() waits until the
// NIC has read all of them; a retransmission calls it (section 4.2.2).
//
// Receives: where the device can, one receive takes many datagrams (section 4.1.1). A packet lies
// in its receive so that its header begins at a cache line. The packet belongs to the endpoint
// until the batch that it came in is over.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/function_ref.h"
#include "env/env.h"
#include "env/scope.h"
#include "fabric/fabric.h"
#include "fabric/overrun.h"
#include "runtime/memory_pool.h"
#include "systems/erpc/options.h"
#include "systems/erpc/packet_header.h"
#include "systems/erpc/scopes.h"

namespace pyrdma::erpc {

/// Where a packet goes. The address handle outlives the packets.
struct Destination {
  const fabric::AddressHandle* handle = nullptr;
  std::uint32_t qp_num = 0, qkey = 0;
};

/// A received packet, valid during the call that hands it over.
struct Packet {
  PacketHeader header;
  const std::byte* data = nullptr;
  std::uint32_t bytes = 0;    // of data
  bool is_congested = false;  // a switch has marked it
  Time arrived = 0;
  // The sender, which the NIC names: its queue pair, and above that its node, or kNoNode where the
  // fabric does not know it.
  std::uint64_t source = 0;
  std::uint32_t source_qpn() const { return static_cast<std::uint32_t>(source); }
  std::uint32_t source_node() const { return static_cast<std::uint32_t>(source >> 32U); }
};

struct TransportCounters {
  std::uint64_t sent = 0, received = 0, doorbells = 0, drains = 0;
  std::uint64_t malformed = 0;     // too short, wrong magic or kind
  std::uint64_t bad_checksum = 0;  // with Options::checksums
  std::uint64_t healed = 0;        // times that the queue pair was in the error state
};

class Transport {
 public:
  /// `options` are checked. Throws Error(kExhausted) when the device has no room for the receives.
  Transport(Env& env, fabric::ProtectionDomain& pd, runtime::MemoryPool& memory,
            const Options& options);
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  fabric::QpAddress address() const { return qp_->address(); }
  std::unique_ptr<fabric::AddressHandle> handle_for(const fabric::QpAddress& peer) {
    return env_.device().create_address_handle(pd_, peer);
  }
  Watch& watch() { return receive_queue_->watch(); }

  /// Queues a packet: its header at `header`, of which the word before is used with checksums, and
  /// `bytes` of data at `data`, all registered. The memory belongs to the NIC until a drain(), or
  /// until an answer shows that it has been read.
  void send(const Destination& to, std::byte* header, std::uint32_t header_key,
            const std::byte* data, std::uint32_t bytes, std::uint32_t data_key) {
    // Data right behind the header are one piece with it.
    if (bytes == 0 || data == header + kHeaderBytes) {
      send_joined(to, header, bytes, header_key);
      return;
    }
    fabric::Sge& rest = queue(to, header, head_bytes_, header_key, data, bytes, 2);
    rest = {reinterpret_cast<std::uint64_t>(data), bytes, data_key};
  }
  /// The same with the data right behind the header.
  void send_joined(const Destination& to, std::byte* header, std::uint32_t bytes,
                   std::uint32_t key) {
    queue(to, header, head_bytes_ + bytes, key, header + kHeaderBytes, bytes, 1);
  }
  /// Queues a packet without data, or of up to kControlData bytes that are copied, in memory of the
  /// transport's own.
  void send_control(const Destination& to, const PacketHeader& header, const void* data = nullptr,
                    std::uint32_t bytes = 0);
  static constexpr std::uint32_t kControlData = 104;

  /// Hands the queued packets to the NIC, with one doorbell.
  void flush() {
    if (pending_ != 0) post_pending();
  }
  bool has_queued() const { return pending_ != 0; }
  /// Flushes, then waits until the NIC has read every packet. Cost: a round trip to the NIC, about
  /// 2 us.
  [[gnu::noinline]] void drain();

  /// The NIC reads no buffer from now on; packets that it has not sent are lost. Never waits. Later
  /// packets are dropped.
  void abandon() {
    is_broken_ = true;
    pending_ = 0;
    qp_.reset();
  }

  /// Hands each packet of one batch to `each`, then posts the receives again. Returns the number of
  /// datagrams, 0 if there were none. `stamp` is the time of the batch's arrival if the options say
  /// so: one reading of the clock per batch, taken only if there is a packet.
  template <class Each>
  std::uint32_t receive(Each&& each);

  /// Returns the header of kGrhBytes that the NIC has put before a packet. Its content is undefined
  /// where the network has none (an InfiniBand subnet, sim, shm).
  const std::byte* routing_header(const Packet& packet) const {
    return packet.data - head_bytes_ - fabric::kGrhBytes;
  }

  const TransportCounters& counters() const { return counters_; }
  /// Brings a queue pair that is in the error state back. Call it outside of receive(). All packets
  /// that were under way are lost.
  void heal_if_broken() {
    if (is_broken_) [[unlikely]]
      heal();
  }

 private:
  // Queues a packet whose first piece has `length` bytes. Returns the place of the second piece.
  fabric::Sge& queue(const Destination& to, std::byte* header, std::uint32_t length,
                     std::uint32_t key, const std::byte* data, std::uint32_t bytes,
                     std::uint32_t count) {
    if (pending_ == options_.post_batch) [[unlikely]]
      post_pending();
    fabric::Sge* pieces = &pieces_[std::size_t{2} * pending_];
    fabric::WorkRequest& request = requests_[pending_];
    ++pending_;
    const std::uint32_t head = head_bytes_;
    if (options_.checksums) [[unlikely]]
      store_checksum(header, data, bytes);
    pieces[0] = {reinterpret_cast<std::uint64_t>(header + kHeaderBytes - head), length, key};
    request.flags =
        static_cast<std::uint8_t>(head + bytes <= options_.inline_bytes ? fabric::kInline : 0);
    request.address_handle = to.handle;
    request.remote_qpn = to.qp_num;
    request.remote_qkey = to.qkey;
    request.sge_count = count;
    return pieces[1];
  }
  [[gnu::noinline]] void post_pending();
  [[gnu::noinline]] void store_checksum(std::byte* header, const std::byte* data,
                                        std::uint32_t bytes);
  [[gnu::noinline]] bool is_intact(const std::byte* header, std::uint32_t bytes) const;
  void mark_signaled();
  [[gnu::noinline]] bool reap_sends();
  void wait_for(FunctionRef<bool()> ready);
  void wait_for_room(std::uint32_t requests);
  [[gnu::noinline]] void heal();
  void post_all_receives();
  void post_again(std::uint32_t count);
  std::byte* place_of(const fabric::Completion& completion) const {
    return receives_.data + first_ +
           (completion.wr_id * strides_ + completion.stride) * std::uint64_t{place_bytes_};
  }

  static constexpr std::uint32_t kMost = 64;  // packets of a batch
  static constexpr std::uint32_t kSendEntries = 256;
  static constexpr std::uint32_t kSignalEvery = 64;
  static constexpr std::uint32_t kControlPlace = 128;
  static constexpr std::uint32_t kControlPlaces = kSendEntries + kMost;

  Env& env_;
  fabric::ProtectionDomain& pd_;
  const Options options_;
  const std::uint32_t head_bytes_;  // of a packet before its data
  std::unique_ptr<fabric::CompletionQueue> send_queue_, receive_queue_;
  std::unique_ptr<fabric::QueuePair> qp_;
  std::unique_ptr<fabric::AddressHandle> own_handle_;

  // Sending.
  std::array<fabric::WorkRequest, kMost> requests_;
  std::array<fabric::Sge, std::size_t{2} * kMost> pieces_;
  std::uint32_t pending_ = 0;
  std::uint32_t unsignaled_ = 0;   // since the last signaled request
  std::uint32_t outstanding_ = 0;  // requests whose place in the queue is not known to be free
  std::uint64_t drained_ = 0, drain_wanted_ = 0;
  runtime::LocalRegion control_;
  std::uint32_t next_control_ = 0;

  // Receiving.
  std::uint32_t strides_ = 1, groups_ = 0;  // datagrams of a receive, receives
  std::uint32_t place_bytes_ = 0, first_ = 0;
  runtime::LocalRegion receives_;
  std::array<fabric::Completion, kMost> completions_;
  std::vector<fabric::Sge> buffers_;  // of the receives
  std::array<fabric::ReceiveRequest, kMost> again_;
  bool is_broken_ = false;
  Time last_batch_ = 0;
  TransportCounters counters_;
};

template <class Each>
std::uint32_t Transport::receive(Each&& each) {
  const auto got = static_cast<std::uint32_t>(
      receive_queue_->poll({completions_.data(), options_.receive_batch}));
  if (got == 0) {
    fabric::check_overrun(*receive_queue_, env_.node(), "the receives of an eRPC endpoint");
    return 0;
  }
  const Scope step(env_, scope::receive);
  if (options_.batched_timestamps) last_batch_ = env_.now();
  std::uint32_t again = 0;
  const std::uint32_t before_data = fabric::kGrhBytes + head_bytes_;
  const std::byte* next = place_of(completions_[0]);
  for (std::uint32_t i = 0; i < got; ++i) {
    const fabric::Completion& completion = completions_[i];
    const std::byte* header = next + before_data - kHeaderBytes;
    if (i + 1 < got) {
      next = place_of(completions_[i + 1]);
      __builtin_prefetch(next + fabric::kGrhBytes);
    }
    if (completion.status != fabric::Status::kSuccess) [[unlikely]] {
      is_broken_ = true;
      continue;
    }
    // Over shared memory peers write the completions: a place is read only if the endpoint has it.
    if (completion.wr_id >= groups_ || completion.stride >= strides_ ||
        completion.byte_count > place_bytes_) [[unlikely]] {
      ++counters_.malformed;
      continue;
    }
    if (completion.stride + 1 == strides_)
      again_[again++] = {completion.wr_id, &buffers_[completion.wr_id], 1};
    Packet packet;
    packet.header = PacketHeader::at(header);
    if (completion.byte_count < before_data || !packet.header.is_sane()) [[unlikely]] {
      ++counters_.malformed;
      continue;
    }
    packet.data = header + kHeaderBytes;
    packet.bytes = completion.byte_count - before_data;
    packet.is_congested = (completion.flags & fabric::kCongested) != 0;
    packet.source = std::uint64_t{completion.source_node} << 32U | completion.source_qpn;
    if (options_.checksums && !is_intact(header, packet.bytes)) [[unlikely]] {
      ++counters_.bad_checksum;
      continue;
    }
    if (!options_.batched_timestamps) last_batch_ = env_.now();
    packet.arrived = last_batch_;
    each(packet);
  }
  counters_.received += got;
  if (again != 0) post_again(again);
  return got;
}

}  // namespace pyrdma::erpc
