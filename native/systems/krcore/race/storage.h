// A storage node of a table: memory that clients use by one-sided requests alone.
#pragma once
#include <cstdint>
#include <memory>

#include "env/env.h"
#include "fabric/fabric.h"
#include "systems/krcore/race/address.h"

namespace pyrdma::krcore::race {

/// All storage nodes of a table give equal options, but for `index` and `bytes`.
struct StorageOptions {
  std::uint32_t index = 0, nodes = 1;  // this storage node's number, and how many there are
  std::uint64_t bytes = 64U << 20;     // memory of this node, at most 256 GiB
  std::uint32_t groups = 256;          // of a subtable: a power of two; 21 slots each
  std::uint32_t first_depth = 0;       // 2^first_depth subtables at first
  std::uint32_t max_depth = 8;         // at most 2^max_depth subtables; at most 15
  std::uint32_t max_key_bytes = 64, max_value_bytes = 1024;
};

/// Allocates, registers and formats the memory of a storage node. It does no work afterwards.
class Storage {
 public:
  /// Clients' queue pairs at this node belong to `pd` too. Throws Error(kInvalidArgument) for
  /// options out of bounds, and what the device throws when it has no memory.
  Storage(Env& env, fabric::Device& device, fabric::ProtectionDomain& pd,
          const StorageOptions& options = {});

  /// The description of this storage node; join() makes that of the table from those of all nodes.
  /// Where there is one storage node, it is that of the table.
  const TableAddress& address() const { return address_; }
  std::byte* data() const { return memory_->data(); }

 private:
  TableAddress address_;
  std::unique_ptr<fabric::MemoryRegion> memory_;
};

}  // namespace pyrdma::krcore::race
