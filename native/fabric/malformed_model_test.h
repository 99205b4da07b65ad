// A model of two nodes' memory and one connection. It gives the answer of a NIC to any work
// request. It follows the verbs specification (ibv_post_send, ibv_poll_cq; InfiniBand 1.4, chapters
// 9 and 10) and shares no code with the providers. It predicts the result of a post, the status of
// the completion, the fate of the receive, the states, and every byte of memory.
#pragma once
#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "fabric/fabric.h"

namespace pyrdma::fabric::malformed {

constexpr std::uint64_t kMaxMessage = std::uint64_t{1} << 31;

/// A region, or a deregistered one.
struct ModelRegion {
  std::uint64_t addr = 0, size = 0;
  std::uint32_t key = 0, access = 0;
  bool usable = false;              // registered, in the domain of the queue pairs
  const std::byte* real = nullptr;  // real memory to compare; may be null
  std::vector<std::byte> bytes;     // expected content

  bool holds(std::uint64_t at, std::uint64_t length) const {
    return at >= addr && at - addr <= size && length <= size - (at - addr);
  }
};

class ModelMemory {
 public:
  std::vector<ModelRegion> regions;

  /// Returns the region that lets a NIC use [at, at + length) with all of `rights`.
  ModelRegion* find(std::uint32_t key, std::uint64_t at, std::uint64_t length,
                    std::uint32_t rights) {
    for (ModelRegion& region : regions)
      if (region.key == key)
        return region.usable && region.holds(at, length) && (region.access & rights) == rights
                   ? &region
                   : nullptr;
    return nullptr;
  }
  std::byte* bytes(std::uint32_t key, std::uint64_t at) {
    for (ModelRegion& region : regions)
      if (region.key == key) return region.bytes.data() + (at - region.addr);
    return nullptr;
  }
  /// Copies real bytes that the model cannot predict.
  void adopt(std::uint32_t key, std::uint64_t at, std::uint64_t length) {
    for (ModelRegion& region : regions)
      if (region.key == key && region.real != nullptr && region.holds(at, length))
        std::memcpy(region.bytes.data() + (at - region.addr), region.real + (at - region.addr),
                    length);
  }
  bool matches() const {
    return std::all_of(regions.begin(), regions.end(), [](const ModelRegion& region) {
      return region.real == nullptr ||
             std::memcmp(region.real, region.bytes.data(), region.bytes.size()) == 0;
    });
  }
};

struct ModelReceive {
  std::uint64_t wr_id = 0;
  std::vector<Sge> sges;
};

/// One connection: the requester's queue pair and the responder's.
struct ModelLink {
  Transport transport = Transport::kRc;
  std::uint32_t max_sges = 0, max_inline = 0, max_datagram = 0;
  std::uint32_t responder_access = 0, responder_qpn = 0, responder_qkey = 0;
  QpState requester = QpState::kReadyToSend, responder = QpState::kReadyToSend;
  std::optional<ModelReceive> receive;
  bool shares_receives = false;  // shared receives are not flushed with the responder

  bool is_reliable() const { return transport == Transport::kRc || transport == Transport::kDc; }
  /// Requests name their target.
  bool is_addressed() const { return transport == Transport::kUd || transport == Transport::kDc; }
};

struct Verdict {
  PostError post = PostError::kNone;
  Status status = Status::kSuccess;
  QpState requester = QpState::kReadyToSend, responder = QpState::kReadyToSend;
  bool receives = false;  // the receive completes with the values below
  Status receive_status = Status::kSuccess;
  std::uint32_t receive_bytes = 0;
};

inline bool is_send(Opcode o) { return o == Opcode::kSend || o == Opcode::kSendImm; }
inline bool is_write(Opcode o) { return o == Opcode::kWrite || o == Opcode::kWriteImm; }
inline bool is_atomic(Opcode o) { return o == Opcode::kCompareSwap || o == Opcode::kFetchAdd; }
inline bool returns_data(Opcode o) { return o == Opcode::kRead || is_atomic(o); }

/// Judges a request and changes the model's memory as the NICs change the real one.
class Judge {
 public:
  Judge(ModelLink& link, ModelMemory& requester, ModelMemory& responder)
      : link_(link), here_(requester), there_(responder) {}

