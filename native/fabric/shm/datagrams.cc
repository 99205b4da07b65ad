// The data path of datagrams: most go to a queue pair that the last ones went to, from regions that
// the last ones came from.
#include <algorithm>
#include <bit>
#include <cstring>

#include "fabric/shm/batch.h"
#include "fabric/shm/copy.h"
#include "fabric/shm/queue_pair.h"

namespace pyrdma::fabric::shm {
namespace {

constexpr std::uint32_t kStridesAhead = 3;

/// Writes the global routing header that leads a datagram in the receiver's buffer, a word at a
/// time.
inline void write_grh(std::byte* to, std::uint64_t bytes, NodeId from, NodeId node) {
  constexpr std::uint64_t kVersion = 6, kTransport = 0x1b, kHops = 64;
  const auto put = [to](std::size_t at, std::uint64_t value) {
    if constexpr (std::endian::native == std::endian::little) value = __builtin_bswap64(value);
    std::memcpy(to + at, &value, sizeof value);
  };
  put(0, kVersion << 60 | bytes << 16 | kTransport << 8 | kHops);
  put(8, 0);
  put(16, from);  // the low end of the source GID
  put(24, 0);
  put(32, node);  // the low end of the destination GID
}

/// Copies a piece of a datagram. No word needs to stay whole: the receiver's program reads the
/// bytes after the completion only.
[[gnu::always_inline]] inline void copy_piece(std::byte* to, const std::byte* from,
                                              std::size_t bytes) {
  if (bytes - 32 <= 32) {  // four quarters, which may overlap
    std::array<std::byte, 16> a, b, c, d;
    std::memcpy(&a, from, 16);
    std::memcpy(&b, from + 16, 16);
    std::memcpy(&c, from + bytes - 32, 16);
    std::memcpy(&d, from + bytes - 16, 16);
    std::memcpy(to, &a, 16);
    std::memcpy(to + 16, &b, 16);
    std::memcpy(to + bytes - 32, &c, 16);
    std::memcpy(to + bytes - 16, &d, 16);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

// Returns the path to a queue pair that is as it was at the last request, or null.
inline Path* ShmQueuePair::known_path(const WorkRequest& request, const Batch& batch) const {
  if (request.address_handle == nullptr) [[unlikely]]
    return nullptr;
  const auto& handle = static_cast<const ShmAddressHandle&>(*request.address_handle);
  Path* path = batch.path();
  if (path == nullptr || !path->aims_at(handle.node, request.remote_qpn)) {
    path = target_paths_[slot_of(handle.node, request.remote_qpn)].get();
    if (path == nullptr || !path->aims_at(handle.node, request.remote_qpn)) [[unlikely]]
      return nullptr;
  }
  const bool is_known =
      handle.pd == pd_ && path->is_current() && path->qkey() == request.remote_qkey;
  return is_known ? path : nullptr;
}

// Returns the piece of a request in known memory, or null.
inline const std::byte* ShmQueuePair::known_piece(const Sge& sge, bool is_inline) const {
  if (is_inline) return reinterpret_cast<const std::byte*>(sge.addr);
  const Translation* region = local_regions_.find(sge.lkey);
  return region == nullptr ? nullptr : region->find(sge.addr, sge.length, kMayGather);
}

// Sends the first of the requests, and those behind it that go to the same queue pair, as long as
// each has one or two known pieces and the receiver has a known place for it. Returns their number.
// execute() handles the next one. The state of the rings is in local variables, which the copies
// cannot change.
std::uint32_t ShmQueuePair::send_datagrams(std::span<const WorkRequest> requests, Batch& batch) {
  Path* const path = known_path(requests.front(), batch);
  if (path == nullptr || path->has_shared_receives() || batch.open(*path) != Opened::kYes)
      [[unlikely]]
    return 0;
  const WorkRequest& first = requests.front();
  const NodeId self = node_.self(), node = path->node();
  const std::uint32_t qpn = path->qpn();
  ReceiveTaker taker = batch.taker();
  CompletionWriter writer = batch.writer();
  std::uint64_t receive = ~std::uint64_t{0};  // the one that the next three belong to
  std::uint64_t wr_id = 0;
  std::byte* places = nullptr;
  std::uint32_t place_bytes = 0;
  bool has_overrun = false;
  std::uint32_t sent = 0;
  for (; sent < requests.size() && has_room(); ++sent) {
    const WorkRequest& request = requests[sent];
    if (request.address_handle != first.address_handle || request.remote_qpn != qpn ||
        request.remote_qkey != first.remote_qkey || request.opcode != Opcode::kSend ||
        request.sge_count - 1 > 1 || request.sge_count > options_.max_sges ||
        request.sges == nullptr) [[unlikely]] {
      break;
    }
    const bool is_inline = (request.flags & kInline) != 0;
    const bool is_signaled = (request.flags & kSignaled) != 0;
    const Sge& head = request.sges[0];
    const std::byte* const head_data = known_piece(head, is_inline);
    std::uint64_t bytes = head.length;
    const Sge* rest = nullptr;
    const std::byte* rest_data = head_data;
    if (request.sge_count == 2) {
      rest = &request.sges[1];
      rest_data = known_piece(*rest, is_inline);
      bytes += rest->length;
    }
    if (head_data == nullptr || rest_data == nullptr ||
        bytes > (is_inline ? options_.max_inline : kMaxDatagram)) [[unlikely]] {
      break;
    }
    if (!taker.has_next()) [[unlikely]]
      break;
    if (taker.oldest() != receive) {
      const ReceiveTaker::Buffer buffer = taker.buffer();
      const Translation* region = path->known_region(buffer.sge.lkey);
      places = region == nullptr ? nullptr
                                 : region->find(buffer.sge.addr, buffer.sge.length, kMayReceive);
      if (places == nullptr) [[unlikely]]
        break;
      receive = taker.oldest();
      wr_id = buffer.wr_id;
      place_bytes = buffer.sge.length >> taker.stride_bits();
    }
    if (place_bytes < bytes + kGrhBytes) [[unlikely]]
      break;
    const std::uint32_t stride = taker.stride();
    std::byte* const to = places + std::uint64_t{stride} * place_bytes;
    // The receiver's cache has the lines of a later stride, too.
    fetch_to_write(to + kStridesAhead * std::uint64_t{place_bytes});
    fetch_to_write(to + kStridesAhead * std::uint64_t{place_bytes} + kCacheLine);
    write_grh(to, bytes, self, node);
    copy_piece(to + kGrhBytes, head_data, head.length);
    if (rest != nullptr) copy_piece(to + kGrhBytes + head.length, rest_data, rest->length);
    // What is known of the regions and of the receiver must have held until here. The memory itself
    // stays mapped, and the receiver cannot leave service while its rings are locked.
    if (!is_settled(*path)) [[unlikely]]
      break;
    taker.take();
    use_room();
    if (is_signaled) batch.complete(request, posted_);
    has_overrun = !writer.push_datagram(wr_id, qpn, static_cast<std::uint32_t>(bytes + kGrhBytes),
                                        stride, self, qp_num_);
    if (has_overrun) [[unlikely]] {
      ++sent;
      break;
    }
  }
  batch.taker() = taker;
  batch.writer() = writer;
  if (has_overrun) [[unlikely]] {
    batch.close();  // the receiver's queue pair answers no more
    path->fail_responder(node_.holder(), node_.session());
  }
  return sent;
}

Outcome ShmQueuePair::execute_datagram(const WorkRequest& request, Pieces& pieces, Batch& batch) {
  if (pieces.bytes > kMaxDatagram) return Outcome::kLocalLength;
  const Target target = find_target(request, batch);
  if (target.reach != Reach::kReady) return Outcome::kDone;  // dropped
  std::array<std::byte, kGrhBytes> grh;
  write_grh(grh.data(), pieces.bytes, node_.self(), target.path.node());
  std::copy_backward(pieces.at.begin(), pieces.at.begin() + pieces.count,
                     pieces.at.begin() + pieces.count + 1);
  pieces.at[0] = {grh.data(), kGrhBytes};
  ++pieces.count;
  pieces.bytes += kGrhBytes;
  return deliver(request, pieces, target.path, batch);
}

}  // namespace pyrdma::fabric::shm
