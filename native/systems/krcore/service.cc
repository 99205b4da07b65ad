#include "systems/krcore/service.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "runtime/exchange.h"

namespace pyrdma::krcore {

namespace {

constexpr std::uint32_t kPorts = 65536;
constexpr std::uint32_t kCoresWithoutNumber = 2;  // pools where Env names no cores

}  // namespace

Service::Service(Env& env, const Options& options)
    : env_(env),
      options_(options),
      failure_(env),
      meta_server_mutex_(env),
      table_mutex_(env),
      table_(options.virtual_queue_pairs),
      vqps_(options.virtual_queue_pairs),
      ports_(kPorts),
      cache_mutex_(env),
      cache_(env.nodes()),
      port_mutex_(env),
      inquiries_(env),
      jobs_mutex_(env),
      attempts_(env.nodes()) {
  options_.check(env.nodes());
  const fabric::Capabilities& able = env.device().capabilities();
  max_message_ = able.max_message;
  max_inline_ = able.max_inline < sizeof(MessageHeader)
                    ? 0
                    : std::min(able.max_inline, kMostInline) - std::uint32_t{sizeof(MessageHeader)};
  if (!able.ud || !able.srq || !able.rc) {
    throw Error(ErrorCode::kUnavailable,
                "krcore: device '" + env.device().name() +
                    "' lacks RC, UD or shared receive queues, which a service needs; use another "
                    "device");
  }
  boot();
}

Service::~Service() {
  stops_.store(true, std::memory_order_release);
  metadata_server_.reset();
  threads_.clear();
}

void Service::boot() {
  fabric::Device& device = env_.device();
  device.open();
  domain_ = device.create_protection_domain();
  regions_ = std::make_unique<Regions>(env_, *domain_, options_);
  if (std::ranges::count(options_.meta_servers, env_.node()) != 0)
    meta_server_ = std::make_unique<MetaServer>(device, *domain_, options_.nodes_known);
  std::uint32_t cores = options_.cores != 0 ? options_.cores : env_.cores();
  if (cores == 0) cores = kCoresWithoutNumber;
  // An answer goes out on the connection of the core that it came to, if there is nothing else.
  if (!device.capabilities().dc) cores = 1;
  for (std::uint32_t core = 0; core < cores; ++core) {
    core_states_.push_back(std::make_unique<CoreState>(env_, *domain_, options_));
    pools_.push_back(std::make_unique<CorePool>(env_, *domain_, options_, core));
  }
  port_ = std::make_unique<ControlPort>(env_, *domain_, options_.bugs);
  serve_metadata();
  peers_ = std::make_unique<Peers>(env_, *domain_, options_);
  peers_->publish(port_->address());
  threads_.push_back(failure_.spawn("krcore-control", [this] { run_control(); }));
  threads_.push_back(failure_.spawn("krcore-builder", [this] { run_builder(); }));
  try {
    peers_->await_all();
    connect_meta_servers();
    use_metadata_server();
    is_registered_.resize(options_.meta_servers.size());
    register_at_meta_servers(options_.boot_timeout, false);
    has_booted_.store(true, std::memory_order_release);
    // All nodes have registered then. A node that has died meanwhile does so in its next life.
    const auto booted = [this](NodeId node) {
      return options_.name + "/booted/" + std::to_string(node);
    };
    fabric::Rendezvous& rendezvous = device.rendezvous();
    rendezvous.publish_value(booted(env_.node()), std::uint8_t{1});
    for (NodeId node = 0; env_.incarnation() == 0 && node < env_.nodes(); ++node)
      rendezvous.await(booted(node), env_.now() + runtime::kSetupTimeout);
  } catch (...) {
    stops_.store(true, std::memory_order_release);
    threads_.clear();
    throw;
  }
}

ControlMessage Service::own_metadata(ControlKind kind) const {
  ControlMessage message;
  message.kind = kind;
  message.from = env_.node();
  message.incarnation = env_.incarnation();
  message.about = env_.node();
  message.meta = pools_.front()->target();
  message.meta.incarnation = env_.incarnation();
  message.tables[0] = {regions_->table(), regions_->shape().buckets, regions_->shape().entries};
  return message;
}

// A server that does not answer is left to the background.
void Service::connect_meta_servers() {
  std::vector<bool> is_silent(env_.nodes());
  for (const auto& state : core_states_) {
    for (const NodeId server : state->meta.missing())
      if (!is_silent[server])
        is_silent[server] = !connect_meta(state->meta, server, options_.boot_timeout, false);
  }
}

bool Service::connect_meta(MetaClient& client, NodeId server, Time timeout, bool is_builder) {
  std::unique_ptr<MetaClient::Link> link = client.make(server);
  ControlMessage offer = own_metadata(ControlKind::kConnectMeta);
  offer.queue_pair = link->qp->address();
  ControlMessage reply;
  if (!ask(server, offer, reply, timeout, is_builder) || reply.kind != ControlKind::kAccept)
    return false;
  link->qp->connect(reply.queue_pair);
  link->targets = reply.tables[0];
  link->locations = reply.tables[1];
  if (is_builder) {
    // A meta server that has lost its memory learns of this node anew, before it answers for it.
    ControlMessage registered;
    ask(server, own_metadata(ControlKind::kRegister), registered, timeout, true);
  }
  client.put(std::move(link));
  return true;
}

// A server that has ended and begun anew is not found again: its clients ask the nodes themselves.
void Service::serve_metadata() {
  if (options_.metadata != Metadata::kRpc || meta_server_ == nullptr) return;
  metadata_server_ =
      std::make_unique<MetadataServer>(env_, *domain_, *meta_server_, meta_server_mutex_, failure_);
  if (env_.incarnation() != 0 || options_.meta_servers.front() != env_.node()) return;
  env_.device().rendezvous().publish_value(options_.name + "/metadata",
                                           metadata_server_->address());
}

void Service::use_metadata_server() {
  if (options_.metadata != Metadata::kRpc) return;
  const auto server = env_.device().rendezvous().await_value<fabric::QpAddress>(
      options_.name + "/metadata", env_.now() + runtime::kSetupTimeout);
  for (const auto& state : core_states_) {
    state->metadata = std::make_unique<MetadataClient>(env_, *domain_);
    state->metadata->use(server);
  }
}

void Service::register_at_meta_servers(Time timeout, bool is_builder) {
  for (std::size_t i = 0; i < options_.meta_servers.size(); ++i) {
    ControlMessage reply;
    if (is_registered_[i] != 0 || stops_.load(std::memory_order_acquire)) continue;
    is_registered_[i] = ask(options_.meta_servers[i], own_metadata(ControlKind::kRegister), reply,
                            timeout, is_builder)
                            ? 1
                            : 0;
  }
}

void Service::add_job(Job job) {
  const std::lock_guard<Mutex> lock(jobs_mutex_);
  jobs_.push_back(std::move(job));
  env_.notify(jobs_watch_);
}

void Service::want_reliable(std::uint32_t core, NodeId node) {
  core = pool(core).core;
  {
    const std::lock_guard<Mutex> lock(jobs_mutex_);
    if (!wanted_.emplace(core, node).second) return;
  }
  add_job({Job::kMake, {}, core, node, 0, false});
}

// A connection that is being made is a way. The peer may use it before this node knows that it is
// confirmed.
bool Service::is_making(CorePool& pool, NodeId node) {
  const std::lock_guard<Mutex> lock(jobs_mutex_);
  return wanted_.contains({pool.core, node});
}

std::uint64_t Service::physical_queue_pairs() {
  std::uint64_t count = 0;
  for (const auto& pool : pools_) {
    const std::lock_guard<Mutex> lock(pool->mutex);
    count += pool->dynamic.size() + pool->reliable.size() + pool->leaving.size();
  }
  return count;
}

}  // namespace pyrdma::krcore
