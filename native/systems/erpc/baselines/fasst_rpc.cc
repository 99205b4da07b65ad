#include "systems/erpc/baselines/fasst_rpc.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>

#include "base/assert.h"
#include "base/error.h"
#include "env/scope.h"
#include "fabric/overrun.h"
#include "fabric/sender.h"
#include "systems/erpc/scopes.h"

namespace pyrdma::erpc {

namespace {

constexpr std::uint32_t kSendEntries = 256, kMostReceives = 4096;
constexpr std::size_t kRefillAtOnce = 16;                     // receives that share a doorbell
using FasstCompletions = std::array<fabric::Completion, 32>;  // of one poll

}  // namespace

FasstRpc::FasstRpc(Env& env, const BaselineOptions& options, BaselineHandler handler)
    : BaselineRpc(env, options, std::move(handler)),
      device_(env.device()),
      buffer_bytes_((fabric::kGrhBytes + static_cast<std::uint32_t>(sizeof(Header)) +
                     options.max_bytes + 63) &
                    ~63U) {
  device_.open();
  const fabric::Capabilities& device = device_.capabilities();
  if (!device.ud)
    throw Error(ErrorCode::kUnavailable,
                "FaSST-style RPCs need UD queue pairs, which " + device_.name() + " lacks");
  if (sizeof(Header) + options.max_bytes > device.max_datagram)
    throw Error(ErrorCode::kInvalidArgument,
                "FaSST-style RPCs: max_bytes is " + std::to_string(options.max_bytes) +
                    "; give at most " + std::to_string(device.max_datagram - sizeof(Header)) +
                    ", which one datagram holds");
  make_queues();
  make_buffers();
  qp_->connect({});
  refill();
  device_.rendezvous().publish_value(address_key(env.node(), options.thread), qp_->address());
}

void FasstRpc::make_queues() {
  const fabric::Capabilities& device = device_.capabilities();
  send_entries_ = std::min(kSendEntries, device.max_queue_entries);
  // All requests of the peers, all responses, and the receives that wait for a doorbell.
  const std::uint64_t wanted = (std::uint64_t{peers()} + 1) * options_.in_flight + kRefillAtOnce +
                               std::tuple_size_v<FasstCompletions>;
  receive_entries_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      {std::bit_ceil(wanted), kMostReceives, device.max_queue_entries, device.max_completions}));
  max_inline_ = std::min<std::uint32_t>(
      device.max_inline, static_cast<std::uint32_t>(sizeof(Header)) + options_.max_bytes);
  pd_ = device_.create_protection_domain();
  send_queue_ = device_.create_completion_queue(send_entries_);
  receive_queue_ = device_.create_completion_queue(receive_entries_);
  fabric::QpOptions qp;
  qp.transport = fabric::Transport::kUd;
  qp.send_entries = send_entries_;
  qp.receive_entries = receive_entries_;
  qp.max_sges = 1;
  qp.max_inline = max_inline_;
  qp_ = device_.create_queue_pair(*pd_, *send_queue_, *receive_queue_, qp);
}

void FasstRpc::make_buffers() {
  sends_ = device_.allocate(*pd_, std::size_t{send_entries_} * buffer_bytes_);
  receives_ = device_.allocate(*pd_, std::size_t{receive_entries_} * buffer_bytes_);
  requests_.resize(send_entries_);
  pieces_.resize(send_entries_);
  receivers_.resize(send_entries_);
  for (std::uint32_t i = 0; i < receive_entries_; ++i)
    receive_pieces_.push_back(receives_->sge(std::size_t{i} * buffer_bytes_, buffer_bytes_));
  for (std::uint32_t i = 0; i < receive_entries_; ++i)
    to_refill_.push_back({i, &receive_pieces_[i], 1});
}

std::string FasstRpc::address_key(NodeId node, std::uint32_t thread) const {
  return options_.name + "/fasst/" + std::to_string(node) + '/' + std::to_string(thread);
}

void FasstRpc::connect(Time deadline) {
  std::map<NodeId, const fabric::AddressHandle*> handles;
  for (std::uint32_t peer = 0; peer < peers(); ++peer) {
    const NodeId node = node_of(peer);
    const auto address = device_.rendezvous().await_value<fabric::QpAddress>(
        address_key(node, thread_of(peer)), deadline);
    const auto [at, is_new] = handles.try_emplace(node);
    if (is_new) {
      handles_.push_back(device_.create_address_handle(*pd_, address));
      at->second = handles_.back().get();
    }
    targets_.push_back({at->second, address, own_number_at(node)});
  }
}

// The place of the payload of the next message in its send buffer.
std::byte* FasstRpc::next_payload() {
  return sends_->data() + (queued_ % send_entries_) * buffer_bytes_ + sizeof(Header);
}

