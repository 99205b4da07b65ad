// A message on its way through the simulated fabric: a request, a response, or one chunk of a long
// one.
#pragma once
#include <compare>
#include <cstdint>
#include <memory>
#include <vector>

#include "env/sim/event_queue.h"
#include "fabric/types.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;

/// A place in the stream of a queue pair's requests: a request, and a byte of its payload. It
/// stands for a packet sequence number.
struct Position {
  std::uint64_t sequence = 0;
  std::uint32_t offset = 0;
  auto operator<=>(const Position&) const = default;
};

/// A negative acknowledgement. Its header and chunk name the place that the responder expects.
enum class Nak : std::uint8_t {
  kNone,
  kSequence,  // a message before this one is missing (IBA 9.7.5.2.8: PSN sequence error)
  kNotReady,  // no receive is posted (RNR)
  kSilent,    // the responder answers nothing
};

/// The request of the initiator. All chunks of the request and of its response carry the same
/// header.
struct RequestHeader {
  std::uint64_t sequence = 0;  // position in the initiator's send queue
  std::uint64_t remote_addr = 0;
  std::uint32_t epoch = 0;  // a reset has voided messages of another epoch
  std::uint32_t rkey = 0;
  std::uint32_t total = 0;          // bytes of the whole message
  std::uint32_t source_number = 0;  // queue pair number of the initiator
  std::uint32_t remote_qpn = 0, remote_qkey = 0;
  std::uint32_t immediate = 0;
  Opcode opcode = Opcode::kWrite;
  bool signaled = false;
};

/// The part of the request's payload that a message carries.
struct Chunk {
  std::uint32_t offset = 0, length = 0;
  bool first = true, last = true;
  bool has_payload = false;  // false: the payload is empty
};

/// The operands of a compare-and-swap. A fetch-and-add has its addend in `compare_add`.
struct AtomicOperands {
  std::uint64_t compare_add = 0, swap = 0;
};

/// One message. Most messages use only the first three cache lines: the message's place, its header
/// and its payload.
struct alignas(64) Message final : SimEvent {
  enum class Stage : std::uint8_t {
    kAtRack,           // the message has reached its sender's rack switch, on the way to a spine
    kAtSpine,          // the message has reached a spine switch
    kAtLastRack,       // the message has reached its receiver's rack switch
    kRequestArrives,   // the message reserves the target's port and responder engine
    kRequestExecutes,  // the request takes effect in the target's memory
    kReadContinues,    // the responder emits the next chunk of a long read
    kResponseArrives,  // the message reserves the initiator's port and engine
    kResponseCompletes,
    kLocalCompletes,  // unconnected transports: the packet has left
  };

  void fire(Picos now) override;
  void prefetch() const override;

  // The message's place. MessagePool::take() and the sending NIC set these members for each
  // message.
  Stage stage = Stage::kRequestArrives;
  Status status = Status::kSuccess;
  bool late_source = false;  // the NIC reads the payload when the message is at the target's port
  bool meddled = false;      // the packet faults have been drawn for this message
  bool waited = false;       // an earlier message was late, and this one with it
  bool ecn_marked = false;   // a switch on the way has marked the message
  bool dropped = false;      // a switch on the way has dropped the message; its event goes on
  Nak nak = Nak::kNone;
  std::uint32_t packets = 1;
  Nic* owner = nullptr;                // the NIC that handles the next stage
  Nic* sender = nullptr;               // the NIC that put the message on the wire
  QueuePairCore* initiator = nullptr;  // a counted reference
  // Time from the port's last byte to the scheduled time. Between racks: Network::pauses() of the
  // link that the message crosses.
  Picos lead = 0;
  Picos placement = 0;  // the part of `lead` after the receiving engine
  double wire_bytes = 0;

  RequestHeader header;
  Chunk chunk;

  static constexpr std::size_t kSmall = 64;
  std::byte small[kSmall];
  std::uint32_t rnr_wait_us = 0;  // the wait that Nak::kNotReady imposes
  std::vector<std::byte> large;   // the pool keeps this memory
  AtomicOperands operands;
  std::uint64_t sampled = 0;       // mask of the pieces of a read's payload that are sampled
  Message* next_behind = nullptr;  // next in the queue of answers behind a long read

  std::byte* payload() { return chunk.length <= kSmall ? small : large.data(); }
  const std::byte* payload() const { return chunk.length <= kSmall ? small : large.data(); }
  void reserve_payload() {
    if (chunk.length > kSmall && large.size() < chunk.length) large.resize(chunk.length);
  }
  bool is_response() const { return stage == Stage::kResponseArrives; }
  Position position() const { return {header.sequence, chunk.offset}; }
  /// Turns a request into the negative acknowledgement that the responder expects `at` first.
  void refuse(Nak why, Position at, std::uint32_t wait_us = 0);
  /// Makes this message a duplicate of `other` with its own copy of the payload.
  void copy_from(const Message& other);
};
static_assert(sizeof(Message) == 4 * 64, "a simulated second takes millions of messages");

/// A pool that recycles messages. A simulated second takes millions of messages.
class MessagePool {
 public:
  /// Returns a message of `initiator` that `owner` handles next. The pool resets the message's
  /// place; header and chunk are still those of the last use.
  Message& take(Nic& owner, QueuePairCore& initiator);
  /// Returns the message to the pool and drops its reference to the initiator.
  void give_back(Message& message);

 private:
  void grow();
  static constexpr std::size_t kBlock = 64;  // number of messages allocated together
  std::vector<std::unique_ptr<Message[]>> storage_;
  std::vector<Message*> free_;  // a stack: the message given back last is still in the CPU's cache
};

}  // namespace pyrdma::fabric::sim
