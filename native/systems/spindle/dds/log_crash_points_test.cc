// The logs of samples and of views at every crash point: they find what was durable, or what was on
// its way, and nothing else. All short sequences of calls are explored_log, and some long ones.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/checksum.h"
#include "env/sim/crash_points_test.h"
#include "env/sim/sim_env.h"
#include "fuzz/small_test.h"
#include "systems/spindle/dds/sample_log.h"
#include "systems/spindle/dds/view_log.h"

namespace pyrdma::spindle::dds {
namespace {

/// Samples, as checksums.
using Sums = std::vector<std::uint64_t>;

struct Logged {
  std::uint64_t must = 0;    // samples that are durable
  std::vector<Sums> may{1};  // the log is the begin of one of these; the last one is the newest
};

/// Makes the calls that a word says, and keeps what is known up to date.
class LogWriter {
 public:
  LogWriter(SampleLog& log, Logged& known, std::uint64_t seed)
      : log_(log), known_(known), seed_(seed) {}

  void make(char call) {
    Sums& now = known_.may.back();
    if (call == 'a') {
      append();
    } else if (call == 'w') {
      log_.write();
    } else if (call == 's') {
      log_.sync();
      known_ = {now.size(), {now}};
    } else {  // the last two samples are cut off
      Sums left = now;
      left.resize(left.size() - std::min<std::size_t>(2, left.size()));
      const std::uint64_t number = left.size();
      known_.must = std::min(known_.must, number);
      known_.may.push_back(left);
      try {
        log_.cut(number);
      } catch (const Error&) {
        if (log_.samples() != number) known_.may.pop_back();  // it has not begun
        throw;
      }
      known_.may = {left};
    }
  }

 private:
  // Some are longer than a sector, some are zeros. A sample that was cut off differs from the one
  // that takes its place.
  void append() {
    seed_ = mix64(seed_);
    const std::uint64_t number = log_.samples();
    Bytes bytes(number % 5 == 3 ? 1100 : 3 + seed_ % 60);
    for (std::size_t i = 0; i < bytes.size() && number % 4 != 3; ++i)
      bytes[i] = static_cast<std::byte>(mix64(seed_ + i / 8) >> (i % 8 * 8));
    const auto publisher = static_cast<NodeId>(seed_ % 3);
    log_.append(publisher, bytes);
    known_.may.back().push_back(checksum(bytes, publisher + 1));
  }

