#include "fabric/shm/device.h"

#include <algorithm>
#include <bit>

#include "base/assert.h"
#include "base/error.h"
#include "fabric/shm/completion_queue.h"
#include "fabric/shm/queue_pair.h"
#include "fabric/shm/rings.h"
#include "fabric/shm/shared_receive_queue.h"

namespace pyrdma::fabric::shm {
namespace {

constexpr std::uint64_t kArenaBytes = 256 * kMiB;
constexpr std::uint64_t kArenaMost = 16 * kMiB;  // larger regions have a file of their own
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMaxRegion = 1ULL << 40;

class ShmMemoryRegion final : public MemoryRegion {
 public:
  ShmMemoryRegion(ShmDevice& device, std::uint32_t pd, std::uint64_t bytes, std::uint32_t access)
      : device_(device) {
    device.reserve_region();
    try {
      piece_ = device.memory().take(bytes, (access & kOwnFile) != 0);
    } catch (...) {
      device.release_region();
      throw;
    }
    data_ = piece_.data();
    size_ = bytes;
    addr_ = reinterpret_cast<std::uint64_t>(data_);
    node_ = device.node().self();
    if ((access & kOwnFile) != 0) file_ = piece_.segment->mapping->descriptor();
    lkey_ = rkey_ = device.add_region(pd, access, piece_, bytes);
  }
  ~ShmMemoryRegion() override { device_.remove_region(rkey_, std::move(piece_)); }

 private:
  ShmDevice& device_;
  RegionMemory::Piece piece_;
};

}  // namespace

// ---- ring and region memory ----

std::uint64_t RingPool::take(Kind kind, std::uint64_t bytes) {
  bytes = std::bit_ceil(bytes);
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t>& known = free_[{kind, bytes}];
  if (!known.empty()) {
    const std::uint64_t offset = known.back();
    known.pop_back();
    return offset;
  }
  if (bytes > kControlBytes - next_) {
    throw Error(ErrorCode::kExhausted,
                "shm: no room for another queue; all queues of one node share " +
                    std::to_string((kControlBytes - kRingsBegin) / kMiB) +
                    " MiB; use fewer or shorter queues");
  }
  const std::uint64_t offset = next_;
  next_ += bytes;
  return offset;
}

void RingPool::give_back(Kind kind, std::uint64_t bytes, std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  free_[{kind, std::bit_ceil(bytes)}].push_back(offset);
}

Segment::~Segment() {
  mapping->close_file();
  control.segments[index].inode.store(0, std::memory_order_release);
  control.header.segments_freed.fetch_add(1, std::memory_order_release);
}

std::shared_ptr<Segment> RegionMemory::create(std::uint64_t bytes) {
  for (std::uint32_t index = 0; index < kMaxSegments; ++index) {
    SegmentEntry& entry = control_.segments[index];
    if (entry.inode.load(std::memory_order_acquire) != 0) continue;
    auto segment = std::make_shared<Segment>(control_, Mapping::create(bytes), index);
    const Mapping& mapping = *segment->mapping;
    mappings_.add(segment->mapping);
    set_relaxed(entry.descriptor, static_cast<std::uint32_t>(mapping.descriptor()));
    set_relaxed(entry.size, mapping.size());
    entry.inode.store(mapping.inode(), std::memory_order_release);
    return segment;
  }
  throw Error(ErrorCode::kExhausted,
              "shm: a node has at most " + std::to_string(kMaxSegments) + " regions of more than " +
                  std::to_string(kArenaMost / kMiB) + " MiB; destroy some or use smaller ones");
}

RegionMemory::Piece RegionMemory::take(std::uint64_t bytes, bool as_own_file) {
  const std::uint64_t rounded = (bytes + kPage - 1) / kPage * kPage;
  const std::lock_guard lock(mutex_);
  if (as_own_file || rounded > kArenaMost) return {create(rounded), 0, rounded};
  if (!arena_ || rounded > kArenaBytes - arena_used_) {
    arena_ = nullptr;  // its place may be the last one
    arena_ = create(kArenaBytes);
    arena_used_ = 0;
  }
  Piece piece{arena_, arena_used_, rounded};
  arena_used_ += rounded;
  return piece;
}

// ---- device ----

ShmDevice::ShmDevice(Node& node)
    : node_(node),
      name_("shm" + std::to_string(node.self())),
      rendezvous_(node),
      memory_(node.control(), node.mappings()),
      released_(new std::atomic<std::uint64_t>[kQpSlots]()) {
  capabilities_.uc = capabilities_.ud = capabilities_.dc = true;
  capabilities_.atomics = capabilities_.srq = capabilities_.own_files = true;
  capabilities_.max_queue_entries = capabilities_.max_completions = kMaxQueueEntries;
  capabilities_.max_sges = kMaxSges;
  capabilities_.max_inline = kMaxInline;
  // Every request is done when post returns.
  capabilities_.max_outstanding_reads = kMaxQueueEntries;
  capabilities_.max_datagram = kMaxDatagram;
  capabilities_.max_receive_strides = 1U << kMaxStrideBits;
  capabilities_.max_message = kMaxMessage;
}

void ShmDevice::check_count(const char* what, std::uint64_t value, std::uint64_t least,
                            std::uint64_t most) const {
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::kInvalidArgument, std::string(what) + " is " + std::to_string(value) +
                                               "; this device allows " + std::to_string(least) +
                                               " to " + std::to_string(most));
}

