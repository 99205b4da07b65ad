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

void ShmCompletionQueue::retry_waiting() {
  device_.node().waiting().retry(device_.node().env().now());
}

std::size_t ShmCompletionQueue::poll(std::span<Completion> out) {
  if (!device_.node().waiting().empty()) [[unlikely]]
    retry_waiting();
  const bool has_sends = !sends_.empty();
  if (!has_receives()) return has_sends ? poll_sends(out) : 0;
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

bool ShmCompletionQueue::has_receives() const {
  return view_.entry(consumed_).sequence.load(std::memory_order_acquire) == sequence_of(consumed_);
}

std::size_t ShmCompletionQueue::poll_receives(std::span<Completion> out) {
  CompletionRing& ring = *view_.ring;
  std::size_t count = 0;
  const std::uint64_t before = consumed_;
  while (count < out.size() && has_receives()) {
    if (consumed_ == before && relaxed(ring.overrun) != 0) [[unlikely]]
      return 0;
    const CompletionEntry& entry = view_.entry(consumed_++);
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
  if (consumed_ != before) ring.consumed.store(consumed_, std::memory_order_release);
  return count;
}

void ShmCompletionQueue::purge(std::uint32_t qp_num) {
  sends_.purge(qp_num);
  Node& node = device_.node();
  CompletionWriter writer;
  if (writer.open(view_, node.holder(), node.session(), kLockTimeout) != Opened::kYes) return;
  CompletionRing& ring = *view_.ring;
  const std::uint64_t consumed = ring.consumed.load(std::memory_order_acquire);
  const std::uint64_t produced = std::min(relaxed(ring.produced), consumed + view_.capacity);
  for (std::uint64_t at = consumed; at < produced; ++at) {
    CompletionEntry& entry = view_.entry(at);
    if (relaxed(entry.qp_num) != qp_num) continue;
    auto tags = std::bit_cast<CompletionTags>(relaxed(entry.tags));
    tags.kind = CompletionKind::kPurged;
    set_relaxed(entry.tags, std::bit_cast<std::uint32_t>(tags));
  }
  writer.close();
}

}  // namespace pyrdma::fabric::shm
