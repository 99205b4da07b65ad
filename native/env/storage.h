// Files of one node, named by plain relative names. Real world: files in the node's private folder.
// Simulated world: a disk with the profile's latencies.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace pyrdma {

class File {
 public:
  virtual ~File() = default;
  /// Writes at `offset`, growing the file. Not durable until sync(): a power failure may leave all,
  /// nothing or some sectors of it. Throws Error(kExhausted) on a full disk; what was there before
  /// stays. Throws Error(kUnavailable), not definite, when the disk fails.
  virtual void write(std::uint64_t offset, std::span<const std::byte> data) = 0;
  /// Reads up to data.size() bytes; returns how many there were. Throws Error(kUnavailable) when
  /// the disk cannot.
  virtual std::size_t read(std::uint64_t offset, std::span<std::byte> data) = 0;
  /// Blocks until everything written before is durable. Throws Error(kUnavailable), not definite,
  /// when the disk fails: what was not durable then may never be, even if a later sync succeeds.
  virtual void sync() = 0;
  virtual std::uint64_t size() = 0;
};

class Storage {
 public:
  virtual ~Storage() = default;
  /// Opens, creating when absent. A name is 1 to 200 bytes without '/', NUL or a leading '.'; for
  /// others all functions throw Error(kInvalidArgument).
  virtual std::unique_ptr<File> open(std::string_view name) = 0;
  virtual bool exists(std::string_view name) = 0;
  virtual void remove(std::string_view name) = 0;
  /// Gives a file another name, at once and instead of the file that has had it. Throws
  /// Error(kUnavailable) when there is no file `from`.
  virtual void rename(std::string_view from, std::string_view to) = 0;
  /// Blocks until all files created, removed and renamed before are so durably. Their content has
  /// its own File::sync().
  virtual void sync() = 0;
};

/// Returns the name, or throws Error(kInvalidArgument) when no file may have it; see Storage::open.
std::string checked_file_name(std::string_view name);

}  // namespace pyrdma