std::unique_ptr<ProtectionDomain> ShmDevice::create_protection_domain() {
  const std::lock_guard lock(mutex_);
  return std::make_unique<ShmProtectionDomain>(next_pd_++);
}

std::unique_ptr<MemoryRegion> ShmDevice::allocate(ProtectionDomain& pd, std::size_t bytes,
                                                  std::uint32_t access) {
  check_count("region size", bytes, 1, kMaxRegion);
  check_region_access(access);
  return std::make_unique<ShmMemoryRegion>(*this, static_cast<ShmProtectionDomain&>(pd).id, bytes,
                                           access);
}

std::unique_ptr<MemoryRegion> ShmDevice::register_memory(ProtectionDomain& /*pd*/, void* /*data*/,
                                                         std::size_t /*bytes*/,
                                                         std::uint32_t /*access*/) {
  throw Error(
      ErrorCode::kUnavailable,
      "shm cannot register memory of the caller, because peers cannot map it; use allocate()");
}

std::unique_ptr<MemoryRegion> ShmDevice::allocate_device_memory(ProtectionDomain& /*pd*/,
                                                                std::size_t /*bytes*/,
                                                                std::uint32_t /*access*/) {
  throw Error(ErrorCode::kUnavailable, "shm has no memory on the NIC; use allocate()");
}

std::unique_ptr<CompletionQueue> ShmDevice::create_completion_queue(std::uint32_t entries) {
  check_count("completion queue entries", entries, 1, kMaxQueueEntries);
  return std::make_unique<ShmCompletionQueue>(*this, entries);
}

std::unique_ptr<SharedReceiveQueue> ShmDevice::create_shared_receive_queue(ProtectionDomain& pd,
                                                                           std::uint32_t entries,
                                                                           std::uint32_t max_sges) {
  check_count("shared receive queue entries", entries, 1, kMaxQueueEntries);
  check_count("shared receive queue max_sges", max_sges, 1, kMaxSges);
  return std::make_unique<ShmSharedReceiveQueue>(*this, static_cast<ShmProtectionDomain&>(pd).id,
                                                 entries, max_sges);
}

std::unique_ptr<QueuePair> ShmDevice::create_queue_pair(ProtectionDomain& pd,
                                                        CompletionQueue& send_queue,
                                                        CompletionQueue& receive_queue,
                                                        const QpOptions& options,
                                                        SharedReceiveQueue* shared_receives) {
  check_count("send_entries", options.send_entries, 1, kMaxQueueEntries);
  if (shared_receives == nullptr)
    check_count("receive_entries", options.receive_entries, 1, kMaxQueueEntries);
  check_count("max_sges", options.max_sges, 1, kMaxSges);
  check_count("max_inline", options.max_inline, 0, kMaxInline);
  check_count("max_outstanding_reads", options.max_outstanding_reads, 1, kMaxQueueEntries);
  check_count("retry_count", options.retry_count, 0, 7);
  check_count("rnr_retry", options.rnr_retry, 0, kInfiniteRetry);
  check_queue_pair_access(options.access);
  check_receive_strides(options, capabilities_, shared_receives != nullptr);
  check_no_path("shm", options);
  if (options.dc_target && (options.transport != Transport::kDc || shared_receives == nullptr)) {
    throw Error(ErrorCode::kInvalidArgument,
                "dc_target is True; give transport dc and a shared receive queue with it");
  }
  return std::make_unique<ShmQueuePair>(*this, static_cast<ShmProtectionDomain&>(pd).id,
                                        static_cast<ShmCompletionQueue&>(send_queue),
                                        static_cast<ShmCompletionQueue&>(receive_queue), options,
                                        static_cast<ShmSharedReceiveQueue*>(shared_receives));
}

std::unique_ptr<AddressHandle> ShmDevice::create_address_handle(ProtectionDomain& pd,
                                                                const QpAddress& peer,
                                                                const PathOptions& path) {
  check_no_path("shm", path);
  if (peer.node >= node_.nodes()) {
    throw Error(ErrorCode::kInvalidArgument,
                "address handle: node is " + std::to_string(peer.node) + "; the nodes are 0 to " +
                    std::to_string(node_.nodes() - 1));
  }
  return std::make_unique<ShmAddressHandle>(peer.node, static_cast<ShmProtectionDomain&>(pd).id);
}

