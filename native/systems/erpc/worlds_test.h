// The worlds in which endpoints are tested. Each world runs a function on every node, with one
// endpoint, and then serves until all nodes are done.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/error_test.h"
#include "runtime/worlds_test.h"
#include "systems/erpc/endpoint.h"
#include "systems/erpc/meeting.h"

namespace pyrdma::erpc {

inline constexpr Time kPatience = 30 * kSecond;

/// Sets what the world asks for: patience where a busy machine may stop a thread for long.
inline Options options_of(const std::string& world, Options options = {}) {
  if (world.rfind("sim", 0) != 0) {
    options.failure_timeout = kPatience;
    options.connect_timeout = kPatience;
  }
  return options;
}

inline void run_endpoints(const std::string& world, std::uint32_t nodes, const Options& options,
                          const std::function<void(Endpoint&)>& per_node) {
  const Options of_world = options_of(world, options);
  runtime::run_world(world, nodes, [&](Env& env, const runtime::Kill&) {
    Endpoint endpoint(env, of_world);
    Meeting meeting(env, "test");
    per_node(endpoint);
    meeting.wait(endpoint, kPatience);
  });
}

/// Returns a session that is connected, or lost.
inline SessionId connect_to(Endpoint& endpoint, EndpointName server) {
  const SessionId session = endpoint.create_session(server);
  endpoint.connect({&session, 1});
  return session;
}

/// Byte `i` of the response to a request: a function of the request and of `i`.
inline std::byte answer_byte(std::span<const std::byte> request, std::size_t i) {
  const auto own = request.empty() ? std::byte{7} : request[i % request.size()];
  return own ^ static_cast<std::byte>(i * 31 + request.size());
}

inline void answer_to(RequestHandle& handle, std::uint32_t bytes) {
  const std::span<const std::byte> request = handle.request();
  std::vector<std::byte> answer(bytes);
  for (std::size_t i = 0; i < bytes; ++i) answer[i] = answer_byte(request, i);
  const std::span<std::byte> response = handle.response(bytes);
  if (bytes != 0) std::memcpy(response.data(), answer.data(), bytes);
  handle.respond();
}

/// Handlers of type 1 answer with as many bytes as the first 4 bytes of the request say, or none.
inline void serve_sized(Endpoint& endpoint, RunIn where = RunIn::kDispatch) {
  endpoint.register_handler(
      1,
      [](RequestHandle& handle) {
        std::uint32_t bytes = 0;
        if (handle.request().size() >= sizeof bytes)
          std::memcpy(&bytes, handle.request().data(), sizeof bytes);
        answer_to(handle, bytes);
      },
      where);
}

/// A request and its buffers, that tests wait for and look at.
class TestCall {
 public:
  TestCall(Endpoint& endpoint, std::uint32_t request, std::uint32_t response,
           std::uint32_t seed = 1)
      : endpoint_(endpoint),
        request_(endpoint.allocate(request)),
        response_(endpoint.allocate(response)),
        expected_(request < sizeof response ? 0 : response) {
    for (std::uint32_t i = 0; i < request; ++i)
      request_->data()[i] = static_cast<std::byte>(mix64(seed * 1000003ULL + i));
    if (request >= sizeof response) std::memcpy(request_->data(), &response, sizeof response);
  }
  ~TestCall() {
    if (ended_ != 1) return;  // the endpoint may still own them
    endpoint_.free(request_);
    endpoint_.free(response_);
  }
  TestCall(const TestCall&) = delete;
  TestCall& operator=(const TestCall&) = delete;

  TestCall& send(SessionId session, std::uint8_t type = 1) {
    endpoint_.enqueue_request({session, type, request_, response_, &TestCall::end, this, 0});
    return *this;
  }
  bool wait(Time timeout = kPatience) {
    return endpoint_.run_until([this] { return ended_ != 0; }, endpoint_.env().now() + timeout);
  }
  std::uint32_t ended() const { return ended_; }
  Outcome outcome() const { return outcome_; }
  MsgBuffer& request() { return *request_; }
  MsgBuffer& response() { return *response_; }
  bool is_right() const {
    if (outcome_ != Outcome::kOk || response_->size() != expected_) return false;
    for (std::size_t i = 0; i < expected_; ++i) {
      if (response_->data()[i] != answer_byte(request_->bytes(), i)) return false;
    }
    return true;
  }

 private:
  static void end(void* context, std::uint64_t, Outcome outcome) {
    auto* call = static_cast<TestCall*>(context);
    ++call->ended_;
    call->outcome_ = outcome;
  }
  Endpoint& endpoint_;
  MsgBuffer *request_, *response_;
  std::uint32_t expected_;
  std::uint32_t ended_ = 0;
  Outcome outcome_ = Outcome::kNotSent;
};

class ErpcWorlds : public testing::TestWithParam<std::string> {
 protected:
  void run(std::uint32_t nodes, const std::function<void(Endpoint&)>& per_node,
           const Options& options = {}) {
    run_endpoints(GetParam(), nodes, options, per_node);
  }
};

inline auto erpc_worlds() {
#if defined(__SANITIZE_THREAD__)
  std::vector<std::string> names{"shm"};
#else
  std::vector<std::string> names{"sim", "sim_strong", "shm"};
#endif
  if (std::getenv("PYRDMA_TEST_VERBS") != nullptr) names.emplace_back("verbs");
  return testing::ValuesIn(names);
}

}  // namespace pyrdma::erpc
