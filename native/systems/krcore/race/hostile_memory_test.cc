// A storage node whose memory holds any bytes: a client checks depths, offsets and lengths. Its
// operations end, with any outcome, and it touches nothing beyond its memory.
#include <algorithm>
#include <cstring>

#include "base/hostile_test.h"
#include "systems/krcore/race/worlds_test.h"

namespace pyrdma::krcore::race {
namespace {

constexpr std::uint64_t kHostileKeys = 45;

/// A change of a word: where it lies, and what stands there then.
void change_words(const TableAddress& table, std::byte* memory, hostile::Reader& input) {
  for (int changes = 0; changes < 40 && !input.done(); ++changes) {
    const std::uint64_t what = input.number(1), where = input.number(2), value = input.number(8);
    std::uint64_t at = 0;
    if (what % 8 == 0) at = what & 64 ? kAllocationAt : kGlobalDepthAt;
    if (what % 8 == 1) at = kDirectoryAt + where % (1U << table.max_depth) * 8;
    if (what % 8 == 2) at = table.first_subtables_at();
    if (what % 8 == 3) at = table.first_subtables_at() + kSubtableHead + where % 6 * kBucketBytes;
    if (what % 8 > 3) at = table.first_subtables_at() + where % 512 * 8;
    at = std::min(at, table.regions[0].length - 8) / 8 * 8;
    std::uint64_t word = 0;
    std::memcpy(&word, memory + at, 8);
    // A whole word, a byte of it, or a bit of it.
    const std::uint64_t shift = value % 64;
    word = what & 16   ? value
           : what & 32 ? word ^ (value & 0xff) << shift / 8 * 8
                       : word ^ 1ULL << shift;
    std::memcpy(memory + at, &word, 8);
  }
}

void use_hostile_memory(std::string_view bytes) {
  StorageOptions options = small_table(4);
  options.bytes = 256 * kKiB;
  fabric::sim::SimCluster cluster(runtime::sim_options(2, false));
  Env& at = cluster.env(0);
  Env& env = cluster.env(1);
  Ends storage_ends(at), ends(env);
  Storage storage(at, at.device(), *storage_ends.pd, options);
  storage_ends.add(at).connect(ends.add(env).address());
  ends.pairs[0]->connect(storage_ends.pairs[0]->address());
  ClientOptions few;
  few.window = 2;
  few.timeout = 300 * kMicrosecond;
  few.lease = 20 * kMicrosecond;
  few.patience = 10 * kMicrosecond;
  const auto attempt = [](auto act) {
    try {
      act();
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::kInternal) << error.what();
    }
  };
  hostile::Reader input(bytes);
  std::unique_ptr<Client> client;
  attempt([&] {
    client = std::make_unique<Client>(env, env.device(), *ends.pd, *ends.completions, ends.pairs,
                                      storage.address(), few);
  });
  PYRDMA_MUST(client != nullptr);
  for (std::uint64_t i = 0; i < kHostileKeys; ++i)
    client->insert(bytes_of(key_of(i)), bytes_of(std::string(i, 'v')));
  Bytes value;
  for (int round = 0; round < 2; ++round) {
    change_words(storage.address(), storage.data(), input);
    for (std::uint64_t i = 0; i < kHostileKeys + 5; i += 3) {
      const std::string name = key_of(i);
      attempt([&] { client->lookup(bytes_of(name), value); });
      attempt([&] { client->update(bytes_of(name), bytes_of("new")); });
      attempt([&] { client->remove(bytes_of(name)); });
      attempt([&] { client->insert(bytes_of(name), bytes_of("again")); });
    }
  }
  attempt([&] {
    Client other(env, env.device(), *ends.pd, *ends.completions, ends.pairs, storage.address(),
                 few);
  });
}

std::vector<std::string> hostile_seeds() {
  std::vector<std::string> seeds{""};
  Rng rng(5);
  for (int i = 0; i < 24; ++i) {
    std::string seed(11 * (1 + rng.below(12)), '\0');
    for (char& byte : seed) byte = static_cast<char>(rng());
    seeds.push_back(seed);
  }
  return seeds;
}

PYRDMA_HOSTILE(RaceMemory, hostile_seeds(), use_hostile_memory)

}  // namespace
}  // namespace pyrdma::krcore::race
