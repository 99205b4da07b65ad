#include "systems/krcore/meta/cluster_hash.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/assert.h"

namespace pyrdma::krcore {

namespace {

constexpr std::uint32_t kLinkTag = 0xffff;  // the slot's number is that of a bucket
constexpr std::uint32_t kPerBucket = 5;     // keys, so that few buckets overflow
constexpr int kAttempts = 16;               // at an entry that changes meanwhile
constexpr std::uint32_t kMostPayload = 64;

std::uint32_t tag_of(std::uint64_t hash) {
  return std::min<std::uint32_t>(static_cast<std::uint32_t>(hash >> 48), kLinkTag - 1);
}
std::uint32_t bucket_of(const HashShape& shape, std::uint64_t hash) {
  return static_cast<std::uint32_t>(hash % shape.buckets);
}
// An entry's number is kept plus 1, so that 0 is an empty slot.
std::uint32_t slot_with(std::uint32_t tag, std::uint32_t number) {
  return tag << 16 | (number + 1);
}
std::uint32_t tag_in(std::uint32_t slot) { return slot >> 16; }
std::uint32_t number_in(std::uint32_t slot) { return (slot & 0xffff) - 1; }

std::uint32_t sum_of_entry(std::uint32_t key, std::span<const std::byte> payload) {
  return crc32c(payload, static_cast<std::uint32_t>(mix64(key)));
}

/// Readers may copy the words at any time.
void store_words(std::byte* at, std::span<const std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::uint32_t)) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes.data() + i, sizeof word);
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(at + i), word, __ATOMIC_RELAXED);
  }
}

}  // namespace

HashShape HashShape::of(std::uint32_t entries, std::uint32_t payload_bytes) {
  PYRDMA_ASSERT(entries <= kMostEntries && payload_bytes <= kMostPayload &&
                payload_bytes % sizeof(std::uint32_t) == 0);
  return {std::max(1U, (entries + kPerBucket - 1) / kPerBucket), entries, payload_bytes};
}

ClusterHash::ClusterHash(HashShape shape, std::byte* memory, Bugs bugs)
    : shape_(shape), memory_(memory), bugs_(bugs) {
  for (std::uint32_t entry = shape.entries; entry-- > 0;) free_entries_.push_back(entry);
  const std::uint32_t most = std::min(2 * shape.buckets, HashShape::kMostEntries);
  for (std::uint32_t bucket = most; bucket-- > shape.buckets;) free_buckets_.push_back(bucket);
}

std::uint32_t* ClusterHash::slots_of(std::uint32_t bucket) const {
  return reinterpret_cast<std::uint32_t*>(memory_ + shape_.bucket_at(bucket));
}

std::uint32_t ClusterHash::load(const std::uint32_t* word) const {
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}

std::uint32_t* ClusterHash::slot_of(std::uint32_t key) const {
  const std::uint64_t hash = mix64(key);
  std::uint32_t bucket = bucket_of(shape_, hash);
  for (;;) {
    std::uint32_t* slots = slots_of(bucket);
    for (std::uint32_t i = 0; i < HashShape::kSlots; ++i) {
      const std::uint32_t slot = load(&slots[i]);
      if (slot == 0 || tag_in(slot) != tag_of(hash)) continue;
      std::uint32_t found = 0;
      std::memcpy(&found, memory_ + shape_.entry_at(number_in(slot)), sizeof found);
      if (found == key) return &slots[i];
    }
    const std::uint32_t last = load(&slots[HashShape::kSlots - 1]);
    if (last == 0 || tag_in(last) != kLinkTag) return nullptr;
    bucket = number_in(last);
  }
}

// A full bucket gives its last slot to the link. What was in that slot moves to the new bucket
// first, so a reader finds it in one of both.
std::uint32_t* ClusterHash::free_slot(std::uint32_t key) {
  std::uint32_t bucket = bucket_of(shape_, mix64(key));
  for (;;) {
    std::uint32_t* slots = slots_of(bucket);
    const std::uint32_t last = load(&slots[HashShape::kSlots - 1]);
    for (std::uint32_t i = 0; i < HashShape::kSlots; ++i)
      if (load(&slots[i]) == 0) return &slots[i];
    if (tag_in(last) == kLinkTag) {
      bucket = number_in(last);
      continue;
    }
    if (free_buckets_.empty()) return nullptr;
    const std::uint32_t more = free_buckets_.back();
    free_buckets_.pop_back();
    std::uint32_t* moved = slots_of(more);
    __atomic_store_n(&moved[0], last, __ATOMIC_RELAXED);
    __atomic_store_n(&slots[HashShape::kSlots - 1], slot_with(kLinkTag, more), __ATOMIC_RELEASE);
    bucket = more;
  }
}

void ClusterHash::write_entry(std::uint32_t entry, std::uint32_t key,
                              std::span<const std::byte> payload) {
  std::byte* at = memory_ + shape_.entry_at(entry);
  const std::uint32_t sum = sum_of_entry(key, payload);
  store_words(at, std::as_bytes(std::span(&key, 1)));
  store_words(at + sizeof key, std::as_bytes(std::span(&sum, 1)));
  store_words(at + sizeof key + sizeof sum, payload);
}

