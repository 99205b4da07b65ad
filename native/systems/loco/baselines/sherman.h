// A model of Sherman (Wang et al., SIGMOD 2022), the tree that the LOCO paper compares its store
// with (LOCO, section 7.2). The model has lookups and updates of existing keys.
//
// Every client caches the internal nodes, so it finds the leaf of a key without the network. A
// lookup reads the whole leaf, about 1 KiB. An update takes the lock of the leaf
// (hierarchical_lock.h), which lies in the memory of the NIC of the leaf's node, and reads the
// leaf. It then posts the write of the entry and the unlock with one doorbell, unless it hands the
// lock to the next thread of its node. A read of no bytes may follow the write; LOCO's authors
// correct Sherman by this read. A thread of the same node that gets the lock by hand-over needs the
// read as much as another node does.
//
// Three options take away what the LOCO paper supposes to be the causes of the two stores' ranks
// (7.2): whole_leaf, combined_unlock and grant.
//
// The model has no splits and insertions, because the comparison uses updates. A checksum per entry
// replaces the front and rear versions of an entry, which take as many bytes.
#pragma once
#include <string>

#include "env/scope.h"
#include "systems/loco/baselines/hierarchical_lock.h"
#include "systems/loco/kvstore/slot.h"
#include "systems/loco/shared_region.h"

namespace pyrdma::loco {

struct ShermanOptions {
  std::uint64_t keys = 1U << 16;     // keys 0 to keys-1
  std::uint32_t locks = 4096;        // locks of a node; leaves share them
  bool fence = true;                 // a read of no bytes between an update's write and its unlock
  bool local_queues = true;          // each node queues locally for its locks
  bool whole_leaf = true;            // operations read the leaf; otherwise only the entry
  bool combined_unlock = true;       // the unlock is posted with the write; otherwise after its end
  Grant grant = Grant::kTestAndSet;  // of the locks between nodes
  std::uint32_t first_place = 0;     // as in HierarchicalOptions
};

class Sherman : public Channel {
 public:
  static constexpr std::uint32_t kLeafBytes = 1024;

  /// Requires that a temporary block of the manager holds a leaf; throws Error(kInvalidArgument)
  /// otherwise.
  Sherman(Manager& manager, std::string name, const ShermanOptions& options);
  ~Sherman() override;

  /// Writes this node's leaves, with value k for key k. Call it before any operation, and before a
  /// barrier.
  void load();
  // Where a key's leaf is, and the lock of the leaf, for tests.
  NodeId host_of(Key key) const { return node_of(leaf_of(key)); }
  std::uint64_t lock_of_key(Key key) const { return lock_of(leaf_of(key)); }

 private:
  friend class ShermanOperation;
  struct Entry {
    Key key;
    std::uint64_t value, sum;
  };
  static constexpr std::uint32_t kHead = 16;  // bytes of a leaf's level, bounds and sibling
  static constexpr std::uint32_t kFanout = (kLeafBytes - kHead) / sizeof(Entry);

  static std::uint32_t entry_of(Key key) {  // its offset in the leaf
    return kHead + static_cast<std::uint32_t>(key % kFanout * sizeof(Entry));
  }
  std::uint64_t leaf_of(Key key) const { return key / kFanout; }
  NodeId node_of(std::uint64_t leaf) const { return participants()[leaf % participants().size()]; }
  std::uint64_t offset_of(std::uint64_t leaf) const {
    return leaf / participants().size() * kLeafBytes;
  }
  std::uint64_t lock_of(std::uint64_t leaf) const;

  ShermanOptions options_;
  SharedRegion leaves_;
  Footprint footprint_;  // of the cached internal nodes, which the model does not keep
  HierarchicalLocks locks_;
};

/// An operation like KvOperation, with values of 8 bytes. If it is dropped while it holds the lock
/// of its leaf, its caller goes on with it (Caller::finish_later).
class ShermanOperation {
 public:
  ShermanOperation(Sherman& tree, Caller& me) : tree_(&tree), me_(&me) {}
  ShermanOperation(ShermanOperation&&) noexcept = default;
  ~ShermanOperation() {
    if (step_ > Step::kLocking) [[unlikely]]
      drop();
  }

  void lookup(Key key);
  void update(Key key, std::uint64_t value);
  /// Throws Error(kUnavailable), once, when the key's node does not answer; the lock of its leaf is
  /// given back first, if that node still takes it. After another error, of a post, the operation
  /// goes on with the next call.
  bool poll() { return step_ == Step::kOver || advance(); }
  bool over() const { return step_ == Step::kOver; }
  Outcome outcome() const { return outcome_; }
  std::uint64_t value() const { return value_; }

 private:
  enum class Step : std::uint8_t {
    kOver,
    kReading,
    kLocking,
    kReadingLocked,
    kWriting,
    kUnlocking
  };
  void start(Key key);
  bool advance();
  bool has_lock();
  bool end(Outcome outcome);
  void read_leaf();
  const Sherman::Entry* find() const;
  bool judge();
  bool write_and_unlock();
  [[noreturn]] void throw_failure();
  class Dropped;
  [[gnu::cold]] void drop();

  Sherman* tree_;
  Caller* me_;
  MovedValue<Step> step_;
  Outcome outcome_ = Outcome::kPending;
  Key key_ = 0;
  std::uint64_t value_ = 0;
  fabric::Status failure_ = fabric::Status::kSuccess;  // of the first request that failed
  InFlight leaf_;
  HierarchicalOp lock_;
};

}  // namespace pyrdma::loco
