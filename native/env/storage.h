// Files of one node, named by plain relative names. Real world: files in the node's private folder.
// Simulated world: a disk with the profile's latencies.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace pyrdma {

class File {
 public:
  virtual ~File() = default;
  /// Writes at `offset`, growing the file. Not durable until sync(). Throws Error(kExhausted) on a
  /// full disk; what was there before stays.
  virtual void write(std::uint64_t offset, std::span<const std::byte> data) = 0;
  /// Reads up to data.size() bytes; returns how many there were.
  virtual std::size_t read(std::uint64_t offset, std::span<std::byte> data) = 0;
  /// Blocks until everything written before is durable.
  virtual void sync() = 0;
  virtual std::uint64_t size() = 0;
};

class Storage {
 public:
  virtual ~Storage() = default;
  /// Opens, creating when absent. Throws Error(kInvalidArgument) for a name that leaves the folder.
  virtual std::unique_ptr<File> open(std::string_view name) = 0;
  virtual bool exists(std::string_view name) = 0;
  virtual void remove(std::string_view name) = 0;
};

}  // namespace pyrdma
