#include "check/explore.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>

namespace pyrdma::check {
namespace {

/// Two threads add one to a counter, each by a load and a store.
struct Adders {
  using Choice = std::uint32_t;  // the thread that makes a step
  std::array<std::optional<std::uint32_t>, 2> loaded;
  std::array<bool, 2> is_done{};
  std::uint32_t value = 0;

  std::vector<Choice> choices() const {
    std::vector<Choice> all;
    for (Choice thread = 0; thread < 2; ++thread) {
      if (!is_done[thread]) all.push_back(thread);
    }
    return all;
  }
  void take(Choice thread) {
    if (!loaded[thread]) {
      loaded[thread] = value;
      return;
    }
    value = *loaded[thread] + 1;
    is_done[thread] = true;
  }
  std::string describe(Choice thread) const {
    return std::to_string(thread) + (loaded[thread] ? " stores" : " loads");
  }
  StateHash hash() const {
    StateHash hash;
    for (const auto& each : loaded) hash.add(each ? 1 + *each : 0);
    for (const bool each : is_done) hash.add(each);
    hash.add(value);
    return hash;
  }
  std::string wrong() const {
    return is_done[0] && is_done[1] && value != 2 ? "an addition is lost" : "";
  }
};

/// The same without copies. From each state the threads end in order, and only the end is judged.
struct Replayed : Adders {
  Replayed() = default;
  Replayed(const Replayed&) = delete;
  Replayed& operator=(const Replayed&) = delete;
  std::string wrong() const { return ""; }
  std::string finish() {
    for (std::vector<Choice> left = choices(); !left.empty(); left = choices()) take(left[0]);
    return Adders::wrong();
  }
};

TEST(Explorer, FindsTheShortestWay) {
  const Explored found = Explorer([] { return std::make_unique<Adders>(); }).run();
  EXPECT_EQ(found.wrong, "an addition is lost");
  const std::vector<std::string> trace{"0 loads", "1 loads", "0 stores", "1 stores"};
  EXPECT_EQ(found.trace, trace) << found.text();
}

TEST(Explorer, ReplaysWhatCannotBeCopied) {
  const Explored found = Explorer([] { return std::make_unique<Replayed>(); }).run();
  EXPECT_EQ(found.wrong, "an addition is lost");
  const std::vector<std::string> trace{"1 loads"};
  EXPECT_EQ(found.trace, trace) << found.text();
}

/// A walk on a square of numbers: all states are known in advance.
struct Walk {
  struct Choice {
    bool is_right = false;
  };
  static constexpr std::uint32_t kSide = 10;
  std::uint32_t x = 0, y = 0;
  std::vector<Choice> choices() const {
    std::vector<Choice> all;
    if (x + 1 < kSide) all.push_back({true});
    if (y + 1 < kSide) all.push_back({false});
    return all;
  }
  void take(Choice choice) { ++(choice.is_right ? x : y); }
  static std::string describe(Choice choice) { return choice.is_right ? "right" : "up"; }
  StateHash hash() const {
    StateHash hash;
    hash.add(x);
    hash.add(y);
    return hash;
  }
  static std::string wrong() { return ""; }
};

TEST(Explorer, CountsWhatItSees) {
  const Explored all = Explorer([] { return std::make_unique<Walk>(); }).run();
  EXPECT_EQ(all.states, 100U);
  EXPECT_EQ(all.steps, 180U);
  EXPECT_EQ(all.ends, 1U);
  EXPECT_EQ(all.depth, 18U);
  EXPECT_FALSE(all.is_cut);
}

TEST(Explorer, SaysThatABoundHasCut) {
  const auto walk = [] { return std::make_unique<Walk>(); };
  const Explored shallow = Explorer(walk, {.depth = 3}).run();
  EXPECT_EQ(shallow.states, 1U + 2 + 3 + 4);
  EXPECT_EQ(shallow.depth, 3U);
  EXPECT_TRUE(shallow.is_cut);
  EXPECT_FALSE(Explorer(walk, {.depth = 18}).run().is_cut);
  const Explored few = Explorer(walk, {.states = 7}).run();
  EXPECT_EQ(few.states, 7U);
  EXPECT_TRUE(few.is_cut);
}

TEST(Explorer, HashesPartsInAnyOrder) {
  StateHash one, two, left, right, other;
  one.add(1);
  two.add(2);
  left.add_set({one, two});
  right.add_set({two, one});
  other.add_set({two, two});
  EXPECT_EQ(left, right);
  EXPECT_NE(left, other);
}

}  // namespace
}  // namespace pyrdma::check
