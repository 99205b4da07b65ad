// Sets up one reliable connection through librdmacm. The caller names the peer by IP address and
// port only. Device, port and route follow from the address. Each side gives a queue pair in RESET,
// which the set-up brings to RTS, and a few bytes for the other side.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fabric/fabric.h"

namespace pyrdma::fabric::verbs {

/// Limit of the private bytes of a connection request; librdmacm's limit for RC.
inline constexpr std::size_t kMaxPrivateBytes = 56;

/// The connection lasts as long as this object. The destructor tells the peer, whose queue pair
/// then goes to error. The caller must destroy the queue pair first or move it to another state.
/// One thread at a time may use the connection.
class Connection {
 public:
  virtual ~Connection() = default;
  /// Returns the private bytes of the peer.
  virtual const std::vector<std::byte>& private_data() const = 0;
  /// Returns true once the peer has disconnected or is gone, and then brings the queue pair to the
  /// error state. Does not block.
  virtual bool is_over() = 0;
};

/// Listener waits for connections at an address of this machine.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual std::uint16_t port() const = 0;
  /// Blocks until a peer has connected. Throws Error(kTimeout).
  virtual std::unique_ptr<Connection> accept(Env& env, QueuePair& queue_pair,
                                             std::span<const std::byte> private_data,
                                             Time deadline) = 0;
};

/// Port 0 means any. Throws Error(kUnavailable) when librdmacm or the address is absent.
std::unique_ptr<Listener> listen(const std::string& address, std::uint16_t port);

/// Blocks until the peer has accepted. Throws Error(kUnavailable) when no route leads to the
/// address or the peer refuses, Error(kTimeout) when the peer does not answer,
/// Error(kInvalidArgument) when the route uses another device than the queue pair's.
std::unique_ptr<Connection> connect(Env& env, QueuePair& queue_pair, const std::string& address,
                                    std::uint16_t port, std::span<const std::byte> private_data,
                                    Time deadline);

}  // namespace pyrdma::fabric::verbs
