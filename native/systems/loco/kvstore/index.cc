#include "systems/loco/kvstore/index.h"

#include <mutex>
#include <shared_mutex>

#include "base/assert.h"
#include "base/error.h"
#include "systems/loco/scopes.h"

namespace pyrdma::loco {

Index::Index(Env& env, std::uint64_t keys) : lock_(env), env_(env), keys_(keys) { make_table(); }

void Index::make_table() {
  slots_ = keys_ + keys_ / 4 + 8;
  footprint_.reset();
  table_.reset(static_cast<Entry*>(std::calloc(slots_, sizeof(Entry))));
  if (table_ == nullptr) {
    throw Error(ErrorCode::kExhausted, "no memory for an index of " + std::to_string(keys_) +
                                           " keys (" + std::to_string(bytes()) + " bytes)");
  }
  footprint_.emplace(env_, table_.get(), bytes());
}

void Index::begin_with(Spread spread) {
  keys_ += spread.count;
  spread_ = std::move(spread);
  make_table();
}

// Returns the entry of the key, or the free entry where the key belongs.
Index::Entry* Index::at(Key key) const {
  std::uint64_t i = home_of(key);
  env_.charge_walk(*footprint_, &table_[i]);  // the next entries are mostly on the same line
  while (table_[i].owner != 0 && table_[i].key != key) i = i + 1 == slots_ ? 0 : i + 1;
  return &table_[i];
}

std::optional<Location> Index::find(Key key) {
  const Scope step(env_, scope::index_find);
  const std::shared_lock lock(lock_);
  const Entry* entry = at(key);
  if (entry->owner != 0) {
    if (entry->counter == kErased) return std::nullopt;
    return Location{entry->owner - 1U, entry->slot, entry->counter};
  }
  if (key < spread_.count) return spread_.of(key);
  return std::nullopt;
}

void Index::set(Key key, const Location& location) {
  PYRDMA_CHECK(location.node, <=, kLastNode);
  const Scope step(env_, scope::index_set);
  const std::lock_guard lock(lock_);
  put(key, location);
}

void Index::put(Key key, const Location& location) {
  Entry* entry = at(key);
  if (entry->owner == 0) {
    if (used_ == keys_) {
      throw Error(ErrorCode::kInternal, "the index has " + std::to_string(keys_) +
                                            " entries and is full: more keys have a slot, or a "
                                            "removal in flight, than the store allows");
    }
    ++used_;
  }
  entry->key = key;
  entry->slot = location.slot;
  entry->counter = location.counter & kCounterMask;
  entry->owner = (location.node + 1) & 0xff;
}

void Index::erase(Key key) {
  const Scope step(env_, scope::index_erase);
  const std::lock_guard lock(lock_);
  if (key < spread_.count) return put(key, {0, 0, kErased});
  Entry* entry = at(key);
  if (entry->owner != 0) free_entry(entry);
}

// Moves later entries of the run back, so that no search meets a free entry before its key.
void Index::free_entry(Entry* entry) {
  std::uint64_t hole = static_cast<std::uint64_t>(entry - table_.get());
  for (std::uint64_t i = hole;;) {
    i = i + 1 == slots_ ? 0 : i + 1;
    if (table_[i].owner == 0) break;
    const std::uint64_t home = home_of(table_[i].key);
    const bool stays = hole < i ? home > hole && home <= i : home > hole || home <= i;
    if (stays) continue;
    table_[hole] = table_[i];
    hole = i;
  }
  table_[hole].owner = 0;
  --used_;
}

}  // namespace pyrdma::loco
