// A log without backups, as tests of the store use it.
#pragma once
#include <mutex>
#include <vector>

#include "env/sync.h"
#include "systems/tailwind/log/log.h"
#include "systems/tailwind/store/object_log.h"

namespace pyrdma::tailwind {

class UnreplicatedLog final : public ObjectLog {
 public:
  explicit UnreplicatedLog(Env& env, std::uint32_t seglets, std::uint32_t capacity = 256U << 10)
      : mutex(env),
        bytes_(std::size_t{seglets} * LogMemory::kSeglet),
        memory_(bytes_),
        log(memory_, 42, capacity) {
    log.prepare();
    log.advance();
  }
  Position append(std::span<const NewEntry> entries, Place* places,
                  std::span<const Place> dropped) override {
    const std::lock_guard lock(mutex);
    while (!log.append(entries, places)) {
      if (log.head()->has_room(entries) || log.prepare() == nullptr) return {};
      log.advance();
    }
    for (const Place place : dropped) log.drop(place);
    return {log.head()->id(), log.head()->end()};
  }
  LogMemory& memory() override { return memory_; }
  std::uint64_t live_bytes() const {
    std::uint64_t result = 0;
    for (const auto& [number, segment] : log.segments()) result += segment->live_bytes;
    return result;
  }
  /// All entries, in order, without those that begin segments. They are there until the next call.
  std::vector<Entry> entries() const {
    std::vector<Entry> result;
    whole_.clear();
    for (const auto& [number, segment] : log.segments()) {
      segment->for_entries([&](const Entry& entry, Place place) {
        if (entry.type() == EntryType::kSegment || entry.type() == EntryType::kDigest) return;
        whole_.push_back(memory_.entry(place));
        result.push_back(*whole_.back());
      });
    }
    return result;
  }

  Mutex mutex;

 private:
  Bytes bytes_;
  LogMemory memory_;
  mutable std::vector<WholeEntry> whole_;

 public:
  Log log;
};

}  // namespace pyrdma::tailwind
