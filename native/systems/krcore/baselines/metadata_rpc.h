// DCT metadata by RPC in place of READs: what the meta server is compared with (section 5.1, figure
// 9a).
//
// The RPC is FaSST's (Kalia, Kaminsky, Andersen, OSDI 2016): a request and a response are one UD
// datagram each, most sends have no completion, and the responses of a round share a doorbell. One
// thread of the server answers all clients, so its CPU bounds the rate. FaSST takes no loss into
// account; here a client asks again.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "env/sync.h"
#include "fabric/fabric.h"
#include "systems/krcore/control/failure.h"
#include "systems/krcore/meta/meta_client.h"
#include "systems/krcore/meta/meta_server.h"

namespace pyrdma::krcore {

/// Asks for the target of a node. Plain data.
struct MetadataRequest {
  static constexpr std::uint32_t kMagic = 0x4b525251;
  std::uint32_t magic = kMagic;
  std::uint32_t about = 0;
  std::uint64_t ticket = 0;
  fabric::QpAddress from;
  std::uint32_t sum = 0;  // of all before
};

struct MetadataResponse {
  static constexpr std::uint32_t kMagic = 0x4b525252;
  std::uint32_t magic = kMagic;
  std::uint32_t is_known = 0;
  std::uint64_t ticket = 0;
  DctMeta meta;
  std::uint32_t sum = 0;
};

/// Returns the message, if its bytes are whole.
template <class T>
std::optional<T> parse_metadata(const std::byte* at, std::size_t bytes);
template <class T>
void seal_metadata(T& message);

/// The server's thread, with its queues.
class MetadataServer {
 public:
  /// `mutex` guards the tables, and both outlive the server.
  /// `failure` learns of an error that ends the thread.
  MetadataServer(Env& env, fabric::ProtectionDomain& domain, const MetaServer& tables, Mutex& mutex,
                 Failure& failure);
  ~MetadataServer();
  MetadataServer(const MetadataServer&) = delete;
  MetadataServer& operator=(const MetadataServer&) = delete;
  const fabric::QpAddress& address() const { return address_; }

 private:
  void run();
  void begin();
  void receive_again();
  std::size_t round();
  bool answer(const MetadataRequest& request);
  void post_answers();
  void reap();
  const fabric::AddressHandle* handle_of(const fabric::QpAddress& client);

  Env& env_;
  fabric::ProtectionDomain& domain_;
  const MetaServer& tables_;
  Mutex& mutex_;
  std::atomic<bool> stops_{false};
  std::uint32_t receive_entries_ = 0, max_inline_ = 0;
  std::unique_ptr<fabric::MemoryRegion> memory_;  // receives, then places to answer from
  std::vector<std::unique_ptr<fabric::AddressHandle>> handles_;  // by node
  std::unique_ptr<fabric::CompletionQueue> receives_, sends_;
  std::unique_ptr<fabric::QueuePair> qp_;
  fabric::QpAddress address_;
  std::vector<fabric::Sge> receive_pieces_, pieces_;
  std::vector<fabric::ReceiveRequest> to_receive_;
  std::vector<fabric::WorkRequest> answers_;
  std::uint64_t queued_ = 0, freed_ = 0;  // answers so far
  std::unique_ptr<Thread> thread_;
};

/// A core's side. Any thread may ask; one at a time has a request under way.
class MetadataClient {
 public:
  MetadataClient(Env& env, fabric::ProtectionDomain& domain);
  /// Names the server, at boot. One that does not answer for 63 ms is left alone for a second.
  void use(const fabric::QpAddress& server);
  MetaClient::Answer target_of(NodeId node, DctMeta& meta);
  std::uint64_t requests() const { return requests_; }
  std::uint64_t repeated() const { return repeated_; }

 private:
  void begin();
  void ask(NodeId node);
  std::optional<MetadataResponse> take();

  Env& env_;
  fabric::ProtectionDomain& domain_;
  Mutex mutex_;
  std::unique_ptr<fabric::MemoryRegion> memory_;
  std::unique_ptr<fabric::AddressHandle> handle_;
  std::unique_ptr<fabric::CompletionQueue> receives_, sends_;
  std::unique_ptr<fabric::QueuePair> qp_;
  fabric::QpAddress server_;
  std::uint32_t max_inline_ = 0;
  std::uint64_t ticket_ = 0, requests_ = 0, repeated_ = 0;
  Time rests_until_ = 0;              // the server has not answered
  std::uint32_t ended_receives_ = 0;  // of a queue pair that has failed
};

}  // namespace pyrdma::krcore
