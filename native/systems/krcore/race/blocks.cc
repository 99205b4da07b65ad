#include "systems/krcore/race/blocks.h"

namespace pyrdma::krcore::race {

std::optional<Block> Blocks::take(std::uint32_t node, std::uint32_t units) {
  Node& from = nodes_[node];
  if (from.freed.empty()) from.freed.resize(kMostUnits + 1);
  std::deque<Block>& freed = from.freed[units];
  const bool is_fresh = from.end - from.at >= std::uint64_t{units} * kUnit;
  const bool can_rest = (is_fresh || !from.is_exhausted) && bugs_.renews_versions();
  if (freed.size() > (can_rest ? resting_ : 0)) {
    Block block = bugs_.renews_versions() ? freed.front() : freed.back();
    bugs_.renews_versions() ? freed.pop_front() : freed.pop_back();
    return block;
  }
  if (!is_fresh) return std::nullopt;
  const Block block{from.at, units, first_version_};
  from.at += std::uint64_t{units} * kUnit;
  return block;
}

void Blocks::free(std::uint32_t node, const Block& block) {
  Node& to = nodes_[node];
  if (to.freed.empty()) to.freed.resize(kMostUnits + 1);
  Block next = block;
  if (bugs_.renews_versions()) next.version = (block.version + 1) % kVersions;
  to.freed[block.units].push_back(next);
}

bool Blocks::end_reserving(std::uint32_t node, std::optional<std::uint64_t> offset,
                           std::uint64_t bytes, Links& links) {
  Node& to = nodes_[node];
  to.is_reserving = false;
  for (Task* task : to.waiting) links.wake(*task);
  to.waiting.clear();
  if (!offset) return true;
  if (!is_there(node, *offset, bytes)) {
    to.is_exhausted = true;
    return false;
  }
  if (to.end == *offset) {
    to.end += bytes;  // behind the chunk in use
  } else {
    to.at = *offset;
    to.end = *offset + bytes;
  }
  return true;
}

}  // namespace pyrdma::krcore::race
