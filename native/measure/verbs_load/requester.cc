#include <algorithm>
#include <string>

#include "base/error.h"
#include "measure/verbs_load/rate_loop.h"

namespace pyrdma::measure::verbs_load {

Requester::Requester(Env& env, const Load& load, Sender& sender, Rng rng)
    : env_(env),
      load_(load),
      sender_(sender),
      rng_(rng),
      sges_(load.batch),
      batch_(load.batch),
      moving_(load.op != fabric::Opcode::kSend && (load.random_addresses || load.regions > 1)),
      slots_((load.region_bytes - std::min<std::uint64_t>(load.region_bytes, load.size)) / 8 + 1),
      period_(std::max(1U, load.signal_every / load.batch)) {
  const std::uint64_t places = std::max<std::uint64_t>(1, sender.local->size() / load.stride());
  for (std::uint32_t i = 0; i < load.batch; ++i) {
    sges_[i] = sender.local->sge(i % places * load.stride(), load.size);
    fabric::WorkRequest& request = batch_[i];
    request.sges = &sges_[i];
    request.sge_count = 1;
    request.opcode = load.op;
    request.flags = load.inlined ? fabric::kInline : 0;
    request.compare_add = 1;
    // Within a batch every signal_every-th request is signaled, and the last one.
    const bool last = i + 1 == load.batch;
    if (load.signal_every <= load.batch && ((i + 1) % load.signal_every == 0 || last))
      request.flags |= fabric::kSignaled;
  }
}

const Route& Requester::next_route() {
  const std::size_t count = sender_.routes.size();
  if (count == 1) return sender_.routes.front();
  if (load_.pattern == Pattern::kRandom) return sender_.routes[rng_.below(count)];
  if (++turn_ >= count) turn_ = 0;
  return sender_.routes[turn_];
}

fabric::WorkRequest& Requester::aim(const Route& route) {
  if (&route == aimed_ && !moving_) return batch_.front();
  aimed_ = &route;
  const bool one_sided = load_.op != fabric::Opcode::kSend;
  const std::uint64_t place = Connections::place_of(load_, route.client);
  for (fabric::WorkRequest& request : batch_) {
    request.address_handle = route.handle;
    request.remote_qpn = route.remote_qpn;
    request.remote_qkey = route.remote_qkey;
    if (!one_sided) continue;
    const fabric::RemoteRegion& region =
        (*route.regions)[load_.regions > 1 ? rng_.below(load_.regions) : 0];
    request.remote_addr = region.addr + (load_.random_addresses ? rng_.below(slots_) * 8 : place);
    request.rkey = region.rkey;
  }
  return batch_.front();
}

void Requester::mark(Time stamp) {
  const std::uint64_t low = static_cast<std::uint64_t>(stamp) & kStampMask;
  if (load_.signal_every > load_.batch) {
    fabric::WorkRequest& last = batch_.back();
    last.flags = static_cast<std::uint8_t>(last.flags & ~fabric::kSignaled);
    if (++unsignaled_ < period_) return;
    unsignaled_ = 0;
    last.flags |= fabric::kSignaled;
    last.wr_id = std::uint64_t{period_} * load_.batch << kStampBits | low;
    return;
  }
  std::uint32_t covered = 0;
  for (std::uint32_t i = load_.signal_every - 1; i < load_.batch; i += load_.signal_every) {
    batch_[i].wr_id = std::uint64_t{load_.signal_every} << kStampBits | low;
    covered = i + 1;
  }
  if (covered != load_.batch)
    batch_.back().wr_id = std::uint64_t{load_.batch - covered} << kStampBits | low;
}

void Requester::post_batch(Time stamp, Time deadline) {
  const Route& route = next_route();
  aim(route);
  mark(stamp);
  post(route, batch_, deadline);
  outstanding_ += load_.batch;
}

void Requester::post(const Route& route, std::span<const fabric::WorkRequest> requests,
                     Time deadline) {
  fabric::PostResult result = ring(route, requests);
  std::size_t posted = result.accepted;
  if (posted == requests.size()) [[likely]]
    return;
  // The send queue is as deep as the window, but a device may free its entries later than it
  // completes them.
  const bool all = env_.poll_until(
      [&] {
        if (result.error != fabric::PostError::kQueueFull) return true;
        result = ring(route, requests.subspan(posted));
        posted += result.accepted;
        return posted == requests.size();
      },
      deadline);
  if (!all) stuck();
  if (posted == requests.size()) return;
  throw Error(ErrorCode::kInternal,
              std::string("verbs_load: the device refused a ") + fabric::to_string(load_.op) +
                  " of " + std::to_string(load_.size) + " B to node " + std::to_string(route.peer) +
                  ": " + fabric::to_string(result.error));
}

fabric::PostResult Requester::ring(const Route& route,
                                   std::span<const fabric::WorkRequest> requests) {
  if (route.doorbell == nullptr) return route.qp->post(requests);
  fabric::PostResult result;
  route.doorbell->ring(env_, [&] { result = route.qp->post(requests); });
  return result;
}

void Requester::finish(Time deadline) {
  if (unsignaled_ != 0) {
    fabric::WorkRequest last = batch_.back();
    last.flags |= fabric::kSignaled;
    last.wr_id = (std::uint64_t{unsignaled_} * load_.batch + 1) << kStampBits;
    post(*aimed_, {&last, 1}, deadline);
    ++outstanding_;
  }
  while (outstanding_ != 0) {
    if (!take(deadline, [](Time) {})) stuck();
  }
}

void Requester::fail(const fabric::Completion& completion) const {
  std::string peer = "its peer";
  for (const Route& route : sender_.routes) {
    if (route.qp->qp_num() == completion.qp_num) peer = "node " + std::to_string(route.peer);
  }
  throw Error(ErrorCode::kUnavailable,
              std::string("verbs_load: a ") + fabric::to_string(load_.op) + " to " + peer +
                  " failed: " + fabric::to_string(completion.status) + " (queue pair " +
                  std::to_string(completion.qp_num) + ", vendor error " +
                  std::to_string(completion.vendor_error) + ')',
              false);
}

void Requester::stuck() const {
  throw Error(
      ErrorCode::kTimeout,
      "verbs_load: " + std::to_string(outstanding_) +
          " requests have not completed by the deadline; a peer has ended, or the network lost a "
          "datagram",
      false);
}

}  // namespace pyrdma::measure::verbs_load
