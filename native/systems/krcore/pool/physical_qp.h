// A queue pair of the pool, shared by virtual ones (section 4.2), with what is under way on it.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/assert.h"
#include "fabric/fabric.h"
#include "systems/krcore/wire.h"

namespace pyrdma::krcore {

/// Where requests on a dynamic connection go. The service keeps the handle as long as it lives.
struct Destination {
  const fabric::AddressHandle* handle = nullptr;
  DctMeta meta;
  NodeId node = fabric::kNoNode;
  /// A device without dynamic connections has no target.
  bool is_dynamic() const { return handle != nullptr && meta.number != 0; }
};

/// What a completion of the physical queue pair tells, in the 64 bits of its wr_id (section 4.4):
/// the virtual queue pair, and how many requests the completion frees. It has no pointer: a number
/// and a generation that no longer match lead nowhere.
struct RequestId {
  VqpId owner;
  std::uint32_t frees = 0;  // itself, and the requests without a completion before it
  static constexpr unsigned kFreesBits = 16;
  std::uint64_t pack() const { return std::uint64_t{owner.number()} << kFreesBits | frees; }
  static RequestId unpack(std::uint64_t wr_id, unsigned bits = kFreesBits) {
    return {VqpId::of(static_cast<std::uint32_t>(wr_id >> bits)),
            static_cast<std::uint32_t>(wr_id & ((std::uint64_t{1} << bits) - 1))};
  }
};

inline constexpr std::uint32_t kMostSges = 4;      // of a user's request
inline constexpr std::uint32_t kMostInline = 220;  // bytes, with the header of a message
inline constexpr std::uint64_t kNoEntry = ~0ULL;

/// A READ of the service for which a thread waits. The lock of its pool guards it.
struct LookupRead {
  enum State : std::uint8_t { kFree, kUnderWay, kDone, kFailed, kAgain };
  State state = kFree;
  bool is_left = false;  // nobody waits any more
  /// The READ has ended. It may write until then, so its place is not free before.
  void end_as(State end) {
    state = is_left ? kFree : end;
    is_left = false;
  }
  void end(fabric::Status status) { end_as(status == fabric::Status::kSuccess ? kDone : kFailed); }
};

/// A request that has passed the checks, with physical keys. It owns what the request points to.
/// The fields are in the order in which a list of one-sided requests writes them.
struct Prepared {
  enum class Kind : std::uint8_t {
    kUser,      // one-sided
    kMessage,   // its payload lies in the user's buffer or in its header's place
    kInternal,  // of the service: a fake request, an answer
    kFetch,     // the READ of the zero-copy protocol
    kLookup,    // a READ of a remote table
  };
  Prepared() = default;
  Prepared(const Prepared& other) { *this = other; }
  Prepared& operator=(const Prepared& other);
  ~Prepared() = default;

  fabric::WorkRequest request;  // its sges point to `sges`
  VqpId owner;
  std::uint16_t epoch = 0;  // of the owner's connection
  Kind kind = Kind::kUser;
  bool is_signaled = false;                     // by the user
  std::uint64_t order = 0;                      // among the owner's requests
  std::uint64_t entry = kNoEntry;               // in the owner's completion queue
  std::uint64_t ticket = 0;                     // of a zero-copy send, or of a transfer
  Destination to;                               // of this request; on a reliable connection unused
  std::array<fabric::Sge, kMostSges + 1> sges;  // the first of a message is its header's place
  /// The virtual keys of its buffers and of its remote region, for a second check.
  std::array<std::uint32_t, kMostSges> local_keys;
  std::uint32_t remote_key = 0;
  std::uint32_t pieces = 0;              // of the payload of a message
  std::uint32_t node = fabric::kNoNode;  // of a request that may be deferred: the target's
  MessageHeader header;                  // kMessage, kInternal: in front of the payload
  std::shared_ptr<std::atomic<std::uint8_t>> fetched;  // kFetch: becomes an InboxItem::State
  Time good_until = 0;                                 // kFetch: of its announcement
  LookupRead* lookup = nullptr;                        // kLookup
  /// With kInline: the payload as it was at the post.
  std::shared_ptr<const std::vector<std::byte>> kept;
};

class PhysicalQp {
 public:
  /// `completions` null: it gets a queue of its own. `peer` is kNoNode for a dynamic one. `depth`:
  /// requests under way, at most.
  PhysicalQp(Env& env, fabric::ProtectionDomain& domain, const fabric::QpOptions& options,
             std::uint32_t depth, std::uint32_t completion_entries,
             fabric::CompletionQueue* completions, fabric::CompletionQueue& receives,
             fabric::SharedReceiveQueue* shared, std::uint32_t peer);

  fabric::QueuePair& qp() { return *qp_; }
  fabric::CompletionQueue& completions() { return *completions_; }
  std::uint32_t peer() const { return peer_; }
  bool is_dynamic() const { return peer_ == fabric::kNoNode; }
  std::uint32_t depth() const { return depth_; }
  /// Requests that no polled completion has freed, as algorithm 2 counts them.
  std::uint32_t uncompleted = 0;
  std::uint32_t room() const { return depth_ - std::min(depth_, uncompleted); }

  /// The requests under way, the oldest first.
  std::uint64_t under_way() const { return tail_ - head_; }
  Prepared& at(std::uint64_t position) { return ring_[place_of(position)]; }
  std::uint64_t head() const { return head_; }
  std::uint64_t tail() const { return tail_; }
  /// Adds places behind the others, which have what earlier requests left there. The caller fills
  /// them, and posts them or takes them back.
  void push(std::size_t count = 1) {
    PYRDMA_ASSERT(under_way() + count <= ring_.size());
    tail_ += count;
  }
  void unpush(std::size_t count) { tail_ -= count; }
  void pop() {
    Prepared& oldest = at(head_++);
    if (oldest.kind == Prepared::Kind::kFetch) [[unlikely]]
      oldest.fetched.reset();
  }
  /// The place of a header of the request at `position`.
  fabric::Sge header_place(std::uint64_t position);
  std::byte* header_data(std::uint64_t position);
  std::uint32_t max_inline() const { return max_inline_; }

  bool has_failed = false;        // it flushes, and takes nothing more
  bool behind_a_refusal = false;  // what follows the failed request has not run
  fabric::Status failure = fabric::Status::kSuccess;
  /// Of a dynamic one that has failed: where the request led that has failed it.
  std::optional<Destination> failed_at;
  bool is_past_life = false;     // requests to another life of a node than that are being flushed
  std::uint32_t unsignaled = 0;  // at the end of what a post accepted in part
  std::uint32_t users = 0;       // virtual queue pairs
  std::uint32_t remote_core = 0, remote_number = 0;  // of the other end
  std::uint32_t life = 0;                            // of the peer's node, of a reliable one
  bool peer_has_left = false, has_said_so = false;   // at the end of a reliable one
  Time left_at = 0;
  std::uint64_t requests = 0;  // since the last sample
  Time last_use = 0;

 private:
  static constexpr std::uint32_t kHeaderStride = 128;
  std::unique_ptr<fabric::MemoryRegion> headers_;
  std::unique_ptr<fabric::CompletionQueue> own_completions_;
  fabric::CompletionQueue* completions_;
  std::unique_ptr<fabric::QueuePair> qp_;
  std::uint32_t peer_, depth_, max_inline_;
  std::size_t place_of(std::uint64_t position) const { return position & mask_; }
  std::vector<Prepared> ring_;  // a power of two
  std::uint64_t mask_;
  std::uint64_t head_ = 0, tail_ = 0;
};

}  // namespace pyrdma::krcore
