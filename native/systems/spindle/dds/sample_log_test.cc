// A log loses nothing that was durable, and nothing in silence: after every crash, with every byte
// changed, with every sector lost.
#include "systems/spindle/dds/sample_log.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "systems/spindle/dds/crash_disk_test.h"
#include "systems/spindle/worlds_test.h"

namespace pyrdma::spindle::dds {
namespace {

constexpr std::size_t kNever = ~std::size_t{0};

// Some samples are longer than a sector, some are zeros.
Bytes logged(std::uint64_t number) {
  Bytes bytes(number % 5 == 3 ? 700 : 3 + number * 17 % 60);
  for (std::size_t i = 0; i < bytes.size() && number % 4 != 3; ++i)
    bytes[i] = static_cast<std::byte>(number * 31 + i);
  return bytes;
}

/// What has been promised after so many events of the disk.
struct Promise {
  std::size_t events;
  std::uint64_t durable;  // samples
};

/// A log that was written as a pattern says: 'a' appends a sample, 'w' writes the batch, 's' syncs,
/// 'c' cuts the last three samples, 'o' opens the log again. 'S' is a sync that fails, 'C' and 'D'
/// are cuts whose first and second sync fails.
struct Written {
  CrashDisk disk;
  std::vector<Promise> promises{{0, 0}};
  std::uint64_t samples = 0;
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
      written.promises.push_back({written.disk.events(), samples});
    } else if (act == 'S') {
      written.disk.fail_sync();
      EXPECT_THROW(log->sync(), Error);
    } else if (act == 'c' || act == 'C' || act == 'D') {
      const std::uint64_t left = samples - std::min<std::uint64_t>(3, samples);
      // From now on less may be there.
      written.promises.push_back(
          {written.disk.events(), std::min(left, written.promises.back().durable)});
      if (act != 'c') written.disk.fail_sync(act == 'D' ? 1 : 0);
      try {
        log->cut(left);
      } catch (const Error&) {
        continue;
      }
      written.disk.fail_sync(kNever);
      // A crash brings back none of the others.
      CrashDisk disk(written.disk.crashed(written.disk.events(), [] { return false; }));
      EnvWithDisk after(inner, disk);
      EXPECT_LE(SampleLog(after, "log").samples(), left);
    } else {
      log = std::make_unique<SampleLog>(env, "log", false, bugs);
      written.promises.push_back({written.disk.events(), log->samples()});
    }
  }
  log->write();
  written.samples = log->samples();
}

std::uint64_t promised(const Written& written, std::size_t events) {
  std::uint64_t durable = 0;
  for (const Promise& each : written.promises) {
    if (each.events <= events) durable = each.durable;
  }
  return durable;
}

enum class Opened : std::uint8_t { kAsPromised, kRefused, kLost };

/// Opens a log with this content, reads it, appends to it, and opens it once more.
Opened open(Env& inner, const Bytes& content, std::uint64_t durable, Bugs bugs = {}) {
  CrashDisk disk(content);
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
                               "aaaasaaaacsaasaacaa",
                               "aaaassCaasa",
                               "aaaassDaasa",
                               "aaaassDsoaas",
                               "aaaassaawCsoas"};
  Rng rng(1, -1, "patterns");
  for (int i = 0; i < 80; ++i) {
    std::string& pattern = all.emplace_back();
    const std::string_view acts = i < 40 ? "aaaaaawwssco" : "aaaaaawwsscoSCD";
    for (int act = 0; act < 25; ++act) pattern += acts[rng.below(acts.size())];
  }
  return all;
}

// Every state that a crash can leave of each pattern: all choices of few sectors, some of many.
void for_each_crash(const Written& written,
                    const std::function<void(const Bytes&, std::uint64_t)>& act) {
  Rng rng(1, -1, "crashes");
  for (std::size_t events = 0; events <= written.disk.events(); ++events) {
    const std::size_t sectors = written.disk.doubtful(events);
    const std::uint64_t durable = promised(written, events);
    const bool is_small = sectors <= 8;
    for (std::uint64_t choice = 0; choice < (is_small ? 1U << sectors : 400U); ++choice) {
      std::size_t number = 0;
      const bool is_alone = choice % 2 != 0;  // one sector alone, or all but one
      const Bytes left = written.disk.crashed(events, [&] {
        const std::size_t sector = number++;
        if (is_small) return (choice >> sector & 1) != 0;
        return choice < 300 ? rng.below(2) == 0 : (sector == choice / 2 % sectors) == is_alone;
      });
      act(left, durable);
    }
  }
}

