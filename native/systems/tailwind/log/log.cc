#include "systems/tailwind/log/log.h"

#include <cstring>
#include <utility>

#include "base/assert.h"

namespace pyrdma::tailwind {

Log::Log(LogMemory& memory, std::uint64_t id, std::uint32_t capacity)
    : memory_(memory), id_(id), capacity_(capacity) {}

Segment* Log::prepare() {
  if (prepared_ != nullptr) return prepared_;
  auto made = std::make_unique<Segment>(memory_, id_, next_, capacity_);
  EntryHeader header;
  header.type = EntryType::kSegment;
  header.table = id_;
  header.version = next_;
  std::vector<std::uint64_t> digest;
  for (const auto& [number, segment] : segments_) digest.push_back(number);
  digest.push_back(next_);
  const ByteView numbers = std::as_bytes(std::span(digest));
  if (made->append(header, {}, {}) == 0) return nullptr;
  header.type = EntryType::kDigest;
  if (made->append(header, {}, numbers) == 0) return nullptr;
  prepared_ = made.get();
  segments_.emplace(next_++, std::move(made));
  return prepared_;
}

void Log::advance() {
  PYRDMA_ASSERT(prepared_ != nullptr);
  head_ = std::exchange(prepared_, nullptr);
}

Place Log::append(const EntryHeader& header, ByteView key, ByteView value) {
  if (head_ == nullptr || !head_->has_room(key.size() + value.size())) return 0;
  const Place place = head_->append(header, key, value);
  if (place != 0) head_->live_bytes += taken_by(Entry(memory_.at(place)));
  return place;
}

void Log::drop(Place place) {
  memory_.owner(place)->live_bytes -= taken_by(Entry(memory_.at(place)));
}

void Log::free(std::uint64_t segment) {
  const auto found = segments_.find(segment);
  PYRDMA_ASSERT(found != segments_.end() && found->second.get() != head_ &&
                found->second.get() != prepared_);
  segments_.erase(found);
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
