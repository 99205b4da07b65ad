#include "systems/loco/fuzz/places.h"

#include <algorithm>
#include <functional>

namespace pyrdma::loco {

std::string Places::note(KvStore& store, Key keys, bool computed) {
  std::uint64_t here = 0, held = 0;
  for (Key key = 0; key < keys; ++key) {
    const std::optional<Location> place = store.locate(key);
    places_[key].push_back(place);
    held += place.has_value();
    here += place && place->node == store.self();
  }
  if ((computed || store.indexed() == held) && here + store.free_slots() == store.options().slots)
    return "";
  return "node " + std::to_string(store.self()) + " has " + std::to_string(store.indexed()) +
         " entries for " + std::to_string(held) + " keys, and " +
         std::to_string(store.free_slots()) + " free slots beside " + std::to_string(here) +
         " used ones of " + std::to_string(store.options().slots);
}

std::optional<Key> Places::unequal() const {
  for (const auto& [key, places] : places_) {
    if (std::ranges::adjacent_find(places, std::not_equal_to{}) != places.end()) return key;
  }
  return {};
}

}  // namespace pyrdma::loco
