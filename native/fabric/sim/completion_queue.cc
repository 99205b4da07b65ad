#include "fabric/sim/completion_queue.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {

SimCompletionQueue::SimCompletionQueue(Nic& nic, std::uint32_t entries)
    : nic_(nic), entries_(entries), ring_(std::min(std::bit_ceil(entries), kFirstEntries)) {}

SimCompletionQueue::~SimCompletionQueue() {
  for (; head_ != tail_; ++head_)
    if (QueuePairCore* qp = at(head_).qp) drop_reference(qp);
  if (nic_.timeline() != nullptr) nic_.timeline()->forget_deliveries(this);
  nic_.control.destroy_queue();
}

bool SimCompletionQueue::push(const Completion& completion, QueuePairCore* qp, std::uint64_t retire,
                              const Message* delivers) {
  if (overrun_) return false;
  NicFaults* faults = nic_.faults();
  const bool forced = faults != nullptr && faults->stream.fire(Fault::cq_overrun);
  if (forced || tail_ - head_ == entries_) {
    overrun_ = true;
    if (forced) faults->stream.reach(Fault::cq_overrun);
    nic_.fabric().scheduler.notify(watch_);
    nic_.touch();
    return false;
  }
  if (tail_ - head_ == ring_.size()) [[unlikely]]
    grow();
  at(tail_++) = {completion, qp, retire};
  if (qp != nullptr) ++qp->references;
  if (delivers != nullptr && nic_.timeline() != nullptr) [[unlikely]]
    record_delivery(*delivers);
  nic_.fabric().scheduler.notify(watch_);
  nic_.touch();
  return true;
}

void SimCompletionQueue::grow() {
  std::vector<Entry> wider(2 * ring_.size());
  for (std::uint64_t i = head_; i != tail_; ++i) wider[i & (wider.size() - 1)] = at(i);
  ring_ = std::move(wider);
}

void SimCompletionQueue::record_delivery(const Message& message) {
  nic_.timeline()->deliver(this, tail_ - 1, Nic::describe(message).request);
}

// The thread has `taken` other completions in this poll. The time of each is charged behind it.
void SimCompletionQueue::record(std::uint64_t position, std::size_t taken) {
  Timeline& timeline = *nic_.timeline();
  SimScheduler& scheduler = nic_.fabric().scheduler;
  const SimThread& thread = scheduler.running();
  const Entry& entry = at(position);
  const Completion& done = entry.completion;
  TimelineRequest request = timeline.take_delivery(this, position);
  if (entry.qp != nullptr) request = {entry.qp->nic.port(), entry.qp->number, entry.retire - 1};
  const Picos time = nic_.times().poll << thread.slow_shift;
  const Picos from = scheduler.clock() + static_cast<Picos>(taken) * time;
  const bool failed = done.status != Status::kSuccess;
  timeline.slice(timeline.place_of(thread), from, from + time,
                 {.name = failed ? to_string(done.status) : to_string(done.opcode),
                  .request = request,
                  .bytes = done.byte_count,
                  .part = TimelineWhat::Part::kPoll});
}

std::size_t SimCompletionQueue::poll(std::span<Completion> out) {
  std::size_t count = 0;
  if (!overrun_) {
    while (count < out.size() && head_ != tail_) {
      if (nic_.timeline() != nullptr) [[unlikely]]
        record(head_, count);
      Entry& entry = at(head_++);
      out[count++] = entry.completion;
      if (entry.qp == nullptr) continue;
      entry.qp->sends.retire(entry.retire);
      drop_reference(std::exchange(entry.qp, nullptr));
    }
  }
  const NicTimes& t = nic_.times();
  nic_.fabric().scheduler.charge(count == 0 ? t.empty_poll : t.poll * static_cast<Picos>(count));
  return count;
}

void SimCompletionQueue::purge(const QueuePairCore& qp) {
  if (nic_.timeline() != nullptr) nic_.timeline()->forget_deliveries(this);
  std::uint64_t kept = head_;
  for (std::uint64_t i = head_; i != tail_; ++i) {
    Entry& entry = at(i);
    if (entry.completion.qp_num == qp.number) {
      if (entry.qp != nullptr) drop_reference(std::exchange(entry.qp, nullptr));
      continue;
    }
    if (kept != i) at(kept) = std::exchange(entry, Entry{});
    ++kept;
  }
  tail_ = kept;
}

}  // namespace pyrdma::fabric::sim
