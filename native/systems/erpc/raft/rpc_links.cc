#include "systems/erpc/raft/rpc_links.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/rng.h"

namespace pyrdma::erpc::raft {

namespace {

constexpr Time kAskAgain = 10 * kMillisecond;  // after which peers are asked for a stranger again
constexpr std::byte kYes{1};

}  // namespace

RpcLinks::RpcLinks(Endpoint& endpoint, std::span<const NodeId> peers, std::size_t longest_request)
    : endpoint_(endpoint),
      sessions_(endpoint, peers),
      waits_(peers.empty()),
      longest_request_(longest_request != 0 ? longest_request : max_message(endpoint.options())),
      long_messages_(mix64(static_cast<std::uint64_t>(endpoint.env().now()) ^
                           std::uint64_t{endpoint.env().incarnation()} << 48)) {
  for (const NodeId peer : peers) peer_of(peer).is_known = true;
  // The message is valid until the response.
  endpoint.register_handler(kMessageRequest, [this](RequestHandle& handle) {
    take(handle);
    handle.respond();
  });
  endpoint.register_handler(kPartRequest, [this](RequestHandle& handle) {
    handle.response(1)[0] = take_part(handle) ? kYes : std::byte{0};
    handle.respond();
  });
  endpoint.register_handler(kVouchRequest, [this](RequestHandle& handle) { vouch(handle); });
}

RpcLinks::Peer& RpcLinks::peer_of(NodeId node) {
  const auto at = std::ranges::find(peers_, node, &Peer::node);
  if (at != peers_.end()) return *at;
  peers_.push_back({});
  peers_.back().node = node;
  return peers_.back();
}

bool RpcLinks::is_member(NodeId node) const {
  if (member_ == nullptr) return false;
  const Servers servers = member_->servers();
  return std::ranges::find(servers, std::uint64_t{node} + 1, &Server::id) != servers.end();
}

bool RpcLinks::is_heard(NodeId node) {
  if (member_ == nullptr) return false;
  Peer& peer = peer_of(node);
  if (peer.is_known) return true;
  peer.is_known = is_member(node);
  // What a member that waits takes does not make its sender a peer.
  if (peer.is_known || (waits_ && member_->servers().empty())) return true;
  endpoint_.env().reached("erpc/raft/stranger");
  ++counters_.strangers;
  ask_for(peer);
  return false;
}

// A peer that does not know the group either may answer next time.
void RpcLinks::ask_for(Peer& stranger) {
  const Time now = endpoint_.recent();
  if (stranger.asked != 0 && now < stranger.asked + kAskAgain) return;
  stranger.asked = now;
  const NodeId node = stranger.node;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (!peers_[i].is_known || peers_[i].under_way >= kMostUnderWay) continue;
    const auto session = sessions_.find(peers_[i].node);
    if (!session) continue;
    const std::uint32_t index = new_call(peers_[i].node);
    calls_[index].asks_for = node;
    post(index, *session, kVouchRequest, std::as_bytes(std::span(&node, 1)), {});
  }
}

void RpcLinks::vouch(RequestHandle& handle) {
  NodeId node = 0;
  if (handle.request().size() == sizeof node)
    std::memcpy(&node, handle.request().data(), sizeof node);
  else
    drop();
  const bool knows = handle.request().size() == sizeof node && is_member(node);
  handle.response(1)[0] = knows ? kYes : std::byte{0};
  handle.respond();
}

void RpcLinks::drop() {
  endpoint_.env().reached("erpc/raft/malformed_request");
  ++counters_.malformed;
}

void RpcLinks::take(const RequestHandle& handle) {
  if (handle.request().empty()) return drop();
  if (is_heard(handle.client_node())) member_->receive(handle.client_node(), handle.request());
}

// The sender may have given a message up and begun another one. A part of an earlier life of the
// sender may come late; its messages have other numbers.
bool RpcLinks::take_part(const RequestHandle& handle) {
  const NodeId from = handle.client_node();
  PartHeader header;
  if (handle.request().size() <= sizeof header) return drop(), false;
  if (!is_heard(from)) return false;
  std::memcpy(&header, handle.request().data(), sizeof header);
  const auto piece = handle.request().subspan(sizeof header);
  if (header.at == 0) {
    if (header.total > kLongest) return drop(), false;
    coming_ = {from, {}, header.number, header.total};
    coming_.bytes.reserve(header.total);  // memory is used as it is filled
  }
  if (from != coming_.from || header.number != coming_.number || header.total != coming_.total ||
      header.at != coming_.bytes.size() || piece.size() > coming_.total - coming_.bytes.size())
    return drop(), false;
  coming_.bytes.insert(coming_.bytes.end(), piece.begin(), piece.end());
  if (coming_.bytes.size() < coming_.total) return true;
  endpoint_.env().reached("erpc/raft/long_message");
  const Bytes message = std::exchange(coming_, {}).bytes;
  member_->receive(from, message);
  return true;
}

