// The fabric's contract as scenarios: two nodes, a and b, with a queue pair each. The files are
// fabric/scenarios/*.txt; equal steps show the same in every world.
#include <stdexcept>

#include "base/error.h"
#include "base/scenario_test.h"
#include "fabric/contract_worlds_test.h"

namespace pyrdma::fabric {
namespace {

class FabricScenarios : public FabricContract {
 protected:
  void run(const std::string& name) {
    run_scenario("fabric/scenarios/" + name + ".txt",
                 [this](const ScenarioStep& step) { return act(step); });
  }

 private:
  /// Carries out a step; see the files for what each does.
  std::string act(const ScenarioStep& step) {
    const std::string& command = step.command;
    if (command == "connect" || command == "start") {
      QpOptions options;
      options.rnr_retry = static_cast<std::uint8_t>(step.setting("rnr_retry", options.rnr_retry));
      extra.reset();
      connect(options);
      if (command == "start")
        for (auto* queue_pair : {qa.get(), qb.get()}) queue_pair->modify(QpState::kReset);
      return "";
    }
    const std::string node = step.word(0);
    if (node != "a" && node != "b") throw step.wrong("needs a node, a or b");
    Side& side = node == "a" ? *a : *b;
    Side& other = node == "a" ? *b : *a;
    auto& queue_pair = node == "a" ? qa : qb;
    if (command == "write" || command == "send") {
      const Sge sge = side.memory->sge(0, 8);
      WorkRequest request;
      request.sges = &sge;
      request.sge_count = 1;
      request.opcode = command == "send" ? Opcode::kSend : Opcode::kWrite;
      request.wr_id = step.number(1);
      const std::string key = step.setting("key", "good");
      const RemoteRegion target = key == "extra" ? extra_remote : other.memory->remote();
      request.remote_addr = target.addr + step.setting("offset", std::uint64_t{0});
      request.rkey = key == "wrong" ? target.rkey ^ 1 : target.rkey;
      return posted(node, request.wr_id, queue_pair->post({&request, 1}));
    }
    if (command == "receive") {
      const Sge sge = side.memory->sge(0, 8);
      const ReceiveRequest request{step.number(1), &sge, 1};
      return posted(node, request.wr_id, queue_pair->post_receive({&request, 1}));
    }
    if (command == "await") {
      const std::string direction = step.word(1);
      const Completion completion = direction == "send" ? side.await_send() : side.await_receive();
      return node + ' ' + direction + ' ' + std::to_string(completion.wr_id) + ": " +
             to_string(completion.status);
    }
    if (command == "modify") {
      const QpAddress peer = (node == "a" ? qb : qa)->address();
      const bool with_peer = step.setting("peer", "") == "other";
      const std::string state = step.word(1);
      return state_after(node, *queue_pair, [&] {
        queue_pair->modify(state_named(step, state), with_peer ? &peer : nullptr);
      });
    }
    if (command == "join") {
      const QpAddress peer = (node == "a" ? qb : qa)->address();
      return state_after(node, *queue_pair, [&] { queue_pair->connect(peer); });
    }
    if (command == "state") return state_after(node, *queue_pair, [] {});
    if (command == "is_quiet") return node + (side.quiet(*side.sends) ? " is quiet" : " is not");
    if (command == "store") return *side.word(0) = step.number(1), "";
    if (command == "load") return node + ": " + std::to_string(side.load_word(step.number(1)));
    if (command == "destroy") return queue_pair.reset(), "";
    if (command == "register") {
      extra = side.device.allocate(*side.pd, 4096, kAllAccess);
      extra_remote = extra->remote();
      return "";
    }
    if (command == "deregister") return extra.reset(), "";
    throw step.wrong("has an unknown command");
  }

  static std::string posted(const std::string& node, std::uint64_t wr_id, PostResult result) {
    if (result.accepted == 1) return "";
    return node + " refuses " + std::to_string(wr_id) + ": " + to_string(result.error);
  }
  template <typename Act>
  static std::string state_after(const std::string& node, QueuePair& queue_pair, Act&& change) {
    std::string refused;
    try {
      change();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      refused = " refuses";
    }
    return node + ' ' + to_string(queue_pair.state()) + refused;
  }
  static QpState state_named(const ScenarioStep& step, const std::string& name) {
    for (const QpState state : {QpState::kReset, QpState::kInit, QpState::kReadyToReceive,
                                QpState::kReadyToSend, QpState::kError})
      if (name == to_string(state)) return state;
    throw step.wrong("names no state");
  }

  std::unique_ptr<MemoryRegion> extra;
  RemoteRegion extra_remote;  // stays after the region is gone
};
INSTANTIATE_TEST_SUITE_P(Worlds, FabricScenarios, contract_worlds(),
                         [](const auto& info) { return info.param; });

TEST_P(FabricScenarios, QueuePairStates) { run("queue_pair_states"); }
TEST_P(FabricScenarios, FailedRequests) { run("failed_requests"); }
TEST_P(FabricScenarios, Retries) { run("retries"); }

}  // namespace
}  // namespace pyrdma::fabric