void FasstRpc::queue(std::uint32_t peer, std::uint32_t slot, Kind kind, std::size_t bytes) {
  const Target& target = targets_[peer];
  const std::size_t buffer = queued_++ % send_entries_;
  const Header header{target.own_number, slot, static_cast<std::uint32_t>(bytes), kind, {}};
  std::memcpy(sends_->data() + buffer * buffer_bytes_, &header, sizeof header);
  const auto length = static_cast<std::uint32_t>(sizeof header + bytes);
  pieces_[buffer] = sends_->sge(buffer * buffer_bytes_, length);
  receivers_[buffer] = peer;
  fabric::WorkRequest& request = requests_[buffer];
  request.wr_id = queued_;
  request.sges = &pieces_[buffer];
  request.sge_count = 1;
  request.opcode = fabric::Opcode::kSend;
  // One completion in a quarter of the queue gives the quarter back.
  request.flags = queued_ % (send_entries_ / 4) == 0 ? fabric::kSignaled : 0;
  if (length <= max_inline_) request.flags |= fabric::kInline;
  request.address_handle = target.handle;
  request.remote_qpn = target.address.qp_num;
  request.remote_qkey = target.address.qkey;
}

bool FasstRpc::send_request(std::uint32_t peer, std::uint32_t slot,
                            std::span<const std::byte> request) {
  const Scope step(env_, scope::fasst_send);
  if (!has_room()) reap();
  if (!has_room()) return false;
  if (!request.empty()) std::memcpy(next_payload(), request.data(), request.size());
  queue(peer, slot, Kind::kRequest, request.size());
  return true;
}

void FasstRpc::flush() {
  while (posted_ < queued_) {
    const Scope step(env_, scope::fasst_post);
    const std::size_t first = posted_ % send_entries_;
    const std::size_t count = std::min<std::size_t>(queued_ - posted_, send_entries_ - first);
    const fabric::PostResult result = qp_->post(std::span(requests_).subspan(first, count));
    posted_ += result.accepted;
    if (result.error == fabric::PostError::kQueueFull) return;  // poll() posts the rest
    if (result.error != fabric::PostError::kNone)
      throw Error(ErrorCode::kInternal, std::string("FaSST-style RPCs: a post was refused: ") +
                                            fabric::to_string(result.error));
  }
}

void FasstRpc::reap() {
  std::array<fabric::Completion, 8> completions;
  const std::size_t count = send_queue_->poll(completions);
  if (count == 0) fabric::check_overrun(*send_queue_, env_.node(), "the sends of FaSST-style RPCs");
  for (std::size_t i = 0; i < count; ++i) {
    const fabric::Completion& completion = completions[i];
    if (completion.status != fabric::Status::kSuccess)
      throw_failed(receivers_[(completion.wr_id - 1) % send_entries_], completion.status);
    completed_ = completion.wr_id;
  }
}

// A response needs a buffer, and only the own NIC gives buffers back.
void FasstRpc::await_room() {
  const auto has_reaped = [this] {
    flush();
    reap();
    return has_room();
  };
  if (!env_.poll_until(has_reaped, env_.now() + 10 * kSecond))
    throw Error(ErrorCode::kTimeout, "FaSST-style RPCs: no send completed within 10 s");
}

void FasstRpc::refill() {
  const Scope step(env_, scope::fasst_refill);
  const fabric::PostResult result = qp_->post_receive(to_refill_);
  if (result.accepted != to_refill_.size())
    throw Error(ErrorCode::kInternal, std::string("FaSST-style RPCs: a receive was refused: ") +
                                          fabric::to_string(result.error));
  to_refill_.clear();
}

bool FasstRpc::poll(Done done) {
  const Scope step(env_, scope::fasst_poll);
  FasstCompletions completions;
  const std::size_t count = receive_queue_->poll(completions);
  if (count == 0)
    fabric::check_overrun(*receive_queue_, env_.node(), "the receives of FaSST-style RPCs");
  for (std::size_t i = 0; i < count; ++i) handle(completions[i], done);
  if (to_refill_.size() >= std::min<std::size_t>(kRefillAtOnce, receive_entries_ / 4)) refill();
  flush();
  return count != 0;
}

void FasstRpc::handle(const fabric::Completion& completion, Done done) {
  if (completion.status != fabric::Status::kSuccess)
    throw Error(ErrorCode::kUnavailable, std::string("FaSST-style RPCs: a receive failed: ") +
                                             fabric::to_string(completion.status));
  const std::byte* data = receives_->data() + completion.wr_id * buffer_bytes_ + fabric::kGrhBytes;
  to_refill_.push_back({completion.wr_id, &receive_pieces_[completion.wr_id], 1});
  Header header{};
  if (completion.byte_count >= fabric::kGrhBytes + sizeof header)
    std::memcpy(&header, data, sizeof header);
  const bool is_whole =
      completion.byte_count == fabric::kGrhBytes + sizeof header + std::uint64_t{header.bytes};
  if (!is_whole || header.bytes > options_.max_bytes || header.sender >= targets_.size() ||
      !fabric::is_from(completion, data - fabric::kGrhBytes, targets_[header.sender].address)) {
    ++dropped_;
    return;
  }
  const std::span<const std::byte> payload(data + sizeof header, header.bytes);
  if (header.kind == Kind::kResponse) {
    const Scope step(env_, scope::fasst_response);
    end_request(header.sender, header.slot, payload, done);
  } else if (header.kind == Kind::kRequest) {
    const Scope step(env_, scope::fasst_request);
    if (!has_room()) await_room();
    const std::size_t bytes = handler_(payload, {next_payload(), options_.max_bytes});
    PYRDMA_CHECK(bytes, <=, options_.max_bytes);
    queue(header.sender, header.slot, Kind::kResponse, bytes);
  } else {
    ++dropped_;
  }
}

}  // namespace pyrdma::erpc
