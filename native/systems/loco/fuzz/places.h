// The places of keys in the indices of all nodes, at the end of a run.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "systems/loco/kvstore/store.h"

namespace pyrdma::loco {

class Places {
 public:
  /// Notes the places of the keys below `keys` in this node's index, after the last operation.
  /// Returns which entries or slots of the node are lost; empty if none is. A store that computes
  /// the places of its first keys has no entries for them: `computed`.
  std::string note(KvStore& store, Key keys, bool computed = false);
  /// Returns the first key that has different places on two nodes.
  std::optional<Key> unequal() const;
  /// Returns true if the first node that noted its places has one of `key`.
  bool has(Key key) const { return places_.at(key).front().has_value(); }

 private:
  std::map<Key, std::vector<std::optional<Location>>> places_;  // by key: of each node
};

}  // namespace pyrdma::loco
