#include "fabric/sim/faults.h"

#include <algorithm>
#include <string>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {

void Reachability::block(std::uint32_t from, std::uint32_t to, Fault why, Picos until) {
  if (from == to) return;
  if (until_.empty()) until_.resize(nodes_ * std::size_t{nodes_});
  Way& way = until_[from * std::size_t{nodes_} + to];
  if (until > way.until) way = {until, why};
}

void Nic::set_faults(std::unique_ptr<NicFaults> faults) {
  faults_ = std::move(faults);
  env_.disk().set_faults(&faults_->stream);
}

void Nic::die(bool torn) {
  dead_ = true;
  queue_pairs.for_each([](QueuePairCore& qp) { qp.crashed = true; });
  for (PlacementQueue* queue : fabric_.placing) queue->crash(*this, torn);
}

void Nic::save_memory() {
  std::vector<const Region*> saved;
  regions.for_each([&saved](const Region& region) {
    if (!region.on_device && !region.synthetic) saved.push_back(&region);
  });
  std::sort(saved.begin(), saved.end(),
            [](const Region* a, const Region* b) { return a->serial < b->serial; });
  for (std::size_t i = 0; i < saved.size(); ++i)
    env_.disk().preserve("memory-" + std::to_string(i), {saved[i]->data, saved[i]->size});
}

void Nic::revive() {
  dead_ = false;
  queue_pairs.for_each([](QueuePairCore& qp) { qp.state = QpState::kError; });
  queue_pairs.clear();
  regions.clear();
  if (faults_ != nullptr && faults_->stream.fire(Fault::number_reuse)) {
    faults_->stream.reach(Fault::number_reuse);
    reseed_numbers(node_);
  }
}

void Nic::fail_all() {
  queue_pairs.for_each([this](QueuePairCore& qp) { enter_error(qp); });
}

void Nic::storm(Picos until) {
  paused_until_ = until == 0 ? 0 : std::max(paused_until_, until);
  if (faults_ != nullptr) faults_->stormed_until = paused_until_;
  if (until == 0 && active_head_ != nullptr) schedule_engine(fabric_.scheduler.clock());
}

void Nic::reseed_numbers(std::uint32_t node) {
  regions.reseed(Rng(seed_, node, kKeys));
  queue_pairs.reseed(Rng(seed_, node, kNumbers));
}

void Nic::place_in_any_order() {
  if (!memory_.is_weak()) {
    memory_.max_delay_ns = MemoryModel::weak().max_delay_ns;
    memory_.late_placement = MemoryModel::weak().late_placement;
  }
  orders_writes_ = false;
}

}  // namespace pyrdma::fabric::sim
