// The memory of a node's applications (section 4.2): what they have registered, the ValidMR table
// by which peers check it, and the end of a registration.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "env/sync.h"
#include "fabric/fabric.h"
#include "systems/krcore/meta/cluster_hash.h"
#include "systems/krcore/options.h"

namespace pyrdma::krcore {

/// A checked region: a row of ValidMR. Plain data.
struct RegionRecord {
  std::uint64_t addr = 0;
  std::uint64_t bytes = 0;
  std::uint32_t rkey = 0;    // the physical one
  std::uint32_t access = 0;  // an or of fabric::Access
};
static_assert(sizeof(RegionRecord) == 24);

/// Whether `length` bytes from `addr` on lie in the region.
inline bool covers(const RegionRecord& record, std::uint64_t addr, std::uint64_t length) {
  const std::uint64_t offset = addr - record.addr;
  return length == 0 || (offset <= record.bytes && length <= record.bytes - offset);
}

/// A registration, as its application sees it: one virtual key for both directions.
struct Registration {
  std::byte* data = nullptr;
  std::uint64_t addr = 0;
  std::uint64_t bytes = 0;
  std::uint32_t key = 0;
  int file = -1;  // with kOwnFile, see fabric::MemoryRegion::file()
};

/// Any thread may use it.
class Regions {
 public:
  Regions(Env& env, fabric::ProtectionDomain& domain, const Options& options);

  /// Allocates zeroed memory for `domain`, a number of the application's, and records it. With
  /// kOwnFile it is a registration of its own. Throws Error(kExhausted) with the option to raise.
  Registration allocate(std::uint64_t bytes, std::uint32_t access, std::uint64_t domain);
  /// The same for memory of the caller, which must live until the lease has ended.
  Registration add(void* data, std::uint64_t bytes, std::uint32_t access, std::uint64_t domain);
  /// Ends a registration at once here. Peers may still reach the memory until their leases end;
  /// only then another registration gets it.
  void remove(std::uint32_t key);
  /// Frees what no lease covers any more. Control path.
  void free_ended(Time now);
  /// The time from the end of a registration until its memory is free.
  Time grace() const { return grace_; }
  std::size_t ending();

  /// Checks a local buffer and finds its physical key. Cost: a few loads, no lock.
  bool check(const fabric::Sge& sge, bool is_written, std::uint64_t domain,
             std::uint32_t& lkey) const {
    const std::uint32_t index = index_of(sge.lkey);
    if (sge.lkey == 0 || index >= places_) return false;
    const Slot& slot = slots_[index];
    if (slot.key.load(std::memory_order_acquire) != sge.lkey || slot.domain != domain) return false;
    if (is_written && (slot.record.access & fabric::kLocalWrite) == 0) return false;
    if (!covers(slot.record, sge.addr, sge.length)) return false;
    lkey = slot.lkey;
    return true;
  }

  fabric::RemoteRegion table() const { return table_memory_->remote(); }
  const HashShape& shape() const { return table_->shape(); }

 private:
  struct Slot {
    std::atomic<std::uint32_t> key{0};  // 0: free
    RegionRecord record;
    std::uint32_t lkey = 0;
    std::uint64_t domain = 0;
    std::unique_ptr<fabric::MemoryRegion> own;  // unless it is a slice
    bool is_slice = false;
  };
  Registration publish(std::byte* data, const RegionRecord& record, std::uint32_t lkey,
                       std::uint64_t domain, std::unique_ptr<fabric::MemoryRegion> own,
                       bool is_slice);
  std::uint64_t take_slice(std::uint64_t bytes);
  void give_slice(std::uint64_t offset, std::uint64_t bytes);
  std::uint32_t index_of(std::uint32_t key) const { return key & index_mask_; }

  Env& env_;
  fabric::ProtectionDomain& domain_;
  const Options& options_;
  const Time grace_;
  Mutex mutex_;
  Rng rng_;
  const unsigned index_bits_;
  const std::uint32_t index_mask_, places_;
  std::unique_ptr<fabric::MemoryRegion> arena_, table_memory_;
  std::unique_ptr<ClusterHash> table_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_slots_;
  std::map<std::uint64_t, std::uint64_t> free_slices_;  // offset to bytes
  struct Ending {
    Time free_at = 0;
    std::uint32_t slot = 0;
  };
  std::deque<Ending> ending_;
};

}  // namespace pyrdma::krcore