  Verdict judge(const WorkRequest& request) {
    Verdict verdict;
    verdict.requester = link_.requester;
    verdict.responder = link_.responder;
    verdict.post = post_error(request);
    if (verdict.post != PostError::kNone) return verdict;
    if (link_.requester != QpState::kReadyToSend) {
      verdict.status = Status::kFlushed;
      return verdict;
    }
    verdict.status = local_error(request);
    if (verdict.status == Status::kSuccess) remote(request, verdict);
    if (verdict.status != Status::kSuccess)
      verdict.requester = link_.is_reliable() ? QpState::kError : QpState::kSendQueueError;
    return verdict;
  }

 private:
  static std::uint64_t total(const WorkRequest& request) {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < request.sge_count; ++i) sum += request.sges[i].length;
    return sum;
  }

  PostError post_error(const WorkRequest& request) const {
    if (link_.requester == QpState::kReset || link_.requester == QpState::kInit ||
        link_.requester == QpState::kReadyToReceive)
      return PostError::kInvalidState;
    const Opcode opcode = request.opcode;
    bool good = is_send(opcode);
    if (link_.transport != Transport::kUd) good = good || is_write(opcode);
    if (link_.is_reliable()) good = good || returns_data(opcode);
    if (request.sge_count > link_.max_sges) good = false;
    if (request.sge_count > 0 && request.sges == nullptr) good = false;
    if (link_.is_addressed() && request.address_handle == nullptr) good = false;
    if (!good) return PostError::kInvalid;
    const bool bad_inline = (request.flags & kInline) != 0 &&
                            (returns_data(opcode) || total(request) > link_.max_inline);
    return bad_inline ? PostError::kInvalid : PostError::kNone;
  }

  Status local_error(const WorkRequest& request) {
    const std::uint32_t rights = returns_data(request.opcode) ? std::uint32_t{kLocalWrite} : 0;
    for (std::uint32_t i = 0; i < request.sge_count && (request.flags & kInline) == 0; ++i) {
      const Sge& sge = request.sges[i];
      if (sge.length != 0 && here_.find(sge.lkey, sge.addr, sge.length, rights) == nullptr)
        return Status::kLocalProtection;
    }
    const std::uint64_t bytes = total(request);
    const bool too_long = bytes > kMaxMessage ||
                          (link_.transport == Transport::kUd && bytes > link_.max_datagram) ||
                          (is_atomic(request.opcode) && bytes != 8);
    return too_long ? Status::kLocalLength : Status::kSuccess;
  }

  void remote(const WorkRequest& request, Verdict& verdict) {
    const bool reliable = link_.is_reliable();
    const bool deaf = link_.responder != QpState::kReadyToSend &&
                      link_.responder != QpState::kReadyToReceive &&
                      link_.responder != QpState::kSendQueueError;
    const bool elsewhere = link_.is_addressed() && (request.remote_qpn != link_.responder_qpn ||
                                                    request.remote_qkey != link_.responder_qkey);
    if (deaf || elsewhere) {
      if (reliable) verdict.status = Status::kRetryExceeded;
      return;
    }
    const std::uint64_t bytes = total(request);
    ModelRegion* region = nullptr;
    if (!is_send(request.opcode) && bytes != 0) {
      const std::uint32_t right = is_write(request.opcode)          ? kRemoteWrite
                                  : request.opcode == Opcode::kRead ? kRemoteRead
                                                                    : kRemoteAtomic;
      if (is_atomic(request.opcode) && request.remote_addr % 8 != 0)
        return refuse(Status::kRemoteInvalidRequest, verdict);
      if ((link_.responder_access & right) != 0)
        region = there_.find(request.rkey, request.remote_addr, bytes, right);
      if (region == nullptr) return refuse(Status::kRemoteAccess, verdict);
    }
    if (is_send(request.opcode) || request.opcode == Opcode::kWriteImm) {
      if (!link_.receive) {
        if (reliable) verdict.status = Status::kRnrRetryExceeded;
        // A NIC may have placed the payload before it misses the receive.
        if (region != nullptr) unsure_ = {request.rkey, request.remote_addr, bytes};
        return;
      }
      if (is_send(request.opcode)) return deliver(request, bytes, verdict);
      verdict.receives = true;
      verdict.receive_bytes = static_cast<std::uint32_t>(bytes);
    }
    if (region != nullptr) move(request, *region);
  }

