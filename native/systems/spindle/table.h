// The shared state table of a member: its copy of all rows, and the slots (sections 2.2 and 2.3).
// The owner of a row writes it here and pushes it; the rows of others arrive by their pushes.
//
// LOCO's SST is no base for it: its rows go to all participants, each with a checksum, and its
// participants are known for the time of a run. Here a push goes to the members of one subgroup, a
// counter is one word, and a view has a table of its own.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "base/remote_word.h"
#include "fabric/fabric.h"
#include "systems/spindle/shape.h"

namespace pyrdma::spindle {

class Table {
 public:
  Table(Env& env, fabric::ProtectionDomain& domain, const ViewShape& shape, Rank self)
      : layout_(shape, self),
        region_(env.device().allocate(domain, layout_.bytes(),
                                      fabric::kLocalWrite | fabric::kRemoteWrite)) {}

  const Layout& layout() const { return layout_; }
  const fabric::MemoryRegion& region() const { return *region_; }
  std::byte* at(std::uint64_t offset) const { return region_->data() + offset; }
  /// Returns a word that its owner may be changing; acquire.
  std::uint64_t load(std::uint64_t offset) const {
    return load_acquire(reinterpret_cast<const std::uint64_t*>(at(offset)));
  }
  /// Writes a word of the own row; release. The push is a call of its own.
  void store(std::uint64_t offset, std::uint64_t value) const {
    store_release(reinterpret_cast<std::uint64_t*>(at(offset)), value);
  }

 private:
  Layout layout_;
  std::unique_ptr<fabric::MemoryRegion> region_;
};

/// The word before a message: a tag of its round, and its bytes. A round has 64 bits and a tag 40,
/// so tags go round. Two rounds of one tag are a week apart and more, and a slot is looked at for
/// the rounds of one window: a tag that fits is of this round.
struct SlotHeader {
  std::uint64_t tag = 0;
  std::uint32_t bytes = 0;
  static constexpr int kBytesBits = 24;
  static constexpr std::uint64_t kTags = (std::uint64_t{1} << (64 - kBytesBits)) - 1;
  static SlotHeader of(std::uint64_t word) {
    return {word >> kBytesBits, static_cast<std::uint32_t>(word & ((1U << kBytesBits) - 1))};
  }
  /// From 1 on: a word of zeros, as memory has at first, is of no round.
  static std::uint64_t tag_of(std::uint64_t round) { return round % kTags + 1; }
  std::uint64_t word() const { return (tag << kBytesBits) | bytes; }
};

}  // namespace pyrdma::spindle
