#include "systems/krcore/pool/core_pool.h"

#include <algorithm>
#include <utility>

namespace pyrdma::krcore {

CorePool::CorePool(Env& env, fabric::ProtectionDomain& domain, const Options& options,
                   std::uint32_t number)
    : core(number),
      mutex(env),
      receive_mutex(env),
      dynamic_requests(env.nodes()),
      frequent(env.nodes()),
      env_(env),
      domain_(domain),
      options_(options) {
  fabric::Device& device = env.device();
  const std::uint32_t entries = options.receive_buffers;
  buffers_ = device.allocate(domain, entries * buffer_bytes());
  receives_ = device.create_completion_queue(entries);
  shared_ = device.create_shared_receive_queue(domain, entries, 1);
  for (std::uint64_t slot = 0; slot < entries; ++slot) post_buffer(slot);
  target_meta_.incarnation = env.incarnation();
  if (!device.capabilities().dc) return;
  idle_ = device.create_completion_queue(1);
  fabric::QpOptions target = queue_pair_options(fabric::Transport::kDc);
  target.dc_target = true;
  target.qkey = static_cast<std::uint32_t>(env.rng("krcore/key" + std::to_string(number))());
  target_ = device.create_queue_pair(domain, *idle_, *receives_, target, shared_.get());
  target_->connect({});
  target_meta_ = {target_->qp_num(), target.qkey, env.incarnation()};
  dynamic_completions_ =
      device.create_completion_queue(options.dc_queue_pairs * options.completion_entries);
  for (std::uint32_t i = 0; i < options.dc_queue_pairs; ++i) {
    dynamic.push_back(std::make_unique<PhysicalQp>(
        env, domain, queue_pair_options(fabric::Transport::kDc), depth(),
        options.completion_entries, dynamic_completions_.get(), *receives_, nullptr,
        fabric::kNoNode));
    dynamic.back()->qp().connect({});
  }
}

fabric::QpOptions CorePool::queue_pair_options(fabric::Transport transport) const {
  const fabric::Capabilities& able = env_.device().capabilities();
  fabric::QpOptions options;
  options.transport = transport;
  options.send_entries = options_.send_entries;
  options.receive_entries = 1;
  options.max_sges = kMostSges + 1;
  options.max_inline = std::min(able.max_inline, kMostInline);
  options.max_outstanding_reads = able.max_outstanding_reads;
  options.timeout_us = options_.timeout_us;
  options.retry_count = options_.retry_count;
  return options;
}

PhysicalQp* CorePool::next_dynamic(bool also_failed) {
  for (std::size_t i = 0; i < dynamic.size(); ++i) {
    PhysicalQp& candidate = *dynamic[next_dynamic_++ % dynamic.size()];
    if (!candidate.has_failed || also_failed) return &candidate;
  }
  return nullptr;
}

PhysicalQp* CorePool::next_to(NodeId node, const Destination& to) {
  // One to an earlier life may still be there.
  PhysicalQp* best = reliable_to(node, to.is_dynamic() ? to.meta.incarnation : 0);
  return best == nullptr && to.is_dynamic() ? next_dynamic() : best;
}

PhysicalQp* CorePool::reliable_to(NodeId node, std::uint32_t least) {
  const auto [first, last] = reliable.equal_range(node);
  PhysicalQp* best = nullptr;
  for (auto each = first; each != last; ++each) {
    PhysicalQp& candidate = *each->second;
    if (!candidate.has_failed && candidate.life >= least &&
        (best == nullptr || candidate.users < best->users))
      best = &candidate;
  }
  return best;
}

PhysicalQp* CorePool::by_number(std::uint32_t qp_num) {
  for (const auto& candidate : dynamic)
    if (candidate->qp().qp_num() == qp_num) return candidate.get();
  return nullptr;
}

std::unique_ptr<PhysicalQp> CorePool::make_reliable(NodeId peer) {
  return std::make_unique<PhysicalQp>(env_, domain_, queue_pair_options(fabric::Transport::kRc),
                                      depth(), options_.completion_entries, nullptr, *receives_,
                                      shared_.get(), peer);
}

void CorePool::revive(PhysicalQp& dead) {
  dead.qp().modify(fabric::QpState::kReset);
  dead.qp().connect({});
}

const std::byte* CorePool::buffer(std::uint64_t slot) const {
  return buffers_->data() + slot * buffer_bytes();
}

void CorePool::post_buffer(std::uint64_t slot) {
  const fabric::Sge sge =
      buffers_->sge(slot * buffer_bytes(), static_cast<std::uint32_t>(buffer_bytes()));
  const fabric::ReceiveRequest request{slot, &sge, 1};
  shared_->post_receive({&request, 1});
}

}  // namespace pyrdma::krcore
