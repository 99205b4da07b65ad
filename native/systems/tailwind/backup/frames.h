// The replicas on a backup's disk: a file for each, "replica-<log>-<segment>" in hexadecimal. It
// has a block with the replica's metadata, and behind it the valid bytes as they were in the buffer
// (Tailwind, sections 3.2 and 3.4.1: a closed replica has its metadata with it).
//
// A storage has no listing, so the file "replicas" has a record of 32 B for each of them. Records
// of replicas that were freed stay until they are more than the others and 1,024; then the file is
// written anew. If that fails, as many removals later. A file with records that cannot be read
// stays as it is.
//
// A file is written under another name, synced, and renamed: it is there as a whole or not at all.
// What is read is scanned: damaged replicas are refused.
//
// find() first, once. Then write() and remove() by one thread at a time, read() by any.
#pragma once
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "env/storage.h"

namespace pyrdma::tailwind {

struct Frame {
  std::uint64_t log = 0, segment = 0, attempt = 0, version = 0;
  std::uint32_t valid = 0;  // bytes
  std::uint32_t entries = 0;
  std::uint32_t checksum = 0;  // the last one; 0: there is none
  bool operator==(const Frame&) const = default;
};

class Frames {
 public:
  static constexpr std::size_t kHeaderBlock = 4096;

  /// Replicas have at most `most_bytes` B. Throws Error(kUnavailable) when the disk fails.
  Frames(Storage& storage, std::uint32_t most_bytes);

  /// Reads all frames. Those that are damaged or cannot be read are left out and named in
  /// `problems`.
  std::vector<Frame> find(std::vector<std::string>& problems);
  /// Writes the file of a replica, in place of an older one with its name. Returns when it is
  /// durable. Requires data.size() == frame.valid. Throws Error(kExhausted) on a full disk and
  /// Error(kUnavailable) when the disk fails. What was there before then stays.
  void write(const Frame& frame, ByteView data);
  using Name = std::pair<std::uint64_t, std::uint64_t>;  // log, segment
  /// Removes the files of replicas, of those that have one. Returns when that is durable.
  void remove(std::span<const Name> names);
  void remove(std::uint64_t log, std::uint64_t segment) {
    const Name name{log, segment};
    remove({&name, 1});
  }
  /// find() has left out what another start may be able to read.
  bool has_unread() const { return has_unread_ || has_unread_frame_; }

  struct Loaded {
    Frame frame;
    Bytes data;               // frame.valid bytes
    std::string problem;      // why there is nothing; empty if there is
    bool is_damaged = false;  // it is lost; without this another start may be able to read it
  };
  /// Costs the disk's time and a scan.
  Loaded read(std::uint64_t log, std::uint64_t segment);

 private:
  static constexpr std::uint64_t kMostStale = 1024;
  void list(const Name& name);
  void write_index_anew();
  void open_index();

  Storage& storage_;
  const std::uint32_t most_bytes_;
  std::unique_ptr<File> index_;  // null when it has another name or is not durable
  std::uint64_t index_end_ = 0;  // of the records that are durable
  std::uint64_t stale_ = 0;      // records of what is not in listed_
  bool has_unread_ = false;      // records that another start may be able to read
  bool has_unread_frame_ = false;
  std::set<Name> listed_;
};

}  // namespace pyrdma::tailwind
