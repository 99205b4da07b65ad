#include "systems/krcore/pool/physical_qp.h"

#include <algorithm>

#include "base/assert.h"

namespace pyrdma::krcore {

Prepared& Prepared::operator=(const Prepared& other) {
  if (this == &other) return *this;
  request = other.request;
  sges = other.sges;
  header = other.header;
  to = other.to;
  order = other.order;
  entry = other.entry;
  ticket = other.ticket;
  fetched = other.fetched;
  owner = other.owner;
  epoch = other.epoch;
  node = other.node;
  kind = other.kind;
  is_signaled = other.is_signaled;
  pieces = other.pieces;
  request.sges = sges.data();
  return *this;
}

PhysicalQp::PhysicalQp(Env& env, fabric::ProtectionDomain& domain, const fabric::QpOptions& options,
                       std::uint32_t depth, std::uint32_t completion_entries,
                       fabric::CompletionQueue* completions, fabric::CompletionQueue& receives,
                       fabric::SharedReceiveQueue* shared, std::uint32_t peer)
    : completions_(completions),
      peer_(peer),
      depth_(depth),
      max_inline_(options.max_inline),
      ring_(options.send_entries) {
  fabric::Device& device = env.device();
  headers_ = device.allocate(domain, ring_.size() * kHeaderStride);
  if (completions_ == nullptr) {
    own_completions_ = device.create_completion_queue(completion_entries);
    completions_ = own_completions_.get();
  }
  qp_ = device.create_queue_pair(domain, *completions_, receives, options, shared);
}

Prepared& PhysicalQp::push(const Prepared& request) {
  PYRDMA_ASSERT(under_way() < ring_.size());
  Prepared& place = at(tail_++);
  place = request;
  return place;
}

fabric::Sge PhysicalQp::header_place(std::uint64_t position) {
  return headers_->sge(position % ring_.size() * kHeaderStride, sizeof(MessageHeader));
}

std::byte* PhysicalQp::header_data(std::uint64_t position) {
  return headers_->data() + position % ring_.size() * kHeaderStride;
}

}  // namespace pyrdma::krcore
