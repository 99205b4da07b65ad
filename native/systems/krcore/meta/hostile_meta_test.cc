// What a reader takes from a meta server's table may be any bytes: no lookup leaves the table, goes
// on for ever, or finds an entry whose checksum does not hold.
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/hostile_test.h"
#include "systems/krcore/meta/cluster_hash.h"

namespace pyrdma::krcore {
namespace {

constexpr std::uint32_t kKeys = 40, kPayload = 12;
/// More than any lookup of a whole table takes.
constexpr std::uint64_t kMostReads = 10'000;

const HashShape kShape = HashShape::of(kKeys, kPayload);

/// An input is a key, and the bytes of the table behind it.
std::vector<std::string> good_tables() {
  std::vector<std::string> seeds;
  for (const std::uint32_t keys : {0U, 3U, kKeys}) {
    std::vector<std::byte> memory(kShape.bytes());
    ClusterHash table(kShape, memory.data());
    for (std::uint32_t key = 1; key <= keys; ++key) {
      const std::array<std::uint32_t, 3> value{key, ~key, 7};
      if (!table.insert(key, std::as_bytes(std::span(value)))) return {};
    }
    for (const std::uint32_t key : {1U, 2U, kKeys}) {
      std::string& seed = seeds.emplace_back(sizeof key + memory.size(), '\0');
      std::memcpy(seed.data(), &key, sizeof key);
      std::memcpy(seed.data() + sizeof key, memory.data(), memory.size());
    }
  }
  return seeds;
}

void look_up_any(std::string_view input) {
  std::uint32_t key = 0;
  if (input.size() < sizeof key) return;
  std::memcpy(&key, input.data(), sizeof key);
  const std::string_view table = input.substr(sizeof key);
  std::uint64_t reads = 0;
  bool is_within = true;
  std::array<std::byte, kPayload> payload{};
  look_up(kShape, key, payload, [&](std::uint64_t offset, std::span<std::byte> into) {
    is_within = is_within && offset <= kShape.bytes() && into.size() <= kShape.bytes() - offset;
    if (!is_within || ++reads > kMostReads) return false;
    // Memory that is not there reads as zeros.
    for (std::size_t i = 0; i < into.size(); ++i)
      into[i] = offset + i < table.size() ? static_cast<std::byte>(table[offset + i]) : std::byte{};
    return true;
  });
  PYRDMA_MUST(is_within);
  PYRDMA_MUST(reads <= kMostReads);
}

PYRDMA_HOSTILE(MetaTable, good_tables(), look_up_any)

}  // namespace
}  // namespace pyrdma::krcore
