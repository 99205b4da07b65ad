// A reader gets from another one what it lacks, in parts, and no more.
#include "systems/spindle/dds/reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "env/sim/crash_disk_test.h"
#include "systems/spindle/membership/control_channel.h"
#include "systems/spindle/worlds_test.h"

namespace pyrdma::spindle::dds {
namespace {

struct Asked {
  std::uint64_t questions = 0, bytes = 0;
  bool is_refused = false;
};

/// Asks until all has come; after so many questions another reader answers.
Asked ask_all(Reader& asker, Reader& source, bool cuts = true, Reader* next = nullptr,
              std::uint64_t after = 0) {
  Asked asked;
  asker.begin_to_ask(cuts);
  while (const auto question = asker.ask()) {
    Reader& from = next != nullptr && asked.questions >= after ? *next : source;
    const Bytes answer = from.answer(*question);
    EXPECT_LE(answer.size(), ControlChannel::kMostResponse);
    ++asked.questions;
    asked.bytes += answer.size();
    asked.is_refused = !asker.take(answer);
    if (asked.is_refused || asked.questions > 5000) break;
  }
  return asked;
}

class SpindleReaderSim : public testing::TestWithParam<Qos> {
 protected:
  /// Runs `test` on a node.
  void run(const std::function<void(Env&)>& test) {
    runtime::run_world("sim", 1, [&](Env& env, const runtime::Kill&) { test(env); });
  }
  std::unique_ptr<Reader> make(Env& env, const std::string& name, std::uint64_t samples,
                               std::size_t bytes = 100, std::uint64_t others_from = ~0ULL) {
    auto reader = std::make_unique<Reader>(env, topic_, name, false, Bugs());
    for (std::uint64_t i = 0; i < samples; ++i) {
      Bytes sample(i % 7 == 0 ? bytes : bytes / 2, static_cast<std::byte>(i));
      if (i >= others_from) sample.push_back(std::byte{1});
      const Message message{0, static_cast<NodeId>(i % 3), 0, sample};
      reader->take({&message, 1});
    }
    return reader;
  }
  /// What both have is equal, and they have as much.
  static void expect_equal(Reader& a, Reader& b) {
    const std::vector<Sample> ours = a.read(0, 1'000'000), theirs = b.read(0, 1'000'000);
    EXPECT_EQ(a.count(), b.count());
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_EQ(ours[i].number, theirs[i].number);
      EXPECT_EQ(ours[i].publisher, theirs[i].publisher);
      ASSERT_TRUE(ours[i].bytes == theirs[i].bytes) << i;
    }
  }
  static Topic topic_of(Qos qos) {
    Topic topic;
    topic.name = "t";
    topic.qos = qos;
    topic.max_sample = 1'000'000;
    topic.history = 300;
    return topic;
  }
  Topic topic_ = topic_of(GetParam());
};

TEST_P(SpindleReaderSim, ANewOneGetsAll) {
  run([&](Env& env) {
    for (const std::uint64_t samples : {0U, 1U, 250U, 5000U}) {
      const auto source = make(env, "source" + std::to_string(samples), samples);
      const auto asker = make(env, "asker" + std::to_string(samples), 0);
      EXPECT_FALSE(ask_all(*asker, *source).is_refused);
      expect_equal(*asker, *source);
    }
  });
}

// A sample may be longer than a message between the nodes. In the middle of one the source dies.
TEST_P(SpindleReaderSim, ItGoesOnWithAnotherSource) {
  run([&](Env& env) {
    const auto source = make(env, "source", 40, 300'000);
    const auto next = make(env, "next", 40, 300'000);
    const std::uint64_t all = ask_all(*make(env, "all", 0), *source).bytes;
    for (const std::uint64_t after : {1U, 2U, 7U, 20U}) {
      const auto asker = make(env, "asker" + std::to_string(after), 0);
      const Asked asked = ask_all(*asker, *source, true, next.get(), after);
      EXPECT_FALSE(asked.is_refused);
      EXPECT_EQ(asked.bytes, all) << "nothing came twice";
      expect_equal(*asker, *source);
    }
  });
}

// A member that joins again has another history than the others, if they have begun again.
TEST_P(SpindleReaderSim, AnOlderLifeGoes) {
  run([&](Env& env) {
    const auto source = make(env, "source", 50);
    const auto asker = make(env, "asker", 80, 100, 10);
    EXPECT_FALSE(ask_all(*asker, *source).is_refused);
    expect_equal(*asker, *source);
  });
}

// An asker never has more than one sample that is not whole.
TEST_P(SpindleReaderSim, AQuestionThatSkipsTooMuchIsRefused) {
  run([&](Env& env) {
    const auto source = make(env, "source", 50);
    const auto asker = make(env, "asker", 0);
    asker->begin_to_ask(true);
    Bytes question = asker->ask().value();
    const auto skip = [&](std::uint64_t bytes) {
      std::memcpy(question.data() + 16, &bytes, sizeof bytes);
      return source->answer(question);
    };
    EXPECT_FALSE(skip(0).empty());
    for (const std::uint64_t bytes : {~0ULL, ~0ULL - ControlChannel::kMostPart, 1ULL << 40})
      EXPECT_TRUE(skip(bytes).empty()) << bytes;
  });
}

INSTANTIATE_TEST_SUITE_P(All, SpindleReaderSim, testing::Values(Qos::kVolatile, Qos::kLogged),
                         [](const auto& each) {
                           return std::string(kQosNames[static_cast<std::size_t>(each.param)]);
                         });

class SpindleLoggedReaderSim : public SpindleReaderSim {};

TEST_P(SpindleLoggedReaderSim, ALogWithMostSamplesGetsTheRest) {
  run([&](Env& env) {
    const auto source = make(env, "source", 5000);
    const auto asker = make(env, "asker", 4990);
    const Asked asked = ask_all(*asker, *source);
    EXPECT_EQ(asked.questions, 1U);
    EXPECT_LT(asked.bytes, 2000U);
    expect_equal(*asker, *source);
    EXPECT_LT(ask_all(*asker, *source).bytes, 100U) << "it has all";
  });
}

// Samples that the others lack go; where they are is found by halves.
TEST_P(SpindleLoggedReaderSim, WhatTheOthersLackGoes) {
  run([&](Env& env) {
    for (const std::uint64_t agreed : {0U, 1U, 70U, 99U, 100U}) {
      for (const std::uint64_t samples : {100U, 150U}) {
        const std::string name = std::to_string(agreed) + "-" + std::to_string(samples);
        const auto source = make(env, "source" + name, 100);
        const auto asker = make(env, "asker" + name, samples, 100, agreed);
        const Asked asked = ask_all(*asker, *source);
        EXPECT_FALSE(asked.is_refused);
        EXPECT_LE(asked.questions, 10U);
        expect_equal(*asker, *source);
      }
    }
  });
}

// The disk fails while it cuts. The reader goes on with what it has.
TEST_P(SpindleLoggedReaderSim, ACutThatFailsIsMadeGood) {
  run([&](Env& env) {
    const auto source = make(env, "source", 50);
    for (const std::size_t passed : {0U, 1U}) {
      CrashDisk disk;
      EnvWithDisk own(env, disk);
      const auto asker = make(own, "asker", 80, 100, 10);
      disk.fail_sync(passed);
      EXPECT_THROW(ask_all(*asker, *source), Error);
      EXPECT_FALSE(ask_all(*asker, *source).is_refused);
      expect_equal(*asker, *source);
    }
  });
}

// At a restart logs of one view must agree.
TEST_P(SpindleLoggedReaderSim, ALogThatMustNotBeCutIsAnError) {
  run([&](Env& env) {
    const auto source = make(env, "source", 100);
    const auto asker = make(env, "asker", 60, 100, 40);
    EXPECT_TRUE(ask_all(*asker, *source, /*cuts=*/false).is_refused);
    EXPECT_EQ(asker->count(), 60U);
    const auto shorter = make(env, "shorter", 60);
    EXPECT_FALSE(ask_all(*shorter, *source, /*cuts=*/false).is_refused);
  });
}

// A source does not look at what it sends. Damage of its log ends at the one that asks.
TEST_P(SpindleLoggedReaderSim, ADamagedSourceIsLeft) {
  run([&](Env& env) {
    const auto damaged = make(env, "damaged", 2000);
    const auto file = env.storage().open("damaged");
    file->write(file->size() / 2, Bytes(1, std::byte{0x5a}));
    const auto asker = make(env, "asker", 0);
    EXPECT_TRUE(ask_all(*asker, *damaged).is_refused);
    EXPECT_GT(asker->count(), 900U);
    const auto whole = make(env, "whole", 2000);
    EXPECT_FALSE(ask_all(*asker, *whole).is_refused);
    expect_equal(*asker, *whole);
  });
}

// What has come is durable when nothing is left to ask, without a sync of all of it at once.
TEST_P(SpindleLoggedReaderSim, WhatHasComeIsDurable) {
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  cluster.expect_restart(0);
  bool has_come = false;
  std::uint64_t found = 0;
  cluster.run([&](Env& env) {
    if (env.node() == 1) {
      while (!has_come) env.sleep_until(env.now() + kMicrosecond);
      cluster.kill(0, fabric::sim::Crash::kHost);
      return cluster.restart(0);
    }
    if (env.incarnation() != 0) {
      found = SampleLog(env, "asker").samples();
      return;
    }
    const auto source = make(env, "source", 3000, 5000);
    const auto asker = make(env, "asker", 0);
    ask_all(*asker, *source);
    has_come = true;
    env.sleep_until(kForever);
  });
  EXPECT_EQ(found, 3000U);
}

INSTANTIATE_TEST_SUITE_P(All, SpindleLoggedReaderSim, testing::Values(Qos::kLogged),
                         [](const auto&) { return std::string("logged"); });

}  // namespace
}  // namespace pyrdma::spindle::dds