std::uint32_t RpcLinks::new_call(NodeId to) {
  if (free_calls_.empty()) {
    free_calls_.push_back(static_cast<std::uint32_t>(calls_.size()));
    calls_.emplace_back();
  }
  const std::uint32_t index = free_calls_.back();
  free_calls_.pop_back();
  calls_[index].to = to;
  ++peer_of(to).under_way;
  return index;
}

void RpcLinks::send(NodeId to, std::span<const std::byte> message,
                    std::function<void(bool delivered)> done) {
  const bool fits = message.size() <= kLongest;
  if (!fits) {
    endpoint_.env().reached("erpc/raft/message_too_long");
    ++counters_.too_long;
  }
  const bool exists = to < endpoint_.env().nodes() && to != endpoint_.env().node();
  const auto session = exists ? sessions_.find(to) : std::nullopt;
  if (!fits || !session || peer_of(to).under_way >= kMostUnderWay) {
    counters_.not_sent += fits;
    failures_.push_back(std::move(done));
    return;
  }
  const std::uint32_t index = new_call(to);
  Call& call = calls_[index];
  call.done = std::move(done);
  ++counters_.sent;
  if (message.size() <= longest_request_) {
    post(index, *session, kMessageRequest, {}, message);
    return;
  }
  Peer& peer = peer_of(to);
  counters_.superseded += peer.long_message != 0;
  peer.long_message = ++long_messages_;
  call.rest = std::make_unique<LongMessage>(
      LongMessage{{message.begin(), message.end()}, peer.long_message, 0});
  post_part(index, *session);
}

void RpcLinks::post_part(std::uint32_t index, SessionId session) {
  LongMessage& rest = *calls_[index].rest;
  const PartHeader header{rest.number, rest.bytes.size(), rest.sent};
  const std::size_t room = longest_request_ - sizeof header;
  const auto piece = std::span<const std::byte>(rest.bytes)
                         .subspan(rest.sent, std::min(room, rest.bytes.size() - rest.sent));
  rest.sent += piece.size();
  ++counters_.parts;
  post(index, session, kPartRequest, std::as_bytes(std::span(&header, 1)), piece);
}

void RpcLinks::post(std::uint32_t index, SessionId session, std::uint8_t type,
                    std::span<const std::byte> head, std::span<const std::byte> body) {
  Call& call = calls_[index];
  call.request = endpoint_.allocate(static_cast<std::uint32_t>(head.size() + body.size()));
  call.response = endpoint_.allocate(type == kMessageRequest ? 0 : 1);
  std::byte* at = std::ranges::copy(head, call.request->data()).out;
  std::ranges::copy(body, at);
  endpoint_.enqueue_request(
      {session, type, call.request, call.response, &RpcLinks::end, this, index});
}

void RpcLinks::end(void* context, std::uint64_t tag, erpc::Outcome outcome) {
  auto& links = *static_cast<RpcLinks*>(context);
  const auto index = static_cast<std::uint32_t>(tag);
  Call& call = links.calls_[index];
  const bool delivered = outcome == erpc::Outcome::kOk;
  const bool taken = delivered && call.response->size() == 1 && call.response->data()[0] == kYes;
  links.endpoint_.free(call.request);
  links.endpoint_.free(call.response);
  links.finish(index, delivered, taken);
}

void RpcLinks::finish(std::uint32_t index, bool delivered, bool taken) {
  Call& call = calls_[index];
  Peer& peer = peer_of(call.to);
  if (call.rest != nullptr) {
    const bool is_newest = peer.long_message == call.rest->number;
    delivered = taken && is_newest;
    if (delivered && call.rest->sent < call.rest->bytes.size()) {
      if (const auto session = sessions_.find(call.to)) return post_part(index, *session);
      delivered = false;
    }
    if (is_newest) peer.long_message = 0;
  }
  --peer.under_way;
  if (call.asks_for && taken) peer_of(*call.asks_for).is_known = true;
  counters_.failed += !call.asks_for && !delivered;
  call.rest = nullptr;
  call.asks_for.reset();
  const auto done = std::exchange(call.done, nullptr);
  free_calls_.push_back(index);
  if (done) done(delivered);
}

void RpcLinks::turn() {
  for (const auto& done : std::exchange(failures_, {})) done(false);
}

}  // namespace pyrdma::erpc::raft
