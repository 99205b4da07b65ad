// Memory pools, keys, fences and callers.
#include <atomic>
#include <set>

#include "base/error_test.h"
#include "base/remote_word.h"
#include "runtime/node_barrier.h"
#include "runtime/worlds_test.h"

namespace pyrdma::runtime {
namespace {

using fabric::Status;

using RuntimeCallers = RuntimeWorlds;

INSTANTIATE_TEST_SUITE_P(Worlds, RuntimeCallers, testing::ValuesIn(world_names()),
                         [](const auto& param) { return param.param; });

TEST_P(RuntimeCallers, RegionsAreZeroedApartAndInFewRegistrations) {
  run(1, [&](Env& env, const Kill&) {
    const auto pd = env.device().create_protection_domain();
    MemoryPool memory(env, *pd, 64 * 1024);
    std::set<std::uint64_t> begins;
    std::set<std::uint32_t> keys;  // one per registration
    for (int i = 0; i < 100; ++i) {
      const LocalRegion region = memory.allocate(100);
      EXPECT_EQ(region.addr % kCacheLine, 0U);
      EXPECT_EQ(region.bytes, 100U);
      EXPECT_EQ(region.remote().length, 100U);
      keys.insert(region.remote().rkey);
      for (int k = 0; k < 100; ++k) EXPECT_EQ(region.data[k], std::byte{0});
      std::fill_n(region.data, 128, std::byte{7});
      EXPECT_TRUE(begins.insert(region.addr).second);
    }
    EXPECT_EQ(keys.size(), 1U);
    keys.insert(memory.allocate(1 << 20).remote().rkey);  // larger than a page of the pool
    EXPECT_EQ(keys.size(), 2U);
  });
}

TEST_P(RuntimeCallers, RegionsShareAPageOnlyWithEqualRights) {
  run(1, [&](Env& env, const Kill&) {
    const auto pd = env.device().create_protection_domain();
    MemoryPool memory(env, *pd, 64 * 1024);
    constexpr std::uint32_t kWritten = fabric::kLocalWrite | fabric::kRemoteWrite;
    const LocalRegion local = memory.allocate(8), written = memory.allocate(8, kWritten);
    EXPECT_NE(local.rkey, written.rkey);
    EXPECT_EQ(memory.allocate(8).rkey, local.rkey);
    EXPECT_EQ(memory.allocate(8, kWritten).rkey, written.rkey);
  });
}

TEST_P(RuntimeCallers, BlocksComeBackAndThePoolGrows) {
  run(1, [&](Env& env, const Kill&) {
    const auto pd = env.device().create_protection_domain();
    MemoryPool memory(env, *pd, 64 * 1024);
    BlockPool pool(memory, 100, 4);
    EXPECT_EQ(pool.block_bytes(), 128U);
    std::vector<MemRef> blocks;
    std::set<std::byte*> places;
    for (int i = 0; i < 9; ++i) {
      blocks.push_back(pool.take(100));
      EXPECT_TRUE(places.insert(blocks.back().data()).second);
      EXPECT_EQ(blocks.back().sge(8).lkey, pool.lkey_of(blocks.back().data()));
    }
    std::byte* last = blocks.back().data();
    MemRef moved = std::move(blocks.back());
    blocks.clear();
    moved = MemRef();
    EXPECT_TRUE(places.contains(pool.take(8).data()));
    EXPECT_EQ(pool.take(8).data(), last);  // the pool reuses memory that was used lately
    EXPECT_TRUE(refuses([&] { pool.take(129); }, ErrorCode::kInvalidArgument,
                        {"129", "128", "block_bytes"}));
  });
}

TEST_P(RuntimeCallers, OptionsOutOfTheirBoundsAreNamed) {
  run(1, [&](Env& env, const Kill&) {
    Options wrong = options();
    wrong.callers = 65;
    EXPECT_TRUE(refuses([&] { Runtime(env, wrong); }, ErrorCode::kInvalidArgument,
                        {"callers", "65", "1", "64"}));
    wrong = options();
    wrong.max_in_flight = 8;
    EXPECT_TRUE(
        refuses([&] { Runtime(env, wrong); }, ErrorCode::kInvalidArgument, {"max_in_flight", "8"}));
  });
}

TEST_P(RuntimeCallers, ADroppedKeyKeepsItsBufferUntilItsOperationsEnd) {
  run(2, [&](Env& env, const Kill&) {
    Runtime runtime(env, options());
    runtime.connect();
    SharedWords words(runtime, "words", 8);
    const fabric::RemoteRegion there = words.at(1 - env.node());
    Caller& me = runtime.caller(0);
    *words.local() = 7;
    node_barrier(env, "filled");
    for (int round = 0; round < 100; ++round) {
      MemRef block = me.block(8);
      AckKey key = me.read(1 - env.node(), there, 0, block.sge(8));
      EXPECT_EQ(key.failed_peer(), fabric::kNoNode);
      key.keep(std::move(block));
      key = AckKey();  // forgets the read, which has not completed yet
      const MemRef next = me.block(8);
      *next.as<std::uint64_t>() = 9;
      MemRef last = me.block(8);
      EXPECT_EQ(me.read(1 - env.node(), there, 0, last.sge(8)).wait(), Status::kSuccess);
      EXPECT_EQ(*next.as<std::uint64_t>(), 9U);
      EXPECT_EQ(*last.as<std::uint64_t>(), 7U);
    }
    runtime.leave();
  });
}

TEST_P(RuntimeCallers, AFailedPostNamesItsPeerAndEndsItsConnectionAlone) {
  run(3, [&](Env& env, const Kill&) {
    Runtime runtime(env, options(2));
    runtime.connect();
    SharedWords words(runtime, "words", 8);
    std::vector<fabric::RemoteRegion> at;
    for (NodeId node = 0; node < 3; ++node) at.push_back(words.at(node));
    node_barrier(env, "told");
    if (env.node() == 0) {
      MemRef block = runtime.caller(0).block(8);
      fabric::RemoteRegion wrong = at[1];
      wrong.rkey ^= 0xabc00;
      AckKey key = runtime.caller(0).read(1, wrong, 0, block.sge(8));
      EXPECT_EQ(key.wait(), Status::kRemoteAccess);
      EXPECT_EQ(key.failed_peer(), 1U);
      EXPECT_EQ(runtime.caller(0).read(1, at[1], 0, block.sge(8)).wait(), Status::kFlushed);
      EXPECT_TRUE(runtime.is_up(1));
      EXPECT_EQ(runtime.caller(0).read(2, at[2], 0, block.sge(8)).wait(), Status::kSuccess);
      MemRef other = runtime.caller(1).block(8);
      EXPECT_EQ(runtime.caller(1).read(1, at[1], 0, other.sge(8)).wait(), Status::kSuccess);
    }
    node_barrier(env, "end");
  });
}

// In weak memory a completed write may be placed later: a fence makes it visible.
TEST_P(RuntimeCallers, AFencePlacesWhatWasWritten) {
  run(3, [&](Env& env, const Kill&) {
    Runtime runtime(env, options(2));
    runtime.connect();
    SharedWords data(runtime, "data", 64), flag(runtime, "flag", 1);
    Caller& me = runtime.caller(0);
    if (env.node() == 0) {
      const fabric::RemoteRegion far = data.at(1), told = flag.at(2);
      MemRef block = me.block(8);
      for (std::uint64_t round = 1; round <= 50; ++round) {
        *block.as<std::uint64_t>() = round;
        for (std::uint64_t i = 0; i < 64; ++i) me.write(1, far, 8 * i, block.sge(8));
        EXPECT_EQ(round % 2 == 0 ? me.fence_thread() : runtime.caller(1).fence_global(),
                  Status::kSuccess);
        EXPECT_EQ(me.write(2, told, 0, block.sge(8)).wait(), Status::kSuccess);
      }
    } else if (env.node() == 2) {
      const fabric::RemoteRegion far = data.at(1);
      MemRef block = me.block(64 * 4);
      for (std::uint64_t seen = 0; seen < 50;) {
        const auto is_told = [&] { return load_acquire(flag.local()) != seen; };
        if (!is_told()) me.wait_until(is_told, "the flag");
        seen = load_acquire(flag.local());
        for (std::uint64_t half = 0; half < 2; ++half) {
          EXPECT_EQ(me.read(1, far, 256 * half, block.sge(256)).wait(), Status::kSuccess);
          for (int i = 0; i < 32; ++i) EXPECT_GE(block.as<std::uint64_t>()[i], seen);
        }
      }
    }
    runtime.leave();
  });
}

// A read that has completed has its value.
TEST_P(RuntimeCallers, AnAwaitedPairHasCompletedItsLastRequest) {
  run(2, [&](Env& env, const Kill&) {
    Runtime runtime(env, options(1));
    runtime.connect();
    SharedWords words(runtime, "words", 1);
    const NodeId peer = 1 - env.node();
    const fabric::RemoteRegion there = words.at(peer);
    Caller& me = runtime.caller(0);
    MemRef block = me.block(8);
    for (std::uint64_t round = 0; round < 20; ++round) {
      *block.as<std::uint64_t>() = 7;
      AckKey key = me.read(peer, there, 0, block.sge(8));
      EXPECT_EQ(me.await_pair(peer), Status::kSuccess);
      EXPECT_EQ(*block.as<std::uint64_t>(), 0U);
      EXPECT_EQ(key.wait(), Status::kSuccess);
    }
    runtime.leave();
  });
}

TEST_P(RuntimeCallers, AMarkIsReachedWhenItsWritesArePlaced) {
  run(2, [&](Env& env, const Kill&) {
    Runtime runtime(env, options(2));
    runtime.connect();
    SharedWords words(runtime, "words", 8);
    const fabric::RemoteRegion there = words.at(1 - env.node());
    Caller& me = runtime.caller(0);
    EXPECT_TRUE(Mark().reached());
    MemRef block = me.block(8);
    *block.as<std::uint64_t>() = 5;
    AckKey key = me.write(1 - env.node(), there, 0, block.sge(8));
    const Mark mark = me.mark(1 - env.node(), key);
    runtime.caller(1).wait_until([&] { return mark.reached(); }, "the mark");
    MemRef back = runtime.caller(1).block(8);
    EXPECT_EQ(runtime.caller(1).read(1 - env.node(), there, 0, back.sge(8)).wait(),
              Status::kSuccess);
    EXPECT_EQ(*back.as<std::uint64_t>(), 5U);
    runtime.leave();
  });
}

// Every caller gets the error, again and again. The requests in flight still end.
TEST_P(RuntimeCallers, AnErrorOfABackgroundThreadReachesEveryCaller) {
  run(1, [&](Env& env, const Kill&) {
    Runtime runtime(env, options(2));
    runtime.connect();
    {
      const auto first = runtime.spawn(
          "first", [] { throw Error(ErrorCode::kExhausted, "no more than 8").blaming({5}); });
      first->join();
      runtime.spawn("second", [] { throw Error(ErrorCode::kInternal, "later"); })->join();
    }
    for (std::uint32_t i = 0; i < 2; ++i) {
      const auto wait = [&] { runtime.caller(i).wait_until([] { return false; }, "nothing"); };
      EXPECT_TRUE(refuses(wait, ErrorCode::kExhausted, {"first", "0", "8"}));
      EXPECT_TRUE(refuses([&] { runtime.turn(); }, ErrorCode::kExhausted, {"first"}));
      try {
        wait();
      } catch (const Error& error) {
        EXPECT_EQ(error.nodes(), std::vector<NodeId>{5});
        EXPECT_FALSE(error.definite());
      }
    }
  });
}

// A failed polling thread leaves the polling to the callers.
TEST_P(RuntimeCallers, AnErrorOfTheServiceReachesTheCallers) {
  class Broken final : public Service {
   public:
    void serve() override { throw Error(ErrorCode::kInternal, "broken service"); }
  };
  run(1, [&](Env& env, const Kill&) {
    Runtime runtime(env, options());
    Broken broken;
    runtime.connect(&broken);
    SharedWords words(runtime, "words", 1);
    Caller& me = runtime.caller(0);
    MemRef block = me.block(8);
    runtime.want_service(true);
    const auto wait = [&] { me.wait_until([] { return false; }, "nothing"); };
    EXPECT_TRUE(refuses(wait, ErrorCode::kInternal, {"broken service"}));
    runtime.want_service(false);
    AckKey key = me.read(0, words.at(0), 0, block.sge(8));
    EXPECT_TRUE(env.poll_until([&] { return runtime.progress(), key.query(); }, kForever));
    runtime.stop();
  });
}

TEST_P(RuntimeCallers, MessagesGoOverAConnectionOfTheirOwn) {
  class Inbox final : public Service {
   public:
    explicit Inbox(Runtime& runtime) : runtime_(runtime) {
      memory_ = runtime.memory().allocate(8 * 64);
    }
    void connected(Connection& messages) override {
      for (std::uint32_t slot = 0; slot < 4; ++slot) receive(messages, slot);
    }
    void completed(Connection& messages, const fabric::Completion& completion) override {
      ASSERT_EQ(completion.status, Status::kSuccess);
      if (completion.opcode != fabric::Opcode::kReceive) return;
      const auto slot = static_cast<std::uint32_t>(completion.wr_id);
      std::uint64_t value = 0;
      std::memcpy(&value, memory_.data + place(messages.peer, slot), 8);
      receive(messages, slot);
      sum_.fetch_add(value);
      runtime_.want_service(true);
    }
    void serve() override {
      runtime_.want_service(false);
      served_.store(true);
    }
    std::uint64_t sum() const { return sum_.load(); }
    bool served() const { return served_.load(); }

   private:
    static std::uint64_t place(NodeId peer, std::uint32_t slot) { return 8 * (peer * 4 + slot); }
    void receive(Connection& messages, std::uint32_t slot) {
      EXPECT_TRUE(messages.qp->receive(memory_.sge(place(messages.peer, slot), 8), slot));
    }
    Runtime& runtime_;
    LocalRegion memory_;
    std::atomic<std::uint64_t> sum_{0};
    std::atomic<bool> served_{false};
  };
  run(3, [&](Env& env, const Kill&) {
    Options wanted = options();
    wanted.message_entries = 4;
    Runtime runtime(env, wanted);
    Inbox inbox(runtime);
    runtime.connect(&inbox);
    const LocalRegion out = runtime.memory().allocate(8);
    *reinterpret_cast<std::uint64_t*>(out.data) = env.node() + 1;
    for (NodeId peer = 0; peer < 3; ++peer) {
      if (peer == env.node()) continue;
      EXPECT_TRUE(runtime.messages(peer).qp->send(out.sge(0, 8), 99));
    }
    const auto all_came = [&] { return inbox.sum() == 6U - (env.node() + 1) && inbox.served(); };
    runtime.caller(0).wait_until(all_came, "the messages");
    node_barrier(env, "end");
    runtime.stop();
  });
}

}  // namespace
}  // namespace pyrdma::runtime
