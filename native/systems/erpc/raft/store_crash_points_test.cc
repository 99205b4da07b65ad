// The store on disk at every crash point: it finds what was acknowledged, or what was on its way,
// and nothing else. All short sequences of its calls are explored_calls, and some long ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "env/sim/crash_points_test.h"
#include "env/sim/sim_env.h"
#include "fuzz/small_test.h"
#include "systems/erpc/raft/stable_store.h"

namespace pyrdma::erpc::raft {
namespace {

/// What a store holds. Entries and the snapshot's data are checksums.
struct Held {
  std::uint64_t term = 0, vote = 0, first = 1, snapshot = 0, snapshot_sum = 0;
  std::vector<std::uint64_t> entries;  // from `first` on
  std::uint64_t last() const { return first + entries.size() - 1; }
  bool operator==(const Held&) const = default;
};

struct Promised {
  Held must;
  std::vector<Held> may;
};

std::string described(const Held& held) {
  return "term " + std::to_string(held.term) + ", vote " + std::to_string(held.vote) +
         ", entries " + std::to_string(held.first) + " to " + std::to_string(held.last()) +
         ", snapshot " + std::to_string(held.snapshot);
}

std::uint64_t entry_sum(std::uint64_t term, EntryType type, ByteView payload) {
  return checksum(payload, mix64(term) + static_cast<std::uint64_t>(type));
}

Held held_by(const StableStore& store) {
  Held held{store.term(), store.vote(), store.first_index(), 0, 0, {}};
  if (store.snapshot() != nullptr) {
    held.snapshot = store.snapshot()->index;
    held.snapshot_sum = checksum(store.snapshot()->data, store.snapshot()->term);
  }
  for (std::uint64_t i = store.first_index(); i <= store.last_index(); ++i) {
    const StoredEntry entry = store.read(i);
    held.entries.push_back(entry_sum(entry.term, entry.type, entry.payload));
  }
  return held;
}

/// Makes the calls that a word says, and keeps what is known up to date.
class Caller {
 public:
  Caller(StableStore& store, Promised& known, std::uint64_t seed)
      : store_(store),
        known_(known),
        next_(known.must),
        seed_(seed),
        snapshot_bytes_(seed == 0 ? 1500 : 100) {}

  void make(char call) {
    const bool may_cut = next_.last() > std::max(next_.snapshot, next_.first - 1);
    switch (call) {
      case 'a':
        return append(30);
      case 'l':
        return append(2000);
      case 's':
        return change({next_}, [&] { store_.sync(); });
      case 't':
        return write_state(next_.term + 1, next_.term % 3);
      case 'v':
        return write_state(next_.term, next_.vote + 1);
      case 'x':
        if (may_cut)
          truncate(std::max(next_.last() - 1, std::max(next_.snapshot + 1, next_.first)));
        return;
      case 'p':  // of all entries but the last one, which stays, and so does the one before it
        if (next_.last() > next_.snapshot + 1) put_snapshot(next_.last() - 1, 1);
        return;
      default:  // that of a leader which is ahead
        return put_snapshot(next_.last() + 3, 0);
    }
  }

 private:
  Bytes payload_of(std::size_t bytes) {
    Bytes payload(bytes);
    seed_ = mix64(seed_);
    for (std::size_t i = 0; i < bytes; ++i)
      payload[i] = static_cast<std::byte>(mix64(seed_ + i / 8) >> (i % 8 * 8));
    return payload;
  }
  void append(std::size_t bytes) {
    const Bytes payload = payload_of(bytes);
    store_.append({next_.term, EntryType::kCommand, payload});
    next_.entries.push_back(entry_sum(next_.term, EntryType::kCommand, payload));
  }
  void truncate(std::uint64_t from) {
    store_.truncate(from);
    next_.entries.resize(from - next_.first);
  }
  void write_state(std::uint64_t term, std::uint64_t vote) {
    Held held = known_.must;  // what was appended waits for its sync
    held.term = next_.term = term;
    held.vote = next_.vote = vote;
    change({held}, [&] { store_.write_state(term, vote); });
  }
  void put_snapshot(std::uint64_t index, std::uint64_t trailing) {
    StoredSnapshot snapshot{index, next_.term, 1, {{1, Role::kVoter}}, payload_of(snapshot_bytes_)};
    const Held before = next_;
    next_.snapshot = index;
    next_.snapshot_sum = checksum(snapshot.data, snapshot.term);
    const std::uint64_t first =
        trailing == 0 ? index + 1 : std::max(next_.first, index + 1 - trailing);
    const auto gone = static_cast<std::ptrdiff_t>(
        std::min<std::uint64_t>(first - next_.first, next_.entries.size()));
    next_.entries.erase(next_.entries.begin(), next_.entries.begin() + gone);
    next_.first = first;
    change({before, next_}, [&] { store_.put_snapshot(std::move(snapshot), trailing); });
  }
  template <class Call>
  void change(const std::vector<Held>& may, Call&& call) {
    known_.may = may;
    call();
    known_ = {may.back(), {}};
  }

