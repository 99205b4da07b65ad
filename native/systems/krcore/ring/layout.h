// The memory that an application and the daemon of its node share: the door `ring`.
//
// A file has a header of one page, `requests` slots of a ring from the application to the daemon,
// and `completions` slots of a ring back. Each slot is one cache line. Slot i of position p has
// `turn` p / size + 1 when it is full; its writer stores the turn last (release), and its reader
// loads it first (acquire). A call takes one or more slots, of which the last has kLast; its first
// slot is published last, so that a reader who sees it sees all. The daemon answers each call in
// the header's result. One call at a time is under way, so the requests ring is never full. The
// daemon publishes no completion beyond `taken` + `completions`: it leaves them in the service, so
// an application that takes none holds up nobody.
//
// Each side takes what the other one writes for hostile: it copies a slot once, and checks each
// field of the copy.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pyrdma::krcore::ring {

inline constexpr std::uint64_t kMagic = 0x6772'4b61'6d64'7270;
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kRequests = 256;      // slots, and so requests of a call
inline constexpr std::uint32_t kCompletions = 1024;  // slots
inline constexpr std::size_t kTextBytes = 512;

enum class Command : std::uint8_t {
  kNothing,     // an empty call
  kCreate,      // first: receive entries, second: send entries. Returns the queue
  kDestroy,     // queue
  kRegister,    // first: bytes, second: access. Returns address, bytes, key; the file comes apart
  kDeregister,  // lkey: the key
  kBind,        // queue, first: port
  kConnect,     // queue, rkey: node, first: port. Many slots: many queues
  kPush,        // a request of queue. Many slots: a list. Returns accepted, PostError, Status
  kReceive,     // a receive of queue. Many slots: a list. Returns accepted, PostError
  kRefusal,     // queue. Returns the Status for which the peer took no message
  kCount,
};

enum SlotFlag : std::uint8_t { kLast = 1 };

/// A request of a call.
struct RequestSlot {
  std::atomic<std::uint32_t> turn;
  std::uint8_t command;
  std::uint8_t opcode;      // fabric::Opcode
  std::uint8_t work_flags;  // fabric::WorkFlag
  std::uint8_t flags;       // SlotFlag
  std::uint32_t queue;
  std::uint32_t length;  // bytes of the local buffer
  std::uint64_t wr_id;
  std::uint64_t local_addr;  // as the registration tells it
  std::uint32_t lkey, rkey;
  std::uint64_t remote_addr;
  std::uint64_t first;   // compare_add; or see Command
  std::uint64_t second;  // swap, or the immediate
};
static_assert(sizeof(RequestSlot) == 64);

/// A completion of a request, or a message.
struct CompletionSlot {
  std::atomic<std::uint32_t> turn;
  std::uint8_t is_message;
  std::uint8_t status;  // fabric::Status
  std::uint8_t opcode;  // fabric::Opcode
  std::uint8_t has_immediate;
  std::uint32_t queue;
  std::uint32_t bytes;
  std::uint64_t wr_id;
  std::uint32_t immediate;
  std::uint32_t from;   // node of the sender
  std::uint32_t reply;  // queue by which the receiver answers, or 0
  std::uint32_t unused[7];
};
static_assert(sizeof(CompletionSlot) == 64);

struct Header {
  std::uint64_t magic;
  std::uint32_t version, requests, completions, node, nodes;
  /// 1 while the daemon waits for its doorbell; the application rings it then.
  alignas(64) std::atomic<std::uint32_t> daemon_sleeps;
  /// Positions of the completions ring that the application has taken.
  alignas(64) std::atomic<std::uint64_t> taken;
  /// The result of call `result_of`, counted from 1.
  alignas(64) std::atomic<std::uint64_t> result_of;
  std::uint32_t error;  // 0: none, else 1 + ErrorCode; `text` says why
  std::uint64_t values[4];
  char text[kTextBytes];
};
static_assert(sizeof(Header) <= 4096);

struct Shared {
  alignas(4096) Header header;
  alignas(4096) std::array<RequestSlot, kRequests> requests;
  std::array<CompletionSlot, kCompletions> completions;
};
static_assert(sizeof(Shared) % 4096 == 0);

}  // namespace pyrdma::krcore::ring