// ---- tables of the control segment ----

ReceiveView ShmDevice::make_receive_ring(std::uint32_t capacity, std::uint32_t max_sges,
                                         std::uint32_t strides, bool is_shared,
                                         std::uint64_t* offset) {
  const std::uint32_t slots = std::bit_ceil(capacity);
  *offset = take_ring(RingPool::Kind::kReceive, receive_ring_bytes(slots, max_sges));
  auto* ring =
      reinterpret_cast<ReceiveRing*>(reinterpret_cast<std::byte*>(&node_.control()) + *offset);
  // No other thread reads a ring before a queue pair names it with its new id.
  set_relaxed(ring->slots, slots);
  const auto stride_bits = static_cast<std::uint32_t>(std::countr_zero(strides));
  set_relaxed(ring->max_sges, max_sges);
  set_relaxed(ring->stride_bits, stride_bits);
  set_relaxed(ring->head.capacity, capacity);
  const std::lock_guard lock(mutex_);
  const std::uint64_t id = next_ring_id_++;
  const std::uint64_t begin = is_shared ? first_of_shared(id) : 0;
  set_relaxed(ring->taken, begin);
  set_relaxed(ring->posted, begin);
  ring->head.id.store(id, std::memory_order_release);
  return {ring, id, slots - 1, max_sges, stride_bits};
}

CompletionView ShmDevice::make_completion_ring(std::uint32_t capacity, std::uint64_t* offset) {
  const std::uint32_t slots = std::bit_ceil(capacity);
  *offset = take_ring(RingPool::Kind::kCompletion, kBanks * completion_bank_bytes(slots));
  auto* first =
      reinterpret_cast<CompletionRing*>(reinterpret_cast<std::byte*>(&node_.control()) + *offset);
  CompletionView view{first, first, 0, slots - 1, capacity};
  {
    const std::lock_guard lock(mutex_);
    view.id = next_ring_id_++;
  }
  // A ring that was never in use is all zeros, and costs no memory for its entries.
  const std::uint32_t used = relaxed(first->banks) | 1U;
  set_relaxed(first->overrun, 0U);
  set_relaxed(first->banks, 0U);
  for (std::uint32_t number = 0; number < kBanks; ++number) {
    CompletionRing* ring = view.bank(number).ring;
    set_relaxed(ring->slots, slots);
    set_relaxed(ring->head.capacity, capacity);
    set_relaxed(ring->produced, std::uint64_t{0});
    set_relaxed(ring->consumed_seen, std::uint64_t{0});
    set_relaxed(ring->consumed, std::uint64_t{0});
    for (std::uint32_t i = 0; i < slots && (used >> number & 1U) != 0; ++i)
      set_relaxed(ring->entries[i].sequence, 0U);
    ring->head.id.store(view.id, std::memory_order_release);
  }
  return view;
}

std::uint64_t ShmDevice::take_ring(RingPool::Kind kind, std::uint64_t bytes) {
  {
    const std::lock_guard guard(mutex_);
    std::erase_if(retired_rings_, [this](const RetiredRing& ring) {
      if (!is_left(ring, 0)) return false;
      rings_.give_back(ring.kind, ring.bytes, ring.offset);
      return true;
    });
  }
  return rings_.take(kind, bytes);
}

// Returns whether no requester holds the ring or one of the queue's further rings.
bool ShmDevice::is_left(const RetiredRing& ring, Time patience) {
  const bool has_banks = ring.kind == RingPool::Kind::kCompletion;
  bool left = true;
  for (std::uint32_t number = 0; number < (has_banks ? kBanks : 1); ++number) {
    auto& head = *reinterpret_cast<RingHead*>(reinterpret_cast<std::byte*>(&node_.control()) +
                                              ring.offset + number * (ring.bytes / kBanks));
    const bool locked = lock(head.lock, node_.holder(), node_.session(), patience);
    head.id.store(0, std::memory_order_release);
    if (locked) unlock(head.lock);
    left &= locked;
  }
  return left;
}

void ShmDevice::retire(const RetiredRing& ring, Time patience) {
  if (is_left(ring, patience)) {
    rings_.give_back(ring.kind, ring.bytes, ring.offset);
  } else {
    const std::lock_guard guard(mutex_);
    retired_rings_.push_back(ring);
  }
}

void ShmDevice::retire_receive_ring(const ReceiveView& view, std::uint64_t offset, Time patience) {
  retire({RingPool::Kind::kReceive, receive_ring_bytes(view.mask + 1, view.max_sges), offset},
         patience);
}

