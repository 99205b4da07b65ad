// Messages: the bytes that each one has on the wire, and bytes that lie, which are refused.
#include "systems/tailwind/rpc/messages.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string_view>

#include "base/hostile_test.h"
#include "systems/tailwind/log/entry.h"
#include "systems/tailwind/rpc/opcode.h"

namespace pyrdma::tailwind {
namespace {

using U8 = std::uint8_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

template <class... Fields>
Bytes wire(Fields... fields) {
  Bytes bytes;
  ByteWriter out(bytes);
  (out.put(fields), ...);
  return bytes;
}

template <class M>
Bytes put_all(const M& message) {
  Bytes bytes;
  ByteWriter out(bytes);
  message.put(out);
  return bytes;
}

template <class M>
std::optional<M> get_all(ByteView bytes) {
  ByteReader in(bytes);
  return M::get(in);
}

ByteView text(std::string_view characters) { return std::as_bytes(std::span(characters)); }

/// A message of some type and the bytes that it must have, written by hand.
struct Sample {
  std::string name;
  Bytes put;
  Bytes expected;
  /// What put() makes of that which get() makes of bytes; nothing if get() refuses them.
  std::function<std::optional<Bytes>(ByteView)> again;
};

template <class M>
Sample sample(std::string name, const M& message, Bytes expected) {
  return {std::move(name), put_all(message), std::move(expected),
          [](ByteView bytes) -> std::optional<Bytes> {
            const auto got = get_all<M>(bytes);
            if (!got) return std::nullopt;
            return put_all(*got);
          }};
}

const Tablet kTablet{{7, 100, 200}, {3, 4096}, {5, 600}};

Bytes wire_of_tablet() {
  return wire(U64{7}, U64{100}, U64{200}, U32{3}, U32{4096}, U64{5}, U32{600});
}

ClusterView some_view() {
  ClusterView view;
  view.epoch = 9;
  view.servers = {{{0, 1}, ServerState::kUp}, {{3, 4096}, ServerState::kDead}};
  view.tablets = {kTablet, {{7, 201, 300}, {0, 1}, {}}, {{8, 0, ~U64{0}}, {0, 1}, {}}};
  return view;
}

// Each field of a sample has a value of its own, so no two can change places unseen.
std::vector<Sample> samples() {
  std::vector<Sample> all;
  all.push_back(sample("no view", ClusterView(), wire(U64{0}, U32{0}, U32{0})));
  all.push_back(
      sample("view", some_view(),
             wire(U64{9}, U32{2}, U32{0}, U32{1}, U8{0}, U32{3}, U32{4096}, U8{1}, U32{3},
                  ByteView(wire_of_tablet()), U64{7}, U64{201}, U64{300}, U32{0}, U32{1}, U64{0},
                  U32{0}, U64{8}, U64{0}, ~U64{0}, U32{0}, U32{1}, U64{0}, U32{0})));
  OpenRequest open{{11, 12}, 13, true, false, text("first")};
  all.push_back(
      sample("open", open, wire(U64{11}, U64{12}, U64{13}, U8{1}, U8{0}, U32{5}, text("first"))));
  open.is_copy = false;
  open.is_written_by_cpu = true;
  open.data = {};
  all.push_back(
      sample("open without data", open, wire(U64{11}, U64{12}, U64{13}, U8{0}, U8{1}, U32{0})));
  all.push_back(sample("opened", OpenAnswer{BackupStatus::kNoBuffer, {21, 22, 23, 24}},
                       wire(U8{1}, U64{21}, U64{22}, U32{23}, U32{24})));
  all.push_back(sample("backup write", BackupWriteRequest{{31, 32}, 33, text("data")},
                       wire(U64{31}, U64{32}, U32{33}, U32{4}, text("data"))));
  all.push_back(
      sample("set version", SetVersionRequest{{41, 42}, 43}, wire(U64{41}, U64{42}, U64{43})));
  all.push_back(sample("name", ReplicaName{56, 57}, wire(U64{56}, U64{57})));
  all.push_back(sample("close", CloseRequest{{51, 52}, 53, 54, 55},
                       wire(U64{51}, U64{52}, U32{53}, U32{54}, U32{55})));
  all.push_back(
      sample("inventory",
             Inventory{{{61, 62, true, false, 63, 64, std::vector<U64>{65, 66}},
                        {67, 68, false, true, 69, 70, std::vector<U64>{}},
                        {71, 72, false, false, 73, 74, std::nullopt}},
                       true,
                       75},
             wire(U32{3}, U64{61}, U64{62}, U8{1}, U8{0}, U32{63}, U32{64}, U8{1}, U32{2}, U64{65},
                  U64{66}, U64{67}, U64{68}, U8{0}, U8{1}, U32{69}, U32{70}, U8{1}, U32{0}, U64{71},
                  U64{72}, U8{0}, U8{0}, U32{73}, U32{74}, U8{0}, U8{1}, U64{75})));
  all.push_back(sample(
      "recover", RecoverRequest{{1, 2}, {kTablet}, {{81, 82, {{3, 4}, {5, 6}}}, {83, 84, {}}}},
      wire(U32{1}, U32{2}, U32{1}, ByteView(wire_of_tablet()), U32{2}, U64{81}, U32{82}, U32{2},
           U32{3}, U32{4}, U32{5}, U32{6}, U64{83}, U32{84}, U32{0})));
  all.push_back(sample("recovered", RecoverAnswer{true, {91, 92}, 93, 94, 95},
                       wire(U8{1}, U64{91}, U32{92}, U64{93}, U64{94}, U64{95})));
  all.push_back(sample(
      "read replica", ReadReplicaRequest{{1, 2}, 101, 102, 103, {kTablet}},
      wire(U32{1}, U32{2}, U64{101}, U32{102}, U32{103}, U32{1}, ByteView(wire_of_tablet()))));
  all.push_back(sample("replica", ReadReplicaAnswer{BackupStatus::kRefused, 111, text("entries")},
                       wire(U8{4}, U32{111}, U32{7}, text("entries"))));
  all.push_back(sample(
      "store", StoreRequest{121, {122, 123, 124}, text("key"), text("value")},
      wire(U64{121}, U64{122}, U64{123}, U64{124}, U32{3}, text("key"), U32{5}, text("value"))));
  all.push_back(sample("stored", StoreAnswer{StoreStatus::kBadRequest, 131, text("value")},
                       wire(U8{6}, U64{131}, U32{5}, text("value"))));
  return all;
}

TEST(TailwindMessages, HaveTheirBytes) {
  for (const Sample& each : samples()) EXPECT_EQ(each.put, each.expected) << each.name;
}

TEST(TailwindMessages, AreReadAsTheyWereWritten) {
  for (const Sample& each : samples())
    EXPECT_EQ(each.again(each.expected), each.expected) << each.name;
}

TEST(TailwindMessages, ShorterAndLongerOnesAreRefused) {
  for (const Sample& each : samples()) {
    Bytes bytes = each.expected;
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(each.again(ByteView(bytes).first(size))) << each.name << ", " << size << " B";
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(each.again(bytes)) << each.name;
  }
}

// What get() takes is what put() writes: a changed byte is refused or is another message.
TEST(TailwindMessages, EachFlippedBitIsRefusedOrAnotherMessage) {
  for (const Sample& each : samples()) {
    for (std::size_t bit = 0; bit < 8 * each.expected.size(); ++bit) {
      Bytes bytes = each.expected;
      bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
      const auto again = each.again(bytes);
      EXPECT_TRUE(!again || *again == bytes) << each.name << ", bit " << bit;
    }
  }
}

void read_anything(std::string_view input) {
  static const std::vector<Sample> all = samples();
  for (const Sample& each : all) {
    const auto again = each.again(text(input));
    PYRDMA_MUST(!again || std::ranges::equal(*again, text(input)));
  }
}

TEST(TailwindMessages, HostileBytesDoNoHarm) {
  std::vector<std::string> seeds;
  for (const Sample& each : samples()) {
    seeds.emplace_back(reinterpret_cast<const char*>(each.expected.data()), each.expected.size());
  }
  hostile::run(seeds, read_anything);
}

TEST(TailwindMessages, OnlyKnownValuesOfEnumsAndBools) {
  EXPECT_TRUE(get_all<StoreAnswer>(wire(U8{6}, U64{0}, U32{0})));
  EXPECT_FALSE(get_all<StoreAnswer>(wire(U8{7}, U64{0}, U32{0})));
  EXPECT_TRUE(get_all<ReadReplicaAnswer>(wire(U8{4}, U32{0}, U32{0})));
  EXPECT_FALSE(get_all<ReadReplicaAnswer>(wire(U8{5}, U32{0}, U32{0})));
  EXPECT_TRUE(get_all<RecoverAnswer>(wire(U8{1}, U64{0}, U32{0}, U64{0}, U64{0}, U64{0})));
  EXPECT_FALSE(get_all<RecoverAnswer>(wire(U8{2}, U64{0}, U32{0}, U64{0}, U64{0}, U64{0})));
  EXPECT_TRUE(get_all<ClusterView>(wire(U64{0}, U32{1}, U32{0}, U32{0}, U8{1}, U32{0})));
  EXPECT_FALSE(get_all<ClusterView>(wire(U64{0}, U32{1}, U32{0}, U32{0}, U8{2}, U32{0})));
}

TEST(TailwindMessages, KeysAndValuesHaveLimits) {
  const Bytes key(kMostKey + 1), value(kMostValue + 1);
  const auto request = [&](std::size_t key_bytes, std::size_t value_bytes) {
    return wire(U64{0}, U64{0}, U64{0}, U64{0}, static_cast<U32>(key_bytes),
                ByteView(key).first(key_bytes), static_cast<U32>(value_bytes),
                ByteView(value).first(value_bytes));
  };
  const Bytes longest = request(kMostKey, kMostValue);
  const auto got = get_all<StoreRequest>(longest);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->key.size(), kMostKey);
  EXPECT_EQ(got->value.size(), kMostValue);
  EXPECT_FALSE(get_all<StoreRequest>(request(kMostKey + 1, 0)));
  EXPECT_FALSE(get_all<StoreRequest>(request(0, kMostValue + 1)));
  EXPECT_FALSE(
      get_all<StoreAnswer>(wire(U8{0}, U64{0}, static_cast<U32>(value.size()), ByteView(value))));
}

// A count that the bytes cannot have must not take memory: the sanitizers would see it.
TEST(TailwindMessages, CountsBeyondTheBytesAreRefused) {
  for (const U32 count : {U32{9}, U32{1} << 31, ~U32{0}}) {
    EXPECT_FALSE(get_all<Inventory>(wire(count, U64{0})));
    EXPECT_FALSE(get_all<ClusterView>(wire(U64{0}, count, U64{0})));
    EXPECT_FALSE(get_all<BackupWriteRequest>(wire(U64{0}, U64{0}, U32{0}, count, U64{0})));
  }
}

TEST(TailwindMessages, PositionsFitTheirWord) {
  const auto answer = [](U64 segment, U32 end) {
    return get_all<RecoverAnswer>(wire(U8{0}, segment, end, U64{0}, U64{0}, U64{0}));
  };
  const Position last{(U64{1} << 40) - 1, (1U << 24) - 1};
  ASSERT_TRUE(answer(last.segment, last.end));
  EXPECT_EQ(answer(last.segment, last.end)->since.word(), ~U64{0});
  EXPECT_FALSE(answer(last.segment + 1, 0));
  EXPECT_FALSE(answer(0, last.end + 1));
}

Bytes view_of(const std::vector<ServerId>& servers, const std::vector<HashRange>& ranges) {
  Bytes bytes = wire(U64{0}, static_cast<U32>(servers.size()));
  ByteWriter out(bytes);
  for (const ServerId server : servers) {
    out.put(server.node);
    out.put(server.life);
    out.put(U8{0});
  }
  out.put(static_cast<U32>(ranges.size()));
  for (const HashRange& range : ranges) {
    out.put(ByteView(wire(range.table, range.first, range.last, U64{0}, U64{0}, U32{0})));
  }
  return bytes;
}

TEST(TailwindMessages, ViewsAreInOrder) {
  const auto is_taken = [](const Bytes& bytes) { return get_all<ClusterView>(bytes).has_value(); };
  EXPECT_TRUE(is_taken(view_of({{0, 0}, {0, 1}, {1, 0}}, {})));
  EXPECT_FALSE(is_taken(view_of({{0, 1}, {0, 0}}, {})));
  EXPECT_FALSE(is_taken(view_of({{0, 1}, {0, 1}}, {})));
  EXPECT_TRUE(is_taken(view_of({}, {{1, 0, 4}, {1, 5, 5}, {2, 0, 0}})));
  EXPECT_FALSE(is_taken(view_of({}, {{1, 0, 5}, {1, 5, 6}}))) << "an overlap";
  EXPECT_FALSE(is_taken(view_of({}, {{1, 5, 6}, {1, 0, 4}})));
  EXPECT_FALSE(is_taken(view_of({}, {{2, 0, 4}, {1, 5, 6}})));
  EXPECT_FALSE(is_taken(view_of({}, {{1, 6, 5}}))) << "its last hash is before its first";
}

TEST(TailwindMessages, AViewFindsTabletsAndServers) {
  const ClusterView view = some_view();
  const auto first = [&](U64 table, U64 hash) {
    const Tablet* tablet = view.find(table, hash);
    return tablet == nullptr ? -1 : tablet - view.tablets.data();
  };
  EXPECT_EQ(first(7, 99), -1);
  EXPECT_EQ(first(7, 100), 0);
  EXPECT_EQ(first(7, 200), 0);
  EXPECT_EQ(first(7, 201), 1);
  EXPECT_EQ(first(7, 300), 1);
  EXPECT_EQ(first(7, 301), -1);
  EXPECT_EQ(first(8, 0), 2);
  EXPECT_EQ(first(8, ~U64{0}), 2);
  EXPECT_EQ(first(6, ~U64{0}), -1);
  EXPECT_EQ(first(9, 0), -1);
  EXPECT_EQ(ClusterView().find(7, 100), nullptr);
  EXPECT_TRUE(view.is_up({0, 1}));
  EXPECT_FALSE(view.is_up({0, 0})) << "another life";
  EXPECT_FALSE(view.is_up({3, 4096})) << "dead";
}

// 4,000 keys in 16 equal ranges of hashes: 250 each, with a deviation of 15.
TEST(TailwindMessages, HashesOfKeysAreSpreadAndOfTheirTable) {
  std::vector<int> keys(16);
  std::set<U64> hashes;
  for (U64 number = 0; number < 4000; ++number) {
    const std::string key = "user" + std::to_string(number);
    const U64 hash = key_hash(1, text(key));
    ++keys[hash >> 60];
    hashes.insert(hash);
    hashes.insert(key_hash(2, text(key)));
  }
  for (const int count : keys) EXPECT_NEAR(count, 250, 90);
  EXPECT_EQ(hashes.size(), 8000U);
}

TEST(TailwindMessages, EachOpcodeHasANameOfItsOwn) {
  std::set<std::string_view> names;
  const auto count = static_cast<U8>(Opcode::kCount);
  for (U8 opcode = 0; opcode <= count; ++opcode)
    names.insert(to_string(static_cast<Opcode>(opcode)));
  EXPECT_EQ(names.size(), count + 1U);
}

}  // namespace
}  // namespace pyrdma::tailwind
