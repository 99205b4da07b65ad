// A request, or its response, or one chunk of a long one, on its way through the simulated fabric.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "env/sim/event_queue.h"
#include "fabric/types.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;

/// What the initiator asks for. All chunks of a request, and its response, carry the same.
struct RequestHeader {
  std::uint64_t sequence = 0;  // in the initiator's send queue
  std::uint64_t remote_addr = 0;
  std::uint32_t epoch = 0;  // requests of an older epoch were sent again
  std::uint32_t rkey = 0;
  std::uint32_t total = 0;          // bytes of the whole message
  std::uint32_t source_number = 0;  // queue pair number of the initiator
  std::uint32_t remote_qpn = 0, remote_qkey = 0;
  std::uint32_t immediate = 0;
  Opcode opcode = Opcode::kWrite;
  bool signaled = false;
};

/// Which part of the request's payload a message carries.
struct Chunk {
  std::uint32_t offset = 0, length = 0;
  bool first = true, last = true;
  bool has_payload = false;  // false: synthetic, or nothing to move
};

/// The operands of a compare-and-swap, or in `compare_add` the addend of a fetch-and-add.
struct AtomicOperands {
  std::uint64_t compare_add = 0, swap = 0;
};

/// The first three lines of the cache are all that most messages use: where it is, what it asks
/// for, and its payload.
struct alignas(64) Message final : SimEvent {
  enum class Stage : std::uint8_t {
    kRequestArrives,   // reserves the target's port and responder engine
    kRequestExecutes,  // takes effect in the target's memory
    kReadContinues,    // the responder emits the next chunk of a long read
    kResponseArrives,  // reserves the initiator's port and engine
    kResponseCompletes,
    kLocalCompletes,  // unconnected transports: the packet has left
  };

  void fire(Picos now) override;
  void prefetch() const override;

  // Where the message is. A message that is taken from the pool begins with all of this anew.
  Stage stage = Stage::kRequestArrives;
  Status status = Status::kSuccess;
  bool late_source = false;            // the payload is read at the target's port
  bool meddled = false;                // faults have had their chance
  Nic* owner = nullptr;                // handles the next stage
  Nic* sender = nullptr;               // put the message on the wire
  QueuePairCore* initiator = nullptr;  // counted reference
  Picos lead = 0;                      // from the port's last byte to the scheduled time
  Picos placement = 0;                 // part of `lead` after the receiving engine
  double wire_bytes = 0;

  RequestHeader header;
  Chunk chunk;

  static constexpr std::size_t kSmall = 64;
  std::byte small[kSmall];
  std::vector<std::byte> large;  // keeps its memory while the message is in the pool
  AtomicOperands operands;
  std::uint64_t sampled = 0;       // pieces of a read's payload that are there already
  Message* next_behind = nullptr;  // in the queue of answers behind a long read

  std::byte* payload() { return chunk.length <= kSmall ? small : large.data(); }
  const std::byte* payload() const { return chunk.length <= kSmall ? small : large.data(); }
  void reserve_payload() {
    if (chunk.length > kSmall && large.size() < chunk.length) large.resize(chunk.length);
  }
  bool is_response() const { return stage == Stage::kResponseArrives; }
  /// The same packet once more; the payload's memory is not shared.
  void copy_from(const Message& other);
};

/// Recycles messages: a simulated second makes millions.
class MessagePool {
 public:
  /// A message of `initiator` that `owner` handles next. What says where it is begins anew; header
  /// and chunk are still those of its last use.
  Message& take(Nic& owner, QueuePairCore& initiator);
  /// Drops the reference to the initiator, too.
  void give_back(Message& message);

 private:
  void grow();
  static constexpr std::size_t kBlock = 64;  // messages allocated together
  std::vector<std::unique_ptr<Message[]>> storage_;
  std::vector<Message*> free_;  // the last given back is in the cache
};

}  // namespace pyrdma::fabric::sim
