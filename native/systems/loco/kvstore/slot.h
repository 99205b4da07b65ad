// The layout of a slot, the messages of the tracker, and the outcomes of operations.
#pragma once
#include <cstdint>

#include "systems/loco/kvstore/index.h"

namespace pyrdma::loco {

// A slot: | counter << 1 | valid | checksum of value and counter | value |. An update writes the
// checksum and the value, which are adjacent. The checksum does not cover the valid bit, so that
// the write of one word publishes or hides the value.
constexpr std::uint32_t kSlotHead = 8;    // bytes before the part that an update writes
constexpr std::uint32_t kSlotFrame = 16;  // bytes before the value

inline std::uint64_t state_word(std::uint32_t counter, bool valid) {
  return std::uint64_t{counter} << 1 | (valid ? 1 : 0);
}

/// A change of all indices.
struct TrackerMessage {
  enum class Kind : std::uint32_t { kInsert, kRemove };
  Kind kind = Kind::kInsert;
  NodeId node = 0;
  std::uint32_t slot = 0, counter = 0;
  Key key = 0;
};

enum class Outcome : std::uint8_t {
  kPending,  // not yet over
  kOk,
  kMissing,    // no such key: missing in the index, or its slot says EMPTY
  kDuplicate,  // insertion: the key exists
  kFull,       // insertion: this node has no free slot
  kTooBig,     // the value has another size than the store's values
};

}  // namespace pyrdma::loco
