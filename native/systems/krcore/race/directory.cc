#include "systems/krcore/race/directory.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/error.h"

namespace pyrdma::krcore::race {

std::uint32_t Directory::global_depth() const {
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(load_acquire(&words_[0]), table_.first_depth, table_.max_depth));
}

Home Directory::home(const KeyHash& hash) const {
  std::uint32_t index = hash.index(global_depth());
  while (index != 0 && !is_there(index)) index &= ~std::bit_floor(index);
  return home_at(index);
}

Home Directory::home_at(std::uint32_t index) const {
  const std::uint64_t word = load_acquire(&words_[1 + index]);
  const DirectoryEntry entry = DirectoryEntry::of(word);
  if (!DirectoryEntry::is_there(word) ||
      !table_.holds(entry.node, entry.offset, table_.subtable_bytes()))
    throw Error(ErrorCode::kUnavailable,
                "entry " + std::to_string(index) + " of the RACE directory at node " +
                    std::to_string(table_.regions[0].node) + " is " + std::to_string(word) +
                    ", which names no subtable: the memory of that node is damaged; fill a new "
                    "table")
        .blaming({table_.regions[0].node});
  return {index, entry.node, entry.offset};
}

void Directory::read_path(Links& links, const KeyHash& hash, std::uint64_t* path) const {
  links.read(0, kGlobalDepthAt, path, 8);
  for (std::uint32_t depth = 1; depth <= table_.max_depth; ++depth) {
    if ((hash.a >> (depth - 1) & 1) == 0) continue;
    links.read(0, kDirectoryAt + 8ULL * hash.index(depth), path + depth, 8);
  }
}

bool Directory::take_path(const KeyHash& hash, const std::uint64_t* path, const Home& before) {
  learn_depth(path[0]);
  std::uint32_t found = before.index;
  for (std::uint32_t depth = 1; depth <= table_.max_depth; ++depth) {
    if ((hash.a >> (depth - 1) & 1) == 0) continue;
    const std::uint32_t index = hash.index(depth);
    if (!DirectoryEntry::is_there(path[depth])) continue;
    learn(index, path[depth]);
    learn_depth(depth);
    found = std::max(found, index);
  }
  return found == before.index;
}

void Directory::learn(std::uint32_t index, std::uint64_t word) {
  if (index + 1 < words_.size() && DirectoryEntry::is_there(word))
    store_release(&words_[1 + index], word);
}

void Directory::learn_depth(std::uint64_t depth) {
  const std::uint64_t most = std::min<std::uint64_t>(depth, table_.max_depth);
  if (most > global_depth()) store_release(&words_[0], most);
}

}  // namespace pyrdma::krcore::race
