// Peer is the view of another node (or of this one): its control segment and the memory of its
// regions. It maps them on first use, and drops the files that the node has given up. A requester
// has raw pointers into mappings, so its KeyCache keeps them mapped. A restarted node is another
// peer.
#pragma once
#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "fabric/shm/layout.h"
#include "fabric/shm/segment.h"
#include "fabric/shm/session_block.h"

namespace pyrdma::fabric::shm {

/// Translation describes a region that requests may name by key, with its memory mapped here.
struct Translation {
  std::uint32_t key = kFreeKey;
  /// Access of the region, and the two flags below; set once the domain has been checked.
  std::uint32_t rights = 0;
  std::uint64_t addr = 0;  // address in the owner's process
  std::uint64_t length = 0;
  std::byte* data = nullptr;  // address in this process

  /// Returns the bytes [at, at + bytes) for a requester that needs the rights `wanted`, or null
  /// when the region does not allow it.
  std::byte* find(std::uint64_t at, std::uint64_t bytes, std::uint32_t wanted) const {
    const std::uint64_t offset = at - addr;
    const bool inside = offset <= length && bytes <= length - offset;
    if (!inside || (rights & wanted) != wanted) [[unlikely]]
      return nullptr;
    return data + offset;
  }
};
inline constexpr std::uint32_t kMayGather = 1U << 30;   // its owner may send from it
inline constexpr std::uint32_t kMayReceive = 1U << 31;  // sends may land in it

/// A region that a peer has found, and the mapping that it lies in.
struct FoundRegion {
  Translation translation;
  std::uint32_t pd = 0;
  std::shared_ptr<Mapping> memory;
};

/// A direct-mapped cache. One queue pair owns it, and clears it when the region's node changes its
/// epoch. The memory of everything inserted stays mapped until then, also that of an entry that has
/// lost its place: a request may still copy from it.
class KeyCache {
 public:
  const Translation* find(std::uint32_t key) const {
    const Translation& entry = entries_[key % kEntries];
    return entry.key == key && key >= kFirstKey ? &entry : nullptr;
  }
  const Translation* insert(const FoundRegion& found) {
    if (std::find(memory_.rbegin(), memory_.rend(), found.memory) == memory_.rend())
      memory_.push_back(found.memory);
    Translation& entry = entries_[found.translation.key % kEntries];
    entry = found.translation;
    return &entry;
  }
  void clear() {
    for (Translation& entry : entries_) entry.key = kFreeKey;
    memory_.clear();
  }

 private:
  static constexpr std::size_t kEntries = 32;
  std::array<Translation, kEntries> entries_;
  std::vector<std::shared_ptr<Mapping>> memory_;  // each once
};

/// A view of a peer's ring holds its checked description: all indices stay inside, whatever the
/// peer writes.
struct ReceiveView {
  ReceiveRing* ring = nullptr;
  std::uint64_t id = 0;
  std::uint32_t mask = 0;
  std::uint32_t max_sges = 0;
  std::uint32_t stride_bits = 0;

  ReceiveEntry& entry(std::uint64_t position) const { return ring->entries[position & mask]; }
  Sge* more_sges(std::uint64_t position) const {
    auto* begin = reinterpret_cast<Sge*>(ring->entries + std::size_t{mask} + 1);
    return begin + (position & mask) * (max_sges - 1);
  }
};

struct CompletionView {
  CompletionRing* ring = nullptr;
  CompletionRing* first = nullptr;  // of the queue's rings
  std::uint64_t id = 0;
  std::uint32_t mask = 0;
  std::uint32_t capacity = 0;

  CompletionEntry& entry(std::uint64_t position) const { return ring->entries[position & mask]; }
  CompletionView bank(std::uint32_t number) const {
    CompletionView view = *this;
    view.ring = reinterpret_cast<CompletionRing*>(reinterpret_cast<std::byte*>(first) +
                                                  number * completion_bank_bytes(mask + 1));
    return view;
  }
};

class Peer {
 public:
  /// `own` is the control segment of the node itself; attach() maps those of other nodes.
  Peer(const SessionBlock& session, NodeId node, std::uint32_t incarnation, MappingTable& mappings,
       std::shared_ptr<Mapping> own = nullptr);

  NodeId node() const { return node_; }
  std::uint32_t incarnation() const { return incarnation_; }
  /// Maps the control segment unless it is mapped. Returns false when the node is gone or absent.
  bool attach();
  /// Null before attach() has succeeded.
  Control* control() const { return control_.load(std::memory_order_acquire); }
  /// Returns false when the node is gone, or its process has ended and the monitor will say so.
  /// Costs a system call.
  bool may_answer() const;
  /// Tells all requesters of this process that the node is gone.
  void mark_gone();

  /// Finds a region by key and maps its memory. Returns false for an unknown key. The translation's
  /// rights are those of the region.
  bool find_region(std::uint32_t key, FoundRegion& found);
  bool has_region(std::uint32_t key) const { return region_entry(key) != nullptr; }
  /// Unmaps the files that the node has given up, unless a requester uses them. Costs two loads
  /// when there are none. Any thread may call it.
  void drop_freed_segments();
  ReceiveView receive_view(std::uint64_t offset, std::uint64_t id) const;
  CompletionView completion_view(std::uint64_t offset, std::uint64_t id) const;

 private:
  struct MappedSegment {
    std::uint64_t inode = 0;
    std::shared_ptr<Mapping> mapping;
  };
  const RegionEntry* region_entry(std::uint32_t key) const;
  std::shared_ptr<Mapping> segment(std::uint32_t index);
  /// Attached, and still this incarnation.
  bool is_present() const;

  const SessionBlock& session_;
  NodeId node_;
  std::uint32_t incarnation_;
  MappingTable& mappings_;
  std::atomic<Control*> control_{nullptr};
  std::mutex mutex_;
  int pid_ = 0;
  std::shared_ptr<Mapping> control_mapping_;
  std::vector<MappedSegment> segments_;
  std::atomic<std::uint64_t> freed_seen_{0};
};

}  // namespace pyrdma::fabric::shm
