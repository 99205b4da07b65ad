// Hostile input: a target takes any bytes and runs on mutations of good inputs for a bounded time,
// under the sanitizers as well. The target must return, and its own expectations must hold. The
// same file builds as a libFuzzer program (tests/fuzz/libfuzzer.sh).
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if defined(PYRDMA_LIBFUZZER)
#include <cstdio>
#include <fstream>
#define PYRDMA_MUST(condition)                                             \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                        \
    }                                                                      \
  } while (false)
// The good inputs go into the corpus, which is the last argument.
#define PYRDMA_HOSTILE(name, seeds, target)                                            \
  extern "C" int LLVMFuzzerInitialize(int* count, char*** words) {                     \
    int number = 0;                                                                    \
    for (const std::string& seed : seeds) {                                            \
      const std::string folder((*words)[*count - 1]);                                  \
      std::ofstream(folder + "/seed" + std::to_string(number++)) << seed;              \
    }                                                                                  \
    return 0;                                                                          \
  }                                                                                    \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) { \
    target(std::string_view(reinterpret_cast<const char*>(data), bytes));              \
    return 0;                                                                          \
  }
#else
#include <gtest/gtest.h>
#define PYRDMA_MUST(condition) ASSERT_TRUE(condition)
#define PYRDMA_HOSTILE(name, seeds, target) \
  TEST(HostileInput, name) { ::pyrdma::hostile::run(seeds, target); }
#endif

namespace pyrdma::hostile {

/// Good inputs, and inputs made from them by a few random edits. Equal numbers give equal inputs.
class Mutator {
 public:
  Mutator(std::vector<std::string> seeds, std::uint64_t number)
      : seeds_(std::move(seeds)), random_(number) {}

  std::string next() {
    if (given_ < seeds_.size()) return seeds_[given_++];
    std::string text = seeds_[pick(seeds_.size())];
    for (std::uint64_t edits = 1 + pick(8); edits != 0; --edits) edit(text);
    return text;
  }

 private:
  std::uint64_t pick(std::uint64_t bound) { return random_() % bound; }
  std::string any_bytes(std::uint64_t most) {
    std::string bytes(pick(most) + 1, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }
  void edit(std::string& text) {
    const std::size_t at = pick(text.size() + 1);
    switch (pick(8)) {
      case 0:
        text.insert(at, any_bytes(8));
        break;
      case 1:
        text.erase(at, 1 + pick(8));
        break;
      case 2:
        text.resize(at);
        break;
      case 3: {  // splice
        const std::string& other = seeds_[pick(seeds_.size())];
        text = text.substr(0, at) + other.substr(pick(other.size() + 1));
        break;
      }
      case 4:
        text.insert(at, text.substr(pick(text.size() + 1), pick(64)));
        break;
      case 5: {  // numbers at the edges
        static constexpr std::uint64_t kEdges[] = {
            0, 1, 0x7f, 0x80, 0xff, 0x7fffffff, 0x80000000, 0xffffffff, ~0ULL >> 1, ~0ULL};
        std::uint64_t edge = kEdges[pick(std::size(kEdges))];
        for (std::size_t i = at; i < text.size() && i < at + (std::size_t{1} << pick(4)); ++i) {
          text[i] = static_cast<char>(edge);
          edge >>= 8;
        }
        break;
      }
      default:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << pick(8)));
    }
  }

  std::vector<std::string> seeds_;
  std::size_t given_ = 0;
  std::mt19937_64 random_;
};

#if !defined(PYRDMA_LIBFUZZER)
/// Runs for PYRDMA_HOSTILE_S seconds (default: 1), on all seeds and a hundred more inputs at least.
/// PYRDMA_HOSTILE_SEED (default: 1) is the number of the edits.
inline void run(const std::vector<std::string>& seeds, void (*target)(std::string_view)) {
  const char* given = std::getenv("PYRDMA_HOSTILE_S");
  const double seconds = given == nullptr ? 1.0 : std::atof(given);
  const char* number = std::getenv("PYRDMA_HOSTILE_SEED");
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  Mutator mutator(seeds, number == nullptr ? 1 : std::strtoull(number, nullptr, 10));
  std::uint64_t inputs = 0;
  while (inputs < seeds.size() + 100 || std::chrono::steady_clock::now() < end) {
    const std::string input = mutator.next();
    target(input);
    ++inputs;
    if (testing::Test::HasFatalFailure()) {
      FAIL() << "input " << inputs << ": " << testing::PrintToString(input);
    }
  }
  testing::Test::RecordProperty("inputs", std::to_string(inputs));
}
#endif

/// Splits an input into numbers, for targets whose input is no text. Returns 0 after its end.
class Reader {
 public:
  explicit Reader(std::string_view input) : input_(input) {}
  bool done() const { return input_.empty(); }
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes && !input_.empty(); ++i, input_.remove_prefix(1)) {
      value |= std::uint64_t{static_cast<unsigned char>(input_.front())} << 8 * i;
    }
    return value;
  }
  std::string_view text(std::size_t most) {
    const std::string_view taken = input_.substr(0, number(1) % (most + 1));
    input_.remove_prefix(std::min(taken.size(), input_.size()));
    return taken;
  }

 private:
  std::string_view input_;
};

}  // namespace pyrdma::hostile
