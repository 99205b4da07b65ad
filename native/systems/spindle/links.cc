#include "systems/spindle/links.h"

#include <algorithm>
#include <array>

#include "base/assert.h"
#include "fabric/overrun.h"

namespace pyrdma::spindle {

using fabric::Status;

namespace {

// The wr_id of a request: the rank of the peer, and the place of the request among all to it.
constexpr int kRankShift = 56;
constexpr std::uint64_t kPosition = (std::uint64_t{1} << kRankShift) - 1;

}  // namespace

Links::Links(Env& env, fabric::ProtectionDomain& domain, const Options& options,
             std::uint32_t members, Rank self)
    : env_(env), self_(self), entries_(options.send_entries), links_(members) {
  fabric::Device& device = env.device();
  max_inline_ = std::min(64U, device.capabilities().max_inline);
  completions_ = device.create_completion_queue(entries_ * std::max(1U, members - 1));
  fabric::QpOptions qp;
  qp.send_entries = entries_;
  qp.receive_entries = 1;
  qp.max_sges = 1;
  qp.max_inline = max_inline_;
  qp.access = fabric::kLocalWrite | fabric::kRemoteWrite;
  qp.timeout_us = options.timeout_us;
  qp.retry_count = options.retry_count;
  for (Rank peer = 0; peer < members; ++peer) {
    if (peer != self)
      links_[peer].qp = device.create_queue_pair(domain, *completions_, *completions_, qp);
  }
}

void Links::connect(Rank peer, const fabric::QpAddress& to, const fabric::RemoteRegion& table) {
  Link& link = links_[peer];
  if (link.is_connected || link.is_broken) return;
  link.qp->connect(to);
  link.table = table;
  link.is_connected = true;
}

void Links::post_to(Rank peer, std::span<fabric::WorkRequest> requests, bool is_last) {
  Link& link = links_[peer];
  if (link.is_broken) return;
  PYRDMA_ASSERT(link.is_open);
  if (!has_room(link, requests.size())) [[unlikely]] {
    wait_for_room(link, requests.size());
    if (link.is_broken) return;
  }
  // One completion per quarter of the queue frees its places.
  for (fabric::WorkRequest& request : requests) {
    ++link.posted;
    request.wr_id = (std::uint64_t{peer} << kRankShift) | link.posted;
    request.flags = static_cast<std::uint8_t>(request.flags & fabric::kInline);
    if (is_last || link.posted - link.signaled >= entries_ / 4) {
      request.flags |= fabric::kSignaled;
      link.signaled = link.posted;
    }
  }
  posted_requests_ += requests.size();
  ++doorbells_;
  for (std::span<const fabric::WorkRequest> rest = requests; !rest.empty();) {
    const fabric::PostResult result = link.qp->post(rest);
    rest = rest.subspan(result.accepted);
    if (rest.empty()) break;
    if (result.error == fabric::PostError::kInvalidState) return break_link(link);
    PYRDMA_ASSERT(result.error == fabric::PostError::kQueueFull);
    env_.reached("spindle/queue_full");
    has_waited_ = true;
    env_.poll_until(
        [&] {
          poll();
          return true;
        },
        kForever);
    if (link.is_broken) return;
    env_.sleep_until(env_.now() + kMicrosecond);
  }
}

void Links::write(Rank peer, const fabric::Sge& piece, std::uint64_t offset, bool is_inline) {
  if (!is_open(peer)) return;
  fabric::WorkRequest request;
  request.opcode = fabric::Opcode::kWrite;
  request.sges = &piece;
  request.sge_count = 1;
  request.flags = is_inline ? fabric::kInline : 0;
  request.remote_addr = table(peer).addr + offset;
  request.rkey = table(peer).rkey;
  post(peer, {&request, 1});
}

void Links::wait_for_room(Link& link, std::size_t requests) {
  poll();
  if (link.is_broken || has_room(link, requests)) return;
  env_.reached("spindle/send_queue_waits");
  has_waited_ = true;
  env_.poll_until(
      [&] {
        poll();
        return link.is_broken || has_room(link, requests);
      },
      kForever, &completions_->watch());
}

bool Links::poll() {
  bool is_newly_broken = false;
  std::array<fabric::Completion, 32> batch;
  for (;;) {
    const std::size_t got = completions_->poll(batch);
    for (std::size_t i = 0; i < got; ++i) {
      const auto peer = static_cast<Rank>(batch[i].wr_id >> kRankShift);
      if (peer >= links_.size()) continue;
      Link& link = links_[peer];
      link.completed = std::max<std::uint64_t>(link.completed, batch[i].wr_id & kPosition);
      if (batch[i].status == Status::kSuccess || link.is_broken) continue;
      break_link(link);
      is_newly_broken = true;
    }
    if (got == 0)
      fabric::check_overrun(*completions_, env_.node(), "the links of a Spindle member");
    if (got < batch.size()) return is_newly_broken;
  }
}

void Links::break_link(Link& link) {
  env_.reached("spindle/link_broken");
  link.is_broken = true;
}

void Links::close(Rank peer) {
  Link& link = links_[peer];
  if (peer == self_ || link.qp == nullptr) return;
  link.is_broken = true;
  if (link.is_connected && link.qp->state() != fabric::QpState::kError)
    link.qp->modify(fabric::QpState::kError);
}

// The last request of a link may have no completion of its own: an empty write follows it.
void Links::signal_last() {
  for (Rank peer = 0; peer < links_.size(); ++peer) {
    Link& link = links_[peer];
    if (peer == self_ || !is_open(peer) || link.signaled == link.posted) continue;
    fabric::WorkRequest last;
    last.opcode = fabric::Opcode::kWrite;
    last.remote_addr = link.table.addr;
    last.rkey = link.table.rkey;
    post_to(peer, {&last, 1}, true);
  }
}

bool Links::is_drained() {
  poll();
  return std::ranges::all_of(
      links_, [](const Link& link) { return link.is_broken || link.completed >= link.signaled; });
}

bool Links::drain(Time deadline) {
  signal_last();
  return env_.poll_until([this] { return is_drained(); }, deadline, &completions_->watch());
}

}  // namespace pyrdma::spindle
