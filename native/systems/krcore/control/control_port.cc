#include "systems/krcore/control/control_port.h"

#include <cstring>

#include "fabric/sender.h"

namespace pyrdma::krcore {

ControlPort::ControlPort(Env& env, fabric::ProtectionDomain& domain, Bugs bugs)
    : env_(env), bugs_(bugs) {
  fabric::Device& device = env.device();
  memory_ = device.allocate(domain, std::size_t{kReceives + kSends} * kSlot);
  completions_ = device.create_completion_queue(kReceives + kSends);
  fabric::QpOptions options;
  options.transport = fabric::Transport::kUd;
  options.send_entries = kSends;
  options.receive_entries = kReceives;
  options.max_sges = 1;
  qp_ = device.create_queue_pair(domain, *completions_, *completions_, options);
  qp_->connect({});
  for (std::uint32_t slot = 0; slot < kReceives; ++slot) receive(slot);
  address_ = qp_->address();
}

void ControlPort::send(const std::shared_ptr<fabric::AddressHandle>& handle,
                       const fabric::QpAddress& to, ControlMessage message) {
  message.port = address_;
  message.sum = sum_of(message);
  const std::uint32_t slot = next_send_++ % kSends;
  const std::size_t at = std::size_t{kReceives + slot} * kSlot;
  std::memcpy(memory_->data() + at, &message, sizeof message);
  const fabric::Sge sge = memory_->sge(at, sizeof message);
  handles_[slot] = handle;
  fabric::WorkRequest request;
  request.wr_id = kReceives + slot;
  request.sges = &sge;
  request.sge_count = 1;
  request.opcode = fabric::Opcode::kSend;
  request.address_handle = handle.get();
  request.remote_qpn = to.qp_num;
  request.remote_qkey = to.qkey;
  qp_->post({&request, 1});
}

void ControlPort::receive(std::uint32_t slot) {
  qp_->receive(memory_->sge(std::size_t{slot} * kSlot, kSlot), slot);
}

// A queue pair that fails begins anew, at the same address, when all its receives have ended.
std::optional<ControlMessage> ControlPort::take() {
  fabric::Completion completion;
  while (completions_->poll({&completion, 1}) == 1) {
    if (qp_->state() == fabric::QpState::kSendQueueError) qp_->modify(fabric::QpState::kError);
    if (completion.wr_id >= kReceives) continue;  // a send
    if (completion.status == fabric::Status::kFlushed) {
      if (++ended_receives_ < kReceives) continue;
      env_.reached("krcore/port_anew");
      ended_receives_ = 0;
      qp_->modify(fabric::QpState::kReset);
      qp_->connect({});
      for (std::uint32_t slot = 0; slot < kReceives; ++slot) receive(slot);
      continue;
    }
    const auto slot = static_cast<std::uint32_t>(completion.wr_id);
    const std::byte* datagram = memory_->data() + std::size_t{slot} * kSlot;
    std::optional<ControlMessage> message;
    if (completion.status == fabric::Status::kSuccess &&
        completion.byte_count >= fabric::kGrhBytes) {
      message =
          parse_control(datagram + fabric::kGrhBytes, completion.byte_count - fabric::kGrhBytes);
    }
    const bool is_believed = message && ((message->port.node == message->from &&
                                          fabric::is_from(completion, datagram, message->port)) ||
                                         bugs_.has(Bug::kStrangersBelieved));
    receive(slot);
    if (is_believed) return message;
    if (!message) continue;
    env_.reached("krcore/stranger");
  }
  return std::nullopt;
}

}  // namespace pyrdma::krcore
