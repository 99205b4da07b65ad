// A fixture for tests of the fabric's contract that post requests of any opcode.
#pragma once
#include <span>

#include "fabric/contract_worlds_test.h"

namespace pyrdma::fabric {

inline constexpr Opcode kAllRequests[] = {Opcode::kWrite,      Opcode::kWriteImm, Opcode::kSend,
                                          Opcode::kSendImm,    Opcode::kRead,     Opcode::kFetchAdd,
                                          Opcode::kCompareSwap};
inline constexpr Opcode kRemoteRequests[] = {Opcode::kWrite, Opcode::kWriteImm, Opcode::kRead,
                                             Opcode::kFetchAdd, Opcode::kCompareSwap};

class FabricRequests : public FabricContract {
 protected:
  /// Returns a request to the beginning of b's memory. The pieces must outlive it.
  WorkRequest request_to_b(Opcode opcode, std::span<const Sge> pieces, std::uint64_t wr_id = 1) {
    WorkRequest request;
    request.wr_id = wr_id;
    request.sges = pieces.data();
    request.sge_count = static_cast<std::uint32_t>(pieces.size());
    request.opcode = opcode;
    request.remote_addr = b->memory->addr();
    request.rkey = b->memory->rkey();
    request.compare_add = 1;
    request.swap = 1;
    return request;
  }
  bool post(const WorkRequest& request) { return qa->post({&request, 1}).accepted == 1; }
  void expect_receive(std::uint64_t wr_id, Status status = Status::kSuccess) {
    const Completion completion = b->await_receive();
    EXPECT_EQ(completion.wr_id, wr_id);
    EXPECT_STREQ(to_string(completion.status), to_string(status));
  }
  /// The next completion of a's sends has `wr_id` and a status of its own side's error.
  void expect_local_error(std::uint64_t wr_id) {
    const Completion completion = a->await_send();
    EXPECT_EQ(completion.wr_id, wr_id);
    EXPECT_TRUE(world->is_local_error(completion.status)) << to_string(completion.status);
  }
  bool reaches(Side& side, QueuePair& queue_pair, QpState state) {
    return side.env.poll_until([&] { return queue_pair.state() == state; },
                               side.env.now() + side.timeout);
  }
  /// A silent peer costs two seconds and more on Soft-RoCE, whatever the options say.
  QpOptions impatient() {
    QpOptions options;
    options.retry_count = 1;
    options.timeout_us = 200;
    return options;
  }
  void join() {
    qa->connect(qb->address());
    qb->connect(qa->address());
  }
};

}  // namespace pyrdma::fabric
