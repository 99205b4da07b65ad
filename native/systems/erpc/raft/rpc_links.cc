#include "systems/erpc/raft/rpc_links.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace pyrdma::erpc::raft {

RpcLinks::RpcLinks(Endpoint& endpoint, std::span<const NodeId> peers)
    : endpoint_(endpoint), sessions_(endpoint, peers) {
  for (const NodeId peer : peers) peers_.push_back({peer});
  // The message is valid until the response.
  endpoint.register_handler(kMessageRequest, [this](RequestHandle& handle) {
    take(handle);
    handle.respond();
  });
  endpoint.register_handler(kPartRequest, [this](RequestHandle& handle) {
    take_part(handle);
    handle.respond();
  });
}

std::size_t RpcLinks::find_peer(NodeId node) const {
  std::size_t at = 0;
  while (at < peers_.size() && peers_[at].node != node) ++at;
  return at;
}

std::optional<std::size_t> RpcLinks::sender_of(const RequestHandle& handle) const {
  NodeId from = 0;
  if (handle.request().size() <= kSenderBytes) return std::nullopt;
  std::memcpy(&from, handle.request().data(), kSenderBytes);
  const std::size_t peer = find_peer(from);
  return peer == peers_.size() ? std::nullopt : std::optional(peer);
}

void RpcLinks::drop() {
  endpoint_.env().reached("erpc/raft/malformed_request");
  ++counters_.malformed;
}

void RpcLinks::take(const RequestHandle& handle) {
  const auto peer = sender_of(handle);
  if (!peer) return drop();
  if (member_ != nullptr)
    member_->receive(peers_[*peer].node, handle.request().subspan(kSenderBytes));
}

// The sender may have given a message up and begun another one, and a restarted sender counts from
// the begin.
void RpcLinks::take_part(const RequestHandle& handle) {
  const auto peer = sender_of(handle);
  PartHeader header;
  if (!peer || handle.request().size() <= kSenderBytes + sizeof header) return drop();
  std::memcpy(&header, handle.request().data() + kSenderBytes, sizeof header);
  const auto piece = handle.request().subspan(kSenderBytes + sizeof header);
  Coming& coming = peers_[*peer].coming;
  if (header.at == 0) {
    if (header.total > kLongest) return drop();
    coming = {{}, header.number, header.total};
  }
  if (header.number != coming.number || header.total != coming.total ||
      header.at != coming.bytes.size() || piece.size() > coming.total - coming.bytes.size()) {
    return drop();
  }
  coming.bytes.insert(coming.bytes.end(), piece.begin(), piece.end());
  if (coming.bytes.size() < coming.total) return;
  endpoint_.env().reached("erpc/raft/long_message");
  const Bytes message = std::exchange(coming, {}).bytes;
  if (member_ != nullptr) member_->receive(peers_[*peer].node, message);
}

void RpcLinks::send(NodeId to, std::span<const std::byte> message,
                    std::function<void(bool delivered)> done) {
  const std::size_t peer = find_peer(to);
  const bool fits = message.size() <= kLongest;
  if (!fits) {
    endpoint_.env().reached("erpc/raft/message_too_long");
    ++counters_.too_long;
  }
  const auto session = sessions_.find(to);
  if (!fits || !session || peers_[peer].under_way >= kMostUnderWay) {
    counters_.not_sent += fits;
    failures_.push_back(std::move(done));
    return;
  }
  if (free_calls_.empty()) {
    free_calls_.push_back(static_cast<std::uint32_t>(calls_.size()));
    calls_.emplace_back();
  }
  const std::uint32_t index = free_calls_.back();
  free_calls_.pop_back();
  Call& call = calls_[index];
  call.peer = peer;
  call.done = std::move(done);
  ++peers_[peer].under_way;
  ++counters_.sent;
  if (message.size() <= max_message(endpoint_.options())) {
    post(index, *session, kMessageRequest, {}, message);
    return;
  }
  call.rest = std::make_unique<LongMessage>(
      LongMessage{{message.begin(), message.end()}, ++long_messages_, 0});
  post_part(index, *session);
}

void RpcLinks::post_part(std::uint32_t index, SessionId session) {
  LongMessage& rest = *calls_[index].rest;
  const PartHeader header{rest.number, rest.bytes.size(), rest.sent};
  const std::size_t room = max_message(endpoint_.options()) - sizeof header;
  const auto piece = std::span<const std::byte>(rest.bytes)
                         .subspan(rest.sent, std::min(room, rest.bytes.size() - rest.sent));
  rest.sent += piece.size();
  ++counters_.parts;
  post(index, session, kPartRequest, std::as_bytes(std::span(&header, 1)), piece);
}

void RpcLinks::post(std::uint32_t index, SessionId session, std::uint8_t type,
                    std::span<const std::byte> head, std::span<const std::byte> body) {
  Call& call = calls_[index];
  call.request =
      endpoint_.allocate(static_cast<std::uint32_t>(kSenderBytes + head.size() + body.size()));
  call.response = endpoint_.allocate(0);
  const NodeId self = endpoint_.env().node();
  std::byte* at = call.request->data();
  std::memcpy(at, &self, kSenderBytes);
  at = std::ranges::copy(head, at + kSenderBytes).out;
  std::ranges::copy(body, at);
  endpoint_.enqueue_request(
      {session, type, call.request, call.response, &RpcLinks::end, this, index});
}

void RpcLinks::end(void* context, std::uint64_t tag, erpc::Outcome outcome) {
  auto& links = *static_cast<RpcLinks*>(context);
  const auto index = static_cast<std::uint32_t>(tag);
  Call& call = links.calls_[index];
  links.endpoint_.free(call.request);
  links.endpoint_.free(call.response);
  bool delivered = outcome == erpc::Outcome::kOk;
  if (delivered && call.rest != nullptr && call.rest->sent < call.rest->bytes.size()) {
    if (const auto session = links.sessions_.find(links.peers_[call.peer].node))
      return links.post_part(index, *session);
    delivered = false;
  }
  links.counters_.failed += !delivered;
  --links.peers_[call.peer].under_way;
  call.rest = nullptr;
  const auto done = std::exchange(call.done, nullptr);
  links.free_calls_.push_back(index);
  done(delivered);
}

void RpcLinks::turn() {
  for (const auto& done : std::exchange(failures_, {})) done(false);
}

}  // namespace pyrdma::erpc::raft
