// Control-path calls with arguments out of their bounds throw an Error that names the value. They
// leave no object, and the device continues to work.
#include "base/error.h"
#include "base/rng.h"
#include "fabric/contract_worlds_test.h"

namespace pyrdma::fabric {
namespace {

class MalformedSetup : public testing::TestWithParam<std::string> {
 protected:
  /// Returns the message of the Error that `call` throws; empty when it throws none.
  template <class Call>
  static std::string refusal(Call&& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_TRUE(error.definite());
      EXPECT_FALSE(std::string(error.what()).empty());
      return error.what();
    }
    return {};
  }
  std::unique_ptr<World> world = make_world(GetParam(), 2);
  Side side{*world, 0};
  Device& device = side.device;
  Capabilities able = device.capabilities();
};
INSTANTIATE_TEST_SUITE_P(Worlds, MalformedSetup, and_verbs({"sim_strong", "shm"}),
                         [](const auto& info) { return info.param; });

TEST_P(MalformedSetup, QueuePairsWithDrawnOptions) {
  Rng rng(3);
  int good = 0, bad = 0;
  const int draws = GetParam() == "verbs" ? 400 : 20000;  // the kernel makes the real ones, slowly
  for (int i = 0; i < draws; ++i) {
    std::string wrong;
    // Draws a value within [least, most], or sometimes outside.
    const auto value = [&](const char* name, std::uint64_t least, std::uint64_t most) {
      const std::uint64_t span = std::min<std::uint64_t>(most - least, 64);
      if (rng.below(24) != 0) return static_cast<std::uint32_t>(least + rng.below(span + 1));
      const std::uint32_t outside[] = {static_cast<std::uint32_t>(least) - 1,
                                       static_cast<std::uint32_t>(most) + 1, ~0U, 1U << 31};
      const std::uint32_t chosen = outside[rng.below(4)];
      if (chosen < least || chosen > most) wrong = name;
      return chosen;
    };
    QpOptions options;
    options.send_entries = value("send_entries", 1, able.max_queue_entries);
    options.receive_entries = value("receive_entries", 1, able.max_queue_entries);
    options.receive_strides = value("receive_strides", 1, 1);  // RC
    options.max_sges = value("max_sges", 1, able.max_sges);
    options.max_inline = value("max_inline", 0, able.max_inline);
    options.max_outstanding_reads = value("max_outstanding_reads", 1, able.max_outstanding_reads);
    options.retry_count = value("retry_count", 0, 7);
    options.rnr_retry = value("rnr_retry", 0, kInfiniteRetry);
    if (rng.below(24) == 0) {  // a DC target needs the transport and a shared receive queue
      options.dc_target = true;
      wrong = "DC";
    }
    const std::string told = refusal([&] { side.queue_pair(options); });
    EXPECT_EQ(told.empty(), wrong.empty()) << wrong << ": " << told;
    ++(wrong.empty() ? good : bad);
  }
  EXPECT_GT(good, draws / 4);
  EXPECT_GT(bad, draws / 10);
}

TEST_P(MalformedSetup, Regions) {
  EXPECT_NE(refusal([&] { device.allocate(*side.pd, 0); }), "");
  EXPECT_NE(refusal([&] { device.allocate(*side.pd, std::size_t{1} << 60); }), "");
  EXPECT_NE(refusal([&] { device.allocate(*side.pd, ~std::size_t{0}); }), "");
  for (const std::uint32_t access :
       {std::uint32_t{kRemoteWrite}, std::uint32_t{kRemoteAtomic}, kRemoteWrite | kRemoteRead | 0U})
    EXPECT_NE(refusal([&] { device.allocate(*side.pd, 64, access); }), "")
        << "remote writes need kLocalWrite, as in ibv_reg_mr; access " << access;
  EXPECT_EQ(refusal([&] { device.allocate(*side.pd, 64, 0); }), "");
  EXPECT_EQ(refusal([&] { device.allocate(*side.pd, 64, kRemoteRead); }), "");
  EXPECT_NE(refusal([&] { device.register_memory(*side.pd, nullptr, 64); }), "");
  int word = 0;
  EXPECT_NE(refusal([&] { device.register_memory(*side.pd, &word, 0); }), "");
  EXPECT_NE(refusal([&] { device.allocate_device_memory(*side.pd, 0); }), "");
  EXPECT_NE(refusal([&] { device.allocate_device_memory(*side.pd, able.device_memory_bytes + 1); }),
            "");
}

TEST_P(MalformedSetup, Queues) {
  for (const std::uint32_t entries : {0U, able.max_completions + 1, ~0U})
    EXPECT_NE(refusal([&] { device.create_completion_queue(entries); }), "") << entries;
  for (const std::uint32_t entries : {0U, able.max_queue_entries + 1, ~0U}) {
    EXPECT_NE(refusal([&] { device.create_shared_receive_queue(*side.pd, entries); }), "")
        << entries;
  }
  for (const std::uint32_t sges : {0U, able.max_sges + 1, ~0U})
    EXPECT_NE(refusal([&] { device.create_shared_receive_queue(*side.pd, 4, sges); }), "") << sges;
}

TEST_P(MalformedSetup, EveryTransitionOfAQueuePair) {
  constexpr QpState kStates[] = {QpState::kReset, QpState::kInit, QpState::kReadyToReceive,
                                 QpState::kReadyToSend, QpState::kError};
  Side other(*world, 1);
  auto peer = other.queue_pair();
  const QpAddress address = peer->address();
  for (const QpState from : kStates)
    for (int to = 0; to < 8; ++to) {
      auto qp = side.queue_pair();
      for (const QpState step : kStates) {
        if (step == QpState::kReset) continue;
        if (step > from ||
            (from == QpState::kError && step != QpState::kInit && step != QpState::kError))
          continue;
        qp->modify(step, &address);
      }
      ASSERT_EQ(qp->state(), from);
      const auto next = static_cast<QpState>(to);
      const bool allowed = next == QpState::kReset ||
                           (next == QpState::kError && from != QpState::kReset) ||
                           (from == QpState::kReset && next == QpState::kInit) ||
                           (from == QpState::kInit && next == QpState::kReadyToReceive) ||
                           (from == QpState::kReadyToReceive && next == QpState::kReadyToSend);
      const std::string told = refusal([&] { qp->modify(next, &address); });
      EXPECT_EQ(told.empty(), allowed) << to_string(from) << " to " << to_string(next) << told;
      EXPECT_EQ(qp->state(), allowed ? next : from);
    }
}

TEST_P(MalformedSetup, Addresses) {
  for (const NodeId node : {2U, 1000U, kNoNode}) {
    QpAddress nowhere;
    nowhere.node = node;
    EXPECT_NE(refusal([&] { device.create_address_handle(*side.pd, nowhere); }), "") << node;
    auto qp = side.queue_pair();
    EXPECT_NE(refusal([&] { qp->connect(nowhere); }), "") << node;
    EXPECT_NE(qp->state(), QpState::kReadyToSend);
    qp->modify(QpState::kReset);
  }
  // No queue pair of the peer has this number, so no queue pair answers.
  QpOptions options;
  options.retry_count = 0;
  options.timeout_us = 10;
  auto qp = side.queue_pair(options);
  Side other(*world, 1);
  QpAddress nobody = other.queue_pair()->address();
  nobody.qp_num = 0xabcdef;
  qp->connect(nobody);
  ASSERT_TRUE(qp->write(side.memory->sge(0, 8), side.memory->remote(), 0, 1));
  EXPECT_EQ(side.await_send().status, Status::kRetryExceeded);
}

TEST_P(MalformedSetup, RendezvousKeysAndValues) {
  Rendezvous& rendezvous = device.rendezvous();
  const std::vector<std::byte> value(Rendezvous::kMaxValue + 1);
  const std::span<const std::byte> fitting = std::span(value).first(Rendezvous::kMaxValue);
  const std::string key(Rendezvous::kMaxKey + 1, 'k');
  EXPECT_NE(refusal([&] { rendezvous.publish("", fitting); }), "");
  EXPECT_NE(refusal([&] { rendezvous.publish(key, fitting); }), "");
  EXPECT_NE(refusal([&] { rendezvous.publish("k", value); }), "");
  EXPECT_EQ(refusal([&] { rendezvous.publish("k", fitting); }), "");
  EXPECT_EQ(refusal([&] { rendezvous.publish("k", fitting); }), "") << "the same again";
  EXPECT_NE(refusal([&] { rendezvous.publish("k", fitting.first(3)); }), "");
  EXPECT_EQ(rendezvous.find("k"), std::vector(fitting.begin(), fitting.end()));
  EXPECT_EQ(rendezvous.find("absent"), std::nullopt);
  EXPECT_EQ(rendezvous.find(key), std::nullopt) << "too long to be published";
  EXPECT_NE(refusal([&] { rendezvous.await("absent", side.env.now() + kMillisecond); }), "");
  EXPECT_NE(refusal([&] { rendezvous.await(key, side.env.now() + kMillisecond); }), "");
}

}  // namespace
}  // namespace pyrdma::fabric
