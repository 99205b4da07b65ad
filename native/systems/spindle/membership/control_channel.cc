#include "systems/spindle/membership/control_channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace pyrdma::spindle {

namespace {

erpc::Options channel_options(Env& env, const Options& options) {
  erpc::Options rpc = erpc::Options::of(erpc::Preset::kBest);
  rpc.name = options.name + "/control";
  rpc.credits = 8;
  rpc.slots = 4;
  // Sessions of both roles to each node, and some to clients outside of the group.
  rpc.receive_entries = rpc.credits * std::max(16U, 4 * env.nodes());
  rpc.max_message = ControlChannel::kMostRequest;
  rpc.congestion_control = erpc::CongestionControl::kNone;
  rpc.growing_timeouts = true;
  rpc.retransmission_timeout =
      std::clamp(options.suspicion_timeout / 20, 50 * kMicrosecond, 5 * kMillisecond);
  rpc.failure_timeout = std::max(options.suspicion_timeout, 100 * kMicrosecond);
  rpc.connect_interval =
      std::clamp(options.suspicion_timeout / 10, 20 * kMicrosecond, 10 * kMillisecond);
  rpc.connect_timeout = 2 * options.suspicion_timeout;
  return rpc;
}

}  // namespace

ControlChannel::ControlChannel(Env& env, const Options& options, std::uint32_t endpoint)
    : endpoint_(std::make_unique<erpc::Endpoint>(env, channel_options(env, options), endpoint)) {}

ControlChannel::~ControlChannel() = default;

void ControlChannel::serve(ControlType type, Serve handler) {
  endpoint_->register_handler(static_cast<std::uint8_t>(type),
                              [handler = std::move(handler)](erpc::RequestHandle& handle) {
                                respond(handle, handler(handle.client_node(), handle.request()));
                              });
}

void ControlChannel::serve_later(ControlType type, ServeLater handler) {
  endpoint_->register_handler(static_cast<std::uint8_t>(type),
                              [this, handler = std::move(handler)](erpc::RequestHandle& handle) {
                                Later later = handler(handle.client_node(), handle.request());
                                if (!answer(handle, later))
                                  waiting_.emplace_back(handle, std::move(later));
                              });
}

bool ControlChannel::answer(erpc::RequestHandle& handle, const Later& later) {
  const std::optional<Bytes> answer = later();
  if (answer) respond(handle, *answer);
  return answer.has_value();
}

void ControlChannel::respond(erpc::RequestHandle& handle, const Bytes& answer) {
  const std::span<std::byte> room = handle.response(static_cast<std::uint32_t>(answer.size()));
  if (!answer.empty()) std::memcpy(room.data(), answer.data(), answer.size());
  handle.respond();
}

// Sessions of nodes that died just now still take their place. There is no session then.
std::optional<erpc::SessionId> ControlChannel::session_to(NodeId node) {
  const auto found = sessions_.find(node);
  if (found != sessions_.end()) {
    if (!endpoint_->is_lost(found->second)) return found->second;
    endpoint_->destroy_session(found->second);
    sessions_.erase(found);
  }
  try {
    return sessions_[node] = endpoint_->create_session({node, kEndpoint});
  } catch (const Error& error) {
    sessions_.erase(node);
    if (error.code() != ErrorCode::kExhausted) throw;
    return std::nullopt;
  }
}

void ControlChannel::ask(NodeId to, ControlType type, const Bytes& request, Done done) {
  const auto session = session_to(to);
  if (!session) return refused_.push_back(std::move(done));
  const std::uint64_t tag = next_call_++;
  Call& call = calls_[tag];
  call.request = endpoint_->allocate(static_cast<std::uint32_t>(request.size()));
  call.response = endpoint_->allocate(kMostResponse);
  call.done = std::move(done);
  if (!request.empty()) std::memcpy(call.request->data(), request.data(), request.size());
  endpoint_->enqueue_request({*session, static_cast<std::uint8_t>(type), call.request,
                              call.response, &ControlChannel::end, this, tag});
}

void ControlChannel::end(void* context, std::uint64_t tag, erpc::Outcome outcome) {
  auto& self = *static_cast<ControlChannel*>(context);
  auto node = self.calls_.extract(tag);
  Call& call = node.mapped();
  std::optional<ByteView> response;
  if (outcome == erpc::Outcome::kOk) response = call.response->bytes();
  call.done(response);
  self.endpoint_->free(call.request);
  self.endpoint_->free(call.response);
}

bool ControlChannel::poll() {
  end_refused();
  std::erase_if(waiting_, [](auto& each) { return answer(each.first, each.second); });
  return endpoint_->run_once();
}

bool ControlChannel::run_until(FunctionRef<bool()> done, Time deadline) {
  end_refused();
  return endpoint_->run_until(done, deadline);
}

void ControlChannel::end_refused() {
  for (const Done& done : std::exchange(refused_, {})) done(std::nullopt);
}

}  // namespace pyrdma::spindle
