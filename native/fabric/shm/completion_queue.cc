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
    : device_(device), view_(device.make_completion_ring(entries, &offset_)) {}

ShmCompletionQueue::~ShmCompletionQueue() { device_.retire_completion_ring(view_, offset_); }

std::size_t ShmCompletionQueue::poll(std::span<Completion> out) {
  Node& node = device_.node();
  if (!node.waiting().empty()) [[unlikely]]
    node.waiting().retry(node.env().now());
  CompletionRing& ring = *view_.ring;
  std::size_t count = 0;
  const std::uint64_t before = consumed_;
  while (count < out.size()) {
    const CompletionEntry& entry = view_.entry(consumed_);
    if (entry.sequence.load(std::memory_order_acquire) != sequence_of(consumed_)) break;
    if (consumed_ == before && relaxed(ring.overrun) != 0) [[unlikely]]
      return 0;
    const auto tags = std::bit_cast<CompletionTags>(relaxed(entry.tags));
    Completion& c = out[count];
    c.wr_id = relaxed(entry.wr_id);
    c.qp_num = relaxed(entry.qp_num);
    c.status = checked(tags.status, Status::kGeneral);
    c.opcode = checked(tags.opcode, Opcode::kReceiveWriteImm);
    c.flags = tags.flags;
    c.vendor_error = static_cast<std::uint32_t>(c.status);
    c.byte_count = c.immediate = c.source_qpn = c.stride = 0;
    c.source_node = kNoNode;
    ++consumed_;
    if (tags.kind == CompletionKind::kSend) {
      device_.release(c.qp_num, relaxed(entry.bytes_or_position));
    } else if (tags.kind == CompletionKind::kReceive) {
      c.byte_count = relaxed(entry.bytes_or_position);
      c.immediate = relaxed(entry.immediate);
      if ((c.flags & kHasGrh) != 0) {
        const std::uint32_t source = relaxed(entry.source);
        c.source_qpn = source & 0xffffff;
        c.source_node = source >> 24;
        c.stride = c.byte_count >> 16;
        c.byte_count &= 0xffff;
      }
    } else {
      continue;  // purged
    }
    ++count;
  }
  if (consumed_ != before) ring.consumed.store(consumed_, std::memory_order_release);
  return count;
}

void ShmCompletionQueue::purge(std::uint32_t qp_num) {
  Node& node = device_.node();
  CompletionWriter writer;
  if (!writer.open(view_, node.holder(), node.session())) return;
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
