// A disk of one file in memory that remembers each write and each sync. So a test can look at any
// content that a power failure may leave, at any time.
#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "env/env_decorator.h"
#include "env/storage.h"

namespace pyrdma::spindle::dds {

class CrashDisk final : public Storage {
 public:
  static constexpr std::uint64_t kSector = 512;
  explicit CrashDisk(Bytes content = {}) : content_(std::move(content)), first_(content_) {}

  std::unique_ptr<File> open(std::string_view /*name*/) override {
    return std::make_unique<OpenFile>(*this);
  }
  bool exists(std::string_view /*name*/) override { return true; }
  void remove(std::string_view /*name*/) override { content_.clear(); }
  void rename(std::string_view /*from*/, std::string_view /*to*/) override {}
  void sync() override {}

  const Bytes& content() const { return content_; }
  /// Writes and syncs so far.
  std::size_t events() const { return events_.size(); }
  std::size_t syncs() const {
    return static_cast<std::size_t>(std::ranges::count(events_, true, &Event::is_sync));
  }
  /// The next sync but `passed` fails: what it would have made durable never is, though reads see
  /// it.
  void fail_sync(std::size_t passed = 0) { fails_after_ = passed; }

  /// The content that a power failure after so many events leaves: of each write behind the last
  /// sync those sectors that `keeps` chooses.
  Bytes crashed(std::size_t events, const std::function<bool()>& keeps) const {
    std::size_t durable = events;
    while (durable > 0 && !events_[durable - 1].is_sync) --durable;
    Bytes left = first_;
    for (std::size_t i = 0; i < events; ++i) {
      const Event& event = events_[i];
      for (std::uint64_t at = 0; at < event.data.size();) {
        const std::uint64_t sector = (event.offset + at) / kSector * kSector;
        const std::uint64_t end = std::min(event.data.size(), sector + kSector - event.offset);
        if (!event.is_lost && (i < durable || keeps()))
          put(left, event.offset + at, ByteView(event.data).subspan(at, end - at));
        at = end;
      }
    }
    return left;
  }
  /// Sectors of writes that are not durable after so many events.
  std::size_t doubtful(std::size_t events) const {
    std::size_t sectors = 0;
    crashed(events, [&sectors] { return ++sectors != 0; });
    return sectors;
  }

 private:
  struct Event {
    bool is_sync = false, is_lost = false;
    std::uint64_t offset = 0;
    Bytes data;
  };
  class OpenFile final : public File {
   public:
    explicit OpenFile(CrashDisk& disk) : disk_(disk) {}
    void write(std::uint64_t offset, std::span<const std::byte> data) override {
      put(disk_.content_, offset, data);
      disk_.events_.push_back({false, false, offset, {data.begin(), data.end()}});
    }
    std::size_t read(std::uint64_t offset, std::span<std::byte> data) override {
      if (offset >= disk_.content_.size()) return 0;
      const ByteView rest = ByteView(disk_.content_).subspan(offset);
      const std::size_t count = std::min(rest.size(), data.size());
      std::ranges::copy(rest.first(count), data.begin());
      return count;
    }
    void sync() override {
      if (disk_.fails_after_ && (*disk_.fails_after_)-- == 0) {
        disk_.fails_after_.reset();
        for (auto event = disk_.events_.rbegin(); event != disk_.events_.rend(); ++event) {
          if (event->is_sync) break;
          event->is_lost = true;
        }
        throw Error(ErrorCode::kUnavailable, "the sync failed", false);
      }
      disk_.events_.push_back({true, false, 0, {}});
    }
    std::uint64_t size() override { return disk_.content_.size(); }

   private:
    CrashDisk& disk_;
  };
  static void put(Bytes& content, std::uint64_t offset, ByteView data) {
    content.resize(std::max<std::size_t>(content.size(), offset + data.size()));
    std::ranges::copy(data, content.begin() + static_cast<std::ptrdiff_t>(offset));
  }

  Bytes content_;
  const Bytes first_;
  std::vector<Event> events_;
  std::optional<std::size_t> fails_after_;
};

/// A node with such a disk.
class EnvWithDisk final : public EnvDecorator {
 public:
  EnvWithDisk(Env& inner, CrashDisk& disk) : EnvDecorator(inner), disk_(disk) {}
  Storage& storage() override { return disk_; }

 private:
  CrashDisk& disk_;
};

}  // namespace pyrdma::spindle::dds
