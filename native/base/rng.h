// Deterministic random numbers: xoshiro256** streams (Blackman and Vigna 2018), seeded by
// splitmix64. Streams are derived from (seed, node, purpose), so that a new draw in one place does
// not reshuffle the draws of another.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace pyrdma {

/// One step of splitmix64: a bijective mix of 64 bits, used for seeding and hashing.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

constexpr std::uint64_t hash_text(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325ULL;  // FNV-1a
  for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return h;
}

/// Satisfies UniformRandomBitGenerator. Not thread-safe: each user has its own.
class Rng {
 public:
  using result_type = std::uint64_t;
  explicit Rng(std::uint64_t seed) {
    for (auto& word : state_) word = seed = mix64(seed);
  }
  /// Makes the stream of `purpose` at `node` under `seed`; node -1 stands for the whole run.
  Rng(std::uint64_t seed, std::int64_t node, std::string_view purpose)
      : Rng(mix64(seed ^ mix64(static_cast<std::uint64_t>(node) ^ hash_text(purpose)))) {}

  static constexpr std::uint64_t min() { return 0; }
  static constexpr std::uint64_t max() { return ~0ULL; }
  std::uint64_t operator()() {
    const std::uint64_t result = rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotl(state_[3], 45);
    if (fold_ != nullptr) *fold_ = (*fold_ ^ result) * 0x9e3779b97f4a7c15ULL;
    return result;
  }
  /// Folds every further draw, of this stream and of its copies, into `*fold`, which must outlive
  /// them. The fingerprint of a simulation thus covers its draws.
  void fold_into(std::uint64_t* fold) { fold_ = fold; }
  /// Draws uniformly in [0, bound), bound > 0, by multiplication (Lemire 2019). The bias is below
  /// 2^-32 for bounds below 2^32.
  std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>((*this)()) * bound) >> 64);
  }
  /// Draws uniformly in [0, 1).
  double uniform() { return static_cast<double>((*this)() >> 11) * 0x1.0p-53; }

 private:
  static constexpr std::uint64_t rotl(std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  std::array<std::uint64_t, 4> state_;
  std::uint64_t* fold_ = nullptr;
};

}  // namespace pyrdma
