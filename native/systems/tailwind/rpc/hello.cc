#include "systems/tailwind/rpc/hello.h"

#include <cstddef>
#include <cstring>

#include "base/checksum.h"
#include "base/error.h"
#include "fabric/sender.h"

namespace pyrdma::tailwind {

std::uint64_t sum_of(const Hello& hello) {
  return checksum(std::as_bytes(std::span(&hello, 1)).first(offsetof(Hello, sum)));
}

std::string place_of(const std::string& name, ServerId server) {
  return name + "/at/" + std::to_string(server.node) + "/" + std::to_string(server.life);
}

HelloPort::HelloPort(Env& env, fabric::ProtectionDomain& domain,
                     fabric::CompletionQueue& completions, const std::string& name, ServerId self)
    : env_(env), domain_(domain), name_(name) {
  fabric::Device& device = env.device();
  memory_ = device.allocate(domain, std::size_t{kReceives + kSends} * kSlot);
  fabric::QpOptions options;
  options.transport = fabric::Transport::kUd;
  options.send_entries = kSends;
  options.receive_entries = kReceives;
  options.max_sges = 1;
  qp_ = device.create_queue_pair(domain, completions, completions, options);
  qp_->connect({});
  for (std::uint32_t slot = 0; slot < kReceives; ++slot) receive(slot);
  address_ = qp_->address();
  for (std::uint32_t incarnation = self.incarnation(); incarnation-- > 0;) {
    const ServerId earlier = ServerId::of_server(self.node, incarnation, 0);
    if (was_there(earlier)) break;
    device.rendezvous().publish_value(place_of(name_, earlier), std::uint8_t{0});
  }
  device.rendezvous().publish_value(place_of(name, self), address_);
}

bool HelloPort::was_there(ServerId server) const {
  return env_.device().rendezvous().find(place_of(name_, server)).has_value();
}

Doorbell HelloPort::doorbell(const fabric::QpAddress& address) {
  return {address, env_.device().create_address_handle(domain_, address)};
}

std::optional<Doorbell> HelloPort::find(ServerId server) {
  const auto bytes = env_.device().rendezvous().find(place_of(name_, server));
  fabric::QpAddress address;
  if (!bytes || bytes->size() != sizeof address) return std::nullopt;
  std::memcpy(&address, bytes->data(), sizeof address);
  try {
    return doorbell(address);
  } catch (const Error&) {
    return std::nullopt;  // the host may come back
  }
}

// The queue pair stays in service whatever happens to a datagram. Sends end in their order, so the
// request that had the slot last has ended when not all slots are in use.
void HelloPort::send(const Doorbell& to, Hello hello) {
  if (sending_ == kSends) return;
  hello.port = address_;
  hello.sum = sum_of(hello);
  const std::uint32_t slot = kReceives + next_send_ % kSends;
  std::memcpy(memory_->data() + std::size_t{slot} * kSlot, &hello, sizeof hello);
  const fabric::Sge sge = memory_->sge(std::size_t{slot} * kSlot, sizeof hello);
  handles_[slot - kReceives] = to.handle;
  fabric::WorkRequest request;
  request.wr_id = kFirstId + slot;
  request.sges = &sge;
  request.sge_count = 1;
  request.opcode = fabric::Opcode::kSend;
  request.address_handle = to.handle.get();
  request.remote_qpn = to.address.qp_num;
  request.remote_qkey = to.address.qkey;
  if (qp_->post({&request, 1}).accepted != 1) return;
  ++next_send_;
  ++sending_;
}

void HelloPort::receive(std::uint64_t slot) {
  qp_->receive(memory_->sge(slot * kSlot, kSlot), kFirstId + slot);
}

// A queue pair that fails begins anew, at the same address, when all its receives have ended. After
// a send that failed they would go on.
std::optional<ReceivedHello> HelloPort::take(const fabric::Completion& completion) {
  const std::uint64_t slot = completion.wr_id - kFirstId;
  if (qp_->state() == fabric::QpState::kSendQueueError) qp_->modify(fabric::QpState::kError);
  if (slot >= kReceives) {
    if (sending_ != 0) --sending_;
    return std::nullopt;
  }
  if (completion.status == fabric::Status::kFlushed) {
    if (++ended_receives_ < kReceives) return std::nullopt;
    env_.reached("tailwind/port_anew");
    ended_receives_ = sending_ = 0;
    qp_->modify(fabric::QpState::kReset);
    qp_->connect({});
    for (std::uint32_t each = 0; each < kReceives; ++each) receive(each);
    return std::nullopt;
  }
  std::optional<ReceivedHello> received;
  const std::byte* datagram = memory_->data() + slot * kSlot;
  if (completion.status == fabric::Status::kSuccess &&
      completion.byte_count == sizeof(Hello) + fabric::kGrhBytes) {
    Hello hello;
    std::memcpy(&hello, datagram + fabric::kGrhBytes, sizeof hello);
    if (hello.magic == Hello::kMagic && hello.sum == sum_of(hello) &&
        hello.kind <= Hello::Kind::kTaken && hello.is_log <= 1)
      received = {hello, fabric::is_from(completion, datagram, hello.port)};
  }
  receive(slot);
  return received;
}

}  // namespace pyrdma::tailwind
