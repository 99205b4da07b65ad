// The accepting side of a connection of the set-up exchange. No call blocks.
#pragma once
#include "fabric/verbs/socket.h"

namespace pyrdma::fabric::verbs {

class AcceptedLink {
 public:
  enum class Got : std::uint8_t {
    kNothing,  // not yet a whole message
    kMessage,
    kUnproven,  // a whole message that does not prove the token
    kEnd,       // the peer is gone, or is not from this project
  };
  AcceptedLink(Socket socket, const std::string& token);

  /// Reads at most one message. Call it when the descriptor is readable.
  Got receive(Bytes* message);
  /// Sends as much as the connection takes; flush() sends the rest.
  void send(const Bytes& message);
  /// Returns false when the peer is gone.
  bool flush();
  /// Returns true while bytes wait to be sent. Call flush() when the descriptor is writable.
  bool is_sending() const { return !out_.empty(); }
  /// The peer has proved the token: from now on its messages may have kMaxMessage bytes.
  void trust() { most_ = kMaxMessage; }
  int descriptor() const { return socket_.descriptor(); }

 private:
  /// Reads until `in_` has `bytes`. Returns kMessage when it has them.
  Got fill(std::size_t bytes);

  static constexpr std::uint32_t kMaxGreeting = 256;  // bytes
  Socket socket_;
  const std::string& token_;
  Opening mine_;
  Seal seal_;
  bool opened_ = false;
  std::uint32_t most_ = kMaxGreeting;
  Bytes in_, out_;  // the part that has arrived of a message; what waits to be sent
};

}  // namespace pyrdma::fabric::verbs
