// Every order of few changes of a table by its owner, and of the READs of a lookup. The table has
// two chains of buckets, which take the same bucket for collisions by turns.
#include "check/explore.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/small_test.h"
#include "systems/krcore/meta/cluster_hash.h"

namespace pyrdma::krcore {
namespace {

class TableWorld {
 public:
  enum class Act : std::uint8_t { kInsert, kErase, kLookUp, kRead };
  struct Choice {
    Act act = Act::kRead;
    std::uint32_t key = 0;
  };

  explicit TableWorld(std::uint32_t changes)
      : left_(changes), table_(kShape, reinterpret_cast<std::byte*>(memory_.data())) {
    // Both chains have a full bucket, and keys that come and go.
    std::array<std::uint32_t, 2> counts{};
    for (std::uint32_t key = 1; counts[0] < kOfChain || counts[1] < kOfChain; ++key) {
      const auto chain = static_cast<std::size_t>(mix64(key) % kShape.buckets);
      if (counts[chain] == kOfChain) continue;
      const bool is_in_bucket = ++counts[chain] <= HashShape::kSlots;
      if (is_in_bucket) insert(key);
      if (counts[chain] >= HashShape::kSlots) moving_.push_back(key);
    }
  }
  TableWorld(const TableWorld&) = delete;
  TableWorld& operator=(const TableWorld&) = delete;

  std::vector<Choice> choices() const {
    std::vector<Choice> all;
    for (const std::uint32_t key : moving_) {
      if (left_ != 0) all.push_back({is_there(key) ? Act::kErase : Act::kInsert, key});
      if (key_ == 0 && !has_ended_) all.push_back({Act::kLookUp, key});
    }
    if (key_ != 0) all.push_back({Act::kRead});
    return all;
  }
  void take(const Choice& choice) {
    switch (choice.act) {
      case Act::kInsert:
        change(choice.key);
        insert(choice.key);
        if (choice.key == key_) could_be_ = true;
        return;
      case Act::kErase:
        change(choice.key);
        table_.erase(choice.key);
        std::erase(there_, choice.key);
        if (choice.key == key_) must_be_ = false;
        return;
      case Act::kLookUp:
        key_ = choice.key;
        could_be_ = must_be_ = is_there(key_);
        return;
      case Act::kRead:
        return read();
    }
  }
  static std::string describe(const Choice& choice) {
    static constexpr std::array<const char*, 4> kNames{"insert", "erase", "look up", "a READ"};
    std::string text = kNames[static_cast<std::size_t>(choice.act)];
    return choice.act == Act::kRead ? text : text + ' ' + std::to_string(choice.key);
  }
  check::StateHash hash() const {
    check::StateHash hash;
    for (const std::uint64_t each :
         {std::uint64_t{left_}, std::uint64_t{key_}, std::uint64_t{could_be_},
          std::uint64_t{must_be_}, std::uint64_t{has_ended_}, std::uint64_t{wrong_.size()}})
      hash.add(each);
    hash.add(std::as_bytes(std::span(memory_)));
    // The order of the free entries and buckets is that in which they were given back.
    hash.add(changes_);
    for (const Bytes& each : reads_) hash.add(ByteView(each));
    return hash;
  }
  std::string wrong() const { return wrong_; }

 private:
  static constexpr HashShape kShape{2, 24, 8};
  static constexpr std::uint32_t kOfChain = HashShape::kSlots + 1;
  static constexpr std::size_t kStopped = ~std::size_t{0};

  bool is_there(std::uint32_t key) const { return std::ranges::find(there_, key) != there_.end(); }
  void change(std::uint32_t key) {
    --left_;
    changes_ = mix64(changes_ ^ key);
  }
  static std::uint64_t payload_of(std::uint32_t key) { return mix64(key); }
  void insert(std::uint32_t key) {
    const std::uint64_t payload = payload_of(key);
    if (table_.insert(key, std::as_bytes(std::span(&payload, 1)))) there_.push_back(key);
  }
  // The lookup is run again with what its earlier READs have read.
  void read() {
    std::uint64_t payload = 0;
    std::size_t used = 0;
    const auto read = [&](std::uint64_t offset, std::span<std::byte> into) {
      if (used == reads_.size()) {
        const auto* from = reinterpret_cast<const std::byte*>(memory_.data()) + offset;
        reads_.emplace_back(from, from + into.size());
        used = kStopped;
      }
      if (used == kStopped) return false;
      std::memcpy(into.data(), reads_[used++].data(), into.size());
      return true;
    };
    const auto look = [&] {
      used = 0;
      return look_up(kShape, key_, std::as_writable_bytes(std::span(&payload, 1)), read);
    };
    look();  // stops behind one READ more
    const std::size_t reads = reads_.size();
    const LookupResult result = look();  // whether that was the last one
    if (reads_.size() > reads) return reads_.pop_back();
    if (result == LookupResult::kFound && !could_be_) wrong_ = "finds a key that was not there";
    if (result == LookupResult::kAbsent && must_be_) wrong_ = "does not find a key that is there";
    if (result == LookupResult::kFound && payload != payload_of(key_))
      wrong_ = "finds the payload of another key";
    reads_.clear();
    key_ = 0;
    has_ended_ = true;
  }

  std::uint32_t left_;
  std::vector<std::uint64_t> memory_ = std::vector<std::uint64_t>(kShape.bytes() / 8);
  ClusterHash table_;
  std::vector<std::uint32_t> there_, moving_;
  std::uint64_t changes_ = 0;
  std::uint32_t key_ = 0;  // that is looked up; 0: none
  bool could_be_ = false, must_be_ = false, has_ended_ = false;
  std::vector<Bytes> reads_;
  std::string wrong_;
};

TEST(KrcoreExploreSim, ALookupFindsWhatStays) {
  const bool is_long = fuzz::search_factor() > 1;
  const std::uint32_t changes = fuzz::kSlowed ? 4 : is_long ? 6 : 5;
  const check::Explored explored =
      check::Explorer([&] { return std::make_unique<TableWorld>(changes); }).run();
  EXPECT_EQ(explored.wrong, "") << explored.text();
  EXPECT_GE(explored.states, fuzz::kSlowed ? 8'000U : 40'000U) << explored.text();
  EXPECT_FALSE(explored.is_cut);
}

}  // namespace
}  // namespace pyrdma::krcore
