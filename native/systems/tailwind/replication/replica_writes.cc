// How a primary's log comes to its backups: RPCs with data, or RDMA writes on links.
#include <algorithm>
#include <array>
#include <memory>
#include <set>

#include "base/error.h"
#include "systems/tailwind/replication/primary_log.h"
#include "systems/tailwind/replication/requests.h"
#include "systems/tailwind/scopes.h"

namespace pyrdma::tailwind {

namespace {

constexpr int kLinkShift = 32;  // a wr_id has the number of its link above

}  // namespace

Bytes PrimaryLog::bytes_of(const Segment& segment, std::uint32_t from, std::uint32_t to) const {
  Bytes bytes;
  bytes.reserve(to - from);
  segment.for_pieces(from, to, [&](ByteView piece, std::uint32_t) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
  });
  return bytes;
}

void PrimaryLog::write(ReplicaId id, std::uint32_t /*from*/, std::uint32_t to) {
  Held& held = held_.at(id);
  held.wanted = to;
  pump(id, held);
}

void PrimaryLog::pump(ReplicaId id, Held& held) {
  if (!held.is_open || held.posted >= held.wanted || is_deposed()) return;
  if (options_.replication == Replication::kRamcloud) return write_by_rpc(id, held);
  Link& link = link_to(held.backup);
  if (link.is_ready) write_by_nic(id, held, link);
}

void PrimaryLog::pump_all(ServerId backup) {
  for (auto& [id, held] : held_)
    if (held.backup == backup) pump(id, held);
}

void PrimaryLog::write_by_rpc(ReplicaId id, Held& held) {
  if (held.is_writing) return;
  held.is_writing = true;
  const std::uint32_t to = std::min(held.wanted, held.posted + kMostWrite);
  const Bytes data = bytes_of(held_segment(id.segment), held.posted, to);
  const auto request =
      shared_bytes(BackupWriteRequest{{id.segment, held.attempt}, held.posted, data});
  const std::uint64_t attempt = held.attempt;
  held.posted = to;
  ++counters_.write_rpcs;
  counters_.bytes += data.size();
  --counters_.control_rpcs;  // which ask() counts
  ask(id, attempt, Opcode::kBackupWrite, request, [=, this](ByteView answer) {
    if (status_in(answer) != BackupStatus::kOk) return lose(id);
    Held& mine = held_.at(id);
    mine.is_writing = false;
    mine.done = to;
    order_.written(id, to);
    pump(id, mine);
  });
}

// A request takes as many pieces of memory as a gather list has.
void PrimaryLog::write_by_nic(ReplicaId id, Held& held, Link& link) {
  const Scope cost(env_, scope::post_write);
  const Segment& segment = held_segment(id.segment);
  const bool flushes = options_.durability == Durability::kFlush && bugs_.flushes();
  while (held.posted < held.wanted) {
    if (link.entries + 2 > kSendEntries) return;  // a completion goes on
    std::array<fabric::Sge, 4> pieces;
    std::uint32_t count = 0, to = held.posted;
    segment.for_pieces(held.posted, held.wanted, [&](ByteView piece, std::uint32_t) {
      if (count == max_sges_) return;
      pieces[count++] = {reinterpret_cast<std::uint64_t>(piece.data()),
                         static_cast<std::uint32_t>(piece.size()), region_->lkey()};
      to += static_cast<std::uint32_t>(piece.size());
    });
    std::array<fabric::WorkRequest, 2> requests;
    requests[0].opcode = fabric::Opcode::kWrite;
    requests[0].sges = pieces.data();
    requests[0].sge_count = count;
    requests[0].remote_addr = held.buffer.addr + held.posted;
    requests[0].rkey = held.buffer.rkey;
    requests[0].flags = flushes ? 0 : fabric::kSignaled;
    requests[1].opcode = fabric::Opcode::kRead;  // of no bytes: what is before it is in memory
    requests[1].remote_addr = held.buffer.addr;
    requests[1].rkey = held.buffer.rkey;
    requests[1].flags = fabric::kSignaled;
    const std::uint32_t entries = flushes ? 2 : 1;
    for (fabric::WorkRequest& request : requests) request.wr_id = link.number << kLinkShift;
    const fabric::PostResult result = link.qp->post({requests.data(), entries});
    if (result.accepted == 0 && result.error == fabric::PostError::kQueueFull) return;
    if (result.accepted != entries) return break_link(link);
    link.entries += entries;
    link.in_flight.push_back({id, held.attempt, to, entries});
    ++counters_.writes;
    counters_.bytes += to - held.posted;
    held.posted = to;
  }
}

