// The state of a virtual queue pair: its port, its end, and what its owner asks of it.
#include <mutex>

#include "systems/krcore/service.h"

namespace pyrdma::krcore {

bool Service::bind(VqpId id, std::uint32_t port) {
  Vqp* v = find(id);
  if (v == nullptr || port == 0 || port >= ports_.size()) return false;
  std::uint32_t nobody = 0;
  if (!ports_[port].compare_exchange_strong(nobody, id.number())) return false;
  const std::lock_guard<Mutex> lock(v->receive_mutex);
  v->bound_port = port;
  return true;
}

void Service::unbind(VqpId id) {
  Vqp* v = find(id);
  if (v == nullptr) return;
  const std::lock_guard<Mutex> lock(v->receive_mutex);
  if (v->bound_port != 0) ports_[v->bound_port].store(0);
  v->bound_port = 0;
}

VqpState Service::state(VqpId id) {
  const Vqp* v = find(id);
  return v == nullptr ? VqpState::kError : v->state.load(std::memory_order_acquire);
}

bool Service::uses_reliable(VqpId id) {
  Vqp* v = find(id);
  if (v == nullptr) return false;
  const SendLock lock(*v);
  return v->qp != nullptr && !v->qp->is_dynamic();
}

void Service::fail(VqpId id) {
  Vqp* v = find(id);
  if (v == nullptr) return;
  const SendLock lock(*v);
  fail_vqp(*v);
}

// Ends the queue pair as a NIC does that finds a bad request. Returns false when its queue is full.
bool Service::end_with(VqpId id, const fabric::WorkRequest& bad, fabric::Status status) {
  Vqp* v = find(id);
  if (v == nullptr) return true;
  const SendLock lock(*v);
  if (v->completions.size() >= v->options.send_entries) return false;
  const bool has_failed = v->state.load() == VqpState::kError;
  const std::uint64_t row = v->completions.push_back({bad.wr_id, 0, bad.opcode, status, true});
  v->completions.end(row, has_failed ? fabric::Status::kFlushed : status);
  fail_vqp(*v);
  env_.notify(v->watch);
  return true;
}

void Service::disconnect(VqpId id) {
  Vqp* v = find(id);
  if (v == nullptr) return;
  const SendLock lock(*v);
  leave(*v);
  v->end_sending();
  v->state.store(VqpState::kCreated);
}

// Back to the state of a new queue pair: unpolled completions and posted receives are lost.
void Service::reset(VqpId id) {
  Vqp* v = find(id);
  if (v == nullptr) return;
  disconnect(id);
  // Last: from the new epoch on, deliver() takes nothing for the old one.
  const std::lock_guard<Mutex> lock(v->receive_mutex);
  v->end_receiving();
}

fabric::Status Service::refusal(VqpId id) {
  Vqp* v = find(id);
  if (v == nullptr) return fabric::Status::kFlushed;
  const SendLock lock(*v);
  return v->refusal;
}

std::uint16_t Service::epoch(VqpId id) {
  Vqp* v = find(id);
  if (v == nullptr) return 0;
  const SendLock lock(*v);
  return v->epoch;
}

std::size_t Service::flush_receives(VqpId id, std::span<fabric::Completion> out) {
  Vqp* v = find(id);
  if (v == nullptr) return 0;
  const std::lock_guard<Mutex> lock(v->receive_mutex);
  std::size_t taken = 0;
  for (; taken < out.size() && !v->receives.empty(); ++taken) {
    out[taken] = {};
    out[taken].wr_id = v->receives.front().wr_id;
    out[taken].status = fabric::Status::kFlushed;
    out[taken].qp_num = id.number();
    v->receives.pop_front();
  }
  return taken;
}

}  // namespace pyrdma::krcore