bool ClusterHash::insert(std::uint32_t key, std::span<const std::byte> payload) {
  PYRDMA_ASSERT(payload.size() == shape_.payload_bytes);
  if (const std::uint32_t* known = slot_of(key)) {
    write_entry(number_in(load(known)), key, payload);
    return true;
  }
  if (free_entries_.empty()) return false;
  std::uint32_t* slot = free_slot(key);
  if (slot == nullptr) return false;
  const std::uint32_t entry = free_entries_.back();
  free_entries_.pop_back();
  write_entry(entry, key, payload);
  __atomic_store_n(slot, slot_with(tag_of(mix64(key)), entry), __ATOMIC_RELEASE);
  ++size_;
  return true;
}

bool ClusterHash::erase(std::uint32_t key) {
  std::uint32_t* slot = slot_of(key);
  if (slot == nullptr) return false;
  const std::uint32_t entry = number_in(load(slot));
  __atomic_store_n(slot, 0, __ATOMIC_RELEASE);
  // A reader that has the old slot must not take the entry.
  const std::uint32_t gone = ~0U;
  store_words(memory_ + shape_.entry_at(entry), std::as_bytes(std::span(&gone, 1)));
  free_entries_.push_back(entry);
  --size_;
  free_empty_buckets(bucket_of(shape_, mix64(key)));
  return true;
}

// Those at the end of the chain that begins with `first`.
void ClusterHash::free_empty_buckets(std::uint32_t first) {
  if (bugs_.has(Bug::kBucketsKept) || bugs_.has(Bug::kFullTableIgnored)) return;
  for (;;) {
    std::uint32_t* link = nullptr;  // to the last bucket
    std::uint32_t last = first;
    for (;;) {
      std::uint32_t& end = slots_of(last)[HashShape::kSlots - 1];
      if (load(&end) == 0 || tag_in(load(&end)) != kLinkTag) break;
      link = &end;
      last = number_in(load(&end));
    }
    const std::span<const std::uint32_t> slots(slots_of(last), HashShape::kSlots);
    if (link == nullptr || std::ranges::any_of(slots, [](std::uint32_t slot) { return slot != 0; }))
      return;
    __atomic_store_n(link, 0, __ATOMIC_RELEASE);
    free_buckets_.push_back(last);
  }
}

bool ClusterHash::find(std::uint32_t key, std::span<std::byte> payload) const {
  const std::uint32_t* slot = slot_of(key);
  if (slot == nullptr || payload.size() != shape_.payload_bytes) return false;
  std::memcpy(payload.data(), memory_ + shape_.entry_at(number_in(load(slot))) + 8, payload.size());
  return true;
}

namespace {

/// Reads the entry; kFailed says that it changed all the time.
LookupResult read_entry(const HashShape& shape, std::uint32_t entry, std::uint32_t key,
                        std::span<std::byte> payload, ReadTable read, bool& is_broken) {
  std::array<std::byte, 2 * sizeof(std::uint32_t) + kMostPayload> bytes;
  const std::span<std::byte> whole = std::span(bytes).first(shape.entry_bytes());
  if (!read(shape.entry_at(entry), whole)) {
    is_broken = true;
    return LookupResult::kFailed;
  }
  std::uint32_t found = 0, sum = 0;
  std::memcpy(&found, whole.data(), sizeof found);
  std::memcpy(&sum, whole.data() + sizeof found, sizeof sum);
  const std::span<const std::byte> value = whole.subspan(sizeof found + sizeof sum);
  if (sum != sum_of_entry(found, value)) return LookupResult::kFailed;
  if (found != key) return LookupResult::kAbsent;
  std::ranges::copy(value, payload.begin());
  return LookupResult::kFound;
}

}  // namespace

LookupResult look_up(const HashShape& shape, std::uint32_t key, std::span<std::byte> payload,
                     ReadTable read) {
  if (shape.buckets == 0 || shape.payload_bytes > kMostPayload ||
      payload.size() != shape.payload_bytes)
    return LookupResult::kFailed;
  const std::uint64_t hash = mix64(key);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::uint32_t bucket = bucket_of(shape, hash);
    bool has_changed = false;
    // A chain has at most as many buckets as there are for collisions.
    for (std::uint32_t step = 0; step <= shape.buckets; ++step) {
      std::array<std::uint32_t, HashShape::kSlots> slots;
      if (!read(shape.bucket_at(bucket), std::as_writable_bytes(std::span(slots))))
        return LookupResult::kFailed;
      for (const std::uint32_t slot : slots) {
        if (slot == 0 || tag_in(slot) != tag_of(hash)) continue;
        if (number_in(slot) >= shape.entries) return LookupResult::kFailed;
        bool is_broken = false;
        const LookupResult result =
            read_entry(shape, number_in(slot), key, payload, read, is_broken);
        if (result == LookupResult::kFound || is_broken) return result;
        has_changed |= result == LookupResult::kFailed;
      }
      const std::uint32_t last = slots.back();
      if (last == 0 || tag_in(last) != kLinkTag) {
        if (!has_changed) return LookupResult::kAbsent;
        break;
      }
      bucket = number_in(last);
      if (bucket >= 2 * shape.buckets) return LookupResult::kFailed;
    }
  }
  return LookupResult::kFailed;
}

}  // namespace pyrdma::krcore