  SampleLog& log_;
  Logged& known_;
  std::uint64_t seed_;
};

struct LogNode {
  SimScheduler scheduler;
  SimCpuCosts costs;
  std::vector<std::string> trace;
  BranchCounts branches;
  SimEnv env{scheduler, 0, 1, 1, 1, costs, 0, kNever, trace, branches};
};

std::string compare_log(SampleLog& log, const Logged& known, Sums& found) {
  log.read(0, [&](const Sample& sample) {
    found.push_back(checksum(sample.bytes, sample.publisher + 1));
    return true;
  });
  const bool is_begin = std::ranges::any_of(known.may, [&](const Sums& may) {
    return found.size() <= may.size() && std::equal(found.begin(), found.end(), may.begin());
  });
  if (is_begin && found.size() >= known.must) return {};
  return std::to_string(found.size()) + " samples are there, " + std::to_string(known.must) +
         " were durable" + (is_begin ? "" : ", and they are others");
}

/// `goes_on`: after an error the same log is used further.
std::string explored_log(const std::string& word, bool goes_on, CrashCounts& counts,
                         Bug bug = Bug::kNone, bool fails_twice = false) {
  LogNode node;
  const auto live = [&](Storage& disk, Logged& known, unsigned life) -> std::string {
    EnvWithDisk env(node.env, disk);
    SampleLog log(env, "log", false, bug);
    Sums found;
    std::string wrong = compare_log(log, known, found);
    if (!wrong.empty()) return wrong;
    known = {found.size(), {found}};
    LogWriter writer(log, known, life);
    for (const char call : life == 0 ? word : std::string("aas")) {
      try {
        writer.make(call);
      } catch (const Error&) {
        if (!goes_on) throw;
      }
    }
    if (life == 0) return {};
    Sums kept;
    wrong = compare_log(log, known, kept);
    return wrong.empty() ? wrong : "behind its write: " + wrong;
  };
  CrashBounds bounds;
  bounds.is_failing_twice = fails_twice;
  CrashSearch<Logged> search(live, {}, bounds);
  std::string wrong = search.run();
  counts += search.counts();
  if (!wrong.empty()) wrong = word + (goes_on ? ", goes on: " : ": ") + wrong;
  return wrong;
}

std::vector<std::string> long_log_words() {
  std::vector<std::string> words{"aasaaasaaaaawaaas", "aaaaasaacaasawcas"};
  Rng rng(1, -1, "words");
  for (std::uint64_t left = fuzz::kSlowed ? 0 : 4 * fuzz::search_factor(); left != 0; --left) {
    std::string& word = words.emplace_back();
    for (int i = 0; i < 14; ++i) word += "aaaaaawwssc"[rng.below(11)];
  }
  return words;
}

TEST(SpindleSampleLogCrashPoints, EveryShortSequenceKeepsWhatWasDurable) {
  CrashCounts counts;
  std::uint64_t words = 0;
  for_each_word("awsc",
                fuzz::kSlowed               ? 2
                : fuzz::search_factor() > 1 ? 5
                                            : 3,
                [&](const std::string& word) {
                  if (testing::Test::HasFailure()) return;
                  for (const bool goes_on : {false, true})
                    EXPECT_EQ(explored_log("aa" + word, goes_on, counts), "");
                  ++words;
                });
  if (fuzz::kSlowed) return;
  EXPECT_GE(words, 84U);
  EXPECT_GE(counts.points, 30'000U);
  EXPECT_GE(counts.states, 60'000U);
  EXPECT_GE(counts.restarts, 1000U);
  EXPECT_GE(counts.failures, 1500U);
  EXPECT_GE(counts.deep, 10'000U);
}

TEST(SpindleSampleLogCrashPoints, LongSequencesKeepWhatWasDurable) {
  CrashCounts counts;
  for (const std::string& word : long_log_words()) {
    for (const bool goes_on : {false, true}) ASSERT_EQ(explored_log(word, goes_on, counts), "");
  }
  EXPECT_GE(counts.states, fuzz::kSlowed ? 1000U : 15'000U);
}

TEST(SpindleSampleLogCrashPoints, ALogThatFailsTwiceKeepsWhatWasDurable) {
  CrashCounts counts;
  for (const char* word : {"aasss", "aascs", "asawss"})
    EXPECT_EQ(explored_log(word, true, counts, Bug::kNone, true), "");
  EXPECT_GE(counts.failures, 150U);
}

TEST(SpindleSampleLogCrashPoints, AnEarlyMarkIsFound) {
  CrashCounts counts;
  EXPECT_NE(explored_log("aaaaas", false, counts, Bug::kMarkedEarly), "");
}

LoggedViews numbered_views(std::uint64_t number) {
  return {{number, {0, static_cast<NodeId>(number)}}, {number / 2, {0, 1, 2}}};
}

struct KnownViews {
  std::uint64_t must = 0, may = 0;
};

TEST(SpindleViewLogCrashPoints, KeepsTheLastViews) {
  LogNode node;
  CrashSearch<KnownViews> search(
      [&](Storage& disk, KnownViews& known, unsigned life) -> std::string {
        EnvWithDisk env(node.env, disk);
        ViewLog log(env);
        const std::uint64_t found = log.views().accepted.id;
        if (found != known.must && found != known.may) return "view " + std::to_string(found);
        if (found != 0 && !(log.views() == numbered_views(found))) return "another view";
        known = {found, found};
        for (unsigned left = life == 0 ? 5 : 1; left != 0; --left) {
          ++known.may;
          log.write(numbered_views(known.may));
          known.must = known.may;
        }
        return {};
      });
  EXPECT_EQ(search.run(), "");
  EXPECT_GE(search.counts().states, 250U);
  EXPECT_GE(search.counts().restarts, 10U);
}

}  // namespace
}  // namespace pyrdma::spindle::dds
