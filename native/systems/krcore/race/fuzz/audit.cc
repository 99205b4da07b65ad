#include "systems/krcore/race/fuzz/audit.h"

#include <algorithm>
#include <bit>

#include "base/crc32c.h"
#include "systems/krcore/race/layout.h"

namespace pyrdma::krcore::race {

namespace {

class Auditor {
 public:
  Auditor(const TableAddress& table, std::span<const std::byte* const> regions)
      : table_(table), regions_(regions) {}

  Audit run() {
    for (std::uint32_t index = 0; index < 1U << table_.max_depth; ++index) {
      const std::uint64_t word = entry(index);
      if (!DirectoryEntry::is_there(word)) continue;
      if (index >> global_depth() != 0)
        problem(index, "is beyond the global depth " + std::to_string(global_depth()));
      const DirectoryEntry found = DirectoryEntry::of(word);
      if (!table_.holds(found.node, found.offset, table_.subtable_bytes())) {
        problem(index, "lies nowhere");
        continue;
      }
      ++audit_.subtables;
      look_at(index, found);
    }
    return std::move(audit_);
  }

 private:
  std::uint64_t word(std::uint32_t node, std::uint64_t offset) const {
    return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(regions_[node] + offset),
                           __ATOMIC_ACQUIRE);
  }
  std::uint64_t global_depth() const { return word(0, kGlobalDepthAt); }
  std::uint64_t entry(std::uint32_t index) const { return word(0, kDirectoryAt + 8ULL * index); }
  void problem(std::uint32_t index, const std::string& text) {
    audit_.problems.push_back("subtable " + std::to_string(index) + " " + text);
  }

  std::uint32_t home(const KeyHash& hash) const {
    std::uint32_t index = hash.index(table_.max_depth);
    while (index != 0 && !DirectoryEntry::is_there(entry(index))) index &= ~std::bit_floor(index);
    return index;
  }

  void look_at(std::uint32_t index, const DirectoryEntry& at) {
    const SplitWord split = SplitWord::of(word(at.node, at.offset));
    audit_.locked += split.is_locked;
    audit_.deepest = std::max(audit_.deepest, split.depth);
    for (std::uint64_t bucket = 0; bucket < std::uint64_t{table_.groups} * kBucketsPerGroup;
         ++bucket) {
      const std::uint64_t offset = kSubtableHead + bucket * kBucketBytes;
      const Header header = Header::of(word(at.node, at.offset + offset));
      if (header.suffix != index || header.depth < split.depth ||
          header.depth > split.depth + split.is_locked)
        problem(index, "has depth " + std::to_string(split.depth) + ", and a header of depth " +
                           std::to_string(header.depth) + " and suffix " +
                           std::to_string(header.suffix));
      for (std::uint32_t number = 1; number <= kSlotsPerBucket; ++number) {
        const Slot slot(word(at.node, at.offset + offset + 8ULL * number));
        if (slot.depth() < split.depth || slot.depth() > split.depth + split.is_locked)
          problem(index, "of depth " + std::to_string(split.depth) + " has a slot of depth " +
                             std::to_string(slot.depth()));
        if (!slot.is_empty()) look_at(index, at.node, slot, offset, bucket);
      }
    }
  }

  void look_at(std::uint32_t index, std::uint32_t node, Slot slot, std::uint64_t bucket_at,
               std::uint64_t bucket) {
    if (slot.is_tentative()) {
      ++audit_.tentative;
      return;
    }
    const std::uint64_t bytes = std::uint64_t{slot.units()} * kUnit;
    if (!table_.holds(node, slot.offset(), bytes))
      return problem(index, "has a block that lies nowhere");
    const std::byte* block = regions_[node] + slot.offset();
    const BlockHead head = BlockHead::of(block);
    const std::uint64_t used = sizeof head + head.key_bytes + head.value_bytes;
    audit_.frozen += slot.is_frozen();
    // The old place of a key that has moved: its block may have another use by now.
    if (slot.is_frozen() && DirectoryEntry::is_there(entry(index | 1U << slot.depth()))) return;
    if (head.version != slot.version() || used > bytes ||
        crc32c({block + kCrcBytes, used - kCrcBytes}) != head.crc)
      return problem(index, std::string("has a broken block at ") + std::to_string(slot.offset()) +
                                ", of version " + std::to_string(head.version) + ", for " +
                                std::to_string(head.key_bytes + head.value_bytes) +
                                " bytes; its slot has version " + std::to_string(slot.version()) +
                                ", depth " + std::to_string(slot.depth()) +
                                (slot.is_frozen() ? " and is frozen" : ""));
    const char* text = reinterpret_cast<const char*>(block + sizeof head);
    const std::string key(text, head.key_bytes);
    const KeyHash hash = KeyHash::of({block + sizeof head, head.key_bytes});
    if (home(hash) != index || hash.a != head.hash || hash.fingerprint() != slot.fingerprint())
      return problem(index, "has a key of subtable " + std::to_string(home(hash)));
    bool is_candidate = false;
    for (std::uint32_t i = 0; i < 2; ++i) {
      const std::uint64_t combined = hash.combined(i, table_.groups);
      is_candidate = is_candidate || bucket_at == combined || bucket_at == combined + kBucketBytes;
    }
    if (!is_candidate) problem(index, "has a key in a bucket that is not the key's");
    audit_.in_overflow += bucket % kBucketsPerGroup == 1;
    if (!audit_.values.emplace(key, std::string(text + key.size(), head.value_bytes)).second)
      problem(index, "has a key twice");
  }

  const TableAddress& table_;
  std::span<const std::byte* const> regions_;
  Audit audit_;
};

}  // namespace

Audit audit(const TableAddress& table, std::span<const std::byte* const> regions) {
  return Auditor(table, regions).run();
}

}  // namespace pyrdma::krcore::race
