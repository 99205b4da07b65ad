#include "fabric/hooks/fault_gate.h"

#include <algorithm>
#include <cstring>

namespace pyrdma::fabric::hooks {

FaultGate::FaultGate(Env& env, FaultStream& faults, FaultKinds kinds)
    : env_(env),
      heals_by_clock_(kinds.has(Fault::delay) && faults.options().heal_at != kForever),
      faults_(faults) {
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    on_[i] = kinds.has(fault) && faults.options()[fault].rate > 0;
  }
}

bool FaultGate::draw(Fault fault) {
  if (heals_by_clock_) {
    if (healed_.load(std::memory_order_relaxed)) return false;
    if (env_.now() >= faults_.options().heal_at) {
      healed_.store(true, std::memory_order_relaxed);
      return false;
    }
  }
  const std::lock_guard lock(mutex_);
  return faults_.fire(fault);
}

std::uint64_t FaultGate::below(Fault fault, std::uint64_t bound) {
  const std::lock_guard lock(mutex_);
  return faults_.stream(fault).below(bound);
}

Time FaultGate::duration(Fault fault) {
  const std::lock_guard lock(mutex_);
  return faults_.duration(fault);
}

void FaultGate::reach(Fault fault) {
  const std::lock_guard lock(mutex_);
  faults_.reach(fault);
}

// ---- regions ----

void RegionTable::add(const MemoryRegion& region) {
  if (region.data() == nullptr) return;  // device memory: no CPU reads it
  const std::lock_guard lock(mutex_);
  regions_[region.lkey()] = {region.addr(), region.size(), region.data()};
}

void RegionTable::remove(const MemoryRegion& region) {
  const std::lock_guard lock(mutex_);
  regions_.erase(region.lkey());
}

bool RegionTable::copy(const Sge& sge, std::byte* to) const {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(sge.lkey);
  if (found == regions_.end()) return false;
  const Entry& region = found->second;
  const std::uint64_t offset = sge.addr - region.addr;
  if (offset > region.size || sge.length > region.size - offset) return false;
  std::memcpy(to, region.data + offset, sge.length);
  return true;
}

// ---- late senders ----

void LateSenders::add(LateSender& sender) {
  const std::lock_guard lock(mutex_);
  senders_.push_back(&sender);
}

void LateSenders::remove(LateSender& sender) {
  const std::lock_guard lock(mutex_);
  std::erase(senders_, &sender);
}

void LateSenders::send_due(Env& env) {
  const Time now = env.now();
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // another thread sends already
  for (LateSender* sender : senders_) sender->send_due(now);
}

bool HookState::copies_datagrams() const {
  return gate.on(Fault::loss) || gate.on(Fault::duplicate) || gate.on(Fault::reorder) ||
         gate.on(Fault::delay) || gate.on(Fault::corruption);
}

}  // namespace pyrdma::fabric::hooks
