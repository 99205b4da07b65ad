#include "systems/krcore/pool/physical_qp.h"

#include <algorithm>
#include <bit>

namespace pyrdma::krcore {

Prepared& Prepared::operator=(const Prepared& other) {
  if (this == &other) return *this;
  request = other.request;
  to = other.to;
  order = other.order;
  entry = other.entry;
  ticket = other.ticket;
  owner = other.owner;
  epoch = other.epoch;
  node = other.node;
  kind = other.kind;
  is_signaled = other.is_signaled;
  pieces = other.pieces;
  local_keys = other.local_keys;
  remote_key = other.remote_key;
  if (kept != nullptr || other.kept != nullptr) kept = other.kept;
  request.sges = sges.data();
  // A one-sided request has no header, and seldom more than one piece.
  if (kind == Kind::kUser) {
    std::copy_n(other.sges.begin(), std::min(request.sge_count, kMostSges), sges.begin());
  } else {
    sges = other.sges;
    header = other.header;
    good_until = other.good_until;
    lookup = other.lookup;
  }
  if (fetched != nullptr || other.fetched != nullptr) fetched = other.fetched;
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
      ring_(std::bit_ceil(options.send_entries)),
      mask_(ring_.size() - 1) {
  fabric::Device& device = env.device();
  headers_ = device.allocate(domain, ring_.size() * kHeaderStride);
  if (completions_ == nullptr) {
    own_completions_ = device.create_completion_queue(completion_entries);
    completions_ = own_completions_.get();
  }
  qp_ = device.create_queue_pair(domain, *completions_, receives, options, shared);
}

fabric::Sge PhysicalQp::header_place(std::uint64_t position) {
  return headers_->sge(place_of(position) * kHeaderStride, sizeof(MessageHeader));
}

std::byte* PhysicalQp::header_data(std::uint64_t position) {
  return headers_->data() + place_of(position) * kHeaderStride;
}

}  // namespace pyrdma::krcore
