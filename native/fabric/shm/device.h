// The device of one node has its regions, queues and queue pairs in the node's control segment and
// memory files.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/shm/node.h"
#include "fabric/shm/rendezvous.h"

namespace pyrdma::fabric::shm {

struct ShmProtectionDomain final : ProtectionDomain {
  explicit ShmProtectionDomain(std::uint32_t number) : id(number) {}
  std::uint32_t id;
};

struct ShmAddressHandle final : AddressHandle {
  ShmAddressHandle(std::uint32_t to, std::uint32_t domain) : node(to), pd(domain) {}
  std::uint32_t node, pd;
};

/// RingPool allots space for rings in the control segment. A ring's space is reused only for a ring
/// of the same kind and size.
class RingPool {
 public:
  enum class Kind : std::uint8_t { kReceive, kCompletion };
  /// Returns the offset of a ring of at least `bytes` bytes. Throws Error(kExhausted).
  std::uint64_t take(Kind kind, std::uint64_t bytes);
  void give_back(Kind kind, std::uint64_t bytes, std::uint64_t offset);

 private:
  std::mutex mutex_;
  std::map<std::pair<Kind, std::uint64_t>, std::vector<std::uint64_t>> free_;
  std::uint64_t next_ = kRingsBegin;
};

/// Segment is a memory file that peers may map, in the table of the control segment. The regions
/// within it share it. When the last has gone, its place in the table is free.
struct Segment {
  Segment(Control& of, std::shared_ptr<Mapping> memory, std::uint32_t at)
      : control(of), mapping(std::move(memory)), index(at) {}
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  Control& control;
  std::shared_ptr<Mapping> mapping;  // requests under way may keep it longer
  std::uint32_t index;
};

/// RegionMemory allots memory for regions. It never uses an address of a file twice. A request that
/// passed its checks just before a deregistration thus meets zeros without an owner, not another
/// region.
class RegionMemory {
 public:
  RegionMemory(Control& control, MappingTable& mappings) : control_(control), mappings_(mappings) {}
  struct Piece {
    std::shared_ptr<Segment> segment;
    std::uint64_t offset = 0, bytes = 0;
    std::byte* data() const { return segment->mapping->data() + offset; }
  };
  Piece take(std::uint64_t bytes, bool as_own_file);

 private:
  std::shared_ptr<Segment> create(std::uint64_t bytes);
  Control& control_;
  MappingTable& mappings_;
  std::mutex mutex_;
  std::shared_ptr<Segment> arena_;  // small regions are cut from it
  std::uint64_t arena_used_ = 0;
};

/// Compares two positions in a send queue; positions wrap around.
inline bool is_later(std::uint32_t position, std::uint32_t than) {
  return static_cast<std::int32_t>(position - than) > 0;
}

class ShmDevice final : public Device {
 public:
  explicit ShmDevice(Node& node);
  const Capabilities& capabilities() const override { return capabilities_; }
  const std::string& name() const override { return name_; }
  void open() override {}
  Rendezvous& rendezvous() override { return rendezvous_; }

  std::unique_ptr<ProtectionDomain> create_protection_domain() override;
  std::unique_ptr<MemoryRegion> allocate(ProtectionDomain& pd, std::size_t bytes,
                                         std::uint32_t access) override;
  std::unique_ptr<MemoryRegion> register_memory(ProtectionDomain& pd, void* data, std::size_t bytes,
                                                std::uint32_t access) override;
  std::unique_ptr<MemoryRegion> allocate_device_memory(ProtectionDomain& pd, std::size_t bytes,
                                                       std::uint32_t access) override;
  std::unique_ptr<CompletionQueue> create_completion_queue(std::uint32_t entries) override;
  std::unique_ptr<SharedReceiveQueue> create_shared_receive_queue(ProtectionDomain& pd,
                                                                  std::uint32_t entries,
                                                                  std::uint32_t max_sges) override;
  std::unique_ptr<QueuePair> create_queue_pair(ProtectionDomain& pd, CompletionQueue& send_queue,
                                               CompletionQueue& receive_queue,
                                               const QpOptions& options,
                                               SharedReceiveQueue* shared_receives) override;
  std::unique_ptr<AddressHandle> create_address_handle(ProtectionDomain& pd, const QpAddress& peer,
                                                       const PathOptions& path) override;

