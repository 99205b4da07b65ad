// Test helpers: a store with a log of its own, and worlds for it. The store itself says which
// threads may call it.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "env/thread/thread_env.h"
#include "fabric/sim/cluster.h"
#include "fabric/sim/profile_test.h"
#include "systems/tailwind/store/object_log_test.h"
#include "systems/tailwind/store/object_manager.h"

namespace pyrdma::tailwind {

inline ByteView view_of(const std::string& text) { return std::as_bytes(std::span(text)); }
inline std::string text_of(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A store and its log.
struct Store {
  explicit Store(Env& env, std::uint32_t seglets = 256, Bugs bugs = {})
      : log(env, seglets), objects(env, log, 1000, bugs) {}
  Outcome write(const std::string& key, const std::string& value, const UpdateId& id = {},
                std::uint64_t table = 1) {
    return objects.write(table, key_hash(table, view_of(key)), view_of(key), view_of(value), id);
  }
  Outcome remove(const std::string& key, const UpdateId& id = {}, std::uint64_t table = 1) {
    return objects.remove(table, key_hash(table, view_of(key)), view_of(key), id);
  }
  Outcome read(const std::string& key, std::string& value, std::uint64_t table = 1) {
    Bytes bytes;
    const Outcome result = objects.read(table, key_hash(table, view_of(key)), view_of(key), bytes);
    value = text_of(bytes);
    return result;
  }
  using Contents =
      std::map<std::pair<std::uint64_t, std::string>, std::pair<std::uint64_t, std::string>>;
  Contents contents() {
    Contents result;
    objects.for_all([&](std::uint64_t table, ByteView key, std::uint64_t version, ByteView value) {
      const bool is_new =
          result.emplace(std::pair(table, text_of(key)), std::pair(version, text_of(value))).second;
      EXPECT_TRUE(is_new) << "a key is there twice";
    });
    return result;
  }
  /// Bytes of all entries that the store knows.
  std::uint64_t known_bytes() {
    std::uint64_t result = 0;
    for (const auto& [number, segment] : log.log.segments()) {
      segment->for_entries([&](const Entry& entry, Place place) {
        // No tombstone is dropped.
        if (entry.type() == EntryType::kTombstone || objects.is_live(entry, place))
          result += taken_by(entry);
      });
    }
    return result;
  }
  UnreplicatedLog log;
  ObjectManager objects;
};

inline const std::vector<HashRange> kTable1{{1, 0, ~std::uint64_t{0}}};
inline const std::vector<HashRange> kBothTables{{1, 0, ~std::uint64_t{0}},
                                                {2, 0, ~std::uint64_t{0}}};

class TailwindObjectManager : public testing::Test {
 protected:
  static fabric::sim::SimOptions options() {
    fabric::sim::SimOptions result;
    result.nodes = 1;
    result.profile = fabric::sim::test_profile();
    return result;
  }
  fabric::sim::SimCluster cluster{options()};
  Env& env = cluster.env(0);
};

/// Real threads, without a fabric.
class ThreadWorld final : public ThreadHost {
 public:
  void on_slow_turn() override {}
  bool crowded() const override { return true; }
  void thread_runs(int /*change*/) override {}
};

}  // namespace pyrdma::tailwind