  StableStore& store_;
  Promised& known_;
  Held next_;  // with what waits for its sync
  std::uint64_t seed_;
  const std::size_t snapshot_bytes_;  // later lives put smaller ones
};

std::string explored_calls(const std::string& word, CrashCounts& counts, Bug bug = Bug::kNone) {
  SimScheduler scheduler;
  SimCpuCosts costs;
  std::vector<std::string> trace;
  BranchCounts branches;
  SimEnv node{scheduler, 0, 1, 1, 1, costs, 0, kNever, trace, branches};
  const std::array words{word, std::string("astp"), std::string("ast")};  // of each life
  CrashSearch<Promised> search([&](Storage& disk, Promised& known, unsigned life) -> std::string {
    EnvWithDisk env(node, disk);
    StableStore store(env, Durability::kDisk, bug);
    store.load();
    const Held held = held_by(store);
    if (held != known.must && std::ranges::find(known.may, held) == known.may.end())
      return described(held) + "; known was " + described(known.must);
    int logs = 0;
    for (int number = 0; number < 9; ++number)
      logs += disk.exists("raft.0.log." + std::to_string(number)) ? 1 : 0;
    // A snapshot that did not come to its end may have left one.
    if (logs > 2) return "there are " + std::to_string(logs) + " logs";
    known = {held, {}};
    Caller caller(store, known, life);
    if (held.term == 0) caller.make('t');
    for (const char call : words[std::min(life, 2U)]) caller.make(call);
    if (life == 0) return {};  // some entries may wait for their sync
    return held_by(store) == known.must ? "" : "it holds " + described(held_by(store));
  });
  std::string wrong = search.run();
  counts += search.counts();
  if (!wrong.empty()) wrong = word + ": " + wrong;
  return wrong;
}

constexpr std::string_view kCalls = "alstvxpP";

std::vector<std::string> long_sequences() {
  std::vector<std::string> words{"asalsalxsttasp", "alaaspxasPasvas", "PPsP"};
  Rng rng(1, -1, "words");
  for (std::uint64_t left = fuzz::kSlowed ? 0 : 4 * fuzz::search_factor(); left != 0; --left) {
    std::string& word = words.emplace_back();
    for (int i = 0; i < 12; ++i) word += "aaalsssttvxpP"[rng.below(13)];
  }
  return words;
}

TEST(ErpcRaftStoreCrashPoints, EveryShortSequenceKeepsWhatWasAcknowledged) {
  CrashCounts counts;
  std::uint64_t words = 0;
  const std::size_t longest = fuzz::kSlowed ? 1 : fuzz::search_factor() > 1 ? 3 : 2;
  for_each_word(kCalls, longest, [&](const std::string& word) {
    if (testing::Test::HasFailure()) return;
    EXPECT_EQ(explored_calls(word, counts), "");
    ++words;
  });
  EXPECT_EQ(words, longest == 1 ? 8U : longest == 2 ? 72U : 584U);
  if (longest == 1) return;
  EXPECT_GE(counts.points, 15'000U);
  EXPECT_GE(counts.states, 30'000U);
  EXPECT_GE(counts.restarts, 500U);
  EXPECT_GE(counts.failures, 800U);
  EXPECT_GE(counts.deep, 5000U);
}

TEST(ErpcRaftStoreCrashPoints, LongSequencesKeepWhatWasAcknowledged) {
  CrashCounts counts;
  for (const std::string& word : long_sequences()) ASSERT_EQ(explored_calls(word, counts), "");
  if (fuzz::kSlowed) return;
  EXPECT_GE(counts.states, 20'000U);
  EXPECT_GE(counts.deep, 4000U);
}

TEST(ErpcRaftStoreCrashPoints, TheBugsAreFound) {
  for (const Bug bug :
       {Bug::kVoteNotPersisted, Bug::kTermNotPersisted, Bug::kVoteBeforeTerm,
        Bug::kTruncationForgotten, Bug::kReadBackTrusted, Bug::kCompactedBeforeSnapshot}) {
    CrashCounts counts;
    EXPECT_NE(explored_calls("aaasxtap", counts, bug), "") << static_cast<int>(bug);
  }
}

}  // namespace
}  // namespace pyrdma::erpc::raft
