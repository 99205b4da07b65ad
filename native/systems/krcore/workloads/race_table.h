// A RACE table for workloads: storage nodes, and clients with connections of a chosen kind to them.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "systems/krcore/baselines/lite_device.h"
#include "systems/krcore/race/client.h"
#include "systems/krcore/race/storage.h"
#include "systems/krcore/virtual_device.h"
#include "systems/krcore/workloads/options.h"

namespace pyrdma::krcore {

inline std::vector<measure::ParameterSpec> with_table_parameters(
    std::vector<measure::ParameterSpec> own) {
  using Int = std::int64_t;
  using Text = std::string;
  std::vector<measure::ParameterSpec> specs = {
      {"system",
       Text("krcore"),
       "",
       "queue pairs of the service or of the device, or LITE's calls",
       0,
       0,
       {"krcore", "verbs", "lite"}},
      {"transport", Text("dc"), "", "of the service's physical queue pairs", 0, 0, {"dc", "rc"}},
      {"storage_nodes", Int{1}, "count", "the first nodes, which have the table", 1,
       race::kMostNodes},
      {"keys", Int{10'000}, "count", "in the table before the load", 1, 1e8},
      {"value_bytes", Int{64}, "bytes", "of a value", 1, 1024},
      {"window", Int{12}, "count", "operations under way of a client", 1, 256},
  };
  for (auto& spec : own) specs.push_back(std::move(spec));
  return with_service_parameters(std::move(specs));
}

/// What a node needs to reach the table: its service, if any, and the device to use.
class TableNode {
 public:
  TableNode(Env& env, const measure::Params& params, std::uint32_t clients);

  Env& env() {
    if (virtual_env_ != nullptr) return *virtual_env_;
    if (lite_env_ != nullptr) return *lite_env_;
    return env_;
  }
  /// Nobody else opens the device.
  bool is_raw() const { return service_ == nullptr && lite_ == nullptr; }
  Service* service() { return service_.get(); }
  const race::TableAddress& table() const { return table_; }
  const Spread& spread() const { return spread_; }
  bool is_storage() const { return env_.node() < storage_nodes_; }
  /// At a storage node with raw queue pairs: sets up its ends for the clients from `first` on.
  void accept(std::uint32_t first, std::uint32_t count);

  /// The connections of one client.
  struct Ends {
    std::unique_ptr<fabric::ProtectionDomain> pd;
    std::unique_ptr<fabric::CompletionQueue> completions;
    std::vector<std::unique_ptr<fabric::QueuePair>> owned;
    std::vector<fabric::QueuePair*> pairs;
  };
  /// Connects a client to all storage nodes. `number` counts all clients.
  Ends connect(std::uint32_t number);
  std::unique_ptr<race::Client> client(Ends& ends, std::uint32_t index);
  std::string key_of(std::uint64_t number) const;

 private:
  std::string name(const char* what, std::uint32_t client, std::uint32_t storage) const;
  Env& env_;
  const measure::Params& params_;
  const std::uint32_t storage_nodes_;
  const Spread spread_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<VirtualEnv> virtual_env_;
  std::unique_ptr<Lite> lite_;
  std::unique_ptr<LiteEnv> lite_env_;
  std::unique_ptr<fabric::ProtectionDomain> pd_;
  std::unique_ptr<fabric::CompletionQueue> idle_;
  std::unique_ptr<race::Storage> storage_;
  std::vector<std::unique_ptr<fabric::QueuePair>> accepted_;
  race::TableAddress table_;
};

}  // namespace pyrdma::krcore
