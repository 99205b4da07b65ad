// DiskLog is a log on the node's disk. Synced entries must survive a crash, unless a sync fails
// silently. The log must never hold an entry that no node wrote.
#pragma once
#include "env/storage.h"
#include "fuzz/fabric/node.h"

namespace pyrdma::fuzz {

class DiskLog {
 public:
  /// Reads the entries that an earlier incarnation left.
  explicit DiskLog(Node& node);
  /// Appends an entry; sometimes syncs, or reads an entry back. Returns false when the disk
  /// refused.
  bool append();
  /// Judges all entries at the end of the run.
  void finish();

 private:
  /// Judges all entries. Returns the number up to the last one that could be read.
  std::size_t read_all();
  void judge(std::size_t at, std::span<const std::byte> entry, bool must_be_there);
  Node& node_;
  World& world_;
  NodeState& state_;
  std::unique_ptr<File> file_;
};

}  // namespace pyrdma::fuzz
