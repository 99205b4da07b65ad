// MRStore: the remote regions that a core has checked (section 4.2). An entry lasts for a lease,
// which counts on this node's clock from before the READ that checked it was posted.
#pragma once
#include <cstdint>
#include <unordered_map>

#include "env/env.h"
#include "systems/krcore/memory/regions.h"

namespace pyrdma::krcore {

/// One thread at a time.
class MrStore {
 public:
  /// Entries beyond this many empty the store.
  static constexpr std::size_t kMostEntries = 65536;
  struct Entry {
    RegionRecord record;
    Time expires = 0;
    std::uint32_t life = 0;  // of the node: the next one may give the same physical keys
  };
  /// Null if the key is not known of this life, or no more. The entry stays until the next change.
  const Entry* find(NodeId node, std::uint32_t life, std::uint32_t key, Time now) const {
    const auto known = entries_.find(name(node, key));
    return known == entries_.end() || known->second.life != life || known->second.expires <= now
               ? nullptr
               : &known->second;
  }
  void put(NodeId node, std::uint32_t key, const Entry& entry) {
    if (entries_.size() >= kMostEntries) entries_.clear();
    entries_.insert_or_assign(name(node, key), entry);
  }
  void clear() { entries_.clear(); }

 private:
  static std::uint64_t name(NodeId node, std::uint32_t key) {
    return std::uint64_t{node} << 32 | key;
  }
  std::unordered_map<std::uint64_t, Entry> entries_;
};

/// Whether a peer may carry out `opcode` on `length` bytes from `addr` on.
inline bool allows(const RegionRecord& record, fabric::Opcode opcode, std::uint64_t addr,
                   std::uint64_t length) {
  const std::uint32_t wanted = fabric::access_for(opcode) & ~fabric::kLocalWrite;
  return (record.access & wanted) == wanted && covers(record, addr, length);
}

}  // namespace pyrdma::krcore
