// Request handlers (eRPC, section 3). A handler gets the request, and answers it then or later.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "env/env.h"

namespace pyrdma::erpc {

class Endpoint;
struct ServerSession;

/// A request at its server, to be answered once. A plain value: a handler that answers later, or
/// that sends requests of its own first, keeps a copy. Only the thread of the endpoint uses it;
/// the handle of a handler in a worker thread belongs to that thread.
class RequestHandle {
 public:
  std::uint8_t type() const { return type_; }
  /// The node of the client. A handler that must know who asks uses it, and no field of the
  /// request: the session's beginning has compared it with what the NIC says of the sender.
  NodeId client_node() const { return client_node_; }
  /// The request. With zero-copy receives the bytes are valid until the handler returns, else until
  /// the answer; section 4.2.3. A handler that answers later copies what it needs.
  std::span<const std::byte> request() const { return {data_, size_}; }
  /// Returns the bytes of a response of that length, to be filled before respond(). Throws
  /// Error(kInvalidArgument) above the longest message.
  std::span<std::byte> response(std::uint32_t bytes);
  /// Sends the response: what response() returned last, or an empty one. The response to a client
  /// that is gone is dropped. Throws Error(kInvalidArgument) if the request is answered already.
  void respond();
  /// Answers that the handler has failed, with as much of `message` as fits into one packet. The
  /// client's request ends as kFailed. Not in the paper. Throws like respond().
  void fail(std::string_view message);
  Endpoint& endpoint() const { return *endpoint_; }

 private:
  friend class Endpoint;
  friend class Workers;
  Endpoint* endpoint_ = nullptr;
  const std::byte* data_ = nullptr;
  ServerSession* session_ = nullptr;  // exists while a handler has not answered
  std::uint64_t request_number_ = 0;
  std::uint32_t size_ = 0, generation_ = 0;
  NodeId client_node_ = 0;
  std::uint8_t slot_ = 0, type_ = 0;
  bool is_worker_ = false;
};

using Handler = std::function<void(RequestHandle&)>;

/// The thread that runs a handler (section 3.2). Handlers of up to some hundred ns belong in the
/// dispatch thread: it does nothing else meanwhile. After Options::failure_timeout its peers take
/// it for dead.
enum class RunIn : std::uint8_t { kDispatch, kWorker };

}  // namespace pyrdma::erpc
