#include "runtime/messages/parts.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace pyrdma::runtime::messages {

std::string address_key(const std::string& name, NodeId node, std::uint32_t incarnation) {
  return name + '@' + std::to_string(node) + '.' + std::to_string(incarnation);
}

fabric::QpOptions connection_options(const fabric::Capabilities& can, std::uint32_t entries) {
  fabric::QpOptions options;
  options.transport = fabric::Transport::kRc;
  options.send_entries = entries;
  options.receive_entries = entries;
  options.max_sges = 1;
  options.max_inline = std::min(kInlineBytes, can.max_inline);
  return options;
}

bool post_message(Env& env, fabric::QueuePair& qp, const Slots& slots, std::uint64_t slot,
                  std::uint64_t number, std::uint64_t id, std::string_view data,
                  std::uint32_t max_inline) {
  const Header header{id};
  std::memcpy(slots.at(slot), &header, sizeof header);
  if (!data.empty()) std::memcpy(slots.at(slot) + sizeof header, data.data(), data.size());
  env.charge_copy(data.size());
  const auto length = static_cast<std::uint32_t>(sizeof header + data.size());
  std::uint8_t flags = fabric::kSignaled;
  if (length <= max_inline) flags |= fabric::kInline;
  return qp.send(slots.sge(slot, length), kSend | number, flags);
}

std::optional<Header> read_message(Env& env, const Slots& slots, std::uint64_t slot,
                                   std::uint32_t length, std::string& data) {
  Header header{};
  if (length < sizeof header || length > slots.slot_bytes) return std::nullopt;
  std::memcpy(&header, slots.at(slot), sizeof header);
  data.assign(reinterpret_cast<const char*>(slots.at(slot)) + sizeof header,
              length - sizeof header);
  env.charge_copy(data.size());
  return header;
}

void need(const fabric::Device& device) {
  const fabric::Capabilities& can = device.capabilities();
  if (can.rc && can.ud && can.srq) return;
  throw Error(ErrorCode::kUnavailable,
              "messages need connections, datagrams and shared receives, and device " +
                  device.name() + " lacks some; use another device, sim or shm");
}

void check_length(std::string_view data, std::uint32_t max_bytes, const char* what) {
  if (data.size() <= max_bytes) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(what) + " has " + std::to_string(data.size()) +
                  " bytes, and its inbox takes " + std::to_string(max_bytes) +
                  "; bind it with a larger max_bytes");
}

Datagrams::Datagrams(Env& env, fabric::ProtectionDomain& domain,
                     fabric::CompletionQueue& completions, MemoryPool& memory)
    : env_(env),
      domain_(domain),
      receives_(memory, kEntries, kDatagramBytes),
      sends_(memory, kSends, kDatagramBytes) {
  fabric::QpOptions options;
  options.transport = fabric::Transport::kUd;
  options.send_entries = kEntries;
  options.receive_entries = kEntries;
  options.max_sges = 1;
  qp_ = env.device().create_queue_pair(domain, completions, completions, options);
  qp_->connect({});
  for (std::uint64_t slot = 0; slot < kEntries; ++slot) free_.push_back(slot);
  post_receives();
}

bool Datagrams::post_receives() {
  if (free_.empty()) return true;
  if (qp_->state() == fabric::QpState::kError) return false;
  while (!free_.empty() &&
         qp_->receive(receives_.sge(free_.back(), kDatagramBytes), kDatagram | free_.back()))
    free_.pop_back();
  return free_.empty();
}

void Datagrams::recover() {
  if (free_.empty() || qp_->state() != fabric::QpState::kError) return;
  qp_->modify(fabric::QpState::kReset);
  qp_->connect({});
  post_receives();
}

void Datagrams::send(const fabric::QpAddress& to, std::string_view bytes) {
  std::unique_ptr<fabric::AddressHandle> handle;
  try {
    handle = env_.device().create_address_handle(domain_, to);
  } catch (const Error&) {
    return;  // the address of a peer that has ended, or of none
  }
  const std::uint64_t slot = next_send_ % kSends;
  std::memcpy(sends_.at(slot), bytes.data(), bytes.size());
  const fabric::Sge sge = sends_.sge(slot, static_cast<std::uint32_t>(bytes.size()));
  fabric::WorkRequest request;
  request.wr_id = kDatagram | kSend | slot;
  request.sges = &sge;
  request.sge_count = 1;
  request.opcode = fabric::Opcode::kSend;
  request.address_handle = handle.get();
  request.remote_qpn = to.qp_num;
  request.remote_qkey = to.qkey;
  if (qp_->post({&request, 1}).accepted != 1) return;
  handles_[slot] = std::move(handle);  // the send that had the slot last has ended
  ++next_send_;
}

Datagram Datagrams::take(const fabric::Completion& completion) {
  Datagram datagram;
  datagram.completion = completion;
  const std::uint64_t slot = completion.wr_id & ~kDatagram;
  if (slot >= kEntries) return datagram;
  if (completion.status == fabric::Status::kSuccess && completion.byte_count > fabric::kGrhBytes &&
      completion.byte_count <= kDatagramBytes) {
    std::memcpy(datagram.header.data(), receives_.at(slot), fabric::kGrhBytes);
    datagram.bytes.assign(reinterpret_cast<const char*>(receives_.at(slot)) + fabric::kGrhBytes,
                          completion.byte_count - fabric::kGrhBytes);
  }
  free_.push_back(slot);
  return datagram;
}

}  // namespace pyrdma::runtime::messages
