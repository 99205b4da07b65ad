// The order of requests, by traces.
#include "systems/tailwind/replication/replicated_log.h"

#include <gtest/gtest.h>

#include <string>

namespace pyrdma::tailwind {
namespace {

constexpr std::uint32_t kFirst = 50;  // bytes that each segment begins with

/// Notes requests, which the test ends.
class Trace : public ReplicaRequests {
 public:
  NodeId open(ReplicaId id, std::uint64_t version, std::uint32_t bytes, bool is_copy) override {
    const NodeId backup = next_backup++;
    lines.push_back("open " + name(id) + " at " + std::to_string(backup) + " v" +
                    std::to_string(version) + " " + std::to_string(bytes) +
                    (is_copy ? " copy" : ""));
    return backup;
  }
  void write(ReplicaId id, std::uint32_t from, std::uint32_t to) override {
    lines.push_back("write " + name(id) + " " + std::to_string(from) + "-" + std::to_string(to));
  }
  void set_version(ReplicaId id, std::uint64_t version) override {
    lines.push_back("version " + name(id) + " v" + std::to_string(version));
  }
  void close(ReplicaId id) override { lines.push_back("close " + name(id)); }
  void ask_coordinator(std::uint64_t segment, std::uint64_t version) override {
    lines.push_back("coordinator " + std::to_string(segment) + " v" + std::to_string(version));
  }
  void free(std::uint64_t segment) override { lines.push_back("free " + std::to_string(segment)); }
  std::vector<std::string> take() { return std::exchange(lines, {}); }

  NodeId next_backup = 1;

 private:
  static std::string name(ReplicaId id) {
    return std::to_string(id.segment) + "." + std::to_string(id.index);
  }
  std::vector<std::string> lines;
};

using Lines = std::vector<std::string>;

TEST(TailwindReplicatedLog, ARollOpensThenClosesThenWrites) {
  Trace trace;
  ReplicatedLog log(trace, 2);
  log.begin(1, kFirst);
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"open 1.0 at 1 v0 50", "open 1.1 at 2 v0 50"}));
  log.append(1, 100);
  log.opened({1, 0});
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"write 1.0 50-100"}));
  EXPECT_EQ(log.committed(1), 0U);
  log.opened({1, 1});
  log.append(1, 150);
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"write 1.0 100-150", "write 1.1 50-150"}));
  log.written({1, 0}, 150);
  log.step();
  EXPECT_EQ(log.committed(1), kFirst);
  log.written({1, 1}, 150);
  log.step();
  EXPECT_EQ(log.committed(1), 150U);
  // The next head: its data waits for the close, and the close for its opens.
  log.begin(2, kFirst);
  log.complete(1);
  log.append(2, 80);
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"open 2.0 at 3 v0 50", "open 2.1 at 4 v0 50"}));
  log.opened({2, 0});
  log.step();
  EXPECT_EQ(trace.take(), Lines());
  log.opened({2, 1});
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"close 1.0", "close 1.1"}));
  log.closed({1, 0});
  log.step();
  EXPECT_EQ(trace.take(), Lines());
  log.closed({1, 1});
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"write 2.0 50-80", "write 2.1 50-80"}));
  EXPECT_TRUE(log.is_closed(1));
}

TEST(TailwindReplicatedLog, ALostBackupIsReplacedBeforeTheNextCommit) {
  Trace trace;
  ReplicatedLog log(trace, 2);
  log.begin(1, kFirst);
  log.step();
  log.opened({1, 0});
  log.opened({1, 1});
  log.append(1, 100);
  log.step();
  log.written({1, 0}, 100);
  log.written({1, 1}, 100);
  log.step();
  EXPECT_EQ(log.committed(1), 100U);
  trace.take();
  log.lost(2);
  log.append(1, 200);
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"open 1.1 at 3 v1 50 copy"})) << "nothing new is written";
  log.opened({1, 1});
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"write 1.1 50-100"}));
  log.written({1, 1}, 100);
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"version 1.0 v1", "version 1.1 v1"}));
  log.versioned({1, 0}, 1);
  log.step();
  EXPECT_EQ(trace.take(), Lines());
  log.versioned({1, 1}, 1);
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"coordinator 1 v1"}));
  EXPECT_TRUE(log.is_mending());
  log.consented(1, 1);
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"write 1.0 100-200", "write 1.1 100-200"}));
  EXPECT_FALSE(log.is_mending());
}

// The consent to a version does not come in time, and another backup dies.
TEST(TailwindReplicatedLog, AConsentToAnEarlierVersionDoesNotCount) {
  Trace trace;
  ReplicatedLog log(trace, 1);
  log.begin(1, kFirst);
  log.step();
  for (std::uint64_t version = 0; version < 2; ++version) {
    log.opened({1, 0});
    log.step();
    log.versioned({1, 0}, version);
    log.step();
    if (version == 0) log.lost(1);
    log.step();
  }
  EXPECT_EQ(trace.take().back(), "coordinator 1 v1");
  log.lost(2);
  log.consented(1, 1);
  EXPECT_TRUE(log.is_mending());
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"open 1.0 at 3 v2 50 copy"}));
}

/// Two segments of which the first is closed and the second is the head, with replicas 1.0 and 2.0.
ReplicatedLog& with_two_segments(ReplicatedLog& log, Trace& trace) {
  log.begin(1, kFirst);
  log.step();
  log.opened({1, 0});
  log.begin(2, kFirst);
  log.complete(1);
  log.step();
  log.opened({2, 0});
  log.step();
  log.closed({1, 0});
  log.step();
  trace.take();
  return log;
}

// 1 is cleaned, 3 is the survivor, 4 the head that is newer than it, and 5 the one without 1.
TEST(TailwindReplicatedLog, ACleanedSegmentIsFreedWhenNoOlderHeadCounts) {
  Trace trace;
  ReplicatedLog log(trace, 1);
  with_two_segments(log, trace);
  log.begin_side(3, kFirst, 120);
  log.step();
  EXPECT_EQ(trace.take(), Lines()) << "no head behind it is open";
  log.begin(4, kFirst);
  log.complete(2);
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"open 4.0 at 3 v0 50"}));
  log.opened({4, 0});
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"close 2.0", "open 3.0 at 4 v0 50 copy"}));
  log.opened({3, 0});
  log.closed({2, 0});
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"write 3.0 50-120"}));
  log.written({3, 0}, 120);
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"close 3.0"}));
  EXPECT_FALSE(log.is_closed(3));
  log.closed({3, 0});
  log.step();
  EXPECT_TRUE(log.is_closed(3));
  log.begin(5, kFirst);
  log.complete(4);
  log.forget(1, 5);
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"open 5.0 at 5 v0 50"}));
  log.opened({5, 0});
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"close 4.0"})) << "who recovers the log may still find 4 open";
  log.closed({4, 0});
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"free 1"}));
}

TEST(TailwindReplicatedLog, AReplicaOfACompactedSegmentHasAHigherVersion) {
  Trace trace;
  ReplicatedLog log(trace, 1);
  with_two_segments(log, trace);
  log.compact(1, 40 + kFirst);
  log.step();
  EXPECT_EQ(trace.take(), Lines());
  log.lost(1);
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"open 1.0 at 3 v1 50 copy"}));
  log.opened({1, 0});
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"write 1.0 50-90"}));
  log.lost(3);
  log.step();
  EXPECT_EQ(trace.take(), (Lines{"open 1.0 at 4 v1 50 copy"})) << "a copy that is lost is no loss";
  EXPECT_TRUE(log.is_mending());
}

}  // namespace
}  // namespace pyrdma::tailwind
