// Looks metadata up at the meta servers, by one-sided READs on connections made at boot (section
// 4.2). Each core has one, so cores do not wait for each other.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "env/sync.h"
#include "fabric/fabric.h"
#include "systems/krcore/meta/meta_server.h"
#include "systems/krcore/options.h"

namespace pyrdma::krcore {

class MetaClient {
 public:
  MetaClient(Env& env, fabric::ProtectionDomain& domain, const Options& options);

  /// A queue pair for a server, not connected yet.
  struct Link {
    NodeId server = 0;
    std::unique_ptr<fabric::CompletionQueue> completions;
    std::unique_ptr<fabric::QueuePair> qp;
    TableAddress targets, locations;
    bool has_failed = false;
  };
  std::unique_ptr<Link> make(NodeId server);
  /// Puts a connected link in service, in place of an earlier one.
  void put(std::unique_ptr<Link> link);
  /// Returns the servers without a link in service.
  std::vector<NodeId> missing();

  enum class Answer : std::uint8_t { kFound, kUnknown, kNoServer };
  /// Asks the nearest server in service; a lost one is left for the next. Blocks for two READs, or
  /// for the retries of the NIC. Any thread may call.
  Answer target_of(NodeId node, DctMeta& meta);
  Answer location_of(NodeId node, ValidMrRecord& record);
  std::uint64_t reads() const { return reads_; }

 private:
  Answer find(NodeId node, std::span<std::byte> payload, bool is_location);
  bool read(Link& link, const fabric::RemoteRegion& table, std::uint64_t offset,
            std::span<std::byte> into);

  Env& env_;
  fabric::ProtectionDomain& domain_;
  const Options& options_;
  Mutex mutex_;
  std::unique_ptr<fabric::MemoryRegion> scratch_;
  std::vector<std::unique_ptr<Link>> links_;  // in the order of Options::meta_servers
  std::uint64_t reads_ = 0;
};

}  // namespace pyrdma::krcore
