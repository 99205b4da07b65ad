// Memory files and their mappings.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace pyrdma::fabric::shm {

/// A mapped memory file. Sealed against resizing, so that a peer cannot make our accesses fault.
class Mapping {
 public:
  /// A new file of `bytes` zeros (sparse), mode 0600. Throws Error(kUnavailable or kExhausted).
  static std::shared_ptr<Mapping> create(std::uint64_t bytes);
  /// Maps descriptor `descriptor` of process `pid` after checking owner, mode, kind, seals, `inode`
  /// and that it is of `bytes` bytes. Null when it is not there or not what it should be.
  static std::shared_ptr<Mapping> open(int pid, int descriptor, std::uint64_t inode,
                                       std::uint64_t bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  std::uint64_t inode() const { return inode_; }
  int descriptor() const { return descriptor_; }
  /// Gives the pages of a range back; everybody reads zeros there from now on.
  void discard(std::uint64_t offset, std::uint64_t bytes);

 private:
  Mapping() = default;
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  std::uint64_t inode_ = 0;
  int descriptor_ = -1;  // only the creator keeps one
};

/// The mappings of one process by inode: nodes that are threads of one process then share
/// addresses, as the thread sanitizer needs, and a node talking to itself maps nothing twice.
class MappingTable {
 public:
  void add(const std::shared_ptr<Mapping>& mapping);
  std::shared_ptr<Mapping> open(int pid, int descriptor, std::uint64_t inode, std::uint64_t bytes);

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::weak_ptr<Mapping>> mappings_;
};

/// Bytes from the kernel's generator. Throws Error(kUnavailable).
void fill_random(void* data, std::size_t bytes);

}  // namespace pyrdma::fabric::shm
