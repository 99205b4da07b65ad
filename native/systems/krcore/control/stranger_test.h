// A port of no service, which sends datagrams as it likes.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "env/env.h"
#include "fabric/fabric.h"

namespace pyrdma::krcore {

class Stranger {
 public:
  explicit Stranger(Env& env) : env_(env) {
    fabric::Device& device = env.device();
    device.open();
    domain_ = device.create_protection_domain();
    completions_ = device.create_completion_queue(kEntries);
    receives_ = device.create_completion_queue(kEntries);
    fabric::QpOptions options;
    options.transport = fabric::Transport::kUd;
    options.send_entries = options.receive_entries = kEntries;
    options.max_sges = 1;
    qp_ = device.create_queue_pair(*domain_, *completions_, *receives_, options);
    qp_->connect({});
    memory_ = device.allocate(*domain_, (1 + kEntries) * kSlot);
    for (std::uint32_t slot = 0; slot < kEntries; ++slot) receive(slot);
  }
  fabric::QpAddress port() const { return qp_->address(); }
  void send(const fabric::QpAddress& to, std::span<const std::byte> datagram) {
    ASSERT_LE(datagram.size(), kMostBytes);
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
    ASSERT_EQ(qp_->post({&request, 1}).accepted, 1u);
    fabric::Completion done;
    ASSERT_TRUE(env_.poll_until(
        [&] {
          return completions_->poll({&done, 1}) == 1;
        },
        env_.now() + kSecond));
  }

  /// Returns the next datagram that has come; nothing after a second.
  std::vector<std::byte> take() {
    fabric::Completion wc;
    if (!env_.poll_until([&] { return receives_->poll({&wc, 1}) == 1; }, env_.now() + kSecond))
      return {};
    const std::byte* at = memory_->data() + (1 + wc.wr_id) * kSlot;
    const std::vector<std::byte> datagram(at + fabric::kGrhBytes, at + wc.byte_count);
    receive(static_cast<std::uint32_t>(wc.wr_id));
    return datagram;
  }

 private:
  static constexpr std::uint32_t kEntries = 8;
  static constexpr std::uint32_t kSlot = 1024, kMostBytes = 512;
  void receive(std::uint32_t slot) {
    qp_->receive(memory_->sge(std::size_t{1 + slot} * kSlot, kSlot), slot);
  }
  Env& env_;
  std::unique_ptr<fabric::ProtectionDomain> domain_;
  std::unique_ptr<fabric::CompletionQueue> completions_, receives_;
  std::unique_ptr<fabric::QueuePair> qp_;
  std::unique_ptr<fabric::MemoryRegion> memory_;
};

}  // namespace pyrdma::krcore
