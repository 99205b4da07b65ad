// The data path of messages that take a receive.
#include <algorithm>

#include "fabric/post_rules.h"
#include "fabric/shm/batch.h"
#include "fabric/shm/copy.h"
#include "fabric/shm/queue_pair.h"

namespace pyrdma::fabric::shm {
namespace {

constexpr std::uint64_t kReceivesAhead = 6;
/// A datagram is never longer.
constexpr std::uint64_t kMostUnderLock = 8192;
static_assert(kMaxDatagram + kGrhBytes <= kMostUnderLock);

}  // namespace

Outcome ShmQueuePair::not_open(Opened opened, const Batch& batch, Path& path) {
  if (opened == Opened::kGone)
    return is_reliable(options_.transport) ? Outcome::kSilent : Outcome::kDone;
  // Other peers of the receiver wait for one that is stopped no longer than this.
  const Time now = node_.env().now();
  if (wait_reason_ == Outcome::kBusy && batch.is_held_by_completions() &&
      now >= busy_since_ + kControlPatience && path.leave_bank()) {
    busy_since_ = now;
  }
  return Outcome::kBusy;
}

// Delivers a send into the oldest posted receive, or a write that takes a receive for its
// immediate. While it copies a long message, it holds nothing that other requesters need: neither
// the receiver's completions nor receives that several queue pairs share. Its process may be
// stopped within the copy.
template <bool kClaims>
inline Outcome ShmQueuePair::deliver_as(const WorkRequest& request, const Pieces& pieces,
                                        Path& path, Batch& batch) {
  const bool is_send = is_one_of(request.opcode, kSends);
  const bool reliable = is_reliable(options_.transport);
  const bool is_long = pieces.bytes > kMostUnderLock;
  // Datagrams hold the lock of shared receives, too: see await_deliveries.
  const bool holds = !kClaims || options_.transport == Transport::kUd;
  bool is_taken = kClaims && has_taken_;
  if (holds && !is_taken) [[likely]] {
    if (const Opened opened = batch.open(path); opened != Opened::kYes) [[unlikely]]
      return not_open(opened, batch, path);
  }
  std::byte* write_to = nullptr;
  if (!is_send && pieces.bytes != 0) {  // after the opening, which may have dropped mappings
    write_to = path.find(request.rkey, request.remote_addr, pieces.bytes, kRemoteWrite);
    if (write_to == nullptr) [[unlikely]]
      return remote_fault(Outcome::kRemoteAccess, path, batch);
  }
  if (!is_taken) [[likely]] {
    if (kClaims ? !ReceiveTaker::claim(path.receives(), receive_) : !batch.taker().peek(receive_))
        [[unlikely]] {
      rnr_timer_ = path.rnr_timer();
      return reliable ? Outcome::kNoReceive : Outcome::kDone;
    }
    if (kClaims)
      is_taken = has_taken_ = true;
    else
      prefetch_receive(path, batch);
    if (is_long) [[unlikely]]
      batch.close_completions();
  }
  Completion completion;
  completion.wr_id = receive_.wr_id;
  completion.qp_num = path.qpn();
  if (!is_send) {
    for (std::uint32_t i = 0; i < pieces.count; write_to += pieces.at[i++].length) {
      copy_out(write_to, pieces.at[i].data, pieces.at[i].length);
    }
  } else {
    completion.status = scatter(pieces, path);
  }
  const bool is_whole = is_settled(path);  // the opening may look at the epoch again
  if (kClaims || is_long) {
    const Opened opened = holds ? batch.open(path) : batch.open_completions(path);
    // A taken receive is lost with its queue pair. Otherwise it waits, with the request.
    if (opened != Opened::kBusy) has_taken_ = false;
    if (opened != Opened::kYes) [[unlikely]]
      return not_open(opened, batch, path);
  }
  if (!is_whole) [[unlikely]] {
    if (!has_local_regions(request)) return Outcome::kLocalProtection;
    if (write_to != nullptr && !path.has_region(request.rkey))
      return remote_fault(Outcome::kRemoteAccess, path, batch);
    if (is_send && completion.status == Status::kSuccess &&
        !has_receive_regions(path, pieces.bytes))
      completion.status = Status::kLocalProtection;
  }
  if (const Status status = completion.status; status != Status::kSuccess) [[unlikely]] {
    if (!is_taken) batch.taker().take_whole();
    const bool has_overrun = !batch.writer().push(completion);
    // A DC target serves other initiators, too, so it stays in service.
    if (options_.transport != Transport::kDc || has_overrun) fail_responder(path, batch);
    if (!reliable) return Outcome::kDone;
    if (status == Status::kLocalLength) return Outcome::kRemoteInvalidRequest;
    return path.may_answer() ? Outcome::kRemoteOperation : Outcome::kUnreachable;
  }
  completion.opcode = is_send ? Opcode::kReceive : Opcode::kReceiveWriteImm;
  completion.byte_count = static_cast<std::uint32_t>(pieces.bytes);
  if (request.opcode == Opcode::kSendImm || request.opcode == Opcode::kWriteImm) {
    completion.flags = kHasImmediate;
    completion.immediate = request.immediate;
  }
  if (options_.transport == Transport::kUd) {
    completion.flags = static_cast<std::uint8_t>(completion.flags | kHasGrh);
    completion.source_qpn = qp_num_;
    completion.source_node = node_.self();
    completion.stride = receive_.stride;
  }
  if (!is_taken) [[likely]]
    batch.taker().take();
  if (batch.writer().push(completion)) [[likely]]
    return Outcome::kDone;
  // A receiver whose queue has overrun answers no more, nor does it answer this message.
  fail_responder(path, batch);
  return reliable ? Outcome::kRemoteOperation : Outcome::kDone;
}

Outcome ShmQueuePair::deliver(const WorkRequest& request, const Pieces& pieces, Path& path,
                              Batch& batch) {
  return path.has_shared_receives() ? deliver_as<true>(request, pieces, path, batch)
                                    : deliver_as<false>(request, pieces, path, batch);
}

// Fetches the lines of a later receive's buffer in time, because they lie in the receiver's cache.
inline void ShmQueuePair::prefetch_receive(const Path& path, Batch& batch) {
  const Sge later = batch.taker().ahead(kReceivesAhead);
  const Translation* region = path.known_region(later.lkey);
  const std::byte* to = region == nullptr ? nullptr : region->find(later.addr, 1, kMayReceive);
  if (to != nullptr) fetch_to_write(to);
}

// Copies the pieces into the taken receive's buffers, and checks the peer's keys and lengths.
Status ShmQueuePair::scatter(const Pieces& pieces, Path& path) {
  std::uint64_t room = 0;
  for (std::uint32_t i = 0; i < receive_.sge_count; ++i) room += receive_.sges[i].length;
  if (room < pieces.bytes) return Status::kLocalLength;
  std::uint32_t target = 0;
  std::uint32_t filled = 0;  // bytes of the target
  for (std::uint32_t i = 0; i < pieces.count; ++i) {
    Piece piece = pieces.at[i];
    while (piece.length != 0) {
      const Sge& sge = receive_.sges[target];
      if (filled == sge.length) {
        ++target;
        filled = 0;
        continue;
      }
      const Translation* region = path.region(sge.lkey);
      std::byte* to = region == nullptr ? nullptr : region->find(sge.addr, sge.length, kMayReceive);
      if (to == nullptr) return Status::kLocalProtection;
      const std::uint32_t bytes = std::min(piece.length, sge.length - filled);
      copy_out(to + filled, piece.data, bytes);
      filled += bytes;
      piece.data += bytes;
      piece.length -= bytes;
    }
  }
  return Status::kSuccess;
}

// Returns whether the regions of the taken receive's first `bytes` are still there.
bool ShmQueuePair::has_receive_regions(const Path& path, std::uint64_t bytes) const {
  for (std::uint32_t i = 0; bytes != 0; ++i) {
    const Sge& sge = receive_.sges[i];
    if (sge.length != 0 && !path.has_region(sge.lkey)) return false;
    bytes -= std::min<std::uint64_t>(bytes, sge.length);
  }
  return true;
}

}  // namespace pyrdma::fabric::shm
