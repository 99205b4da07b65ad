// The datagrams by which two nodes exchange the addresses of a reliable connection's ends, and the
// port that sends and takes them. Datagrams may be lost, doubled, delayed or damaged: a knock is
// sent again until its answer comes, and the answer to the same knock is always the same.
//
// A knock makes a connection when its sender has none here. When it has one, the knock must name it
// by the number that the receiver has given it; the new connection then replaces it. Else the
// answer is that number (kTaken), and the sender knocks again with it. So a late copy of an earlier
// knock replaces nothing, and what a knock says of itself does not matter for the order: whoever
// can take answers of the receiver gets its connection after two knocks.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "env/env.h"
#include "fabric/fabric.h"
#include "systems/tailwind/server_id.h"

namespace pyrdma::tailwind {

struct Hello {
  enum class Kind : std::uint32_t { kKnock, kAccept, kRefuse, kTaken };
  static constexpr std::uint32_t kMagic = 0x54574832;
  std::uint32_t magic = kMagic;
  Kind kind = Kind::kKnock;
  std::uint64_t nonce = 0;         // of the knock, and of its answer
  std::uint64_t connection = 0;    // the one to replace, or 0; in an answer: that of the sender
  std::uint64_t from = 0, to = 0;  // ServerId::number()
  std::uint64_t is_log = 0;        // a connection for a log's writes
  fabric::QpAddress address;       // of the sender's end
  fabric::QpAddress port;          // where the sender takes datagrams
  std::uint64_t sum = 0;           // of all before
};

/// What Hello::sum must be.
std::uint64_t sum_of(const Hello& hello);

/// The name in the rendezvous of the place where a server of the run `name` takes datagrams.
std::string place_of(const std::string& name, ServerId server);

/// A datagram that has come.
struct ReceivedHello {
  Hello hello;
  bool is_from_port = false;  // the network says that hello.port has sent it
};

/// Where a node takes datagrams.
struct Doorbell {
  fabric::QpAddress address;
  std::shared_ptr<fabric::AddressHandle> handle;
};

/// One thread at a time may use it.
class HelloPort {
 public:
  /// Publishes the address under the run's name, and that earlier incarnations of the node have
  /// none if they ended before they had a port: who looks for the newest one sees no gap. Its
  /// receives complete into `completions`, with a wr_id from kFirstId on.
  static constexpr std::uint64_t kFirstId = std::uint64_t{1} << 62;
  static constexpr std::uint32_t kReceives = 64;
  HelloPort(Env& env, fabric::ProtectionDomain& domain, fabric::CompletionQueue& completions,
            const std::string& name, ServerId self);

  const fabric::QpAddress& address() const { return address_; }
  /// Throws Error for an address that cannot be, and when the device has no memory for a handle;
  /// over verbs also when it finds no way to the host.
  Doorbell doorbell(const fabric::QpAddress& address);
  /// Returns where a server takes datagrams, if it has published that and is within reach. Cost:
  /// Rendezvous::find.
  std::optional<Doorbell> find(ServerId server);
  /// The server has published something, and so have all earlier incarnations of its node. Cost:
  /// Rendezvous::find.
  bool was_there(ServerId server) const;
  /// Drops it while as many as fit are under way, as the network may.
  void send(const Doorbell& to, Hello hello);
  /// Takes a completion whose wr_id is the port's. Returns nothing for one that is no datagram, or
  /// a damaged one.
  std::optional<ReceivedHello> take(const fabric::Completion& completion);

 private:
  static constexpr std::uint32_t kSlot = 256;  // bytes
  static constexpr std::uint32_t kSends = 64;  // datagrams under way, and places for them
  static_assert(sizeof(Hello) + fabric::kGrhBytes <= kSlot);
  void receive(std::uint64_t slot);

  Env& env_;
  fabric::ProtectionDomain& domain_;
  const std::string name_;
  std::unique_ptr<fabric::MemoryRegion> memory_;  // receives, then one slot to send from
  std::unique_ptr<fabric::QueuePair> qp_;
  fabric::QpAddress address_;
  std::uint32_t next_send_ = 0, sending_ = 0;
  std::uint32_t ended_receives_ = 0;  // of a queue pair that has failed
  // Of the last datagrams: an address handle outlives the requests that name it.
  std::array<std::shared_ptr<fabric::AddressHandle>, kSends> handles_;
};

}  // namespace pyrdma::tailwind
