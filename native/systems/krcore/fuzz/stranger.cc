#include "systems/krcore/fuzz/stranger.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/assert.h"

namespace pyrdma::krcore::scenario {

Stranger::Stranger(Env& env, std::uint32_t receives) : env_(env) {
  fabric::Device& device = env.device();
  device.open();
  domain_ = device.create_protection_domain();
  sent_ = device.create_completion_queue(kSends);
  received_ = device.create_completion_queue(std::max(receives, 1U));
  fabric::QpOptions options;
  options.transport = fabric::Transport::kUd;
  options.send_entries = kSends;
  options.receive_entries = std::max(receives, 1U);
  options.max_sges = 1;
  qp_ = device.create_queue_pair(*domain_, *sent_, *received_, options);
  qp_->connect({});
  memory_ = device.allocate(*domain_, std::size_t{1 + receives} * kSlot);
  for (std::uint32_t slot = 0; slot < receives; ++slot) receive(slot);
}

void Stranger::receive(std::uint32_t slot) {
  qp_->receive(memory_->sge(std::size_t{1 + slot} * kSlot, kSlot), slot);
}

bool Stranger::send(const fabric::QpAddress& to, std::span<const std::byte> datagram) {
  PYRDMA_CHECK(datagram.size(), <=, kMostBytes);
  if (qp_->state() == fabric::QpState::kSendQueueError) qp_->modify(fabric::QpState::kReadyToSend);
  const auto handle = env_.device().create_address_handle(*domain_, to);
  std::memcpy(memory_->data(), datagram.data(), datagram.size());
  const fabric::Sge sge = memory_->sge(0, static_cast<std::uint32_t>(datagram.size()));
  fabric::WorkRequest request;
  request.sges = &sge;
  request.sge_count = 1;
  request.opcode = fabric::Opcode::kSend;
  request.address_handle = handle.get();
  request.remote_qpn = to.qp_num;
  request.remote_qkey = to.qkey;
  if (qp_->post({&request, 1}).accepted != 1) return false;
  fabric::Completion done;
  return env_.poll_until([&] { return sent_->poll({&done, 1}) == 1; }, kForever);
}

std::vector<std::byte> Stranger::take() {
  fabric::Completion wc;
  if (!env_.poll_until([&] { return received_->poll({&wc, 1}) == 1; }, env_.now() + kSecond))
    return {};
  const std::byte* at = memory_->data() + (1 + wc.wr_id) * kSlot;
  const std::vector<std::byte> datagram(at + fabric::kGrhBytes, at + wc.byte_count);
  receive(static_cast<std::uint32_t>(wc.wr_id));
  return datagram;
}

std::string port_key(const std::string& service, NodeId node, std::uint32_t life) {
  return service + "/service/" + std::to_string(node) + "/" + std::to_string(life);
}

namespace {

std::optional<fabric::QpAddress> port_of(World& world, Env& env, NodeId node, std::uint32_t life) {
  const auto bytes = env.device().rendezvous().find(port_key(world.shape.service.name, node, life));
  fabric::QpAddress port;
  if (!bytes || bytes->size() != sizeof port) return std::nullopt;
  std::memcpy(&port, bytes->data(), sizeof port);
  if (port.node == fabric::kNoNode) return std::nullopt;  // a life that had none
  return port;
}

}  // namespace

void send_forged(World& world, Env& env) {
  Stranger own(env);
  Rng rng = env.rng("forged");
  const auto node = [&] { return static_cast<NodeId>(rng.below(world.options.nodes)); };
  while (!world.is_over) {
    env.sleep_until(env.now() + static_cast<Time>((10 + rng.below(200)) * kMicrosecond));
    ControlMessage message;
    message.kind = static_cast<ControlKind>(rng.below(static_cast<unsigned>(ControlKind::kCount)));
    message.to = node();
    message.from = node();
    const std::uint32_t life = world.nodes[message.from].life;
    message.incarnation =
        rng.below(3) == 0 ? life + static_cast<std::uint32_t>(rng.below(4)) : life;
    if (rng.below(2) == 0) message.to_incarnation = world.nodes[message.to].life;
    message.ticket = rng.below(100);
    message.meta = {static_cast<std::uint32_t>(rng()), static_cast<std::uint32_t>(rng()),
                    message.incarnation};
    message.queue_pair = own.port();
    message.queue_pair.node = message.from;
    message.port = own.port();
    // The port of the node that it names, as its peers know it.
    if (rng.below(2) == 0)
      message.port = port_of(world, env, message.from, life).value_or(own.port());
    message.sum = sum_of(message);
    if (const auto to = port_of(world, env, message.to, world.nodes[message.to].life))
      own.send(*to, std::as_bytes(std::span(&message, 1)));
  }
}

}  // namespace pyrdma::krcore::scenario
