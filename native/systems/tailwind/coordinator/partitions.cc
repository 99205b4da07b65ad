#include "systems/tailwind/coordinator/partitions.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace pyrdma::tailwind {

namespace {

using HashCount = unsigned __int128;  // one tablet can have 2^64 hashes

std::uint64_t parts_for(std::uint64_t amount, std::uint64_t most) {
  PYRDMA_CHECK(most, !=, 0U);
  return amount / most + (amount % most != 0 ? 1 : 0);
}

HashCount hashes_of(const HashRange& range) { return HashCount{range.last} - range.first + 1; }

std::uint64_t parts_for(const RecoveryLoad& load) {
  return std::max({std::uint64_t{1}, parts_for(load.bytes, load.most_bytes),
                   parts_for(load.records, load.most_records)});
}

std::vector<std::vector<HashRange>> cut(const std::vector<Tablet>& tablets, std::uint64_t wanted) {
  HashCount hashes = 0;
  for (const Tablet& tablet : tablets) hashes += hashes_of(tablet.range);
  const HashCount count = std::min<HashCount>(wanted, hashes);
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

/// Gives parts of `bytes` each to owners that have room. Returns those that fit nowhere.
std::vector<std::vector<HashRange>> give(std::vector<std::vector<HashRange>> parts,
                                         std::uint64_t bytes, std::size_t first,
                                         std::vector<std::uint64_t>& rooms,
                                         std::vector<std::vector<HashRange>>& given) {
  std::vector<std::vector<HashRange>> left;
  for (std::vector<HashRange>& part : parts) {
    std::size_t tries = 0;
    while (tries < rooms.size() && rooms[(first + tries) % rooms.size()] < bytes) ++tries;
    if (tries == rooms.size()) {
      left.push_back(std::move(part));
      continue;
    }
    const std::size_t owner = (first + tries) % rooms.size();
    rooms[owner] -= bytes;
    given[owner].insert(given[owner].end(), part.begin(), part.end());
    first = owner + 1;
  }
  return left;
}

}  // namespace

std::vector<std::vector<HashRange>> partitions(const std::vector<Tablet>& tablets,
                                               const RecoveryLoad& load) {
  return cut(tablets, parts_for(load));
}

Shares shares(const std::vector<Tablet>& tablets, const RecoveryLoad& load,
              const std::vector<std::uint64_t>& rooms, std::size_t first, std::uint64_t least) {
  const std::uint64_t most_parts = 16 * rooms.size();  // finer ones gain little
  for (std::uint64_t count = std::max(parts_for(load), least);; count *= 2) {
    std::vector<std::vector<HashRange>> parts = cut(tablets, count);
    Shares result{parts.size(), std::vector<std::vector<HashRange>>(rooms.size())};
    if (parts.empty()) return result;
    const std::uint64_t bytes = parts_for(load.bytes, parts.size());
    std::vector<std::uint64_t> left_room = rooms;
    const bool is_finest = count >= most_parts || parts.size() < count;
    const auto left = give(std::move(parts), bytes, first, left_room, result.of_owners);
    if (!left.empty() && !is_finest) continue;
    for (const std::vector<HashRange>& part : left) {
      const auto widest = std::ranges::max_element(left_room) - left_room.begin();
      auto& ranges = result.of_owners[static_cast<std::size_t>(widest)];
      ranges.insert(ranges.end(), part.begin(), part.end());
    }
    return result;
  }
}

}  // namespace pyrdma::tailwind
