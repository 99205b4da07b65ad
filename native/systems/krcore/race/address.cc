#include "systems/krcore/race/address.h"

#include <bit>
#include <string>

#include "base/error.h"

namespace pyrdma::krcore::race {

namespace {

void check_bounds(const char* what, std::uint64_t value, std::uint64_t least, std::uint64_t most,
                  const char* remedy) {
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::kInvalidArgument, "a RACE table's " + std::string(what) + " is " +
                                               std::to_string(value) + "; possible are " +
                                               std::to_string(least) + " to " +
                                               std::to_string(most) + ": " + remedy);
}

bool is_like(const TableAddress& one, const TableAddress& other) {
  return one.nodes == other.nodes && one.groups == other.groups &&
         one.first_depth == other.first_depth && one.max_depth == other.max_depth &&
         one.max_key_bytes == other.max_key_bytes && one.max_value_bytes == other.max_value_bytes;
}

}  // namespace

void TableAddress::check() const {
  check_bounds("number of storage nodes", nodes, 1, kMostNodes, "use fewer or more nodes");
  check_bounds("number of groups per subtable", groups, 2, 1U << 16, "give a power of two");
  if (!std::has_single_bit(groups))
    throw Error(ErrorCode::kInvalidArgument,
                "a RACE table's number of groups per subtable is " + std::to_string(groups) +
                    ", which is no power of two: give " + std::to_string(std::bit_ceil(groups)));
  check_bounds("max_depth", max_depth, 0, kMostDepth, "use more groups for a larger table");
  check_bounds("first_depth", first_depth, 0, max_depth, "raise max_depth");
  check_bounds("longest key (bytes)", max_key_bytes, 1, 4096, "hash longer keys");
  const std::uint64_t room = kMostUnits * kUnit - sizeof(BlockHead) - max_key_bytes;
  check_bounds("longest value (bytes)", max_value_bytes, 0, room,
               "store longer values elsewhere, or in several keys");
  for (std::uint32_t node = 0; node < nodes; ++node) {
    check_bounds("memory of a storage node (bytes)", regions[node].length, heap_at() + kUnit,
                 std::uint64_t{kUnit} << 32, "give it room for its first subtables and for blocks");
  }
}

TableAddress join(std::span<const TableAddress> parts) {
  if (parts.empty())
    throw Error(ErrorCode::kInvalidArgument, "a RACE table has 0 storage nodes; give at least 1");
  TableAddress whole = parts.front();
  for (const TableAddress& part : parts) {
    if (!is_like(part, whole))
      throw Error(ErrorCode::kInvalidArgument,
                  "the storage nodes of a RACE table have different options: give all the same");
    for (std::uint32_t node = 0; node < kMostNodes; ++node) {
      if (part.regions[node].length != 0) whole.regions[node] = part.regions[node];
    }
  }
  if (whole.nodes == 0 || whole.nodes > kMostNodes || whole.nodes != parts.size())
    throw Error(ErrorCode::kInvalidArgument,
                "a RACE table of " + std::to_string(whole.nodes) + " storage nodes has " +
                    std::to_string(parts.size()) + " descriptions: give one of each");
  whole.check();
  return whole;
}

}  // namespace pyrdma::krcore::race
