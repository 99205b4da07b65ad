// A shared receive queue: several queue pairs take receives from it.
#pragma once
#include "fabric/fabric.h"
#include "fabric/verbs/ib/device.h"

namespace pyrdma::fabric::verbs {

class VerbsSharedReceiveQueue final : public SharedReceiveQueue {
 public:
  VerbsSharedReceiveQueue(VerbsDevice& device, VerbsDomain& domain, std::uint32_t entries,
                          std::uint32_t max_sges);
  ~VerbsSharedReceiveQueue() override;
  PostResult post_receive(std::span<const ReceiveRequest> requests) override;
  ibv_srq* srq() const { return srq_; }

 private:
  VerbsDevice& device_;
  std::shared_ptr<ibv_pd> domain_;
  std::uint32_t max_sges_;
  Record& record_;
  ibv_srq* srq_ = nullptr;
};

}  // namespace pyrdma::fabric::verbs
