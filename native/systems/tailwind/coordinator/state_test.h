// Test helpers: a disk that loses its power or tears writes, and commands of each kind for the
// coordinator's state. One thread at a time may use a disk.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/rng.h"
#include "env/storage.h"
#include "systems/tailwind/coordinator/state.h"

namespace pyrdma::tailwind {

constexpr const char* kFile = "coordinator";
constexpr std::uint64_t kLastHash = ~std::uint64_t{0};

/// The power fails at an operation of the disk.
struct PowerFailure {};

/// A disk in memory, which a test can copy.
class FakeDisk final : public Storage {
 public:
  enum class Crash { kProcess, kLosesUnsynced, kTearsUnsynced };
  static constexpr std::uint64_t kForever = ~std::uint64_t{0};

  FakeDisk() = default;
  FakeDisk(const FakeDisk& other) : names_(copy(other.names_)), durable_(copy(other.durable_)) {
    // Names of one file before a copy are names of one file after it.
    for (auto& [name, content] : durable_) {
      for (const auto& [now, same] : other.names_) {
        if (same == other.durable_.at(name)) content = names_.at(now);
      }
    }
  }
  FakeDisk& operator=(const FakeDisk&) = delete;

  std::unique_ptr<File> open(std::string_view name) override {
    auto found = names_.find(std::string(name));
    if (found == names_.end()) {
      count();
      found = names_.emplace(name, std::make_shared<Content>()).first;
    }
    return std::make_unique<OpenFile>(*this, found->second);
  }
  bool exists(std::string_view name) override { return names_.contains(std::string(name)); }
  void remove(std::string_view name) override {
    count();
    names_.erase(std::string(name));
  }
  void rename(std::string_view from, std::string_view to) override {
    count();
    auto content = names_.at(std::string(from));
    names_.erase(std::string(from));
    names_[std::string(to)] = std::move(content);
  }
  void sync() override {
    count();
    durable_ = names_;
  }

  /// The power fails after `operations` more.
  void fail_after(std::uint64_t operations) { left_ = operations; }
  void fail_next_file_sync() { is_failing_ = true; }
  void crash(Crash crash, Rng& rng) {
    left_ = kForever;
    if (crash == Crash::kProcess) return;
    if (crash == Crash::kLosesUnsynced || rng.below(2) == 0) names_ = durable_;
    durable_ = names_;
    for (auto& [name, content] : names_) {
      if (crash == Crash::kTearsUnsynced) tear(*content, rng);
      content->now = content->durable;
      content->synced = content->now.size();
    }
  }
  Bytes read(const std::string& name) const { return names_.at(name)->now; }
  void write(const std::string& name, Bytes bytes) {
    names_[name] = durable_[name] = std::make_shared<Content>(Content{bytes, bytes, bytes.size()});
  }

 private:
  struct Content {
    Bytes now, durable;
    std::size_t synced = 0;  // bytes that are the same in both
  };
  using Names = std::map<std::string, std::shared_ptr<Content>>;
  class OpenFile final : public File {
   public:
    OpenFile(FakeDisk& disk, std::shared_ptr<Content> content)
        : disk_(disk), content_(std::move(content)) {}
    void write(std::uint64_t offset, std::span<const std::byte> data) override {
      disk_.count();
      if (content_->now.size() < offset + data.size()) content_->now.resize(offset + data.size());
      content_->synced = std::min(content_->synced, offset);
      std::ranges::copy(data, content_->now.begin() + static_cast<std::ptrdiff_t>(offset));
    }
    std::size_t read(std::uint64_t offset, std::span<std::byte> data) override {
      const ByteView all = content_->now;
      const std::size_t bytes = std::min(data.size(), all.size() - std::min(all.size(), offset));
      std::ranges::copy(all.subspan(all.size() == 0 ? 0 : offset, bytes), data.begin());
      return bytes;
    }
    void sync() override {
      disk_.count();
      if (std::exchange(disk_.is_failing_, false))
        throw Error(ErrorCode::kUnavailable, "a sync failed", false);
      const auto from = static_cast<std::ptrdiff_t>(content_->synced);
      content_->durable.resize(content_->now.size());
      std::copy(content_->now.begin() + from, content_->now.end(),
                content_->durable.begin() + from);
      content_->synced = content_->now.size();
    }
    std::uint64_t size() override { return content_->now.size(); }

   private:
    FakeDisk& disk_;
    std::shared_ptr<Content> content_;
  };

  static Names copy(const Names& names) {
    Names copied;
    for (const auto& [name, content] : names) copied[name] = std::make_shared<Content>(*content);
    return copied;
  }
  /// Some sectors of what was written are there, perhaps. Short sectors tear short records, too.
  static void tear(Content& content, Rng& rng) {
    constexpr std::size_t kSector = 16;
    if (rng.below(4) != 0) content.durable.resize(content.now.size());
    for (std::size_t at = 0; at < content.durable.size(); at += kSector) {
      const std::size_t end = std::min(at + kSector, content.durable.size());
      if (rng.below(2) != 0) continue;
      for (std::size_t i = at; i < end; ++i) content.durable[i] = content.now[i];
    }
  }
  void count() {
    if (left_ == 0) throw PowerFailure();
    --left_;
  }

  Names names_, durable_;
  std::uint64_t left_ = kForever;
  bool is_failing_ = false;
};

/// All that a state knows.
inline std::string all_of(const CoordinatorState& state) {
  Bytes bytes;
  ByteWriter out(bytes);
  state.view().put(out);
  for (const ListedServer& server : state.view().servers) {
    for (const auto& [segment, version] : state.versions(server.id)) {
      out.put(segment);
      out.put(version);
    }
    out.put(std::uint64_t{0xc0de});
    if (const LogCut* cut = state.cut(server.id); cut != nullptr) {
      out.put(std::uint64_t{0xc07});
      for (const SegmentCut& segment : *cut) {
        out.put(segment.segment);
        out.put(segment.valid);
      }
    }
  }
  for (const auto& [name, table] : state.tables()) {
    out.put(std::as_bytes(std::span(name)));
    out.put(table);
  }
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class Call>
std::optional<ErrorCode> error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return std::nullopt;
}

/// A command of each kind, with each kind of record.
inline std::vector<std::function<void(CoordinatorState&)>> script() {
  return {
      [](CoordinatorState& state) {
        state.enlist({0, 0});
      },
      [](CoordinatorState& state) {
        state.enlist({1, 0});
      },
      [](CoordinatorState& state) {
        state.create_table("users", {{0, 0}, {1, 0}, {0, 0}});
      },
      [](CoordinatorState& state) {
        state.raise_version({0, 0}, 5, 1);
      },
      [](CoordinatorState& state) {
        state.raise_version({0, 0}, 5, 2);
      },
      [](CoordinatorState& state) { state.new_client(); },
      [](CoordinatorState& state) {
        state.declare_dead({0, 0});
      },
      [](CoordinatorState& state) {
        state.record_cut({0, 0}, {{5, 1000}, {6, 20}});
      },
      [](CoordinatorState& state) {
        state.move_tablets({0, 0}, {{1, 5, 90}}, {1, 0}, {3, 4});
      },
      [](CoordinatorState& state) {
        state.move_tablets({0, 0}, {{1, 0, kLastHash}}, {1, 0}, {3, 5});
      },
      [](CoordinatorState& state) {
        state.forget({0, 0});
      },
      [](CoordinatorState& state) {
        state.enlist({1, ServerId::kLives});
      },
  };
}

}  // namespace pyrdma::tailwind
