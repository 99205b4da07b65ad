// A port of no service, which sends datagrams as it likes.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>

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
    fabric::QpOptions options;
    options.transport = fabric::Transport::kUd;
    options.send_entries = options.receive_entries = kEntries;
    options.max_sges = 1;
    qp_ = device.create_queue_pair(*domain_, *completions_, *completions_, options);
    qp_->connect({});
    memory_ = device.allocate(*domain_, kMostBytes);
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

 private:
  static constexpr std::uint32_t kEntries = 8;
  static constexpr std::size_t kMostBytes = 512;
  Env& env_;
  std::unique_ptr<fabric::ProtectionDomain> domain_;
  std::unique_ptr<fabric::CompletionQueue> completions_;
  std::unique_ptr<fabric::QueuePair> qp_;
  std::unique_ptr<fabric::MemoryRegion> memory_;
};

}  // namespace pyrdma::krcore
