// A disk in memory that remembers each operation. So a test can look at every content that a power
// failure may leave, after each of them.
//
// What a power failure leaves (storage.h): all that was synced, and any choice of the pieces of the
// rest. A piece is a sector of a write, the file's new size without the bytes, or a change of a
// name. Pieces keep their order, and no piece needs another one. What a failed sync was to make
// durable is such a choice for ever, also after a later sync; reads see it until the power fails.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "env/env_decorator.h"
#include "env/storage.h"

namespace pyrdma {

class CrashDisk final : public Storage {
 public:
  static constexpr std::uint64_t kSector = 512;
  static constexpr std::size_t kNever = ~std::size_t{0};
  /// Files by name.
  using Image = std::map<std::string, Bytes, std::less<>>;
  /// What happens at an operation instead of it.
  enum class Fault : std::uint8_t {
    kNone,
    kEnds,       // the process ends before it
    kEndsAmid,   // the process ends when half of a write's sectors are written
    kFails,      // an I/O error: nothing is written; a sync makes nothing durable for sure
    kFailsAmid,  // an I/O error when half of a write's sectors are written, or the only one
    kFull,       // a write that grows the file finds no space
  };
  struct ProcessEnded {};

  /// All of the image is durable.
  explicit CrashDisk(const Image& image = {}) {
    for (const auto& [name, bytes] : image) {
      first_names_[name] = first_.size();
      first_.push_back(bytes);
    }
    names_ = first_names_;
    contents_ = first_;
  }

  std::unique_ptr<File> open(std::string_view name) override {
    const std::string key = checked_file_name(name);
    const auto found = names_.find(key);
    if (found != names_.end()) return std::make_unique<OpenFile>(*this, found->second);
    const std::size_t file = contents_.size();
    change({Kind::kName, file, 0, {}, {}, key});
    contents_.emplace_back();
    return std::make_unique<OpenFile>(*this, file);
  }
  bool exists(std::string_view name) override { return names_.contains(checked_file_name(name)); }
  void remove(std::string_view name) override {
    const std::string key = checked_file_name(name);
    if (names_.contains(key)) change({Kind::kName, 0, 0, {}, key, {}});
  }
  void rename(std::string_view from, std::string_view to) override {
    const std::string key = checked_file_name(from), target = checked_file_name(to);
    const auto found = names_.find(key);
    if (found == names_.end()) throw Error(ErrorCode::kUnavailable, "no file '" + key + "'");
    if (key != target) change({Kind::kName, found->second, 0, {}, key, target});
  }
  void sync() override {
    if (begin() == Fault::kFails) fail({Kind::kFailed, kFolder, 0, {}, {}, {}});
    end_sync(Kind::kName, 0, true);
    operations_.push_back({Kind::kSync, kFolder, 0, {}, {}, {}});
  }

  // ---- faults ----

  /// The operation with this number meets the fault. A fault that it cannot meet passes it by.
  void set_fault(std::size_t operation, Fault fault) { fault_at_[operation] = fault; }
  /// The next sync of a file but `passed` fails.
  void fail_sync(std::size_t passed = 0) { syncs_passed_ = passed; }
  bool has_met_fault() const { return has_met_fault_; }
  /// Is called before each operation.
  void before_each(std::function<void()> act) { before_ = std::move(act); }

  // ---- what is there ----

  std::size_t operations() const { return operations_.size(); }
  std::size_t syncs() const {
    return static_cast<std::size_t>(std::ranges::count(operations_, Kind::kSync, &Operation::kind));
  }
  /// What the process sees.
  const Bytes& content(std::string_view name) const { return contents_[names_.find(name)->second]; }
  /// What a power failure after so many operations leaves. `keeps` is asked for each piece that was
  /// not durable, in order.
  Image left(std::size_t operations, const std::function<bool()>& keeps) const {
    std::vector<Bytes> contents = first_;
    contents.resize(contents_.size());
    Names names = first_names_;
    for (std::size_t i = 0; i < operations; ++i) {
      const Operation& each = operations_[i];
      const bool is_durable = each.durable_from < operations;
      if (each.kind == Kind::kName && (is_durable || keeps())) apply(each, names);
      if (each.kind != Kind::kWrite) continue;
      Bytes& content = contents[each.file];
      const std::uint64_t end = each.offset + each.data.size();
      if (each.grows && (is_durable || keeps())) content.resize(std::max(content.size(), end));
      for (std::uint64_t from = each.offset; from < end;) {
        const std::uint64_t to = std::min(end, (from / kSector + 1) * kSector);
        if (is_durable || keeps())
          put(content, from, ByteView(each.data).subspan(from - each.offset, to - from));
        from = to;
      }
    }
    Image image;
    for (const auto& [name, file] : names) image[name] = contents[file];
    return image;
  }
  /// Only what is durable now is left.
  Image durable() const {
    return left(operations_.size(), [] { return false; });
  }
  /// Pieces that are not durable after so many operations.
  std::size_t doubtful(std::size_t operations) const {
    std::size_t pieces = 0;
    left(operations, [&pieces] { return ++pieces != 0; });
    return pieces;
  }
  /// The operations, for the text of a violation.
  std::string text(std::size_t operations) const {
    std::string lines;
    for (std::size_t i = 0; i < operations; ++i) {
      const Operation& each = operations_[i];
      lines += "\n  " + std::to_string(i) + ": ";
      if (each.kind == Kind::kWrite)
        lines += "write " + std::to_string(each.data.size()) + " B at " +
                 std::to_string(each.offset) + " of file " + std::to_string(each.file);
      else if (each.kind == Kind::kName)
        lines +=
            "name '" + each.from + "' -> '" + each.to + "' of file " + std::to_string(each.file);
      else if (each.kind == Kind::kSync)
        lines += each.file == kFolder ? "sync names" : "sync file " + std::to_string(each.file);
      else
        lines += "a failure";
    }
    return lines;
  }

