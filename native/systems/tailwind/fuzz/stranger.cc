#include "systems/tailwind/fuzz/stranger.h"

#include <cstring>
#include <utility>

namespace pyrdma::tailwind::scenario {

Stranger::Stranger(Env& env, std::string name) : env_(env), name_(std::move(name)) {
  fabric::Device& device = env.device();
  device.open();
  domain_ = device.create_protection_domain();
  completions_ = device.create_completion_queue(2 * kSends);
  memory_ = device.allocate(*domain_, std::size_t{kSends} * kSlot);
  fabric::QpOptions options;
  options.transport = fabric::Transport::kUd;
  options.send_entries = kSends;
  options.receive_entries = 1;
  options.max_sges = 1;
  qp_ = device.create_queue_pair(*domain_, *completions_, *completions_, options);
  qp_->connect({});
}

Hello Stranger::knock(ServerId from, ServerId to) const {
  Hello hello;
  hello.nonce = 1;
  hello.from = from.number();
  hello.to = to.number();
  hello.address = hello.port = qp_->address();
  return hello;
}

Hello Stranger::draw(Rng& rng, const Options& options, ServerId to) const {
  const ServerId self = ServerId::of_client(env_.node(), env_.incarnation(),
                                            static_cast<std::uint32_t>(rng.below(8)));
  const auto other = ServerId::of_server(static_cast<NodeId>(rng.below(options.servers)), 0,
                                         static_cast<std::uint32_t>(rng.below(2)));
  Hello hello = knock(rng.below(2) == 0 ? self : other, to);
  hello.nonce = rng.below(2) == 0 ? ~rng.below(100) : rng();
  hello.is_log = rng.below(2);
  hello.kind = static_cast<Hello::Kind>(rng.below(8) == 0 ? 1 + rng.below(2) : 0);
  fabric::QpAddress& address = rng.below(2) == 0 ? hello.address : hello.port;
  switch (rng.below(4)) {
    case 0:
      address.node = static_cast<NodeId>(rng.below(2) == 0 ? rng() : rng.below(env_.nodes()));
      break;
    case 1:
      address.lid = static_cast<std::uint16_t>(rng());
      break;
    case 2:
      address.qp_num = static_cast<std::uint32_t>(rng());
      break;
    default:
      break;
  }
  return hello;
}

void Stranger::send(ServerId to, Hello hello) {
  fabric::Rendezvous& rendezvous = env_.device().rendezvous();
  const auto bytes = rendezvous.find(place_of(name_, to));
  fabric::QpAddress place;
  if (!bytes || bytes->size() != sizeof place) return;
  std::memcpy(&place, bytes->data(), sizeof place);
  std::array<fabric::Completion, kSends> done;
  ended_ += static_cast<std::uint32_t>(completions_->poll(done));
  if (next_ - ended_ == kSends) return;
  hello.sum = sum_of(hello);
  const std::uint32_t slot = next_ % kSends;
  std::memcpy(memory_->data() + std::size_t{slot} * kSlot, &hello, sizeof hello);
  const fabric::Sge sge = memory_->sge(std::size_t{slot} * kSlot, sizeof hello);
  handles_[slot] = env_.device().create_address_handle(*domain_, place);
  fabric::WorkRequest request;
  request.sges = &sge;
  request.sge_count = 1;
  request.opcode = fabric::Opcode::kSend;
  request.address_handle = handles_[slot].get();
  request.remote_qpn = place.qp_num;
  request.remote_qkey = place.qkey;
  if (qp_->post({&request, 1}).accepted == 1) ++next_;
}

}  // namespace pyrdma::tailwind::scenario
