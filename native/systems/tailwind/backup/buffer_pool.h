// The I/O buffers of a backup (Tailwind, sections 3.2 and 3.3.1): a pool of zeroed memory, each
// buffer a region of its own. A buffer is used for one replica. Before its next use it is
// destroyed and made anew, so it is zeroed and has another key: who wrote to it before can do so no
// more.
//
// A table in registered memory tells what each buffer holds. It has two descriptors for each, which
// are stored in turns: a power failure amid a store leaves the last one whole. Whoever has asked
// for the store has no answer then. When the power fails, a battery saves all registered memory
// (Crash::kHostBattery saves it as files "memory-0", "memory-1", ...). The next power failure would
// write over them. So keep_saved_memory() renames them before the node registers memory: those of
// one failure are a generation. find_saved_buffers() finds the table and the buffers among these
// files. A file does not tell which region it was, and a renewed buffer has a later number than
// before. So each buffer has a label behind its data: the pool, the buffer's number, and how often
// it was made.
//
// The owner of the pool holds a lock around each call but renew(), which costs the NIC's time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "env/scope.h"
#include "env/storage.h"
#include "fabric/fabric.h"
#include "systems/tailwind/bugs.h"

namespace pyrdma::tailwind {

/// What is known of the replica in a buffer.
struct BufferContents {
  std::uint64_t log = 0, segment = 0, attempt = 0, version = 0;
  bool is_copy = false, is_written_by_cpu = false;
  std::uint32_t written = 0;  // first bytes that the CPU has written
  bool is_closed = false;
  std::uint32_t end = 0, checksum = 0, entries = 0;  // of a closed one: see CloseRequest
  bool operator==(const BufferContents&) const = default;
};

class BufferPool {
 public:
  /// Behind the data of a buffer. No request needs to write there.
  static constexpr std::size_t kLabelBytes = 32;

  /// Makes the table, then `count` buffers with `bytes` B of data each. Blocks for the NIC's time.
  /// Throws Error when the device lacks the memory.
  BufferPool(Env& env, fabric::ProtectionDomain& domain, std::uint32_t count, std::uint32_t bytes,
             Bugs bugs = {});
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// Bytes of the table of `count` buffers.
  static std::size_t table_bytes(std::uint32_t count);
  /// Buffers that are free.
  std::size_t free() const { return free_.size(); }
  /// Takes a free buffer, or none. It is zeroed.
  std::optional<std::uint32_t> take();
  /// The taken buffer holds these contents: the table says so from now on.
  void describe(std::uint32_t buffer, const BufferContents& contents);
  /// The taken buffer holds nothing any more: the table says so from now on.
  void clear(std::uint32_t buffer);
  /// Makes a taken buffer anew: zeroed, with another key. Readers may still hold the old one. Needs
  /// no lock; no other thread may use the buffer's number meanwhile. Throws Error when the device
  /// lacks the memory; the buffer is then made at the next call.
  void renew(std::uint32_t buffer);
  /// The taken buffer is free.
  void give_back(std::uint32_t buffer) { free_.push_back(buffer); }

  /// The region of a taken buffer. Whoever reads without the lock keeps the pointer, so that the
  /// memory stays.
  std::shared_ptr<fabric::MemoryRegion> region(std::uint32_t buffer) const {
    return regions_[buffer];
  }
  /// What a peer needs to write to a taken buffer's data.
  fabric::RemoteRegion remote(std::uint32_t buffer) const;
  /// The memory of all buffers, for Env::charge_copy.
  const Footprint& footprint() const { return footprint_; }

 private:
  void make(std::uint32_t buffer);
  template <class Stored>
  void store(std::uint32_t buffer, Stored descriptor);

  Env& env_;
  fabric::ProtectionDomain& domain_;
  const std::uint32_t bytes_;
  const Bugs bugs_;
  const Footprint footprint_;
  std::unique_ptr<fabric::MemoryRegion> table_;
  std::uint64_t id_ = 0;  // of the pool, among the pools of this node that exist
  std::vector<std::shared_ptr<fabric::MemoryRegion>> regions_;
  std::vector<std::uint64_t> serials_;  // how often each was made
  std::vector<std::uint64_t> stores_;   // of each one's descriptors
  std::vector<std::uint32_t> free_;
};

/// A buffer that a battery has saved.
struct SavedBuffer {
  BufferContents contents;
  std::string file;  // begins with the buffer's data
};
/// Takes the files that a battery has saved out of the way of the next power failure. The first
/// step of a node: it has no registered memory yet. Returns when that is durable.
void keep_saved_memory(Storage& storage);
/// What a battery has saved in one power failure.
struct SavedMemory {
  std::vector<SavedBuffer> buffers;
  bool has_all = true;  // no other start finds more
};
/// Finds the buffers of pools with `bytes` B of data each that were in use when the power failed,
/// those of the first failure first. Tables and buffers that are damaged are left out and named in
/// `problems`. So are files that the disk cannot read now, and pools with buffers of another size;
/// `has_all` is false then. Costs a short read of each saved file.
std::vector<SavedMemory> find_saved_buffers(Storage& storage, std::uint32_t bytes,
                                            std::vector<std::string>& problems);
/// Removes the files of one failure, the latest that still has some: find_saved_buffers() stops at
/// a failure without files. Returns when that is durable.
void remove_saved_memory(Storage& storage, std::size_t failure);

}  // namespace pyrdma::tailwind
