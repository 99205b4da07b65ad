// Set-up of one reliable connection through librdmacm: the peer is named by IP address and port,
// and nothing else of it has to be known. Device, port and route follow from the address. Each side
// gives a queue pair in RESET, which is in RTS afterwards, and a few bytes for the other.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fabric/fabric.h"

namespace pyrdma::fabric::verbs {

/// Private bytes of a connection request; librdmacm's limit for RC.
inline constexpr std::size_t kMaxPrivateBytes = 56;

/// A connection, for as long as this lives: destroying it tells the peer, whose queue pair then
/// goes to error. The queue pair must be destroyed before or moved to another state. One thread at
/// a time.
class Connection {
 public:
  virtual ~Connection() = default;
  /// What the peer sent along.
  virtual const std::vector<std::byte>& private_data() const = 0;
  /// True once the peer has disconnected or is gone; brings the queue pair to error then. Does not
  /// block.
  virtual bool is_over() = 0;
};

/// Waits for connections at an address of this machine.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual std::uint16_t port() const = 0;
  /// Blocks until a peer has connected. Throws Error(kTimeout).
  virtual std::unique_ptr<Connection> accept(Env& env, QueuePair& queue_pair,
                                             std::span<const std::byte> private_data,
                                             Time deadline) = 0;
};

/// Port 0: any. Throws Error(kUnavailable) when librdmacm or the address is not there.
std::unique_ptr<Listener> listen(const std::string& address, std::uint16_t port);

/// Blocks until the peer has accepted. Throws Error(kUnavailable) when there is no way to the
/// address or it refuses, Error(kTimeout) when it does not answer, Error(kInvalidArgument) when the
/// queue pair's device is not the one that leads there.
std::unique_ptr<Connection> connect(Env& env, QueuePair& queue_pair, const std::string& address,
                                    std::uint16_t port, std::span<const std::byte> private_data,
                                    Time deadline);

}  // namespace pyrdma::fabric::verbs