 private:
  static constexpr std::size_t kFolder = ~std::size_t{0};
  using Names = std::map<std::string, std::size_t, std::less<>>;  // numbers of files
  enum class Kind : std::uint8_t { kWrite, kName, kSync, kFailed };
  struct Operation {
    Kind kind = Kind::kWrite;
    std::size_t file = 0;
    std::uint64_t offset = 0;
    Bytes data;
    std::string from, to;  // of a name: from empty: created; to empty: removed
    bool grows = false;
    bool is_lost = false;               // no later sync makes it durable
    std::size_t durable_from = kNever;  // the sync that made it so
  };

  class OpenFile final : public File {
   public:
    OpenFile(CrashDisk& disk, std::size_t file) : disk_(disk), file_(file) {}
    void write(std::uint64_t offset, std::span<const std::byte> data) override {
      disk_.write(file_, offset, data);
    }
    std::size_t read(std::uint64_t offset, std::span<std::byte> data) override {
      const Bytes& content = disk_.contents_[file_];
      if (offset >= content.size()) return 0;
      const ByteView rest = ByteView(content).subspan(offset);
      const std::size_t count = std::min(rest.size(), data.size());
      std::ranges::copy(rest.first(count), data.begin());
      return count;
    }
    void sync() override {
      const bool fails = disk_.begin() == Fault::kFails || disk_.syncs_passed_-- == 0;
      disk_.end_sync(Kind::kWrite, file_, !fails);
      if (fails) disk_.fail({Kind::kFailed, file_, 0, {}, {}, {}});
      disk_.operations_.push_back({Kind::kSync, file_, 0, {}, {}, {}});
    }
    std::uint64_t size() override { return disk_.contents_[file_].size(); }

   private:
    CrashDisk& disk_;
    const std::size_t file_;
  };

  static void put(Bytes& content, std::uint64_t offset, ByteView data) {
    content.resize(std::max<std::size_t>(content.size(), offset + data.size()));
    std::ranges::copy(data, content.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  static void apply(const Operation& change, Names& names) {
    if (!change.from.empty()) names.erase(change.from);
    if (!change.to.empty()) names[change.to] = change.file;
  }

  /// Returns the fault that the next operation meets.
  Fault begin() {
    if (before_) before_();
    const auto found = fault_at_.extract(operations_.size());
    if (found.empty()) return Fault::kNone;
    if (found.mapped() != Fault::kEnds) return found.mapped();
    has_met_fault_ = true;
    throw ProcessEnded();
  }
  [[noreturn]] void fail(Operation operation) {
    has_met_fault_ = true;
    operations_.push_back(std::move(operation));
    throw Error(ErrorCode::kUnavailable, "the disk failed (I/O error)", false);
  }
  void change(Operation change) {
    if (begin() == Fault::kFails) fail({Kind::kFailed, 0, 0, {}, {}, {}});
    apply(change, names_);
    operations_.push_back(std::move(change));
  }
  void end_sync(Kind kind, std::size_t file, bool succeeds) {
    for (Operation& each : operations_) {
      if (each.kind != kind || (kind == Kind::kWrite && each.file != file)) continue;
      if (each.is_lost || each.durable_from != kNever) continue;
      if (succeeds)
        each.durable_from = operations_.size();
      else
        each.is_lost = true;
    }
  }
  void write(std::size_t file, std::uint64_t offset, ByteView data) {
    const std::uint64_t sectors =
        data.empty() ? 0 : (offset + data.size() - 1) / kSector - offset / kSector + 1;
    const bool grows = offset + data.size() > contents_[file].size();
    const Fault fault = begin();
    if (fault == Fault::kFails) fail({Kind::kFailed, file, 0, {}, {}, {}});
    if (fault == Fault::kFull && grows) {
      has_met_fault_ = true;
      operations_.push_back({Kind::kFailed, file, 0, {}, {}, {}});
      throw Error(ErrorCode::kExhausted, "no space left on the disk");
    }
    const bool is_amid =
        (fault == Fault::kEndsAmid && sectors > 1) || (fault == Fault::kFailsAmid && sectors > 0);
    if (is_amid && sectors > 1)
      data = data.first((offset / kSector + sectors / 2) * kSector - offset);
    put(contents_[file], offset, data);
    operations_.push_back({Kind::kWrite, file, offset, {data.begin(), data.end()}, {}, {}, grows});
    if (!is_amid) return;
    has_met_fault_ = true;
    if (fault == Fault::kEndsAmid) throw ProcessEnded();
    throw Error(ErrorCode::kUnavailable, "the disk failed amid a write (I/O error)", false);
  }

  Names first_names_, names_;
  std::vector<Bytes> first_, contents_;  // by number
  std::vector<Operation> operations_;
  std::map<std::size_t, Fault> fault_at_;
  std::size_t syncs_passed_ = kNever;  // until one fails
  bool has_met_fault_ = false;
  std::function<void()> before_;
};

/// A node with such a disk.
class EnvWithDisk final : public EnvDecorator {
 public:
  EnvWithDisk(Env& inner, Storage& disk) : EnvDecorator(inner), disk_(disk) {}
  Storage& storage() override { return disk_; }

 private:
  Storage& disk_;
};

}  // namespace pyrdma
