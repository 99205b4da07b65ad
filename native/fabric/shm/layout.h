// The layout of a node's control segment, which all nodes of the run map: regions by key, queue
// pairs, rings. A hostile peer may write every word at any time, so readers copy a word once, check
// the copy and use the copy. The segment holds no pointers.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/units.h"
#include "fabric/shm/cluster.h"
#include "fabric/types.h"

namespace pyrdma::fabric::shm {

template <class T>
using Word = std::atomic<T>;
static_assert(Word<std::uint64_t>::is_always_lock_free && sizeof(Word<std::uint64_t>) == 8);

template <class T>
T relaxed(const Word<T>& word) {
  return word.load(std::memory_order_relaxed);
}
template <class T>
void set_relaxed(Word<T>& word, T value) {
  word.store(value, std::memory_order_relaxed);
}

inline constexpr std::uint64_t kControlMagic = 0x70797264'6d61'0003ULL;

struct ControlHeader {
  std::uint64_t magic;
  std::uint32_t node;
  // Changes with every event that makes cached knowledge of this node stale: a deregistration, a
  // queue pair that leaves service, the node's end. Requesters compare it before each request.
  alignas(kCacheLine) Word<std::uint64_t> epoch;
  Word<std::uint32_t> gone;            // the node has left or was killed
  Word<std::uint32_t> initiators_end;  // the node's DC initiators have slots below it
  Word<std::uint64_t> segments_freed;  // counts; a peer then looks for mappings to drop
};

/// SegmentEntry names a memory file of the node. Peers map it through the node's descriptor.
struct SegmentEntry {
  Word<std::uint64_t> inode;  // 0: free
  Word<std::uint64_t> size;
  Word<std::uint32_t> descriptor;
  std::uint32_t unused;
};

/// The table uses open addressing by key. Fields are valid if `key` reads the same before and
/// after.
struct alignas(kCacheLine) RegionEntry {
  Word<std::uint32_t> key;  // kFreeKey, kRemovedKey or a key
  Word<std::uint32_t> access;
  Word<std::uint32_t> pd;
  Word<std::uint32_t> segment;
  Word<std::uint64_t> addr;  // address in the owner's process
  Word<std::uint64_t> length;
  Word<std::uint64_t> offset;  // offset in the segment
};
inline constexpr std::uint32_t kFreeKey = 0, kRemovedKey = 1, kFirstKey = 2;

/// QpEntry describes a queue pair to its peers.
struct alignas(kCacheLine) QpEntry {
  Word<std::uint32_t> qp_num;  // 0: free
  Word<std::uint8_t> state;    // QpState; a peer sets kError after a fault of the responder
  Word<std::uint8_t> transport;
  Word<std::uint8_t> is_dc_target;
  Word<std::uint32_t> access, pd, receive_pd, qkey, rnr_timer_us, peer_node, peer_qpn;
  // Packet sequence numbers: the present one, and the peer's of the time when it was connected.
  Word<std::uint32_t> psn, peer_psn;
  Word<std::uint32_t> has_own_receives;  // 0: a shared receive queue
  Word<std::uint64_t> receives;          // offset of the ReceiveRing
  Word<std::uint64_t> receives_id;
  Word<std::uint64_t> completions;  // offset of the receive side's CompletionRing
  Word<std::uint64_t> completions_id;
  // Not 0: a thread of the owner executes requests to the peer. A DC initiator writes the
  // target_word() of the present request's target.
  Word<std::uint32_t> at_work;
};

/// Names a queue pair of any node. The word of an existing one is not 1, because the upper byte of
/// its number is not 0.
inline std::uint32_t target_word(NodeId node, std::uint32_t qp_num) {
  return node << 24 | (qp_num & 0xffffff);
}

/// A requester holds the lock over one batch of requests. Another node takes over the lock of a
/// dead holder.
struct SharedLock {
  Word<std::uint32_t> holder;  // 0: free; else a holder_word()
};

/// A ring's space is reused only for rings of the same kind. A late peer thus finds a lock and a
/// changed id, never foreign data.
struct RingHead {
  SharedLock lock;
  Word<std::uint32_t> capacity;  // entries in use
  Word<std::uint64_t> id;
};

/// The first position of a ring that several queue pairs share.
inline std::uint64_t first_of_shared(std::uint64_t id) { return id << 40; }

struct ReceiveEntry {
  std::uint64_t wr_id;
  Sge first;  // the further ones follow all entries
  std::uint32_t sge_count;
  std::uint32_t unused;
};
static_assert(sizeof(ReceiveEntry) == 32);

/// ReceiveRing holds posted receives: the owner appends, requesters take under the lock, or claim
/// from a ring that several queue pairs share. `slots`
/// entries follow, and then slots * (max_sges - 1) further Sge.
struct ReceiveRing {
  RingHead head;
  Word<std::uint32_t> slots;  // power of two
  Word<std::uint32_t> max_sges;
  Word<std::uint32_t> stride_bits;  // each receive takes 2^stride_bits messages
  // Messages. In a ring that several queue pairs share, the upper bits are the ring's id, see
  // ReceiveTaker::claim; those of `posted`, too.
  Word<std::uint64_t> taken;
  alignas(kCacheLine) Word<std::uint64_t> posted;  // the owner's line
  alignas(kCacheLine) ReceiveEntry entries[1];
};

/// Half a cache line: for a small send, most of the traffic between cores is completions. A reader
/// loads each field at the width of its store. A wider load would wait until the stores had left
/// the writer's CPU, which within a node may be the reader's CPU.
struct alignas(32) CompletionEntry {
  Word<std::uint32_t> sequence;  // low bits of position + 1 once valid; never twice in a ring
  Word<std::uint32_t> qp_num;
  Word<std::uint64_t> wr_id;
  Word<std::uint32_t> bytes;  // a datagram: also its stride << 16
  Word<std::uint32_t> immediate;
  Word<std::uint32_t> source;  // sender of a datagram: node << 24 | queue pair
  Word<std::uint32_t> tags;    // CompletionTags
};

enum class CompletionKind : std::uint8_t { kReceive, kPurged };

/// CompletionTags packs status, opcode, flags and kind of a completion into one word.
struct CompletionTags {
  std::uint8_t status, opcode, flags;
  CompletionKind kind;
};
static_assert(sizeof(CompletionTags) == 4);
static_assert(sizeof(CompletionEntry) == kCacheLine / 2);
static_assert(kMaxNodes <= 256);

/// CompletionRing holds the completions of receives: producers of any node append under the lock,
/// the owner consumes. Those of sends never leave their node (SendCompletions).
/// A queue has kBanks such rings. All producers use the first one, until a node is stopped while it
/// holds the lock. A producer that has waited for long then uses the next ring from then on, so the
/// completions of one producer are in order if an entry is taken only while all earlier rings are
/// empty.
struct CompletionRing {
  RingHead head;
  Word<std::uint32_t> slots;  // power of two
  Word<std::uint64_t> produced;
  Word<std::uint64_t> consumed_seen;                 // the producers' copy of `consumed`
  alignas(kCacheLine) Word<std::uint64_t> consumed;  // the owner's line
  Word<std::uint32_t> overrun;                       // of the queue; in its first ring
  Word<std::uint32_t> banks;  // further rings in use, one bit each; in the first ring
  alignas(kCacheLine) CompletionEntry entries[1];
};

inline constexpr std::uint32_t kMaxQueueEntries = 32768;
inline constexpr std::uint32_t kMaxSges = 16;
inline constexpr std::uint32_t kMaxInline = 1024;
inline constexpr std::uint32_t kMaxDatagram = 4096;
inline constexpr std::uint32_t kMaxStrideBits = 16;
static_assert(kMaxDatagram + kGrhBytes < 1U << kMaxStrideBits);  // see CompletionEntry
inline constexpr std::uint64_t kMaxMessage = 1ULL << 31;
inline constexpr std::uint32_t kBanks = 4;
inline constexpr std::uint32_t kMaxSegments = 4096;
inline constexpr std::uint32_t kQpSlots = 1U << 16;
inline constexpr std::uint32_t kRegionSlots = 1U << 17;  // at most half of them in use

/// The control segment is sparse: only touched pages cost memory.
struct Control {
  ControlHeader header;
  SegmentEntry segments[kMaxSegments];
  RegionEntry regions[kRegionSlots];
  QpEntry queue_pairs[kQpSlots];
};
inline constexpr std::uint64_t kControlBytes = 1ULL << 30;
inline constexpr std::uint64_t kRingsBegin = (sizeof(Control) + 4095) / 4096 * 4096;

inline std::uint64_t receive_ring_bytes(std::uint32_t slots, std::uint32_t max_sges) {
  return offsetof(ReceiveRing, entries) + std::uint64_t{slots} * sizeof(ReceiveEntry) +
         std::uint64_t{slots} * (max_sges - 1) * sizeof(Sge);
}
inline std::uint64_t completion_ring_bytes(std::uint32_t slots) {
  return offsetof(CompletionRing, entries) + std::uint64_t{slots} * sizeof(CompletionEntry);
}

/// The distance of a queue's rings.
inline std::uint64_t completion_bank_bytes(std::uint32_t slots) {
  return (completion_ring_bytes(slots) + kCacheLine - 1) / kCacheLine * kCacheLine;
}

inline std::uint32_t qp_slot(std::uint32_t qp_num) { return qp_num % kQpSlots; }
inline std::uint32_t region_slot(std::uint32_t key) { return (key * 0x9e3779b1U) >> 15; }
static_assert((0xffffffffU >> 15) == kRegionSlots - 1);

}  // namespace pyrdma::fabric::shm