bool PrimaryLog::poll_completions() {
  std::array<fabric::Completion, 32> batch;
  const std::size_t got = completions_->poll(batch);
  if (got == 0) return false;
  const Scope cost(env_, scope::take_completion);
  std::set<ServerId> freed;
  for (std::size_t i = 0; i < got; ++i) {
    const auto at = std::ranges::find_if(links_, [&](const auto& each) {
      return each.second.number == batch[i].wr_id >> kLinkShift;
    });
    if (at == links_.end() || !at->second.is_ready) continue;
    Link& link = at->second;
    if (batch[i].status != fabric::Status::kSuccess) {
      fail_link(link, batch[i].status);
      continue;
    }
    const InFlight ended = link.in_flight.front();
    link.in_flight.pop_front();
    const bool was_full = link.entries + 2 > kSendEntries;
    link.entries -= ended.entries;
    if (was_full) freed.insert(link.backup);
    if (Held* held = current(ended.replica, ended.attempt)) {
      held->done = ended.to;
      order_.written(ended.replica, ended.to);
    }
  }
  for (const ServerId backup : freed) pump_all(backup);
  step();
  if (!unsent_.empty()) free_unsent();
  return true;
}

PrimaryLog::Link& PrimaryLog::link_to(ServerId backup) {
  const auto [at, is_new] = links_.try_emplace(backup);
  if (is_new) {
    at->second.backup = backup;
    connect(at->second);
  }
  return at->second;
}

void PrimaryLog::connect(Link& link) {
  fabric::QpOptions options;
  options.send_entries = kSendEntries;
  options.receive_entries = 1;
  options.max_sges = max_sges_;
  options.access = 0;
  options.timeout_us = options_.timeout_us;
  options.retry_count = options_.retry_count;
  link.number = next_link_++;
  link.is_ready = false;
  link.in_flight.clear();
  link.entries = 0;
  try {
    link.qp =
        env_.device().create_queue_pair(transport_.domain(), *completions_, *completions_, options);
  } catch (const Error&) {
    return break_link(link);  // the device has none left
  }
  const std::uint64_t number = link.number;
  const ServerId backup = link.backup;
  transport_.connect_log(backup, link.qp->address(), deadline(),
                         [=, this](std::optional<fabric::QpAddress> peer) {
                           const std::lock_guard<Mutex> lock(mutex_);
                           const auto at = links_.find(backup);
                           if (at == links_.end() || at->second.number != number || is_deposed())
                             return;
                           if (!peer) return break_link(at->second);
                           try {
                             at->second.qp->connect(*peer);
                           } catch (const Error&) {  // over verbs: no way to the host
                             return break_link(at->second);
                           }
                           at->second.is_ready = true;
                           pump_all(backup);
                         });
}

// Requests of a connection end in their order. So the first that fails is of the oldest write, and
// that one's buffer is not there if the backup's NIC says so.
void PrimaryLog::fail_link(Link& link, fabric::Status status) {
  std::optional<InFlight> refused;
  if (status == fabric::Status::kRemoteAccess && !link.in_flight.empty())
    refused = link.in_flight.front();
  break_link(link);
  if (refused && current(refused->replica, refused->attempt) != nullptr) lose(refused->replica);
}

// Writes of the same bytes to the same places do no harm, so all that has not completed is written
// again. The view says whether the backup is lost.
void PrimaryLog::break_link(Link& link) {
  env_.reached("tailwind/link_broken");
  link.is_ready = false;
  link.qp.reset();
  link.number = next_link_++;
  const std::uint64_t number = link.number;
  const ServerId backup = link.backup;
  for (auto& [id, held] : held_)
    if (held.backup == backup && bugs_.posts_in_order()) held.posted = held.done;
  transport_.defer(env_.now() + options_.retry_pause, [=, this] {
    if (on_broken) on_broken(backup);
    const std::lock_guard<Mutex> lock(mutex_);
    const auto at = links_.find(backup);
    if (at != links_.end() && at->second.number == number && !is_deposed()) connect(at->second);
  });
}

}  // namespace pyrdma::tailwind
