// A meta server: the tables that hold the metadata of all nodes (section 4.2). Its CPU only adds
// what nodes register; they look up by RDMA READ.
#pragma once
#include <memory>

#include "fabric/fabric.h"
#include "systems/krcore/meta/cluster_hash.h"
#include "systems/krcore/wire.h"

namespace pyrdma::krcore {

/// Where a node's ValidMR table is: the payload of the second table. The paper does not say how a
/// node learns this.
struct ValidMrRecord {
  std::uint64_t addr = 0;
  std::uint32_t rkey = 0;
  std::uint32_t buckets = 0, entries = 0;
  std::uint32_t incarnation = 0;  // of the node
};
static_assert(sizeof(ValidMrRecord) == 24);

class MetaServer {
 public:
  MetaServer(fabric::Device& device, fabric::ProtectionDomain& domain, std::uint32_t nodes);
  /// Records a node's metadata, unless a later life of the node has registered. Returns false when
  /// a table is full.
  bool add(std::uint32_t node, const DctMeta& meta, const ValidMrRecord& regions);
  bool find(std::uint32_t node, DctMeta& meta, ValidMrRecord& regions) const;
  bool find_target(std::uint32_t node, DctMeta& meta) const;
  TableAddress targets() const { return address_of(*targets_memory_, *targets_); }
  TableAddress locations() const { return address_of(*locations_memory_, *locations_); }
  std::uint32_t size() const { return targets_->size(); }

 private:
  static TableAddress address_of(const fabric::MemoryRegion& memory, const ClusterHash& table) {
    return {memory.remote(), table.shape().buckets, table.shape().entries};
  }
  std::unique_ptr<fabric::MemoryRegion> targets_memory_, locations_memory_;
  std::unique_ptr<ClusterHash> targets_, locations_;
};

/// The bytes of the table that serves DctMeta for so many nodes (section 4.2: 17 KB for 1,000).
inline std::uint64_t meta_table_bytes(std::uint32_t nodes) {
  return HashShape::of(nodes, sizeof(DctMeta)).bytes();
}

}  // namespace pyrdma::krcore
