#include "fabric/sim/nic.h"

#include <algorithm>
#include <string>

#include "env/trace.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {

NicTimes::NicTimes(const SimProfile& p)
    : doorbell(to_picos(p.pcie_doorbell_ns)),
      dma_read(to_picos(p.pcie_read_ns)),
      dma_write(to_picos(p.pcie_write_ns)),
      tx_latency(to_picos(p.nic_tx_latency_ns)),
      rx_latency(to_picos(p.nic_rx_latency_ns)),
      tx_packet(to_picos(p.nic_tx_packet_ns)),
      rx_packet(to_picos(p.nic_rx_packet_ns)),
      tx_message(to_picos(p.nic_tx_message_ns)),
      qp_message(to_picos(p.nic_qp_message_ns)),
      qp_read(to_picos(p.nic_qp_read_ns)),
      rx_write(to_picos(p.nic_rx_write_ns)),
      rx_read(to_picos(p.nic_rx_read_ns)),
      rx_send(to_picos(p.nic_rx_send_ns)),
      rx_atomic(to_picos(p.nic_rx_atomic_ns)),
      rx_ack(to_picos(p.nic_rx_ack_ns)),
      scatter(to_picos(p.nic_scatter_ns)),
      atomic_address(to_picos(p.nic_atomic_address_ns)),
      device_atomic_address(to_picos(p.nic_device_atomic_address_ns)),
      completion(to_picos(p.nic_completion_ns)),
      payload_fetch(to_picos(p.nic_dma_read_ns)),
      qp_miss(to_picos(p.nic_qp_miss_ns)),
      mr_miss(to_picos(p.nic_mr_miss_ns)),
      request_miss(to_picos(p.nic_request_miss_ns)),
      dc_message(to_picos(p.nic_dc_message_ns)),
      dc_reconnect(to_picos(p.nic_dc_reconnect_ns)),
      device_memory_saving(to_picos(p.nic_device_memory_saving_ns)),
      post(to_picos(p.cpu_post_ns)),
      post_request(to_picos(p.cpu_post_request_ns)),
      poll(to_picos(p.cpu_poll_ns)),
      empty_poll(to_picos(p.cpu_empty_poll_ns)) {}

Fabric::Fabric(const SimOptions& options, SimScheduler& owner)
    : profile(options.profile),
      times(options.profile),
      scheduler(owner),
      network(profile, options.nodes, options.devices_per_node, options.seed),
      nodes(options.nodes),
      devices(options.devices_per_node),
      reachability(options.nodes) {}

Nic& Fabric::nic_of(const QpAddress& address) const {
  if (address.node < nodes && address.lid < devices) return nic(address.node, address.lid);
  throw Error(ErrorCode::kInvalidArgument,
              "peer is the address of device " + std::to_string(address.lid) + " of node " +
                  std::to_string(address.node) + "; this cluster has nodes 0 to " +
                  std::to_string(nodes - 1) + " with devices 0 to " + std::to_string(devices - 1));
}

Fabric::~Fabric() {
  for (QueuePairCore* core : orphans) delete core;
}

// The NICs of one node draw the same numbers and keys, as real NICs may. Only the pair of device
// and number is unique.
Nic::Nic(Fabric& fabric, std::uint32_t port, const SimOptions& options, SimEnv& env)
    : fabric_(fabric),
      port_(port),
      node_(port % options.nodes),
      env_(env),
      packet_numbers_(env.rng("packet sequence numbers")),
      seed_(options.seed),
      regions(Rng(options.seed, node_, kKeys), 32),
      queue_pairs(Rng(options.seed, node_, kNumbers), 24),
      contexts(*this, fabric.profile.nic_cache_bytes, Rng(options.seed, port, "nic cache")),
      pcie(fabric.profile),
      jitter(*this, options, Rng(options.seed, port, "variance")),
      weak_memory(*this, options.memory, Rng(options.seed, port, "memory model")),
      retransmitter(*this, Rng(options.seed, port, "retry timer")) {}

void Nic::charge_post(std::size_t requests) {
  const NicTimes& t = times();
  fabric_.scheduler.charge(t.post + t.post_request * static_cast<Picos>(requests));
  env_.charge_hop();
}

void Nic::write_trace(const char* what, const Message& message, Picos now) {
  const RequestHeader& header = message.header;
  std::string details = to_string(header.opcode);
  details += " " + std::to_string(header.sequence) + ", " + std::to_string(header.total) + " bytes";
  if (message.chunk.offset > 0) details += " from " + std::to_string(message.chunk.offset);
  if (message.status != Status::kSuccess) details += std::string(", ") + to_string(message.status);
  env_.trace().event(now / kPicosPerNano, what, details);
}

