// A log on the node's disk: what was synced is there after a crash, unless the disk lies; nothing
// is there that was never written.
#pragma once
#include "env/storage.h"
#include "fuzz/fabric/node.h"

namespace pyrdma::fuzz {

class DiskLog {
 public:
  /// Reads what an earlier life has left.
  explicit DiskLog(Node& node);
  /// Appends an entry, and now and then syncs, or reads one back. False when the disk refused.
  bool append();

 private:
  void recover();
  void judge(std::size_t at, std::span<const std::byte> entry, bool must_be_there);
  Node& node_;
  World& world_;
  NodeState& state_;
  std::unique_ptr<File> file_;
};

}  // namespace pyrdma::fuzz
