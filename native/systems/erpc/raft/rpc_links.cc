#include "systems/erpc/raft/rpc_links.h"

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
}

std::size_t RpcLinks::find_peer(NodeId node) const {
  std::size_t at = 0;
  while (at < peers_.size() && peers_[at].node != node) ++at;
  return at;
}

void RpcLinks::take(const RequestHandle& handle) {
  const std::span<const std::byte> request = handle.request();
  NodeId from = 0;
  if (request.size() >= kSenderBytes) std::memcpy(&from, request.data(), kSenderBytes);
  if (request.size() <= kSenderBytes || find_peer(from) == peers_.size()) {
    endpoint_.env().reached("erpc/raft/malformed_request");
    ++counters_.malformed;
    return;
  }
  if (member_ != nullptr) member_->receive(from, request.subspan(kSenderBytes));
}

void RpcLinks::send(NodeId to, std::span<const std::byte> message,
                    std::function<void(bool delivered)> done) {
  const std::size_t peer = find_peer(to);
  const bool fits = message.size() <= max_message(endpoint_.options());
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
  Call& call = calls_[index];
  const auto bytes = static_cast<std::uint32_t>(kSenderBytes + message.size());
  call.request = endpoint_.allocate(bytes);
  call.response = endpoint_.allocate(0);
  free_calls_.pop_back();
  const NodeId self = endpoint_.env().node();
  std::memcpy(call.request->data(), &self, kSenderBytes);
  if (!message.empty())
    std::memcpy(call.request->data() + kSenderBytes, message.data(), message.size());
  call.peer = peer;
  call.done = std::move(done);
  ++peers_[peer].under_way;
  ++counters_.sent;
  endpoint_.enqueue_request(
      {*session, kMessageRequest, call.request, call.response, &RpcLinks::end, this, index});
}

void RpcLinks::end(void* context, std::uint64_t tag, erpc::Outcome outcome) {
  auto& links = *static_cast<RpcLinks*>(context);
  Call& call = links.calls_[tag];
  const bool delivered = outcome == erpc::Outcome::kOk;
  links.counters_.failed += !delivered;
  --links.peers_[call.peer].under_way;
  links.endpoint_.free(call.request);
  links.endpoint_.free(call.response);
  const auto done = std::exchange(call.done, nullptr);
  links.free_calls_.push_back(static_cast<std::uint32_t>(tag));
  done(delivered);
}

void RpcLinks::turn() {
  for (const auto& done : std::exchange(failures_, {})) done(false);
}

}  // namespace pyrdma::erpc::raft
