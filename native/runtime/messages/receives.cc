#include "runtime/messages/receives.h"

#include <algorithm>

namespace pyrdma::runtime::messages {

Receives::Receives(fabric::Device& device, fabric::ProtectionDomain& domain, MemoryPool& memory,
                   std::uint32_t depth, std::uint32_t slot_bytes)
    : memory_(memory),
      depth_(depth),
      slot_bytes_(slot_bytes),
      queue_(device.create_shared_receive_queue(domain, depth, 1)),
      wanted_(depth) {
  add(depth);
}

void Receives::add(std::uint32_t count) {
  const Slots& more = *slots_.emplace_back(std::make_unique<Slots>(memory_, count, slot_bytes_));
  for (std::uint64_t index = 0; index < count; ++index) {
    free_.push_back(all_.size());
    all_.push_back({&more, index});
  }
}

bool Receives::post_one() {
  const std::uint64_t number = free_.back();
  const fabric::Sge sge = all_[number].slots->sge(all_[number].index, slot_bytes_);
  const fabric::ReceiveRequest request{number, &sge, 1};
  if (queue_->post_receive({&request, 1}).accepted != 1) return false;
  free_.pop_back();
  return true;
}

bool Receives::post() {
  while (!free_.empty() && posted() < wanted_) {
    if (post_one()) continue;
    if (posted() < depth_) return false;
    wanted_ = posted();  // one that seemed to be lost has completed: its message took long
  }
  return true;
}

std::optional<Header> Receives::take(Env& env, const fabric::Completion& completion,
                                     std::string& data) {
  if (completion.wr_id >= all_.size()) return std::nullopt;
  free_.push_back(completion.wr_id);
  if (completion.status != fabric::Status::kSuccess) return std::nullopt;
  const Slot& slot = all_[completion.wr_id];
  return read_message(env, *slot.slots, slot.index, completion.byte_count, data);
}

void Receives::replace_lost() {
  if (!post()) return;  // not even the free ones have a place
  if (free_.empty()) add(1);
  if (post_one()) ++wanted_;
}

}  // namespace pyrdma::runtime::messages
