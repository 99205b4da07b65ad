#include "systems/tailwind/log/log.h"

#include <cstring>
#include <utility>

#include "base/assert.h"
#include "base/error.h"
#include "systems/tailwind/rpc/messages.h"

namespace pyrdma::tailwind {

Log::Log(LogMemory& memory, std::uint64_t id, std::uint32_t capacity, std::uint64_t first)
    : memory_(memory), id_(id), capacity_(capacity), next_(first) {}

std::unique_ptr<Segment> Log::make(std::uint64_t number, std::uint32_t keeps_free) {
  if (number >= Position::kSegments)
    throw Error(ErrorCode::kExhausted, "tailwind: log " + std::to_string(id_) +
                                           " has no numbers left for segments; restart its server");
  auto made = std::make_unique<Segment>(memory_, id_, number, capacity_);
  made->keeps_free = keeps_free;
  EntryHeader header;
  header.type = EntryType::kSegment;
  header.table = id_;
  header.version = number;
  std::vector<std::uint64_t> digest;
  for (const auto& [known, segment] : segments_) digest.push_back(known);
  digest.push_back(number);
  const ByteView numbers = std::as_bytes(std::span(digest));
  if (made->append(header, {}, {}) == 0) return nullptr;
  header.type = EntryType::kDigest;
  if (made->append(header, {}, numbers) == 0) return nullptr;
  made->first_bytes = made->end();
  return made;
}

Segment* Log::prepare(std::uint32_t keeps_free) {
  if (prepared_ != nullptr) return prepared_;
  std::unique_ptr<Segment> made = make(next_, keeps_free);
  if (made == nullptr) return nullptr;
  prepared_ = made.get();
  segments_.emplace(next_++, std::move(made));
  return prepared_;
}

std::unique_ptr<Segment> Log::make_survivor() {
  std::unique_ptr<Segment> made = make(next_, 0);
  if (made != nullptr) ++next_;
  return made;
}

void Log::adopt(std::unique_ptr<Segment> segment) {
  const std::uint64_t number = segment->id();
  segments_[number] = std::move(segment);
}

void Log::advance() {
  PYRDMA_ASSERT(prepared_ != nullptr);
  head_ = std::exchange(prepared_, nullptr);
}

bool Log::append(std::span<const NewEntry> entries, Place* places) {
  if (entries.empty()) return true;
  if (head_ == nullptr || !head_->has_room(entries) || !head_->append(entries, places))
    return false;
  for (const NewEntry& entry : entries) head_->live_bytes += taken_by(entry);
  return true;
}

Place Log::append(const EntryHeader& header, ByteView key, ByteView value) {
  const NewEntry entry{header, key, value};
  Place place = 0;
  return append({&entry, 1}, &place) ? place : 0;
}

void Log::drop(Place place) {
  memory_.owner(place)->live_bytes -= taken_by(*memory_.header_and_key(place));
}

std::unique_ptr<Segment> Log::remove(std::uint64_t segment) {
  const auto found = segments_.find(segment);
  PYRDMA_ASSERT(found != segments_.end() && found->second.get() != head_ &&
                found->second.get() != prepared_);
  std::unique_ptr<Segment> removed = std::move(found->second);
  segments_.erase(found);
  return removed;
}

std::optional<std::vector<std::uint64_t>> read_digest(const Entry& entry) {
  const ByteView numbers = entry.contents();
  if (entry.type() != EntryType::kDigest || numbers.size() % sizeof(std::uint64_t) != 0)
    return std::nullopt;
  std::vector<std::uint64_t> digest(numbers.size() / sizeof(std::uint64_t));
  if (!numbers.empty()) std::memcpy(digest.data(), numbers.data(), numbers.size());
  return digest;
}

}  // namespace pyrdma::tailwind