TEST(SpindleSampleLogSim, EveryCrashLeavesWhatWasDurable) {
  std::uint64_t crashes = 0;
  runtime::run_world("sim", 1, [&](Env& env, const runtime::Kill&) {
    for (const std::string& pattern : patterns()) {
      Written written;
      write_as(env, pattern, written);
      for_each_crash(written, [&](const Bytes& left, std::uint64_t durable) {
        ASSERT_EQ(open(env, left, durable), Opened::kAsPromised) << pattern;
        ++crashes;
      });
    }
  });
  EXPECT_GT(crashes, 3000U);
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
      const Bytes& whole = written.disk.content();
      // All bytes, but those between the marks, which are zeros.
      for (std::size_t at = 0; at < whole.size(); ++at) {
        if (at < 8192 && at % 4096 >= 40 && at % 500 != 0) continue;
        flip(whole, at, promised(written, written.disk.events()));
      }
      for_each_crash(written, [&](const Bytes& left, std::uint64_t durable) {
        for (int i = 0; i < 4 && left.size() > 8192; ++i)
          flip(left, 8192 + rng.below(left.size() - 8192), durable);
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
      const std::uint64_t durable = promised(written, written.disk.events());
      const Bytes& whole = written.disk.content();
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

// What a failed sync has lost is written again; no later sync saves it.
TEST(SpindleSampleLogSim, AFailedSyncIsMadeGood) {
  runtime::run_world("sim", 1, [&](Env& inner, const runtime::Kill&) {
    for (const bool reopens : {false, true}) {
      CrashDisk disk;
      EnvWithDisk env(inner, disk);
      auto log = std::make_unique<SampleLog>(env, "log");
      for (std::uint64_t i = 0; i < 9; ++i) {
        log->append(static_cast<NodeId>(i % 3), logged(i));
        if (i == 3) log->sync();
      }
      log->write();
      disk.fail_sync();
      EXPECT_THROW(log->sync(), Error);
      if (reopens)
        log = std::make_unique<SampleLog>(env, "log");
      else
        log->sync();
      EXPECT_EQ(log->samples(), 9U);
      const Bytes left = disk.crashed(disk.events(), [] { return false; });
      EXPECT_EQ(open(inner, left, 9), Opened::kAsPromised);
    }
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
    EXPECT_EQ(open(inner, disk.content(), 10), Opened::kAsPromised);
  });
}

// A file of another format, or no log at all.
TEST(SpindleSampleLogSim, AFileWithoutAMarkIsRefused) {
  runtime::run_world("sim", 1, [&](Env& inner, const runtime::Kill&) {
    for (const std::size_t bytes : {1U, 100U, 20'000U}) {
      CrashDisk disk(Bytes(bytes, std::byte{0x67}));
      EnvWithDisk env(inner, disk);
      EXPECT_TRUE(refuses([&] { SampleLog(env, "log"); }, ErrorCode::kUnavailable, {"mark"}));
      SampleLog log(env, "log", /*cut_damage=*/true);
      EXPECT_EQ(log.samples(), 0U);
      EXPECT_EQ(SampleLog(env, "log").samples(), 0U);
    }
  });
}

// The checks above find the rules' absence.
TEST(SpindleSampleLogSim, TheBugsAreFound) {
  runtime::run_world("sim", 1, [&](Env& env, const runtime::Kill&) {
    Written written;
    write_as(env, "aaaaas", written);
    Bytes damaged = written.disk.content();
    damaged[8192 + 40] ^= std::byte{1};
    EXPECT_EQ(open(env, damaged, 5, Bug::kDamageCut), Opened::kLost);
    Written early;
    write_as(env, "aaaaas", early, Bug::kMarkedEarly);
    std::uint64_t refused = 0;
    for_each_crash(early, [&](const Bytes& left, std::uint64_t durable) {
      refused += open(env, left, durable) == Opened::kRefused;
    });
    EXPECT_NE(refused, 0U);
  });
}

}  // namespace
}  // namespace pyrdma::spindle::dds