void ShmDevice::retire_completion_ring(const CompletionView& view, std::uint64_t offset) {
  retire({RingPool::Kind::kCompletion, kBanks * completion_bank_bytes(view.mask + 1), offset},
         kControlPatience);
}

void ShmDevice::reserve_region() {
  const std::lock_guard lock(mutex_);
  if (region_count_ == kRegionSlots / 2) {
    throw Error(
        ErrorCode::kExhausted,
        "shm: a node has at most " + std::to_string(kRegionSlots / 2) + " regions; destroy some");
  }
  ++region_count_;
}

void ShmDevice::release_region() {
  const std::lock_guard lock(mutex_);
  --region_count_;
}

std::uint32_t ShmDevice::add_region(std::uint32_t pd, std::uint32_t access,
                                    const RegionMemory::Piece& piece, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  RegionEntry* regions = node_.control().regions;
  for (;;) {
    // A random key cannot be guessed from another. The loop skips keys in use.
    std::uint32_t key = 0;
    fill_random(&key, sizeof key);
    if (key < kFirstKey) continue;
    RegionEntry* place = nullptr;
    bool taken = false;
    for (std::uint32_t probe = 0; probe < kRegionSlots; ++probe) {
      RegionEntry& entry = regions[(region_slot(key) + probe) % kRegionSlots];
      const std::uint32_t seen = relaxed(entry.key);
      taken = seen == key;
      if (place == nullptr && seen < kFirstKey) place = &entry;
      if (taken || seen == kFreeKey) break;
    }
    if (taken) continue;
    PYRDMA_ASSERT(place != nullptr);
    set_relaxed(place->access, access);
    set_relaxed(place->pd, pd);
    set_relaxed(place->segment, piece.segment->index);
    set_relaxed(place->addr, reinterpret_cast<std::uint64_t>(piece.data()));
    set_relaxed(place->length, bytes);
    set_relaxed(place->offset, piece.offset);
    place->key.store(key, std::memory_order_release);
    return key;
  }
}

void ShmDevice::forget_region(std::uint32_t key) {
  const std::lock_guard lock(mutex_);
  RegionEntry* regions = node_.control().regions;
  for (std::uint32_t probe = 0; probe < kRegionSlots; ++probe) {
    const std::uint32_t at = (region_slot(key) + probe) % kRegionSlots;
    const std::uint32_t seen = relaxed(regions[at].key);
    if (seen == kFreeKey) break;
    if (seen != key) continue;
    // A chain that ends here needs no mark. Without this rule, churn would fill the table with
    // marks.
    const bool last = relaxed(regions[(at + 1) % kRegionSlots].key) == kFreeKey;
    regions[at].key.store(last ? kFreeKey : kRemovedKey, std::memory_order_release);
    break;
  }
  --region_count_;
}

// The order matters. A requester that finds the epoch unchanged after its copy has copied what the
// region had. One that finds it changed no longer finds the key (ShmQueuePair::settle), nor the
// file that it must drop (Peer::drop_freed_segments). Only then do the bytes go.
void ShmDevice::remove_region(std::uint32_t key, RegionMemory::Piece piece) {
  const std::shared_ptr<Mapping> mapping = piece.segment->mapping;
  forget_region(key);
  piece.segment = nullptr;
  node_.change_epoch();
  mapping->discard(piece.offset, piece.bytes);
  node_.own_peer().drop_freed_segments();
}

std::uint32_t ShmDevice::take_qp_number() {
  const std::lock_guard lock(mutex_);
  if (next_qp_slot_ < kQpSlots) {
    // The upper byte distinguishes the incarnations of a slot and starts at random.
    std::uint8_t first = 0;
    fill_random(&first, sizeof first);
    return next_qp_slot_++ + kQpSlots * (1U + first % 255U);
  }
  if (free_qp_numbers_.empty()) {
    throw Error(ErrorCode::kExhausted, "shm: a node has at most " + std::to_string(kQpSlots - 1) +
                                           " queue pairs; destroy some");
  }
  const std::uint32_t old = free_qp_numbers_.front();
  free_qp_numbers_.pop_front();
  return qp_slot(old) + kQpSlots * (1U + old / kQpSlots % 255U);
}

void ShmDevice::publish_initiator(std::uint32_t qp_num) {
  const std::lock_guard lock(mutex_);
  Word<std::uint32_t>& end = node_.control().header.initiators_end;
  set_relaxed(end, std::max(relaxed(end), qp_slot(qp_num) + 1));
}

void ShmDevice::give_back_qp_number(std::uint32_t qp_num) {
  const std::lock_guard lock(mutex_);
  free_qp_numbers_.push_back(qp_num);
}

}  // namespace pyrdma::fabric::shm
