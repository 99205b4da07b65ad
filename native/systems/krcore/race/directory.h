// A client's copy of the directory (RACE, section 3.4).
//
// An entry that is absent stands for the entry without its highest bit. So a split writes the entry
// of the new subtable alone, the directory is doubled by raising the global depth alone, and each
// is one compare-and-swap, which a client that dies has done or has not done. An entry never
// changes.
#pragma once
#include <cstdint>
#include <span>

#include "base/remote_word.h"
#include "systems/krcore/race/address.h"
#include "systems/krcore/race/links.h"

namespace pyrdma::krcore::race {

/// A subtable: its suffix, which is the index of its entry, and its place.
struct Home {
  std::uint32_t index = 0, node = 0;
  std::uint64_t offset = 0;
};

/// The words that a client reads to find a key's subtable: the global depth, and the entry of each
/// prefix of the hash that ends in 1.
struct Path {
  static constexpr std::uint32_t kWords = 1 + kMostDepth;
};

class Directory {
 public:
  /// `words`: of registered memory, for the global depth and 2^max_depth entries.
  Directory(const TableAddress& table, std::span<std::uint64_t> words)
      : table_(table), words_(words) {}

  std::uint32_t global_depth() const;
  /// Returns the subtable of the key by this copy. Throws Error(kUnavailable) for an entry that
  /// names no subtable.
  Home home(const KeyHash& hash) const;
  Home home_at(std::uint32_t index) const;

  /// Adds the reads of a key's path into `path`, Path::kWords long.
  void read_path(Links& links, const KeyHash& hash, std::uint64_t* path) const;
  /// Takes what they have read. Returns whether the key's subtable is still `before`, in what they
  /// have read.
  bool take_path(const KeyHash& hash, const std::uint64_t* path, const Home& before);
  void learn(std::uint32_t index, std::uint64_t word);
  void learn_depth(std::uint64_t depth);

  // For the first copy of the whole directory.
  std::uint64_t* words() { return words_.data(); }

 private:
  bool is_there(std::uint32_t index) const {
    return DirectoryEntry::is_there(load_acquire(&words_[1 + index]));
  }
  const TableAddress& table_;
  std::span<std::uint64_t> words_;
};

}  // namespace pyrdma::krcore::race
