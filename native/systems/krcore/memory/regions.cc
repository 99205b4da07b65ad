#include "systems/krcore/memory/regions.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "systems/krcore/memory/lease.h"

namespace pyrdma::krcore {

namespace {

constexpr std::uint64_t kSliceUnit = 64;  // bytes: no two regions share a cache line

std::uint64_t slice_bytes(std::uint64_t bytes) {
  return (std::max<std::uint64_t>(bytes, 1) + kSliceUnit - 1) / kSliceUnit * kSliceUnit;
}

}  // namespace

Regions::Regions(Env& env, fabric::ProtectionDomain& domain, const Options& options)
    : env_(env),
      domain_(domain),
      options_(options),
      grace_(Lease(options).grace()),
      mutex_(env),
      rng_(env.rng("krcore/regions")),
      index_bits_(static_cast<unsigned>(std::bit_width(options.regions - 1U))),
      index_mask_((1U << index_bits_) - 1),
      places_(options.regions),
      slots_(options.regions) {
  fabric::Device& device = env.device();
  const HashShape shape = HashShape::of(options.regions, sizeof(RegionRecord));
  table_memory_ = device.allocate(domain, shape.bytes(), fabric::kRemoteRead);
  table_ = std::make_unique<ClusterHash>(shape, table_memory_->data(), options.bugs);
  if (options.slices) {
    arena_ = device.allocate(domain, options.arena_bytes, fabric::kAllAccess);
    free_slices_[0] = options.arena_bytes;
  }
  for (std::uint32_t slot = options.regions; slot-- > 0;) free_slots_.push_back(slot);
}

std::uint64_t Regions::take_slice(std::uint64_t bytes) {
  for (auto free = free_slices_.begin(); free != free_slices_.end(); ++free) {
    if (free->second < bytes) continue;
    const auto [offset, size] = *free;
    free_slices_.erase(free);
    if (size > bytes) free_slices_[offset + bytes] = size - bytes;
    return offset;
  }
  throw Error(ErrorCode::kExhausted, "krcore: no " + std::to_string(bytes) +
                                         " bytes are left of the service's arena of " +
                                         std::to_string(options_.arena_bytes) +
                                         " bytes; raise Options::arena_bytes, or wait until the "
                                         "leases of removed regions have ended");
}

void Regions::give_slice(std::uint64_t offset, std::uint64_t bytes) {
  const auto next = free_slices_.lower_bound(offset);
  if (next != free_slices_.end() && offset + bytes == next->first) {
    bytes += next->second;
    free_slices_.erase(next);
  }
  const auto after = free_slices_.lower_bound(offset);
  if (after != free_slices_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_slices_[offset] = bytes;
}

Registration Regions::allocate(std::uint64_t bytes, std::uint32_t access, std::uint64_t domain) {
  fabric::check_region_access(access);
  if (!options_.slices || (access & fabric::kOwnFile) != 0) {
    auto own = env_.device().allocate(domain_, bytes, access);
    const RegionRecord record{own->addr(), own->size(), own->rkey(), access & ~fabric::kOwnFile};
    std::byte* const data = own->data();
    const std::uint32_t lkey = own->lkey();
    const int file = own->file();
    const std::lock_guard<Mutex> lock(mutex_);
    Registration made = publish(data, record, lkey, domain, std::move(own), false);
    made.file = file;
    return made;
  }
  const std::lock_guard<Mutex> lock(mutex_);
  const std::uint64_t offset = take_slice(slice_bytes(bytes));
  std::byte* const data = arena_->data() + offset;
  std::memset(data, 0, bytes);
  return publish(data, {arena_->addr() + offset, bytes, arena_->rkey(), access}, arena_->lkey(),
                 domain, nullptr, true);
}

Registration Regions::add(void* data, std::uint64_t bytes, std::uint32_t access,
                          std::uint64_t domain) {
  fabric::check_region_access(access);
  auto own = env_.device().register_memory(domain_, data, bytes, access);
  const RegionRecord record{own->addr(), own->size(), own->rkey(), access};
  const std::uint32_t lkey = own->lkey();
  const std::lock_guard<Mutex> lock(mutex_);
  return publish(static_cast<std::byte*>(data), record, lkey, domain, std::move(own), false);
}

Registration Regions::publish(std::byte* data, const RegionRecord& record, std::uint32_t lkey,
                              std::uint64_t domain, std::unique_ptr<fabric::MemoryRegion> own,
                              bool is_slice) {
  if (free_slots_.empty()) {
    if (is_slice) give_slice(record.addr - arena_->addr(), slice_bytes(record.bytes));
    throw Error(ErrorCode::kExhausted, "krcore: all " + std::to_string(options_.regions) +
                                           " places for registrations are taken; remove some, or "
                                           "raise Options::regions");
  }
  const std::uint32_t index = free_slots_.back();
  std::uint32_t random = 0;
  while (random == 0) random = static_cast<std::uint32_t>(rng_()) >> index_bits_;
  const std::uint32_t key = random << index_bits_ | index;
  if (!table_->insert(key, std::as_bytes(std::span(&record, 1))) &&
      !options_.bugs.has(Bug::kFullTableIgnored)) {
    if (is_slice) give_slice(record.addr - arena_->addr(), slice_bytes(record.bytes));
    throw Error(ErrorCode::kExhausted,
                "krcore: the table by which peers find regions has no bucket left for a collision; "
                "all " +
                    std::to_string(table_->shape().buckets) +
                    " are in use; remove some regions, or raise Options::regions above " +
                    std::to_string(options_.regions));
  }
  free_slots_.pop_back();
  Slot& slot = slots_[index];
  slot.record = record;
  slot.lkey = lkey;
  slot.domain = domain;
  slot.own = std::move(own);
  slot.is_slice = is_slice;
  slot.key.store(key, std::memory_order_release);
  return {data, record.addr, record.bytes, key};
}

void Regions::remove(std::uint32_t key) {
  const Time now = env_.now();
  const std::lock_guard<Mutex> lock(mutex_);
  const std::uint32_t index = index_of(key);
  if (key == 0 || index >= slots_.size() || slots_[index].key.load() != key) return;
  slots_[index].key.store(0, std::memory_order_release);
  table_->erase(key);
  ending_.push_back({now + grace_, index});
}

void Regions::free_ended(Time now) {
  std::vector<std::unique_ptr<fabric::MemoryRegion>> ended;
  {
    const std::lock_guard<Mutex> lock(mutex_);
    while (!ending_.empty() && ending_.front().free_at <= now) {
      Slot& slot = slots_[ending_.front().slot];
      if (slot.is_slice)
        give_slice(slot.record.addr - arena_->addr(), slice_bytes(slot.record.bytes));
      ended.push_back(std::move(slot.own));
      free_slots_.push_back(ending_.front().slot);
      ending_.pop_front();
    }
  }
}

std::size_t Regions::ending() {
  const std::lock_guard<Mutex> lock(mutex_);
  return ending_.size();
}

}  // namespace pyrdma::krcore
