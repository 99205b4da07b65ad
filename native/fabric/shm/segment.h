// Memory files and their mappings.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace pyrdma::fabric::shm {

/// Returns the path of a descriptor of a process. There is none once the process has closed it, or
/// ends.
std::string file_of(int pid, int descriptor);

/// Mapping is a mapped memory file. A seal forbids resizing, so that a peer cannot make our
/// accesses fault.
class Mapping {
 public:
  /// Makes a file of `bytes` zeros (sparse), mode 0600. Throws Error(kUnavailable or kExhausted).
  static std::shared_ptr<Mapping> create(std::uint64_t bytes);
  /// Maps descriptor `descriptor` of process `pid` after checking owner, mode, kind, seals, `inode`
  /// and the size of `bytes` bytes. Returns null when the file is absent or fails a check.
  static std::shared_ptr<Mapping> open(int pid, int descriptor, std::uint64_t inode,
                                       std::uint64_t bytes);
  /// Maps the file of `descriptor` after the same checks but that of the inode, and closes the
  /// descriptor. Returns null when a check fails.
  static std::shared_ptr<Mapping> adopt(int descriptor, std::uint64_t bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  /// Closes the creator's descriptor, so that no other process can map the file any more.
  void close_file();

  std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  std::uint64_t inode() const { return inode_; }
  int descriptor() const { return descriptor_; }
  /// Gives the pages of a range back; every process then reads zeros there.
  void discard(std::uint64_t offset, std::uint64_t bytes);

 private:
  Mapping() = default;
  static std::shared_ptr<Mapping> map(int descriptor, std::uint64_t bytes,
                                      const std::uint64_t* inode);
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  std::uint64_t inode_ = 0;
  int descriptor_ = -1;  // only the creator keeps it open
};

/// MappingTable holds the mappings of one process by inode. Nodes that are threads of one process
/// thus share addresses, as the thread sanitizer needs, and a node that talks to itself maps
/// nothing twice. It keeps no mapping alive.
class MappingTable {
 public:
  void add(const std::shared_ptr<Mapping>& mapping);
  std::shared_ptr<Mapping> open(int pid, int descriptor, std::uint64_t inode, std::uint64_t bytes);

 private:
  void insert(const std::shared_ptr<Mapping>& mapping);
  std::mutex mutex_;
  std::map<std::uint64_t, std::weak_ptr<Mapping>> mappings_;
  std::size_t look_at_ = 64;  // entries, at which those of ended mappings go
};

/// Fills `data` from the kernel's random generator. Throws Error(kUnavailable).
void fill_random(void* data, std::size_t bytes);

}  // namespace pyrdma::fabric::shm
