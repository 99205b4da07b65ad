// How an RPC ended. Its continuation gets this, exactly once.
#pragma once
#include <cstdint>

namespace pyrdma::erpc {

enum class Outcome : std::uint8_t {
  kOk,            // the response is in its buffer
  kNotSent,       // the session never connected, or ended before the request was sent
  kSessionLost,   // the session ended while the request was under way
  kNoHandler,     // the server has no handler for the request's type
  kResponseSize,  // the response is longer than its buffer; the handler has run
  kFailed,        // the handler has failed; the response is its message, as far as the buffer goes
};

/// Whether the handler may have run. A client that repeats such a request needs one whose
/// repetition does no harm, or a server that recognizes it.
constexpr bool may_have_run(Outcome outcome) {
  return outcome != Outcome::kNotSent && outcome != Outcome::kNoHandler;
}

constexpr const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return "ok";
    case Outcome::kNotSent:
      return "not sent";
    case Outcome::kSessionLost:
      return "session lost";
    case Outcome::kNoHandler:
      return "no handler";
    case Outcome::kResponseSize:
      return "response too long";
    case Outcome::kFailed:
      return "the handler failed";
  }
  return "unknown";
}

}  // namespace pyrdma::erpc
