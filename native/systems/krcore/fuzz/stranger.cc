#include "systems/krcore/fuzz/stranger.h"

#include <cstring>
#include <memory>
#include <optional>
#include <string>

namespace pyrdma::krcore::scenario {

namespace {

/// A datagram queue pair of no service. What it sends may be lost.
class ForgedPort {
 public:
  explicit ForgedPort(Env& env) : env_(env) {
    fabric::Device& device = env.device();
    domain_ = device.create_protection_domain();
    completions_ = device.create_completion_queue(kEntries);
    fabric::QpOptions options;
    options.transport = fabric::Transport::kUd;
    options.send_entries = options.receive_entries = kEntries;
    options.max_sges = 1;
    qp_ = device.create_queue_pair(*domain_, *completions_, *completions_, options);
    qp_->connect({});
    memory_ = device.allocate(*domain_, sizeof(ControlMessage));
  }
  fabric::QpAddress address() const { return qp_->address(); }
  void send(const fabric::QpAddress& to, const ControlMessage& message) {
    if (qp_->state() == fabric::QpState::kSendQueueError)
      qp_->modify(fabric::QpState::kReadyToSend);
    const auto handle = env_.device().create_address_handle(*domain_, to);
    std::memcpy(memory_->data(), &message, sizeof message);
    const fabric::Sge sge = memory_->sge(0, sizeof message);
    fabric::WorkRequest request;
    request.sges = &sge;
    request.sge_count = 1;
    request.opcode = fabric::Opcode::kSend;
    request.address_handle = handle.get();
    request.remote_qpn = to.qp_num;
    request.remote_qkey = to.qkey;
    if (qp_->post({&request, 1}).accepted != 1) return;
    fabric::Completion done;
    env_.poll_until([&] { return completions_->poll({&done, 1}) == 1; }, kForever);
  }

 private:
  static constexpr std::uint32_t kEntries = 4;
  Env& env_;
  std::unique_ptr<fabric::ProtectionDomain> domain_;
  std::unique_ptr<fabric::CompletionQueue> completions_;
  std::unique_ptr<fabric::QueuePair> qp_;
  std::unique_ptr<fabric::MemoryRegion> memory_;
};

std::optional<fabric::QpAddress> port_of(World& world, Env& env, NodeId node, std::uint32_t life) {
  const auto bytes = env.device().rendezvous().find(
      world.shape.service.name + "/service/" + std::to_string(node) + "/" + std::to_string(life));
  fabric::QpAddress port;
  if (!bytes || bytes->size() != sizeof port) return std::nullopt;
  std::memcpy(&port, bytes->data(), sizeof port);
  if (port.node == fabric::kNoNode) return std::nullopt;  // a life that had none
  return port;
}

}  // namespace

void send_forged(World& world, Env& env) {
  ForgedPort own(env);
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
    message.queue_pair = own.address();
    message.queue_pair.node = message.from;
    message.port = own.address();
    // The port of the node that it names, as its peers know it.
    if (rng.below(2) == 0)
      message.port = port_of(world, env, message.from, life).value_or(own.address());
    message.sum = sum_of(message);
    if (const auto to = port_of(world, env, message.to, world.nodes[message.to].life))
      own.send(*to, message);
  }
}

}  // namespace pyrdma::krcore::scenario
