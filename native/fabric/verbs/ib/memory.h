// Registered memory.
#pragma once
#include "fabric/fabric.h"
#include "fabric/shm/segment.h"
#include "fabric/verbs/ib/device.h"

namespace pyrdma::fabric::verbs {

/// Returns a remedy for the limit of locked memory of this process; empty without a limit.
std::string locked_memory_remedy();

class VerbsRegion final : public MemoryRegion {
 public:
  /// `data` is the caller's memory, or null for memory that the region allocates.
  VerbsRegion(VerbsDevice& device, VerbsDomain& domain, void* data, std::size_t bytes,
              std::uint32_t access);
  ~VerbsRegion() override;

 private:
  void map(std::size_t bytes);
  void map_file(std::size_t bytes);
  void unmap();
  VerbsDevice& device_;
  std::shared_ptr<ibv_pd> domain_;
  std::size_t mapped_ = 0;  // bytes; 0: the caller's memory
  std::shared_ptr<shm::Mapping> own_file_;
  ibv_mr* mr_ = nullptr;
};

/// DeviceRegion is memory on the NIC (ibv_alloc_dm), for devices that have some. Its addresses
/// begin at 0.
class DeviceRegion final : public MemoryRegion {
 public:
  DeviceRegion(VerbsDevice& device, VerbsDomain& domain, std::size_t bytes, std::uint32_t access);
  ~DeviceRegion() override;

 private:
  std::shared_ptr<ibv_pd> domain_;
  ibv_dm* memory_ = nullptr;
  ibv_mr* mr_ = nullptr;
};

}  // namespace pyrdma::fabric::verbs
