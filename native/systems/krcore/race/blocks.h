// The memory that a client has reserved for blocks of keys and values.
//
// The client reserves chunks by one-sided fetch-and-add on the allocation word of a storage node.
// It uses again the blocks that it has freed, the oldest first. Each use of a block has another
// version, which the slot that points to the block holds too. So a reader with an old slot notices
// another use, and no compare-and-swap takes an old slot for a new one unless the block was used
// 1,024 times meanwhile. The memory of a client that dies is lost.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "systems/krcore/race/address.h"
#include "systems/krcore/race/links.h"
#include "systems/krcore/race/options.h"

namespace pyrdma::krcore::race {

struct Block {
  std::uint64_t offset = 0;
  std::uint32_t units = 0, version = 0;
};

class Blocks {
 public:
  Blocks(const TableAddress& table, const ClientOptions& options)
      : table_(table),
        bugs_(options.bugs),
        resting_(options.resting_blocks),
        first_version_(options.first_version % kVersions),
        nodes_(table.nodes) {}

  /// Returns a block, or nothing when the client must reserve memory first.
  std::optional<Block> take(std::uint32_t node, std::uint32_t units);
  /// Nobody can reach the block by this version of it.
  void free(std::uint32_t node, const Block& block);

  /// The client begins to reserve a chunk. Others wait for it.
  bool is_reserving(std::uint32_t node) const { return nodes_[node].is_reserving; }
  void begin_reserving(std::uint32_t node) { nodes_[node].is_reserving = true; }
  void wait(std::uint32_t node, Task& task) { nodes_[node].waiting.push_back(&task); }
  /// The reservation has ended; those that waited go on. `offset`: what the allocation word had
  /// been, and nothing if the storage node did not answer. Returns false if the node has no memory.
  bool end_reserving(std::uint32_t node, std::optional<std::uint64_t> offset, std::uint64_t bytes,
                     Links& links);
  bool is_exhausted(std::uint32_t node) const { return nodes_[node].is_exhausted; }

  /// Whether [offset, offset + bytes), which the allocation word gave, is there.
  bool is_there(std::uint32_t node, std::uint64_t offset, std::uint64_t bytes) const {
    return offset >= table_.heap_at() && table_.holds(node, offset, bytes);
  }

 private:
  struct Node {
    std::uint64_t at = 0, end = 0;  // of the chunk in use
    std::vector<std::deque<Block>> freed;
    std::vector<Task*> waiting;
    bool is_reserving = false, is_exhausted = false;
  };
  const TableAddress& table_;
  const Bugs bugs_;
  const std::size_t resting_;
  const std::uint32_t first_version_;
  std::vector<Node> nodes_;
};

}  // namespace pyrdma::krcore::race
