#include "fabric/verbs/ib/records.h"

#include <bit>
#include <string>

#include "base/error.h"

namespace pyrdma::fabric::verbs {

RecordTable::~RecordTable() {
  for (auto& chunk : chunks_) delete chunk.load();
}

Record& RecordTable::take(std::uint32_t sends, std::uint32_t receives) {
  const std::lock_guard lock(mutex_);
  Record* record = nullptr;
  if (!free_.empty()) {
    record = free_.back();
    free_.pop_back();
  } else if (next_ < Ticket::kSlots) {
    if (next_ % kChunk == 0) chunks_[next_ / kChunk].store(new Chunk, std::memory_order_release);
    record = find(next_);
    record->slot = next_++;
  } else {
    throw Error(ErrorCode::kExhausted, "verbs: a node has at most " +
                                           std::to_string(Ticket::kSlots) +
                                           " queue pairs and shared receive queues; destroy some");
  }
  // No request under way has the present generation, so no poll reads the rings now.
  record->sends.resize(std::bit_ceil(sends));
  record->receives.resize(std::bit_ceil(receives));
  record->send_mask = static_cast<std::uint32_t>(record->sends.size()) - 1;
  record->receive_mask = static_cast<std::uint32_t>(record->receives.size()) - 1;
  record->sends_done.store(0, std::memory_order_relaxed);
  record->receives_done.store(0, std::memory_order_relaxed);
  return *record;
}

void RecordTable::give_back(Record& record) {
  record.forget();
  const std::lock_guard lock(mutex_);
  free_.push_back(&record);
}

}  // namespace pyrdma::fabric::verbs