  // A class C error stops both queue pairs of a reliable connection. It stops only the requester of
  // a dynamic connection, because other requesters use the target too. Unreliable queue pairs drop
  // the request.
  void refuse(Status status, Verdict& verdict) const {
    if (link_.is_reliable()) verdict.status = status;
    if (link_.transport == Transport::kRc) verdict.responder = QpState::kError;
  }
  /// Stops the responder after a failed receive.
  void stop_responder(Verdict& verdict) const {
    if (link_.transport != Transport::kDc) verdict.responder = QpState::kError;
  }

  void move(const WorkRequest& request, ModelRegion& region) {
    std::byte* remote = region.bytes.data() + (request.remote_addr - region.addr);
    std::uint64_t old = 0;
    if (is_atomic(request.opcode)) {
      std::uint64_t now = 0;
      std::memcpy(&old, remote, 8);
      now = request.opcode == Opcode::kFetchAdd ? old + request.compare_add
            : old == request.compare_add        ? request.swap
                                                : old;
      std::memcpy(remote, &now, 8);
      remote = reinterpret_cast<std::byte*>(&old);
    }
    for (std::uint32_t i = 0; i < request.sge_count; remote += request.sges[i++].length) {
      const Sge& sge = request.sges[i];
      if (sge.length == 0) continue;
      if (is_write(request.opcode))
        std::memcpy(remote, local(request, sge), sge.length);
      else
        std::memcpy(here_.bytes(sge.lkey, sge.addr), remote, sge.length);
    }
  }

  const std::byte* local(const WorkRequest& request, const Sge& sge) {
    return (request.flags & kInline) != 0 ? reinterpret_cast<const std::byte*>(sge.addr)
                                          : here_.bytes(sge.lkey, sge.addr);
  }

  void deliver(const WorkRequest& request, std::uint64_t bytes, Verdict& verdict) {
    const std::uint64_t header = link_.transport == Transport::kUd ? kGrhBytes : 0;
    verdict.receives = true;
    std::uint64_t room = 0;
    for (const Sge& sge : link_.receive->sges) room += sge.length;
    if (room < bytes + header) {
      verdict.receive_status = Status::kLocalLength;
      refuse(Status::kRemoteInvalidRequest, verdict);
      stop_responder(verdict);
      return;
    }
    std::vector<std::byte> payload(header);
    for (std::uint32_t i = 0; i < request.sge_count; ++i) {
      const Sge& sge = request.sges[i];
      if (sge.length == 0) continue;
      const std::byte* from = local(request, sge);
      payload.insert(payload.end(), from, from + sge.length);
    }
    std::uint64_t done = 0;
    std::vector<Sge> tried;
    for (const Sge& sge : link_.receive->sges) {
      if (done == payload.size()) break;
      if (sge.length == 0) continue;
      if (there_.find(sge.lkey, sge.addr, sge.length, kLocalWrite) == nullptr) {
        verdict.receive_status = Status::kLocalProtection;
        refuse(Status::kRemoteOperation, verdict);
        stop_responder(verdict);
        unsure_receive_ = tried;  // buffers before the bad one
        return;
      }
      const std::uint64_t part = std::min<std::uint64_t>(sge.length, payload.size() - done);
      std::memcpy(there_.bytes(sge.lkey, sge.addr), payload.data() + done, part);
      if (done < header)
        unsure_header_.push_back(
            {sge.addr, static_cast<std::uint32_t>(std::min(part, header - done)), sge.lkey});
      tried.push_back(sge);
      done += part;
    }
    verdict.receive_bytes = static_cast<std::uint32_t>(payload.size());
  }

  struct Range {
    std::uint32_t key = 0;
    std::uint64_t addr = 0, length = 0;
  };
  ModelLink& link_;
  ModelMemory& here_;
  ModelMemory& there_;
  Range unsure_;
  std::vector<Sge> unsure_receive_, unsure_header_;

 public:
  /// Copies the bytes that the specification leaves open. The request must be done.
  void adopt() {
    if (unsure_.length != 0) there_.adopt(unsure_.key, unsure_.addr, unsure_.length);
    for (const std::vector<Sge>* list : {&unsure_receive_, &unsure_header_})
      for (const Sge& sge : *list) there_.adopt(sge.lkey, sge.addr, sge.length);
  }
};

}  // namespace pyrdma::fabric::malformed
