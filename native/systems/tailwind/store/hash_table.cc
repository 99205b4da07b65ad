#include "systems/tailwind/store/hash_table.h"

#include <mutex>
#include <string>

#include "base/assert.h"
#include "base/error.h"

namespace pyrdma::tailwind {

namespace {

constexpr std::uint64_t kMostKeys = std::uint64_t{1} << 40;

std::uint64_t buckets_for(std::uint64_t keys) {
  if (keys < 1 || keys > kMostKeys) {
    throw Error(ErrorCode::kInvalidArgument,
                "a hash table for " + std::to_string(keys) + " keys; give 1 to 2^40");
  }
  return (keys * 5 / 4 + HashTable::kSlots - 1) / HashTable::kSlots;
}

}  // namespace

HashTable::HashTable(Env& env, std::uint64_t keys)
    : env_(env),
      lines_(buckets_for(keys)),
      footprint_(env, lines_.data(), lines_.size() * sizeof(Line)) {}

HashTable::Slot* HashTable::free_slot(std::uint64_t hash) {
  auto* line = &lines_[bucket_of(hash)];
  for (;;) {
    for (Slot& slot : line->slots)
      if (slot == 0) return &slot;
    Slot& last = line->slots[kSlots - 1];
    if ((last & kChain) == 0) {  // its key moves to the new line
      Line& next = new_line();
      next.slots[0] = last;
      last = kChain | reinterpret_cast<std::uintptr_t>(&next);
    }
    line = line_of(last);
  }
}

HashTable::Line& HashTable::new_line() {
  const std::lock_guard lock(overflow_mutex_);
  Line& line = overflow_.emplace_back();
  PYRDMA_ASSERT(reinterpret_cast<std::uintptr_t>(&line) < kChain);
  return line;
}

}  // namespace pyrdma::tailwind
