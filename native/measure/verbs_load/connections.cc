#include "measure/verbs_load/connections.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "runtime/exchange.h"
#include "runtime/mesh.h"

namespace pyrdma::measure::verbs_load {

namespace {

constexpr std::uint32_t kIdleEntries = 16;
// Entries of a completion queue above the requests in flight.
constexpr std::uint32_t kSpareEntries = 16;
constexpr std::uint32_t kMostReceives = 2048;  // per queue pair
// Size of a sender's buffer; requests beyond it share places.
constexpr std::uint32_t kLocalBytes = 256 * 1024;
// Doorbell registers that mlx5 gives to one queue pair each.
constexpr std::size_t kOwnDoorbells = 4;

}  // namespace

Connections::Connections(Env& env, const Params& params, const Load& load)
    : env_(env),
      params_(params),
      load_(load),
      device_(env.device()),
      deadline_(env.now() + runtime::kSetupTimeout),
      links_(plan_links(load, env.node())) {
  device_.open();
  pd_ = device_.create_protection_domain();
  idle_cq_ = device_.create_completion_queue(kIdleEntries);
  make_regions();
  make_senders();
  make_receivers();
  if (load_.connected()) {
    connect_links();
  } else {
    make_targets();
    publish_targets();
    address_targets();
  }
}

std::string Connections::key(const char* what, NodeId a) const {
  return params_.key(std::string(what) + '/' + std::to_string(a));
}

std::uint64_t Connections::place_of(const Load& load, std::uint32_t client) {
  const std::uint64_t places = std::max<std::uint64_t>(1, load.region_bytes / load.stride());
  return client % places * load.stride();
}

void Connections::make_regions() {
  const bool pingpong = load_.measure == Measure::kPingPong;
  if (load_.op == fabric::Opcode::kSend || (!load_.is_server(env_.node()) && !pingpong)) return;
  std::vector<fabric::RemoteRegion> remotes;
  for (std::uint32_t i = 0; i < load_.regions; ++i) {
    const std::uint32_t access = fabric::access_for(load_.op);
    regions_.push_back(load_.device_memory
                           ? device_.allocate_device_memory(*pd_, load_.region_bytes, access)
                           : device_.allocate(*pd_, load_.region_bytes, access));
    remotes.push_back(regions_.back()->remote());
  }
  runtime::publish_list(env_, key("regions", env_.node()), remotes);
}

const std::vector<fabric::RemoteRegion>& Connections::regions_of(NodeId peer) {
  const auto [at, fresh] = peer_regions_.try_emplace(peer);
  if (fresh && load_.op != fabric::Opcode::kSend) {
    at->second = runtime::await_list<fabric::RemoteRegion>(env_, key("regions", peer), deadline_);
  }
  return at->second;
}

void Connections::make_senders() {
  const bool pingpong = load_.measure == Measure::kPingPong;
  std::uint32_t count = load_.senders(env_.node());
  if (pingpong && load_.servers != 0 && load_.is_server(env_.node())) {
    for (Link& link : links_) link.sender = count++;  // each replies on its own
  }
  senders_.resize(count);
  for (Sender& sender : senders_) {
    const std::uint64_t slots =
        load_.signal_by_queue
            ? load_.depth
            : std::clamp<std::uint64_t>(kLocalBytes / load_.stride(), 1, load_.batch);
    sender.local = device_.allocate(*pd_, slots * load_.stride() + (pingpong ? load_.stride() : 0));
    // With signal_by=queue_pair, one completion of each queue pair may wait to be taken.
    const std::uint32_t waiting = load_.signal_by_queue ? load_.qps : 0;
    sender.cq = device_.create_completion_queue(load_.depth + waiting + kSpareEntries);
    if (pingpong) sender.receives = device_.create_completion_queue(kIdleEntries);
  }
}

void Connections::make_receivers() {
  if (!load_.two_sided() || !load_.is_server(env_.node()) || load_.measure == Measure::kPingPong)
    return;
  receivers_.resize(load_.server_threads);
  const fabric::Capabilities& can = device_.capabilities();
  const std::size_t targets = load_.connected() ? links_.size() / receivers_.size() + 1 : 1;
  for (Receiver& receiver : receivers_) {
    const std::uint32_t wanted = std::clamp<std::uint32_t>(8 * load_.depth, 64, kMostReceives);
    const auto share = static_cast<std::uint32_t>(can.max_completions / targets);
    const std::uint32_t strides = load_.receive_strides;
    receiver.depth =
        std::clamp(std::min(wanted, share) / strides, strides > 1 ? 2U : 1U, can.max_queue_entries);
    receiver.local = device_.allocate(*pd_, strides * (load_.stride() + fabric::kGrhBytes));
    receiver.cq = device_.create_completion_queue(receiver.depth * strides *
                                                  static_cast<std::uint32_t>(targets));
  }
}

fabric::QpOptions Connections::options() const {
  fabric::QpOptions options;
  options.transport = load_.transport;
  options.send_entries =
      // One entry more ends an unsignaled run; a ping-pong takes some.
      std::max(load_.depth + 1 + (load_.signal_by_queue ? 2 * load_.signal_every : 0), 64U);
  options.receive_entries = receivers_.empty() ? kIdleEntries : receivers_.front().depth;
  options.max_sges = 1;
  options.max_inline = load_.inlined ? load_.size : 0;
  options.max_outstanding_reads = device_.capabilities().max_outstanding_reads;
  return options;
}

// Returns the register of the node's queue pair number `queue_pair`.
Doorbell* Connections::doorbell_of(std::size_t queue_pair) {
  if (load_.doorbells == 0) return nullptr;
  if (doorbells_.empty()) {
    doorbells_.resize(load_.doorbells);
    for (auto& doorbell : doorbells_) doorbell = std::make_unique<Doorbell>();
  }
  const std::size_t own = std::min<std::size_t>(kOwnDoorbells, load_.doorbells - 1);
  if (queue_pair >= own) queue_pair = own + (queue_pair - own) % (load_.doorbells - own);
  return doorbells_[queue_pair].get();
}

fabric::CompletionQueue& Connections::receive_queue(const Link& link, std::size_t position) {
  if (load_.measure == Measure::kPingPong) return *senders_[link.sender].receives;
  return receivers_.empty() ? *idle_cq_ : *receivers_[position % receivers_.size()].cq;
}

void Connections::connect_links() {
  runtime::Mesh mesh(env_, params_.key("qps"));
  for (std::size_t i = 0; i < links_.size(); ++i) {
    const Link& link = links_[i];
    fabric::CompletionQueue& sends =
        link.sender == kNoThread ? *idle_cq_ : *senders_[link.sender].cq;
    qps_.push_back(device_.create_queue_pair(*pd_, sends, receive_queue(link, i), options()));
    mesh.add(link.peer, *qps_.back());
    if (!receivers_.empty())
      receivers_[i % receivers_.size()].targets.push_back({qps_.back().get(), nullptr});
  }
  mesh.connect(deadline_);
  for (std::size_t i = 0; i < links_.size(); ++i) {
    const Link& link = links_[i];
    if (link.sender == kNoThread) continue;
    senders_[link.sender].routes.push_back({qps_[i].get(), nullptr, 0, 0, &regions_of(link.peer),
                                            link.peer, link.client, doorbell_of(i)});
  }
}

// Makes the targets of connectionless requests. UD: a queue pair per receiving thread. DC: a target
// per receiving thread.
void Connections::make_targets() {
  if (!load_.is_server(env_.node())) return;
  const bool dc = load_.transport == fabric::Transport::kDc;
  const std::size_t count = receivers_.empty() ? 1 : receivers_.size();
  for (std::size_t i = 0; i < count; ++i) {
    fabric::CompletionQueue& receives = receivers_.empty() ? *idle_cq_ : *receivers_[i].cq;
    fabric::QpOptions wanted = options();
    wanted.dc_target = dc;
    if (!receivers_.empty()) wanted.receive_strides = load_.receive_strides;
    fabric::SharedReceiveQueue* shared = nullptr;
    if (dc) {
      shared_receives_.push_back(
          device_.create_shared_receive_queue(*pd_, wanted.receive_entries, 1));
      shared = shared_receives_.back().get();
    }
    qps_.push_back(device_.create_queue_pair(*pd_, *idle_cq_, receives, wanted, shared));
    qps_.back()->connect({});
    if (!receivers_.empty()) receivers_[i].targets.push_back({qps_.back().get(), shared});
  }
}

void Connections::publish_targets() {
  if (qps_.empty()) return;
  std::vector<fabric::QpAddress> addresses;
  for (const auto& qp : qps_) addresses.push_back(qp->address());
  runtime::publish_list(env_, key("targets", env_.node()), addresses);
}

void Connections::address_targets() {
  std::map<NodeId, std::vector<fabric::QpAddress>> targets;
  std::map<NodeId, std::vector<const fabric::AddressHandle*>> handles;
  // The queue pair of a thread, and its number within the node.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<fabric::QueuePair*, std::size_t>> own;
  for (const Link& link : links_) {
    auto& [qp, number] = own[{link.sender, link.qp}];
    if (qp == nullptr) {
      number = qps_.size();
      qps_.push_back(
          device_.create_queue_pair(*pd_, *senders_[link.sender].cq, *idle_cq_, options()));
      qp = qps_.back().get();
      qp->connect({});
    }
    const auto [at, fresh] = targets.try_emplace(link.peer);
    if (fresh) {
      at->second =
          runtime::await_list<fabric::QpAddress>(env_, key("targets", link.peer), deadline_);
      for (const fabric::QpAddress& address : at->second) {
        handles_.push_back(device_.create_address_handle(*pd_, address));
        handles[link.peer].push_back(handles_.back().get());
      }
    }
    const std::size_t which = link.client % at->second.size();
    const fabric::QpAddress& address = at->second[which];
    senders_[link.sender].routes.push_back({qp, handles[link.peer][which], address.qp_num,
                                            address.qkey, &regions_of(link.peer), link.peer,
                                            link.client, doorbell_of(number)});
  }
}

}  // namespace pyrdma::measure::verbs_load
