#include "fabric/shm/peer.h"

#include <unistd.h>

#include <utility>

namespace pyrdma::fabric::shm {

Peer::Peer(const SessionBlock& session, NodeId node, std::uint32_t incarnation,
           MappingTable& mappings, std::shared_ptr<Mapping> own)
    : session_(session),
      node_(node),
      incarnation_(incarnation),
      mappings_(mappings),
      control_mapping_(std::move(own)) {
  if (!control_mapping_) return;
  pid_ = ::getpid();
  control_ = reinterpret_cast<Control*>(control_mapping_->data());
}

bool Peer::is_present() const {
  const NodeStatus status = session_.status(node_);
  return status.is_attached() && status.incarnation == incarnation_;
}

// A process that ends closes its files before its parent, or the monitor, can know of its end.
bool Peer::may_answer() const {
  if (!is_present()) return false;
  const auto control = static_cast<int>(relaxed(session_.entries[node_].control_descriptor));
  return ::access(file_of(pid_, control).c_str(), F_OK) == 0;
}

bool Peer::attach() {
  if (control() != nullptr) return is_present();
  const std::lock_guard lock(mutex_);
  if (control() != nullptr) return is_present();
  if (!is_present()) return false;
  const NodeEntry& entry = session_.entries[node_];
  const auto pid = static_cast<int>(relaxed(entry.pid));
  const auto descriptor = static_cast<int>(relaxed(entry.control_descriptor));
  const std::uint64_t inode = relaxed(entry.control_inode);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!is_present()) return false;  // the words above may be its successor's
  pid_ = pid;
  control_mapping_ = mappings_.open(pid, descriptor, inode, kControlBytes);
  if (!control_mapping_) return false;
  auto* control = reinterpret_cast<Control*>(control_mapping_->data());
  if (control->header.magic != kControlMagic || control->header.node != node_) {
    control_mapping_ = nullptr;
    return false;
  }
  control_.store(control, std::memory_order_release);
  // The monitor may have marked the node between the check above and now.
  if (!is_present()) mark_gone();
  return is_present();
}

void Peer::mark_gone() {
  if (Control* control = this->control()) {
    control->header.gone.store(1, std::memory_order_release);
    control->header.epoch.fetch_add(1, std::memory_order_acq_rel);
  }
}

std::shared_ptr<Mapping> Peer::segment(std::uint32_t index) {
  if (index >= kMaxSegments) return nullptr;
  const SegmentEntry& entry = control()->segments[index];
  const std::uint64_t inode = entry.inode.load(std::memory_order_acquire);
  std::shared_ptr<Mapping> former;  // unmapped without the lock
  const std::lock_guard lock(mutex_);
  if (segments_.size() <= index) segments_.resize(index + 1);
  MappedSegment& mapped = segments_[index];
  if (mapped.mapping && mapped.inode == inode) return mapped.mapping;
  auto fresh =
      mappings_.open(pid_, static_cast<int>(relaxed(entry.descriptor)), inode, relaxed(entry.size));
  if (!fresh) return nullptr;
  former = std::move(mapped.mapping);
  mapped = {inode, fresh};
  return fresh;
}

void Peer::drop_freed_segments() {
  const std::uint64_t freed = control()->header.segments_freed.load(std::memory_order_acquire);
  if (freed == freed_seen_.load(std::memory_order_relaxed)) return;
  std::vector<std::shared_ptr<Mapping>> dropped;  // unmapped without the lock
  const std::lock_guard lock(mutex_);
  freed_seen_.store(freed, std::memory_order_relaxed);
  for (std::uint32_t index = 0; index < segments_.size(); ++index) {
    MappedSegment& mapped = segments_[index];
    if (mapped.mapping && relaxed(control()->segments[index].inode) != mapped.inode)
      dropped.push_back(std::move(mapped.mapping));
  }
}

const RegionEntry* Peer::region_entry(std::uint32_t key) const {
  if (key < kFirstKey) return nullptr;
  const RegionEntry* regions = control()->regions;
  for (std::uint32_t probe = 0; probe < kRegionSlots; ++probe) {
    const RegionEntry& entry = regions[(region_slot(key) + probe) % kRegionSlots];
    const std::uint32_t seen = entry.key.load(std::memory_order_acquire);
    if (seen == key) return &entry;
    if (seen == kFreeKey) return nullptr;
  }
  return nullptr;
}

bool Peer::find_region(std::uint32_t key, FoundRegion& found) {
  drop_freed_segments();
  const RegionEntry* entry = region_entry(key);
  if (entry == nullptr) return false;
  Translation& region = found.translation;
  region.key = key;
  region.rights = relaxed(entry->access) & (kAllAccess | kRelaxedOrdering);
  region.addr = relaxed(entry->addr);
  region.length = relaxed(entry->length);
  found.pd = relaxed(entry->pd);
  const std::uint64_t offset = relaxed(entry->offset);
  found.memory = segment(relaxed(entry->segment));
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!found.memory || relaxed(entry->key) != key) return false;
  if (offset > found.memory->size() || region.length > found.memory->size() - offset) return false;
  region.data = found.memory->data() + offset;
  return true;
}

ReceiveView Peer::receive_view(std::uint64_t offset, std::uint64_t id) const {
  ReceiveView view;
  if (offset < kRingsBegin || offset % kCacheLine != 0 ||
      offset > kControlBytes - sizeof(ReceiveRing))
    return view;
  auto* ring = reinterpret_cast<ReceiveRing*>(reinterpret_cast<std::byte*>(control()) + offset);
  const std::uint32_t slots = relaxed(ring->slots);
  const std::uint32_t max_sges = relaxed(ring->max_sges);
  const std::uint32_t stride_bits = relaxed(ring->stride_bits);
  const bool sound = slots != 0 && (slots & (slots - 1)) == 0 && slots <= kMaxQueueEntries &&
                     max_sges >= 1 && max_sges <= kMaxSges && stride_bits <= kMaxStrideBits &&
                     receive_ring_bytes(slots, max_sges) <= kControlBytes - offset;
  if (sound) view = {ring, id, slots - 1, max_sges, stride_bits};
  return view;
}

CompletionView Peer::completion_view(std::uint64_t offset, std::uint64_t id) const {
  CompletionView view;
  if (offset < kRingsBegin || offset % kCacheLine != 0 ||
      offset > kControlBytes - sizeof(CompletionRing))
    return view;
  auto* ring = reinterpret_cast<CompletionRing*>(reinterpret_cast<std::byte*>(control()) + offset);
  const std::uint32_t slots = relaxed(ring->slots);
  const std::uint32_t capacity = relaxed(ring->head.capacity);
  const bool sound = slots != 0 && (slots & (slots - 1)) == 0 && slots <= kMaxQueueEntries &&
                     capacity <= slots &&
                     kBanks * completion_bank_bytes(slots) <= kControlBytes - offset;
  if (sound) view = {ring, ring, id, slots - 1, capacity};
  return view;
}

}  // namespace pyrdma::fabric::shm