TimelineWhat Nic::describe(const Message& message) {
  const QueuePairCore& qp = *message.initiator;
  const bool response = message.is_response() || (message.stage < Message::Stage::kRequestArrives &&
                                                  message.owner == &qp.nic);
  return {.name = to_string(message.header.opcode),
          .request = {qp.nic.port(), qp.number, message.header.sequence},
          .bytes = message.header.total,
          .part = response ? TimelineWhat::Part::kResponse : TimelineWhat::Part::kPlain};
}

void Nic::write_slice(TimelineRow row, const Message& message, Picos from, Picos to) {
  timeline()->slice(place(row), from, to, describe(message));
}

void Nic::write_mark(TimelineRow row, const char* what, const Message& message, Picos now) {
  TimelineWhat says = describe(message);
  says.name = what;
  says.part = TimelineWhat::Part::kPlain;
  timeline()->mark(place(row), now, says);
}

// ---- faults ----

void Fabric::mark(std::uint32_t node, const char* what, Picos until) const {
  const bool many = node == kManyNodes;
  Trace& trace = nic(many ? 0 : node, 0).env().trace();
  const Picos now = scheduler.clock();
  if (trace.enabled()) {
    std::string details = what;
    if (until > now) details += " until " + std::to_string(until / kPicosPerNano) + " ns";
    trace.event(now / kPicosPerNano, many ? "fault of several nodes" : "fault", details);
  }
  if (Timeline* timeline = scheduler.timeline()) {
    const TimelinePlace place{many ? TimelineRow::kCluster : TimelineRow::kFaults, many ? 0 : node};
    if (until > now)
      timeline->slice(place, now, until, {.name = what});
    else
      timeline->mark(place, now, {.name = what});
  }
}

void Nic::count_reached(Fault fault) {
  ++fabric_.fault_counters.reached[static_cast<std::size_t>(fault)];
  hear(fault, true);
}

// A fault of the kind kDraw has its effect once, about when it fires. Others have effects later.
void Nic::hear(Fault fault, bool reached) {
  const FaultInfo& info = fault_info(fault);
  if (reached != (info.draw == FaultDraw::kDraw)) fabric_.mark(node_, info.key.data());
}

// ---- the life of the node ----

void Nic::set_faults(std::unique_ptr<NicFaults> faults) {
  faults_ = std::move(faults);
  faults_->stream.listen([this](Fault fault, bool reached) { hear(fault, reached); });
  if (device() == 0) env_.set_faults(&faults_->stream);
}

void Nic::die(bool torn) {
  dead_ = true;
  queue_pairs.for_each([](QueuePairCore& qp) { qp.crashed = true; });
  for (PlacementQueue* queue : fabric_.placing) queue->crash(*this, torn);
}

void Nic::save_memory() {
  std::vector<const Region*> saved;
  for (std::uint32_t device = 0; device < fabric_.devices; ++device) {
    fabric_.nic(node_, device).regions.for_each([&saved](const Region& region) {
      if (!region.on_device) saved.push_back(&region);
    });
  }
  std::sort(saved.begin(), saved.end(),
            [](const Region* a, const Region* b) { return a->serial < b->serial; });
  for (std::size_t i = 0; i < saved.size(); ++i)
    env_.disk().preserve("memory-" + std::to_string(i), {saved[i]->data, saved[i]->size});
}

void Nic::revive() {
  dead_ = false;
  queue_pairs.for_each([](QueuePairCore& qp) { qp.state = QpState::kError; });
  queue_pairs.clear();
  regions.clear();
  if (faults_ != nullptr && faults_->stream.fire(Fault::number_reuse)) {
    faults_->stream.reach(Fault::number_reuse);
    reseed_numbers(node_);
  }
}

void Nic::fail_until(Picos until) {
  failed_until_ = std::max(failed_until_, until);
  fabric_.nic_has_failed = true;
  queue_pairs.for_each([](QueuePairCore& qp) { qp.enter_error(); });
}

void Nic::heal() {
  failed_until_ = 0;
  const Picos now = fabric_.scheduler.clock();
  ingress.drop_backlog(now);
  responder.drop_backlog(now);
  requester.drop_backlog(now);
}

void Nic::reseed_numbers(std::uint32_t node) {
  regions.reseed(Rng(seed_, node, kKeys));
  queue_pairs.reseed(Rng(seed_, node, kNumbers));
}

}  // namespace pyrdma::fabric::sim
