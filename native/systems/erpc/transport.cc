#include "systems/erpc/transport.h"

#include <algorithm>
#include <cstring>

#include "base/checksum.h"

namespace pyrdma::erpc {

namespace {

constexpr std::uint32_t kQkey = 0x0205;
constexpr std::uint32_t kWrongQkey = 0x0206;      // a datagram with it is dropped where it arrives
constexpr std::uint64_t kSignal = 1, kDrain = 2;  // wr_id of signaled requests
constexpr Time kPatience = kMillisecond;
constexpr std::uint32_t kLeastReceives = 2;

std::uint32_t up_to_line(std::uint32_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

}  // namespace

Transport::Transport(Env& env, fabric::ProtectionDomain& pd, runtime::MemoryPool& memory,
                     const Options& options)
    : env_(env),
      pd_(pd),
      options_(options),
      head_bytes_(kHeaderBytes + (options.checksums ? kChecksumBytes : 0)) {
  fabric::Device& device = env.device();
  if (options_.multi_packet_receives) {
    // Packets go round through all places, so a short queue has shorter receives: whole long ones
    // would have more places than it needs.
    strides_ = std::min({options_.receive_strides, device.capabilities().max_receive_strides,
                         std::max(options_.receive_entries / kLeastReceives, 1U)});
    while ((strides_ & (strides_ - 1)) != 0) strides_ &= strides_ - 1;
  }
  // Receives are posted again after a batch, whose answers may have returned credits before, and
  // only when the last stride is used. So many more keep |RQ| places free.
  const std::uint32_t places = options_.receive_entries + options_.receive_batch + strides_ - 1;
  groups_ = (places + strides_ - 1) / strides_;
  const std::uint64_t most =
      std::min<std::uint64_t>(device.capabilities().max_completions,
                              std::uint64_t{device.capabilities().max_queue_entries} * strides_);
  if (std::uint64_t{groups_} * strides_ > most) {
    const std::uint64_t more = options_.receive_batch + 2 * (strides_ - 1);  // rounded up
    throw Error(ErrorCode::kInvalidArgument,
                "eRPC option receive_entries = " + std::to_string(options_.receive_entries) +
                    ": the device's queues have " + std::to_string(most) +
                    " entries, and a batch takes " + std::to_string(more) + " more; lower it to " +
                    std::to_string(most - std::min(most, more)) +
                    " or less, or lower receive_strides");
  }
  send_queue_ = device.create_completion_queue(2 * kSendEntries);
  receive_queue_ = device.create_completion_queue(groups_ * strides_);
  fabric::QpOptions qp;
  qp.transport = fabric::Transport::kUd;
  qp.send_entries = kSendEntries;
  qp.receive_entries = groups_;
  qp.receive_strides = strides_;
  qp.max_sges = 2;
  qp.max_inline = options_.inline_bytes;
  qp.qkey = kQkey;
  qp.access = fabric::kLocalWrite;
  qp_ = device.create_queue_pair(pd, *send_queue_, *receive_queue_, qp);
  qp_->connect({});
  own_handle_ = handle_for(qp_->address());

  first_ = up_to_line(fabric::kGrhBytes + head_bytes_ - kHeaderBytes) - fabric::kGrhBytes -
           (head_bytes_ - kHeaderBytes);
  place_bytes_ = up_to_line(fabric::kGrhBytes + options_.packet_bytes);
  receives_ = memory.allocate(first_ + std::uint64_t{groups_} * strides_ * place_bytes_);
  const std::uint32_t buffer_bytes =
      strides_ > 1 ? strides_ * place_bytes_ : fabric::kGrhBytes + options_.packet_bytes;
  for (std::uint64_t i = 0; i < groups_; ++i)
    buffers_.push_back(receives_.sge(first_ + i * strides_ * place_bytes_, buffer_bytes));
  control_ = memory.allocate(std::uint64_t{kControlPlaces} * kControlPlace);
  for (fabric::WorkRequest& request : requests_) request.opcode = fabric::Opcode::kSend;
  for (std::uint32_t i = 0; i < kMost; ++i) requests_[i].sges = &pieces_[std::size_t{2} * i];
  post_all_receives();
}

void Transport::post_all_receives() {
  for (std::uint32_t first = 0; first < groups_; first += kMost) {
    const std::uint32_t count = std::min(kMost, groups_ - first);
    for (std::uint32_t i = 0; i < count; ++i) again_[i] = {first + i, &buffers_[first + i], 1};
    post_again(count);
  }
}

// In a node that has been killed a wait ends before its time: the queue pair is gone.
void Transport::wait_for(FunctionRef<bool()> ready) {
  while (!ready()) {
    const Time deadline = env_.now() + kPatience;
    if (env_.poll_until(ready, deadline) || env_.now() >= deadline) continue;
    is_broken_ = true;
    return;
  }
}

void Transport::post_again(std::uint32_t count) {
  const std::span<const fabric::ReceiveRequest> all(again_.data(), count);
  std::uint32_t done = 0;
  const auto post = [&] {
    const fabric::PostResult result = qp_->post_receive(all.subspan(done));
    done += result.accepted;
    if (done < count && result.error != fabric::PostError::kQueueFull) is_broken_ = true;
    return done == count || is_broken_;
  };
  // The endpoint has no more receives than the queue takes. A queue that stays full says that a
  // peer has completed a receive that no datagram took: healing posts all of them anew.
  if (!post() && !env_.poll_until(post, env_.now() + kPatience)) is_broken_ = true;
}

void Transport::send_control(const Destination& to, const PacketHeader& header, const void* data,
                             std::uint32_t bytes) {
  std::byte* place = control_.data + std::size_t{next_control_} * kControlPlace + kChecksumBytes;
  next_control_ = next_control_ + 1 == kControlPlaces ? 0 : next_control_ + 1;
  header.store(place);
  if (bytes != 0) std::memcpy(place + kHeaderBytes, data, bytes);
  send(to, place, control_.lkey, place + kHeaderBytes, bytes, control_.lkey);
}

void Transport::store_checksum(std::byte* header, const std::byte* data, std::uint32_t bytes) {
  std::uint64_t sum = checksum({header, kHeaderBytes});
  if (bytes != 0) sum = mix64(sum ^ checksum({data, bytes}));
  std::memcpy(header - kChecksumBytes, &sum, sizeof sum);
}

bool Transport::is_intact(const std::byte* header, std::uint32_t bytes) const {
  std::uint64_t sum = checksum({header, kHeaderBytes}), stated = 0;
  if (bytes != 0) sum = mix64(sum ^ checksum({header + kHeaderBytes, bytes}));
  std::memcpy(&stated, header - kChecksumBytes, sizeof stated);
  return sum == stated;
}

bool Transport::reap_sends() {
  std::array<fabric::Completion, 8> done;
  const std::size_t got = send_queue_->poll(done);
  if (got == 0) fabric::check_overrun(*send_queue_, env_.node(), "the sends of an eRPC endpoint");
  for (std::size_t i = 0; i < got; ++i) {
    if (done[i].status != fabric::Status::kSuccess) is_broken_ = true;
    outstanding_ -= std::min(outstanding_, kSignalEvery);
    if (done[i].wr_id >= kDrain) drained_ = done[i].wr_id;
  }
  return got != 0;
}

void Transport::wait_for_room(std::uint32_t requests) {
  const auto has_room = [&] {
    while (reap_sends()) {
    }
    return outstanding_ + requests <= kSendEntries || is_broken_;
  };
  wait_for(has_room);
}

// Post batches are at most kSignalEvery long, so one request of the batch is signaled.
void Transport::mark_signaled() {
  fabric::WorkRequest& request = requests_[kSignalEvery - unsignaled_ - 1];
  request.flags = static_cast<std::uint8_t>(request.flags | fabric::kSignaled);
  request.wr_id = kSignal;
  unsignaled_ = unsignaled_ + pending_ - kSignalEvery;
}

void Transport::post_pending() {
  if (qp_ == nullptr) [[unlikely]] {
    pending_ = 0;
    return;
  }
  const Scope step(env_, scope::post);
  if (outstanding_ + pending_ > kSendEntries) wait_for_room(pending_);
  if (unsignaled_ + pending_ < kSignalEvery) [[likely]]
    unsignaled_ += pending_;
  else
    mark_signaled();
  outstanding_ += pending_;
  counters_.sent += pending_;
  ++counters_.doorbells;
  std::uint32_t posted = 0;
  const auto post = [&] {
    const fabric::PostResult result = qp_->post({requests_.data() + posted, pending_ - posted});
    posted += result.accepted;
    if (posted == pending_) [[likely]]
      return true;
    if (result.error != fabric::PostError::kQueueFull) {
      is_broken_ = true;  // the packets are lost, as in a network
      return true;
    }
    reap_sends();
    return false;
  };
  if (!post()) [[unlikely]]
    wait_for(post);
  pending_ = 0;
}

void Transport::drain() {
  flush();
  ++counters_.drains;
  if (is_broken_) return;  // the queue pair has flushed them
  // The datagram completes after all earlier ones have been read. It is for this queue pair, whose
  // NIC drops it for its key.
  wait_for_room(1);
  const std::uint64_t wanted = std::max(drain_wanted_ + 1, kDrain);
  drain_wanted_ = wanted;
  fabric::WorkRequest request;
  request.opcode = fabric::Opcode::kSend;
  request.flags = fabric::kSignaled;
  request.wr_id = wanted;
  request.address_handle = own_handle_.get();
  request.remote_qpn = qp_->qp_num();
  request.remote_qkey = kWrongQkey;
  ++outstanding_;
  unsignaled_ = 0;
  bool is_posted = false;
  const auto is_drained = [&] {
    while (reap_sends()) {
    }
    if (!is_posted) {
      const fabric::PostResult result = qp_->post({&request, 1});
      is_posted = result.accepted == 1;
      if (!is_posted && result.error != fabric::PostError::kQueueFull) is_broken_ = true;
    }
    return drained_ >= wanted || is_broken_;
  };
  wait_for(is_drained);
  if (!is_broken_) outstanding_ = 0;
}

void Transport::heal() {
  ++counters_.healed;
  is_broken_ = false;
  qp_->modify(fabric::QpState::kReset);
  qp_->connect({});
  while (reap_sends()) {
  }
  is_broken_ = false;
  outstanding_ = unsignaled_ = pending_ = 0;
  post_all_receives();
}

}  // namespace pyrdma::erpc
