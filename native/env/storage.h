// Storage holds the files of one node, named by plain relative names. The real world keeps them in
// the node's private folder, the simulated world on a disk with the profile's latencies.
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
  /// Writes at `offset`, growing the file. The data is durable only after sync(): a power failure
  /// may leave all, none or some sectors of it. Throws Error(kExhausted) on a full disk; the
  /// earlier content then stays. Throws Error(kUnavailable), not definite, when the disk fails.
  virtual void write(std::uint64_t offset, std::span<const std::byte> data) = 0;
  /// Reads up to data.size() bytes; returns the number read. Throws Error(kUnavailable) when the
  /// disk fails.
  virtual std::size_t read(std::uint64_t offset, std::span<std::byte> data) = 0;
  /// Blocks until all earlier writes are durable. Throws Error(kUnavailable), not definite, when
  /// the disk fails; the writes may then never be durable, even if a later sync succeeds.
  virtual void sync() = 0;
  virtual std::uint64_t size() = 0;
};

class Storage {
 public:
  virtual ~Storage() = default;
  /// Opens a file, and creates it when absent. A name is 1 to 200 bytes without '/', NUL or a
  /// leading '.'; all functions throw Error(kInvalidArgument) for other names.
  virtual std::unique_ptr<File> open(std::string_view name) = 0;
  virtual bool exists(std::string_view name) = 0;
  virtual void remove(std::string_view name) = 0;
  /// Renames a file atomically; a file that had the name `to` goes. Throws Error(kUnavailable) when
  /// there is no file `from`.
  virtual void rename(std::string_view from, std::string_view to) = 0;
  /// Blocks until all earlier creations, removals and renames are durable. The content of a file
  /// needs its own File::sync().
  virtual void sync() = 0;
};

/// Returns the name, or throws Error(kInvalidArgument) for a name that Storage::open refuses.
std::string checked_file_name(std::string_view name);

}  // namespace pyrdma
