#include "systems/erpc/baselines/farm_ring_rpc.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/assert.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/remote_word.h"
#include "env/scope.h"
#include "fabric/overrun.h"
#include "systems/erpc/scopes.h"

namespace pyrdma::erpc {

namespace {

constexpr std::uint32_t kRingSendEntries = 64;
constexpr std::uint64_t kWord = sizeof(std::uint64_t), kHeadWords = 2;
constexpr std::uint64_t kPositionBytes = 64;  // a cache line for each peer's position
constexpr std::uint64_t kMostRingBytes = 64 * kMiB;

std::uint64_t frame_of(std::uint64_t bytes) {
  return (kHeadWords + (bytes + kWord - 1) / kWord + 1) * kWord;
}

std::uint64_t first_word(std::uint32_t number, std::uint64_t kind, std::uint64_t bytes) {
  return std::uint64_t{number} << 32 | kind << 24 | bytes;
}

}  // namespace

FarmRingRpc::FarmRingRpc(Env& env, const BaselineOptions& options, BaselineHandler handler)
    : BaselineRpc(env, options, std::move(handler)),
      device_(env.device()),
      frame_bytes_(frame_of(options.max_bytes)) {
  check_ring();
  device_.open();
  max_inline_ =
      std::min(device_.capabilities().max_inline, static_cast<std::uint32_t>(frame_bytes_));
  pd_ = device_.create_protection_domain();
  const std::size_t bytes = peers() * (options.ring_bytes + kPositionBytes);
  inbox_ = device_.allocate(*pd_, bytes, fabric::kLocalWrite | fabric::kRemoteWrite);
  outbox_ = device_.allocate(*pd_, bytes);
  copy_.resize(frame_bytes_ / kWord);
  make_links();
  device_.rendezvous().publish_value(rings_key(env.node(), options.thread), inbox_->remote());
}

void FarmRingRpc::check_ring() const {
  const std::uint64_t least = std::bit_ceil(16 * frame_bytes_), given = options_.ring_bytes;
  if (std::has_single_bit(given) && given >= least && given <= kMostRingBytes) return;
  throw Error(ErrorCode::kInvalidArgument,
              "RPCs over rings: ring_bytes is " + std::to_string(given) +
                  "; give a power of two from " + std::to_string(least) + " to " +
                  std::to_string(kMostRingBytes) + ", which holds 16 messages of max_bytes");
}

void FarmRingRpc::make_links() {
  const fabric::Capabilities& device = device_.capabilities();
  fabric::QpOptions qp;
  send_entries_ = std::min(kRingSendEntries, device.max_queue_entries);
  qp.send_entries = send_entries_;
  qp.receive_entries = 1;
  qp.max_sges = 1;
  qp.max_inline = max_inline_;
  // A failed queue pair completes all of its requests.
  completions_ = device_.create_completion_queue(static_cast<std::uint32_t>(
      std::min<std::uint64_t>(std::uint64_t{peers()} * send_entries_, device.max_completions)));
  unused_ = device_.create_completion_queue(1);
  links_.resize(peers());
  for (std::uint32_t peer = 0; peer < peers(); ++peer) {
    links_[peer].qp = device_.create_queue_pair(*pd_, *completions_, *unused_, qp);
    handshakes_.emplace_back(env_, pair_name(peer), node_of(peer));
    handshakes_.back().add(*links_[peer].qp);
    handshakes_.back().offer();
  }
}

// Both ends name the thread of the lower node first.
std::string FarmRingRpc::pair_name(std::uint32_t peer) const {
  std::uint32_t low = options_.thread, high = thread_of(peer);
  if (node_of(peer) < env_.node()) std::swap(low, high);
  return options_.name + "/ring/" + std::to_string(low) + '-' + std::to_string(high);
}

std::string FarmRingRpc::rings_key(NodeId node, std::uint32_t thread) const {
  return options_.name + "/rings/" + std::to_string(node) + '/' + std::to_string(thread);
}

void FarmRingRpc::connect(Time deadline) {
  for (std::uint32_t peer = 0; peer < peers(); ++peer) {
    handshakes_[peer].await(deadline);
    handshakes_[peer].connect();
    const NodeId node = node_of(peer);
    const auto inbox = device_.rendezvous().await_value<fabric::RemoteRegion>(
        rings_key(node, thread_of(peer)), deadline);
    if (inbox.length != inbox_->size())
      throw Error(ErrorCode::kInvalidArgument,
                  "RPCs over rings: node " + std::to_string(node) + " has rings of another size")
          .blaming({node});
    Link& link = links_[peer];
    const std::uint64_t own = own_number_at(node);
    link.ring = link.head = inbox;
    link.ring.addr += own * options_.ring_bytes;
    link.head.addr += std::uint64_t{peers()} * options_.ring_bytes + own * kPositionBytes;
  }
}

// Where a message begins that comes after position `at`.
std::uint64_t FarmRingRpc::begin_of(std::uint64_t at) const {
  const std::uint64_t left = options_.ring_bytes - at % options_.ring_bytes;
  return left < frame_bytes_ ? at + left : at;
}

// Returns the place of the next message to `peer` in the outbox, or nullptr without room. The
// reader has read what was there, so the NIC has read it too.
std::byte* FarmRingRpc::next_message(std::uint32_t peer) {
  Link& link = links_[peer];
  if (link.posted - link.completed == send_entries_) return nullptr;
  const std::uint64_t begin = begin_of(link.written.at);
  if (begin + frame_bytes_ - link.freed > options_.ring_bytes) learn_freed(peer);
  if (begin + frame_bytes_ - link.freed > options_.ring_bytes) return nullptr;
  return outbox_->data() + std::uint64_t{peer} * options_.ring_bytes + begin % options_.ring_bytes;
}

void FarmRingRpc::learn_freed(std::uint32_t peer) {
  Link& link = links_[peer];
  const std::byte* word =
      inbox_->data() + std::uint64_t{peers()} * options_.ring_bytes + peer * kPositionBytes;
  const std::uint64_t freed = load_acquire(reinterpret_cast<const std::uint64_t*>(word));
  if (freed >= link.freed && freed <= link.written.at)
    link.freed = freed;
  else
    ++dropped_;
}

// The payload is in its place.
void FarmRingRpc::post_message(std::uint32_t peer, Kind kind, std::uint32_t slot,
                               std::size_t bytes) {
  Link& link = links_[peer];
  const std::uint64_t frame = frame_of(bytes), begin = begin_of(link.written.at);
  const std::uint64_t in_ring = begin % options_.ring_bytes;
  const std::uint64_t in_outbox = std::uint64_t{peer} * options_.ring_bytes + in_ring;
  std::byte* message = outbox_->data() + in_outbox;
  const std::uint64_t head[kHeadWords] = {
      first_word(link.written.number, static_cast<std::uint64_t>(kind), bytes), slot};
  std::memcpy(message, head, sizeof head);
  std::memset(message + sizeof head + bytes, 0, frame - kWord - sizeof head - bytes);
  const std::uint64_t sum = checksum({message, frame - kWord});
  std::memcpy(message + frame - kWord, &sum, sizeof sum);
  link.written = {begin + frame, link.written.number + 1};
  post_write(peer, outbox_->sge(in_outbox, static_cast<std::uint32_t>(frame)), link.ring, in_ring);
}

void FarmRingRpc::post_write(std::uint32_t peer, const fabric::Sge& from,
                             const fabric::RemoteRegion& to, std::uint64_t offset) {
  Link& link = links_[peer];
  ++link.posted;
  fabric::WorkRequest request;
  request.wr_id = std::uint64_t{peer} << 32 | link.posted;
  request.sges = &from;
  request.sge_count = 1;
  request.opcode = fabric::Opcode::kWrite;
  // One completion in a quarter of the queue gives the quarter back.
  request.flags = link.posted % (send_entries_ / 4) == 0 ? fabric::kSignaled : 0;
  if (from.length <= max_inline_) request.flags |= fabric::kInline;
  request.remote_addr = to.addr + offset;
  request.rkey = to.rkey;
  const fabric::PostResult result = link.qp->post({&request, 1});
  if (result.accepted != 1)
    throw Error(ErrorCode::kInternal, std::string("RPCs over rings: a write was refused: ") +
                                          fabric::to_string(result.error));
}

void FarmRingRpc::reap() {
  std::array<fabric::Completion, 16> completions;
  const std::size_t count = completions_->poll(completions);
  if (count == 0) fabric::check_overrun(*completions_, env_.node(), "RPCs over rings");
  for (std::size_t i = 0; i < count; ++i) {
    const auto peer = static_cast<std::uint32_t>(completions[i].wr_id >> 32);
    if (completions[i].status != fabric::Status::kSuccess)
      throw_failed(peer, completions[i].status);
    links_[peer].completed = static_cast<std::uint32_t>(completions[i].wr_id);
  }
}

// With this bound a ring has room for all requests and all responses: a quarter each, a quarter
// that the reader has not reported, and the gap at the end. So no response waits for room.
bool FarmRingRpc::send_request(std::uint32_t peer, std::uint32_t slot,
                               std::span<const std::byte> request) {
  const Scope step(env_, scope::ring_send);
  Link& link = links_[peer];
  if (link.asked >= options_.ring_bytes / 4 / frame_bytes_) return false;
  std::byte* message = next_message(peer);
  if (message == nullptr) return false;
  if (!request.empty()) std::memcpy(message + kHeadWords * kWord, request.data(), request.size());
  post_message(peer, Kind::kRequest, slot, request.size());
  ++link.asked;
  return true;
}

bool FarmRingRpc::poll(Done done) {
  const Scope step(env_, scope::ring_poll);
  reap();
  bool found = false;
  for (std::uint32_t peer = 0; peer < peers(); ++peer) {
    const Scope look(env_, scope::ring_look);
    while (read_one(peer, done)) found = true;
    if (links_[peer].read.at - links_[peer].reported >= options_.ring_bytes / 4) report(peer);
  }
  return found;
}

// Returns whether the next message of a peer is there as a whole.
bool FarmRingRpc::find(std::uint32_t peer, Message& found) {
  const Position& next = links_[peer].read;
  const std::uint64_t begin = begin_of(next.at);
  const std::byte* place =
      inbox_->data() + std::uint64_t{peer} * options_.ring_bytes + begin % options_.ring_bytes;
  const std::uint64_t first = load_acquire(reinterpret_cast<const std::uint64_t*>(place));
  const std::uint64_t bytes = first & 0xFFFFFF, kind = first >> 24 & 0xFF;
  if (first >> 32 != next.number || bytes > options_.max_bytes) return false;
  const std::uint64_t frame = frame_of(bytes), words = frame / kWord;
  copy_from_shared(copy_.data(), place, frame);
  const std::span<const std::byte> copied = std::as_bytes(std::span(copy_));
  if (copy_[0] != first || checksum(copied.first(frame - kWord)) != copy_[words - 1]) {
    env_.reached("erpc/ring_message_in_parts");
    return false;
  }
  found = {static_cast<Kind>(kind), static_cast<std::uint32_t>(copy_[1]),
           copied.subspan(kHeadWords * kWord, bytes), begin + frame};
  return true;
}

bool FarmRingRpc::read_one(std::uint32_t peer, Done done) {
  Message message{};
  if (!find(peer, message)) return false;
  Link& link = links_[peer];
  if (message.kind == Kind::kRequest) {
    const Scope step(env_, scope::ring_request);
    std::byte* response = next_message(peer);
    if (response == nullptr) return false;  // the send queue is full: the request stays
    const std::size_t bytes =
        handler_(message.payload, {response + kHeadWords * kWord, options_.max_bytes});
    PYRDMA_CHECK(bytes, <=, options_.max_bytes);
    post_message(peer, Kind::kResponse, message.slot, bytes);
  } else if (message.kind == Kind::kResponse) {
    const Scope step(env_, scope::ring_response);
    if (end_request(peer, message.slot, message.payload, done)) --link.asked;
  } else {
    ++dropped_;
  }
  link.read = {message.end, link.read.number + 1};
  return true;
}

// Writes the position of this reader to its writer.
void FarmRingRpc::report(std::uint32_t peer) {
  const Scope step(env_, scope::ring_write_head);
  Link& link = links_[peer];
  if (link.posted - link.completed > send_entries_ / 2) return;  // the next poll tries again
  const std::uint64_t place = std::uint64_t{peers()} * options_.ring_bytes + peer * kPositionBytes;
  std::memcpy(outbox_->data() + place, &link.read.at, sizeof link.read.at);
  post_write(peer, outbox_->sge(place, sizeof link.read.at), link.head, 0);
  link.reported = link.read.at;
}

}  // namespace pyrdma::erpc
