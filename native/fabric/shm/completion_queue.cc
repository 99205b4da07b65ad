#include "fabric/shm/completion_queue.h"

#include <algorithm>
#include <bit>

#include "fabric/shm/rings.h"

namespace pyrdma::fabric::shm {
namespace {

/// Bounds an enumerator that a peer wrote.
template <class Enum>
Enum checked(std::uint8_t value, Enum last) {
  return static_cast<Enum>(std::min(value, static_cast<std::uint8_t>(last)));
}

}  // namespace

ShmCompletionQueue::ShmCompletionQueue(ShmDevice& device, std::uint32_t entries)
    : device_(device), view_(device.make_completion_ring(entries, &offset_)), sends_(entries) {}

ShmCompletionQueue::~ShmCompletionQueue() { device_.retire_completion_ring(view_, offset_); }

inline bool ShmCompletionQueue::has_receive(const CompletionView& bank,
                                            std::uint32_t number) const {
  const std::uint64_t at = consumed_[number];
  return bank.entry(at).sequence.load(std::memory_order_acquire) == sequence_of(at);
}

void ShmCompletionQueue::retry_waiting() {
  device_.node().waiting().retry(device_.node().env().now());
}

std::size_t ShmCompletionQueue::poll(std::span<Completion> out) {
  if (!device_.node().waiting().empty()) [[unlikely]]
    retry_waiting();
  const bool has_sends = !sends_.empty();
  if (!has_receive(view_, 0) && relaxed(view_.ring->banks) == 0) [[likely]]
    return has_sends ? poll_sends(out) : 0;
  return has_sends ? poll_both(out) : poll_receives(out);
}

std::size_t ShmCompletionQueue::poll_both(std::span<Completion> out) {
  // Each kind comes first in turn, so that none waits forever for the other.
  sends_first_ = !sends_first_;
  const std::size_t first = sends_first_ ? poll_sends(out) : poll_receives(out);
  const std::span<Completion> rest = out.subspan(first);
  return first + (sends_first_ ? poll_receives(rest) : poll_sends(rest));
}

std::size_t ShmCompletionQueue::poll_sends(std::span<Completion> out) {
  if (relaxed(view_.ring->overrun) != 0) [[unlikely]]
    return 0;
  std::size_t count = 0;
  sends_.consume(out.size(), [&](const SendCompletion& done, std::uint32_t qp_num) {
    if (qp_num == 0) return false;  // purged
    Completion& c = out[count++];
    c = {};
    c.wr_id = done.wr_id;
    c.status = done.status;
    c.opcode = done.opcode;
    c.qp_num = qp_num;
    c.vendor_error = static_cast<std::uint32_t>(done.status);
    device_.release(qp_num, done.position);
    return true;
  });
  return count;
}

inline std::size_t ShmCompletionQueue::poll_bank(std::span<Completion> out,
                                                 const CompletionView& bank, std::uint32_t number) {
  std::size_t count = 0;
  std::uint64_t& consumed = consumed_[number];
  const std::uint64_t before = consumed;
  while (count < out.size() && has_receive(bank, number)) {
    if (consumed == before && relaxed(view_.ring->overrun) != 0) [[unlikely]]
      return 0;
    const CompletionEntry& entry = bank.entry(consumed++);
    const auto tags = std::bit_cast<CompletionTags>(relaxed(entry.tags));
    if (tags.kind != CompletionKind::kReceive) continue;  // purged
    Completion& c = out[count++];
    c.wr_id = relaxed(entry.wr_id);
    c.qp_num = relaxed(entry.qp_num);
    c.status = checked(tags.status, Status::kGeneral);
    c.opcode = checked(tags.opcode, Opcode::kReceiveWriteImm);
    c.flags = tags.flags;
    c.vendor_error = static_cast<std::uint32_t>(c.status);
    c.byte_count = relaxed(entry.bytes);
    c.immediate = relaxed(entry.immediate);
    c.source_qpn = c.stride = 0;
    c.source_node = kNoNode;
    if ((c.flags & kHasGrh) == 0) continue;
    const std::uint32_t source = relaxed(entry.source);
    c.source_qpn = source & 0xffffff;
    c.source_node = source >> 24;
    c.stride = c.byte_count >> 16;
    c.byte_count &= 0xffff;
  }
  if (consumed != before) bank.ring->consumed.store(consumed, std::memory_order_release);
  return count;
}

std::size_t ShmCompletionQueue::poll_receives(std::span<Completion> out) {
  const std::size_t count = poll_bank(out, view_, 0);
  if (relaxed(view_.ring->banks) == 0) [[likely]]
    return count;
  return count + poll_banks(out.subspan(count));
}

// An entry is the next one only if all earlier rings are empty after it has been seen: its producer
// may have used one of them before.
std::size_t ShmCompletionQueue::poll_banks(std::span<Completion> out) {
  std::size_t count = 0;
  for (std::uint32_t number = 1; number < kBanks && count < out.size();) {
    if (!has_receive(view_.bank(number), number)) {
      ++number;
      continue;
    }
    if (overrun()) return count;
    std::uint32_t earlier = 0;
    while (!has_receive(view_.bank(earlier), earlier)) ++earlier;
    count += poll_bank(out.subspan(count, 1), view_.bank(earlier), earlier);
  }
  return count;
}

void ShmCompletionQueue::purge(std::uint32_t qp_num, NodeId only_peer) {
  const std::uint32_t banks = view_.ring->banks.load(std::memory_order_acquire) | 1U;
  for (std::uint32_t number = 0; number < kBanks; ++number)
    if ((banks >> number & 1U) != 0) purge_bank(view_.bank(number), qp_num, only_peer);
}

// A node that is stopped within a send to another queue pair writes no completion of this one, so
// the lock is not needed then.
void ShmCompletionQueue::purge_bank(const CompletionView& bank, std::uint32_t qp_num,
                                    NodeId only_peer) {
  Node& node = device_.node();
  CompletionWriter writer;
  Opened opened = writer.open(bank, node.holder(), node.session(), kControlPatience);
  const std::uint32_t holder = relaxed(bank.ring->head.lock.holder);
  if (opened == Opened::kBusy && (only_peer == kNoNode || is_held_by(holder, only_peer)))
    opened = writer.open(bank, node.holder(), node.session(), kLockTimeout);
  if (opened == Opened::kGone) return;
  const std::uint64_t consumed = bank.ring->consumed.load(std::memory_order_acquire);
  for (std::uint64_t at = consumed; at < consumed + view_.capacity; ++at) {
    CompletionEntry& entry = bank.entry(at);
    if (entry.sequence.load(std::memory_order_acquire) != sequence_of(at)) break;
    if (relaxed(entry.qp_num) != qp_num) continue;
    auto tags = std::bit_cast<CompletionTags>(relaxed(entry.tags));
    tags.kind = CompletionKind::kPurged;
    set_relaxed(entry.tags, std::bit_cast<std::uint32_t>(tags));
  }
  if (opened == Opened::kYes) writer.close();
}

}  // namespace pyrdma::fabric::shm
