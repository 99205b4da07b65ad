// Requests between the nodes of a group outside of its views: joins, the addresses of a new view,
// state for a joiner, messages of external clients. They go over eRPC, which needs no connection
// and survives losses and restarts (Derecho uses TCP).
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/function_ref.h"
#include "env/env.h"
#include "systems/erpc/endpoint.h"
#include "systems/spindle/options.h"

namespace pyrdma::spindle {

enum class ControlType : std::uint8_t {
  kJoin = 1,
  kHello,
  kState,
  kRestart,
  kPublish,
  kRead,
  kLastRow
};

/// One thread at a time uses a channel: the one that makes turns.
class ControlChannel {
 public:
  /// `from` is the node that asks; the session vouches for it, and no field of the request does.
  using Serve = std::function<Bytes(NodeId from, ByteView request)>;
  /// Returns the answer once there is one. It is called with each poll() until then.
  using Later = std::function<std::optional<Bytes>()>;
  using ServeLater = std::function<Later(NodeId from, ByteView request)>;
  /// Gets the response, or nothing if the node may not have answered.
  using Done = std::function<void(std::optional<ByteView> response)>;
  static constexpr std::uint32_t kMostResponse = 64 * 1024;       // bytes
  static constexpr std::uint32_t kMostPart = kMostResponse - 64;  // of what takes many
  static constexpr std::uint32_t kMostRequest = 512 * 1024;  // bytes; more than a control row has
  static constexpr std::uint32_t kEndpoint = 128;            // number of the endpoint at each node

  ControlChannel(Env& env, const Options& options, std::uint32_t endpoint = kEndpoint);
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  void serve(ControlType type, Serve handler);
  /// Serves requests whose answers take time. The number of them that wait is bounded by the
  /// sessions of the clients: each has four requests under way at most.
  void serve_later(ControlType type, ServeLater handler);
  /// Sends a request. `done` is called in a later poll(), exactly once, unless the channel ends.
  void ask(NodeId to, ControlType type, const Bytes& request, Done done);
  /// Takes and sends packets; calls handlers and continuations. Returns whether a packet came.
  bool poll();
  /// Polls until done() or `deadline`; returns done(). Only before the group has a thread.
  bool run_until(FunctionRef<bool()> done, Time deadline);
  std::uint32_t under_way() const { return static_cast<std::uint32_t>(calls_.size()); }

 private:
  struct Call {
    erpc::MsgBuffer *request, *response;
    Done done;
  };
  static void end(void* context, std::uint64_t tag, erpc::Outcome outcome);
  std::optional<erpc::SessionId> session_to(NodeId node);
  void end_refused();
  static bool answer(erpc::RequestHandle& handle, const Later& later);
  static void respond(erpc::RequestHandle& handle, const Bytes& answer);

  std::map<NodeId, erpc::SessionId> sessions_;
  std::map<std::uint64_t, Call> calls_;
  std::vector<Done> refused_;  // of requests without a session
  std::vector<std::pair<erpc::RequestHandle, Later>> waiting_;
  std::uint64_t next_call_ = 0;
  std::unique_ptr<erpc::Endpoint> endpoint_;
};

}  // namespace pyrdma::spindle
