// A log loses nothing in silence: with every byte changed, with every sector lost. Its crashes are
// in log_crash_points_test.cc.
#include "systems/spindle/dds/sample_log.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "env/sim/crash_disk_test.h"
#include "systems/spindle/worlds_test.h"

namespace pyrdma::spindle::dds {
namespace {

// Some samples are longer than a sector, some are zeros.
Bytes logged(std::uint64_t number) {
  Bytes bytes(number % 5 == 3 ? 700 : 3 + number * 17 % 60);
  for (std::size_t i = 0; i < bytes.size() && number % 4 != 3; ++i)
    bytes[i] = static_cast<std::byte>(number * 31 + i);
  return bytes;
}

/// A log that was written as a pattern says: 'a' appends a sample, 'w' writes the batch, 's' syncs,
/// 'c' cuts the last three samples, 'o' opens the log again.
struct Written {
  CrashDisk disk;
  std::uint64_t durable = 0;  // samples
  const Bytes& content() const { return disk.content("log"); }
};

void write_as(Env& inner, std::string_view pattern, Written& written, Bugs bugs = {}) {
  EnvWithDisk env(inner, written.disk);
  auto log = std::make_unique<SampleLog>(env, "log", false, bugs);
  for (const char act : pattern) {
    const std::uint64_t samples = log->samples();
    if (act == 'a') {
      log->append(static_cast<NodeId>(samples % 3), logged(samples));
    } else if (act == 'w') {
      log->write();
    } else if (act == 's') {
      log->sync();
      written.durable = samples;
    } else if (act == 'c') {
      log->cut(samples - std::min<std::uint64_t>(3, samples));
      written.durable = std::min(log->samples(), written.durable);
    } else {
      log = std::make_unique<SampleLog>(env, "log", false, bugs);
      written.durable = log->samples();
    }
  }
  log->write();
}

enum class Opened : std::uint8_t { kAsPromised, kRefused, kLost };

/// Opens a log with this content, reads it, appends to it, and opens it once more.
Opened open(Env& inner, const Bytes& content, std::uint64_t durable, Bugs bugs = {}) {
  CrashDisk disk({{"log", content}});
  EnvWithDisk env(inner, disk);
  try {
    std::uint64_t samples = 0;
    {
      SampleLog log(env, "log", false, bugs);
      samples = log.samples();
      log.append(static_cast<NodeId>(samples % 3), logged(samples));
      log.sync();
    }
    SampleLog log(env, "log", false, bugs);
    std::uint64_t number = 0;
    bool is_equal = true;
    log.read(0, [&](const Sample& sample) {
      is_equal = is_equal && sample.number == number && sample.publisher == number % 3 &&
                 sample.bytes == logged(number);
      ++number;
      return true;
    });
    const bool is_kept = is_equal && number == samples + 1 && samples >= durable;
    return is_kept ? Opened::kAsPromised : Opened::kLost;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    EXPECT_TRUE(names(error.what(), {"log", "offset", "cut_damage"}));
    return Opened::kRefused;
  }
}

std::vector<std::string> patterns() {
  std::vector<std::string> all{"",
                               "a",
                               "aaaaaaaaaaaa",
                               "aaaaaaaaaaaas",
                               "awawawawawawsawaw",
                               "asasasasasasasa",
                               "aasaaasaaaaasaaaa",
                               "aaaaasoaaasoaaa",
                               "aaaaawoawoaas",
                               "aaaaaasaaacaas",
                               "aaaasaaaacsaasaacaa"};
  Rng rng(1, -1, "patterns");
  for (int i = 0; i < 80; ++i) {
    std::string& pattern = all.emplace_back();
    for (int act = 0; act < 25; ++act) pattern += "aaaaaawwssco"[rng.below(12)];
  }
  return all;
}

/// Some states that a power failure can leave of a pattern: log_crash_points_test.cc has more.
void for_some_crashes(const Written& written, const std::function<void(const Bytes&)>& act) {
  Rng rng(1, -1, "crashes");
  const std::size_t now = written.disk.operations();
  for (int i = 0; i < 20; ++i) {
    const auto left = written.disk.left(now, [&] { return rng.below(2) == 0; });
    act(left.at("log"));
  }
}

// Also of what a crash has left: the mark of the last sync may be lost.
TEST(SpindleSampleLogSim, NoChangedByteLosesWhatWasDurable) {
  std::uint64_t refused = 0, harmless = 0;
  runtime::run_world("sim", 1, [&](Env& env, const runtime::Kill&) {
    Rng rng(1, -1, "flips");
    const auto flip = [&](Bytes content, std::size_t at, std::uint64_t durable) {
      content[at] ^= static_cast<std::byte>(1U << rng.below(8));
      const Opened opened = open(env, content, durable);
      ASSERT_NE(opened, Opened::kLost) << "byte " << at << " of " << content.size();
      (opened == Opened::kRefused ? refused : harmless) += 1;
    };
    for (const std::string& pattern : patterns()) {
      Written written;
      write_as(env, pattern, written);
      const Bytes& whole = written.content();
      // All bytes, but those between the marks, which are zeros.
      for (std::size_t at = 0; at < whole.size(); ++at) {
        if (at < 8192 && at % 4096 >= 40 && at % 500 != 0) continue;
        flip(whole, at, written.durable);
      }
      for_some_crashes(written, [&](const Bytes& left) {
        for (int i = 0; i < 4 && left.size() > 8192; ++i)
          flip(left, 8192 + rng.below(left.size() - 8192), written.durable);
      });
    }
  });
  EXPECT_GT(refused, 10'000U);
  EXPECT_GT(harmless, 500U);
}

// A disk may lose sectors that it has had: a mark that is durable tells.
TEST(SpindleSampleLogSim, LostSectorsAreDamage) {
  runtime::run_world("sim", 1, [&](Env& env, const runtime::Kill&) {
    for (const std::string& pattern : patterns()) {
      Written written;
      write_as(env, pattern, written);
      const std::uint64_t durable = written.durable;
      const Bytes& whole = written.content();
      const auto lose = [&](std::uint64_t at, std::uint64_t bytes) {
        Bytes left = whole;
        std::fill_n(left.begin() + static_cast<std::ptrdiff_t>(at),
                    std::min(bytes, whole.size() - at), std::byte{0});
        return open(env, left, durable);
      };
      for (std::uint64_t at = 0; at < whole.size(); at += CrashDisk::kSector)
        EXPECT_NE(lose(at, CrashDisk::kSector), Opened::kLost) << pattern << ", offset " << at;
      for (std::uint64_t at = 0; at < whole.size(); at += 4096)
        EXPECT_NE(lose(at, 4096), Opened::kLost) << pattern << ", offset " << at;
      if (durable != 0) {
        EXPECT_EQ(lose(0, 8192), Opened::kRefused) << "no mark";
        EXPECT_EQ(lose(0, whole.size()), Opened::kRefused) << "all zeros";
      }
    }
  });
}

// Logs that share a sample, and not the one before it, do not agree.
TEST(SpindleSampleLogSim, AChainCoversAllSamples) {
  runtime::run_world("sim", 1, [&](Env& env, const runtime::Kill&) {
    SampleLog one(env, "one"), other(env, "other");
    one.append(0, logged(1));
    other.append(0, logged(2));
    for (SampleLog* log : {&one, &other}) log->append(0, logged(4));
    EXPECT_NE(one.chain(2), other.chain(2));
  });
}

// A sync of the log is one sync of the disk, and a cut costs the same for any number of samples.
TEST(SpindleSampleLogSim, SyncsAreFew) {
  runtime::run_world("sim", 1, [&](Env& inner, const runtime::Kill&) {
    CrashDisk disk;
    EnvWithDisk env(inner, disk);
    SampleLog log(env, "log");
    for (std::uint64_t i = 0; i < 3000; ++i) log.append(static_cast<NodeId>(i % 3), logged(i));
    std::size_t before = disk.syncs();
    log.sync();
    EXPECT_EQ(disk.syncs() - before, 1U);
    before = disk.syncs();
    log.cut(10);
    EXPECT_EQ(disk.syncs() - before, 2U);
    EXPECT_EQ(log.samples(), 10U);
    EXPECT_EQ(SampleLog(env, "log").samples(), 10U);
    EXPECT_EQ(open(inner, disk.content("log"), 10), Opened::kAsPromised);
  });
}

// A file of another format, or no log at all.
TEST(SpindleSampleLogSim, AFileWithoutAMarkIsRefused) {
  runtime::run_world("sim", 1, [&](Env& inner, const runtime::Kill&) {
    for (const std::size_t bytes : {1U, 100U, 20'000U}) {
      CrashDisk disk({{"log", Bytes(bytes, std::byte{0x67})}});
      EnvWithDisk env(inner, disk);
      EXPECT_TRUE(refuses([&] { SampleLog(env, "log"); }, ErrorCode::kUnavailable, {"mark"}));
      SampleLog log(env, "log", /*cut_damage=*/true);
      EXPECT_EQ(log.samples(), 0U);
      EXPECT_EQ(SampleLog(env, "log").samples(), 0U);
    }
  });
}

// The checks above find the rule's absence.
TEST(SpindleSampleLogSim, ADamageThatIsCutIsFound) {
  runtime::run_world("sim", 1, [&](Env& env, const runtime::Kill&) {
    Written written;
    write_as(env, "aaaaas", written);
    Bytes damaged = written.content();
    damaged[8192 + 40] ^= std::byte{1};
    EXPECT_EQ(open(env, damaged, 5, Bug::kDamageCut), Opened::kLost);
  });
}

}  // namespace
}  // namespace pyrdma::spindle::dds
