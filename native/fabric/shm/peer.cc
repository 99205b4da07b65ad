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
  const std::lock_guard lock(mutex_);
  if (segments_.size() <= index) segments_.resize(index + 1);
  MappedSegment& mapped = segments_[index];
  if (mapped.mapping && mapped.inode == inode) return mapped.mapping;
  auto fresh =
      mappings_.open(pid_, static_cast<int>(relaxed(entry.descriptor)), inode, relaxed(entry.size));
  if (!fresh) return nullptr;
  if (mapped.mapping) retired_.push_back(std::move(mapped.mapping));
  mapped = {inode, fresh};
  return fresh;
}

bool Peer::find_region(std::uint32_t key, Translation& found, std::uint32_t& pd) {
  if (key < kFirstKey) return false;
  RegionEntry* regions = control()->regions;
  for (std::uint32_t probe = 0; probe < kRegionSlots; ++probe) {
    const RegionEntry& entry = regions[(region_slot(key) + probe) % kRegionSlots];
    const std::uint32_t seen = entry.key.load(std::memory_order_acquire);
    if (seen == kFreeKey) return false;
    if (seen != key) continue;
    found.key = key;
    found.rights = relaxed(entry.access) & (kAllAccess | kRelaxedOrdering);
    pd = relaxed(entry.pd);
    found.addr = relaxed(entry.addr);
    found.length = relaxed(entry.length);
    const std::uint64_t offset = relaxed(entry.offset);
    const std::shared_ptr<Mapping> memory = segment(relaxed(entry.segment));
    std::atomic_thread_fence(std::memory_order_acquire);
    if (!memory || relaxed(entry.key) != key) return false;
    if (offset > memory->size() || found.length > memory->size() - offset) return false;
    found.data = memory->data() + offset;
    return true;
  }
  return false;
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
                     capacity <= slots && completion_ring_bytes(slots) <= kControlBytes - offset;
  if (sound) view = {ring, id, slots - 1, capacity};
  return view;
}

}  // namespace pyrdma::fabric::shm