  // For the objects that the device made.
  Node& node() { return node_; }
  RegionMemory& memory() { return memory_; }
  /// Makes a ring with its checked view; `id` is new.
  ReceiveView make_receive_ring(std::uint32_t capacity, std::uint32_t max_sges,
                                std::uint32_t strides, bool is_shared, std::uint64_t* offset);
  CompletionView make_completion_ring(std::uint32_t capacity, std::uint64_t* offset);
  /// Waits for a requester that holds the ring, but not for long, and turns later ones away. The
  /// space of the ring is used again when no requester holds it.
  void retire_receive_ring(const ReceiveView& view, std::uint64_t offset, Time patience);
  void retire_completion_ring(const CompletionView& view, std::uint64_t offset);
  /// Counts a region before it is made. Throws Error(kExhausted).
  void reserve_region();
  void release_region();
  std::uint32_t add_region(std::uint32_t pd, std::uint32_t access, const RegionMemory::Piece& piece,
                           std::uint64_t bytes);
  /// Takes the region from the table, and gives its memory back.
  void remove_region(std::uint32_t key, RegionMemory::Piece piece);
  std::uint32_t take_qp_number();
  void give_back_qp_number(std::uint32_t qp_num);
  /// Lets DC targets find the initiator, see ShmQueuePair::is_quiet. Must precede its requests.
  void publish_initiator(std::uint32_t qp_num);
  /// Returns the send-queue position up to which the requests of `qp_num` are done. The polling
  /// thread writes it.
  std::uint32_t released(std::uint32_t qp_num) const {
    return static_cast<std::uint32_t>(released_[qp_slot(qp_num)].load(std::memory_order_acquire));
  }
  void set_released(std::uint32_t qp_num, std::uint32_t position) {
    released_[qp_slot(qp_num)].store(word_of(qp_num, position), std::memory_order_release);
  }
  /// Not atomic with the creation of another queue pair in the same slot. But a slot is reused only
  /// after 65,535 others (take_qp_number), and no poll lasts that long.
  void release(std::uint32_t qp_num, std::uint32_t position) {
    const std::uint64_t now = released_[qp_slot(qp_num)].load(std::memory_order_relaxed);
    if (now >> 32 == qp_num && is_later(position, static_cast<std::uint32_t>(now))) {
      set_released(qp_num, position);
    }
  }

 private:
  struct RetiredRing {
    RingPool::Kind kind;
    std::uint64_t bytes, offset;
  };
  std::uint64_t take_ring(RingPool::Kind kind, std::uint64_t bytes);
  void retire(const RetiredRing& ring, Time patience);
  bool is_left(const RetiredRing& ring, Time patience);
  void forget_region(std::uint32_t key);
  static std::uint64_t word_of(std::uint32_t qp_num, std::uint32_t position) {
    return std::uint64_t{qp_num} << 32 | position;
  }
  void check_count(const char* what, std::uint64_t value, std::uint64_t least,
                   std::uint64_t most) const;

  Node& node_;
  std::string name_;
  Capabilities capabilities_;
  ShmRendezvous rendezvous_;
  RingPool rings_;
  RegionMemory memory_;
  std::mutex mutex_;  // guards the tables below and in the control segment
  std::uint32_t next_pd_ = 1;
  std::uint64_t next_ring_id_ = 1;
  std::vector<RetiredRing> retired_rings_;  // that requesters hold
  std::uint32_t region_count_ = 0;
  std::deque<std::uint32_t> free_qp_numbers_;  // oldest first, so that a number is reused late
  std::uint32_t next_qp_slot_ = 1;
  // Queue pair number and position, by slot.
  std::unique_ptr<std::atomic<std::uint64_t>[]> released_;
};

}  // namespace pyrdma::fabric::shm
