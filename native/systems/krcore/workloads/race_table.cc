#include "systems/krcore/workloads/race_table.h"

#include <algorithm>
#include <bit>

namespace pyrdma::krcore {

namespace {

constexpr std::uint32_t kRaceEntries = 256;  // of a client's queues
constexpr double kFill = 0.5;                // of the slots, once all keys are there

race::StorageOptions storage_options(const measure::Params& params, NodeId node) {
  race::StorageOptions options;
  options.index = node;
  options.nodes = params.count("storage_nodes");
  options.max_key_bytes = 16;
  options.max_value_bytes = params.count("value_bytes");
  const double slots = static_cast<double>(params.integer("keys")) / kFill;
  options.groups = 256;
  const double subtables = slots / (options.groups * 21.0);
  options.first_depth = static_cast<std::uint32_t>(
      std::bit_width(static_cast<std::uint64_t>(std::max(1.0, subtables))));
  options.max_depth = std::min(15U, options.first_depth + 2);
  // Blocks are of 64-byte units; each client reserves chunks.
  const auto block = (static_cast<std::uint64_t>(params.count("value_bytes")) + 64) / 64 * 64 + 64;
  options.bytes = (32U << 20) + 2 * block * static_cast<std::uint64_t>(params.integer("keys")) +
                  static_cast<std::uint64_t>(slots) * 64;
  return options;
}

}  // namespace

TableNode::TableNode(Env& env, const measure::Params& params, std::uint32_t clients)
    : env_(env),
      params_(params),
      storage_nodes_(params.count("storage_nodes")),
      spread_(env, clients, storage_nodes_) {
  check_nodes(env, params, storage_nodes_);
  const race::StorageOptions shape = storage_options(params, env.node());
  if (params.text("system") == "krcore") {
    Options options = service_options(params, env.nodes());
    options.arena_bytes = std::max(options.arena_bytes, shape.bytes + (32U << 20));
    service_ = std::make_unique<Service>(env, options);
    virtual_env_ = std::make_unique<VirtualEnv>(env, *service_);
  } else if (params.text("system") == "lite") {
    LiteOptions options;
    options.name = params.key("lite");
    lite_ = std::make_unique<Lite>(env, options);
    lite_env_ = std::make_unique<LiteEnv>(env, *lite_);
  } else {
    env.device().open();
  }
  Env& used = this->env();
  if (is_storage()) {
    pd_ = used.device().create_protection_domain();
    storage_ = std::make_unique<race::Storage>(used, used.device(), *pd_, shape);
    env.device().rendezvous().publish_value(
        params.key("krcore/table/" + std::to_string(env.node())), storage_->address());
  }
  std::vector<race::TableAddress> parts;
  for (NodeId node = 0; node < storage_nodes_; ++node) {
    parts.push_back(env.device().rendezvous().await_value<race::TableAddress>(
        params.key("krcore/table/" + std::to_string(node)), env.now() + runtime::kSetupTimeout));
  }
  table_ = race::join(parts);
}

std::string TableNode::name(const char* what, std::uint32_t client, std::uint32_t storage) const {
  return params_.key(std::string("krcore/") + what + "/" + std::to_string(client) + "/" +
                     std::to_string(storage));
}

// A virtual queue pair needs no end at the storage node, nor does LITE.
void TableNode::accept(std::uint32_t first, std::uint32_t count) {
  if (!is_storage() || !is_raw()) return;
  if (idle_ == nullptr) idle_ = env_.device().create_completion_queue(1);
  for (std::uint32_t client = first; client < first + count; ++client) {
    const auto peer = env_.device().rendezvous().await_value<fabric::QpAddress>(
        name("client", client, env_.node()), env_.now() + 600 * kSecond);
    fabric::QpOptions options;
    options.send_entries = options.receive_entries = 1;
    accepted_.push_back(env_.device().create_queue_pair(*pd_, *idle_, *idle_, options));
    accepted_.back()->connect(peer);
    env_.device().rendezvous().publish_value(name("storage", client, env_.node()),
                                             accepted_.back()->address());
  }
}

TableNode::Ends TableNode::connect(std::uint32_t number) {
  fabric::Device& device = env().device();
  Ends ends;
  ends.pd = device.create_protection_domain();
  ends.completions = device.create_completion_queue(kRaceEntries * storage_nodes_);
  for (std::uint32_t storage = 0; storage < storage_nodes_; ++storage) {
    fabric::QpOptions options;
    options.send_entries = kRaceEntries;
    options.receive_entries = 1;
    options.max_sges = 1;
    if (service_ != nullptr && params_.text("transport") == "rc")
      await_reliable(*service_, storage);
    ends.owned.push_back(
        device.create_queue_pair(*ends.pd, *ends.completions, *ends.completions, options));
    fabric::QueuePair& pair = *ends.owned.back();
    ends.pairs.push_back(&pair);
    if (!is_raw()) {
      fabric::QpAddress peer;
      peer.node = storage;
      peer.reads = static_cast<std::uint16_t>(options.max_outstanding_reads);
      pair.connect(peer);
      continue;
    }
    env_.device().rendezvous().publish_value(name("client", number, storage), pair.address());
    pair.connect(env_.device().rendezvous().await_value<fabric::QpAddress>(
        name("storage", number, storage), env_.now() + 600 * kSecond));
  }
  return ends;
}

std::unique_ptr<race::Client> TableNode::client(Ends& ends, std::uint32_t index) {
  race::ClientOptions options;
  options.client = index;
  options.window = params_.count("window");
  options.queue_entries = kRaceEntries;
  options.timeout = 60 * kSecond;
  return std::make_unique<race::Client>(env(), env().device(), *ends.pd, *ends.completions,
                                        ends.pairs, table_, options);
}

std::string TableNode::key_of(std::uint64_t number) const {
  std::string key(16, '0');
  for (std::size_t i = 0; number != 0; ++i, number /= 10)
    key[15 - i] = static_cast<char>('0' + number % 10);
  return key;
}

}  // namespace pyrdma::krcore
