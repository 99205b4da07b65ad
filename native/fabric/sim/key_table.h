// A table of objects by random sparse keys. The low bits of a key are its slot: a look-up is one
// load and one comparison. The other bits are random: keys cannot be guessed in sequence.
#pragma once
#include <cstdint>
#include <vector>

#include "base/rng.h"

namespace pyrdma::fabric::sim {

template <class T>
class KeyTable {
 public:
  explicit KeyTable(Rng rng, std::uint32_t key_bits)
      : rng_(rng), key_mask_(~0u >> (32 - key_bits)), slots_(64) {}

  T* find(std::uint32_t key) const {
    const Slot& slot = slots_[key & (slots_.size() - 1)];
    return slot.key == key ? slot.object : nullptr;
  }
  /// Adds `object` and returns its new key. The key is never 0.
  std::uint32_t insert(T* object) {
    if (2 * (used_ + 1) > slots_.size()) grow();
    for (;;) {
      const auto key = static_cast<std::uint32_t>(rng_()) & key_mask_;
      Slot& slot = slots_[key & (slots_.size() - 1)];
      if (slot.object != nullptr || key == 0) continue;
      slot = {key, object};
      ++used_;
      return key;
    }
  }
  /// Removes `object`. The call has no effect when another object has taken the key since.
  void erase(std::uint32_t key, const T* object) {
    Slot& slot = slots_[key & (slots_.size() - 1)];
    if (slot.key != key || slot.object != object) return;
    slot = {};
    --used_;
  }
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Slot& slot : slots_)
      if (slot.object != nullptr) visit(*slot.object);
  }
  void clear() {
    slots_.assign(64, {});
    used_ = 0;
  }
  /// Makes later insertions draw their keys from `rng`.
  void reseed(Rng rng) { rng_ = rng; }

 private:
  struct Slot {
    std::uint32_t key = 0;
    T* object = nullptr;
  };
  void grow() {  // keys that differ in the old low bits differ in the new ones
    std::vector<Slot> wider(slots_.size() * 2);
    for (const Slot& slot : slots_)
      if (slot.object != nullptr) wider[slot.key & (wider.size() - 1)] = slot;
    slots_ = std::move(wider);
  }
  Rng rng_;
  std::uint32_t key_mask_;
  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

}  // namespace pyrdma::fabric::sim
