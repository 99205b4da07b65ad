// A request, or its response, or one chunk of a long one, on its way through the simulated fabric.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "env/sim/event_queue.h"
#include "fabric/types.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;

struct Message final : SimEvent {
  enum class Stage : std::uint8_t {
    kRequestArrives,   // reserves the target's port and responder engine
    kRequestExecutes,  // takes effect in the target's memory
    kReadContinues,    // the responder emits the next chunk of a long read
    kResponseArrives,  // reserves the initiator's port and engine
    kResponseCompletes,
    kLocalCompletes,  // unconnected transports: the packet has left
  };

  explicit Message(Nic& first_owner) : owner(&first_owner) {}
  void fire(Picos now) override;

  Nic* owner;  // whose handler runs next
  Nic* target = nullptr;
  QueuePairCore* initiator = nullptr;  // counted reference
  std::uint64_t sequence = 0;          // of the request in the initiator's send queue
  std::uint32_t epoch = 0;             // requests of an older epoch were sent again
  Stage stage = Stage::kRequestArrives;
  Opcode opcode = Opcode::kWrite;
  Status status = Status::kSuccess;
  bool first = true, last = true;  // chunk of the message
  bool has_payload = false;        // false: synthetic, or nothing to move
  bool signaled = false;
  bool ecn_marked = false;
  bool late_source = false;   // the payload is read at the target's port
  bool meddled = false;       // faults have had their chance
  std::uint64_t sampled = 0;  // pieces of a read's payload that are there already
  Picos lead = 0;             // from the port's last byte to the scheduled time
  Picos engine = 0;           // part of `lead` in the receiving engine
  Picos placement = 0;        // part of `lead` after the engine
  double wire_bytes = 0;
  std::uint32_t source_number = 0;  // of the initiator
  std::uint32_t offset = 0;         // of this chunk
  std::uint32_t length = 0;         // of this chunk
  std::uint32_t total = 0;          // of the whole message
  std::uint32_t immediate = 0;
  std::uint64_t remote_addr = 0;
  std::uint32_t rkey = 0;
  std::uint32_t remote_qpn = 0, remote_qkey = 0;
  std::uint64_t compare_add = 0, swap = 0;

  static constexpr std::size_t kSmall = 64;
  std::byte small[kSmall];
  std::vector<std::byte> large;
  std::byte* payload() { return length <= kSmall ? small : large.data(); }
  void reserve_payload() {
    if (length > kSmall && large.size() < length) large.resize(length);
  }
  /// The same packet once more; the payload's memory is not shared.
  void copy_from(const Message& other);
  Message* next_free = nullptr;
};

/// Recycles messages: a simulated second makes millions.
class MessagePool {
 public:
  Message& take(Nic& owner) {
    if (free_ == nullptr) {
      storage_.push_back(std::make_unique<Message>(owner));
      return *storage_.back();
    }
    Message& message = *free_;
    free_ = message.next_free;
    message.owner = &owner;
    return message;
  }
  void give_back(Message& message) {
    message.next_free = free_;
    free_ = &message;
  }

 private:
  std::vector<std::unique_ptr<Message>> storage_;
  Message* free_ = nullptr;
};

}  // namespace pyrdma::fabric::sim
