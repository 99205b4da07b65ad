#include "systems/tailwind/coordinator/partitions.h"

#include <algorithm>

#include "base/assert.h"

namespace pyrdma::tailwind {

namespace {

using HashCount = unsigned __int128;  // one tablet can have 2^64 hashes

std::uint64_t parts_for(std::uint64_t amount, std::uint64_t most) {
  PYRDMA_CHECK(most, !=, 0U);
  return amount / most + (amount % most != 0 ? 1 : 0);
}

HashCount hashes_of(const HashRange& range) { return HashCount{range.last} - range.first + 1; }

}  // namespace

std::vector<std::vector<HashRange>> partitions(const std::vector<Tablet>& tablets,
                                               const RecoveryLoad& load) {
  HashCount hashes = 0;
  for (const Tablet& tablet : tablets) hashes += hashes_of(tablet.range);
  const HashCount wanted = std::max({std::uint64_t{1}, parts_for(load.bytes, load.most_bytes),
                                     parts_for(load.records, load.most_records)});
  const HashCount count = std::min(wanted, hashes);
  std::vector<std::vector<HashRange>> parts;
  HashCount room = 0;  // hashes that the last part still takes
  for (const Tablet& tablet : tablets) {
    HashRange rest = tablet.range;
    for (HashCount left = hashes_of(rest); left != 0;) {
      if (room == 0) {
        room = hashes / count + (parts.size() < hashes % count ? 1 : 0);
        parts.emplace_back();
      }
      const HashCount taken = std::min(left, room);
      HashRange& range = parts.back().emplace_back(rest);
      range.last = rest.first + static_cast<std::uint64_t>(taken - 1);
      rest.first = range.last + 1;  // 0 after the last hash of all, when nothing is left
      left -= taken;
      room -= taken;
    }
  }
  return parts;
}

}  // namespace pyrdma::tailwind
