// Looks at the memory of the storage nodes from outside, when no client works on it.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "systems/krcore/race/address.h"

namespace pyrdma::krcore::race {

struct Audit {
  std::map<std::string, std::string> values;  // by key
  std::vector<std::string> problems;          // a key twice, in a wrong place, a broken block
  std::uint32_t subtables = 0, locked = 0, tentative = 0, frozen = 0, in_overflow = 0;
  std::uint32_t deepest = 0;  // local depth
};

/// `regions`: the memory of each storage node.
Audit audit(const TableAddress& table, std::span<const std::byte* const> regions);

}  // namespace pyrdma::krcore::race
