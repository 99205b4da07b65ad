// The search of crash points finds each way to keep a value badly, and explores what it says.
#include "env/sim/crash_points_test.h"

#include <gtest/gtest.h>

#include <optional>

namespace pyrdma {
namespace {

enum class Flaw : std::uint8_t {
  kNone,
  kFileNotSynced,
  kNameNotSynced,
  kReadTrusted,     // what another process has written is taken for durable
  kWrittenInPlace,  // a crash tears it
  kSyncedAgain,     // after a sync that failed, without a second write
  kNotReplaced,     // removed before the new one has its name
};

/// Keeps a number, in a file of three sectors that is replaced.
class NumberFile {
 public:
  NumberFile(Storage& storage, Flaw flaw) : storage_(storage), flaw_(flaw) {
    storage.remove("number.new");
    if (flaw != Flaw::kReadTrusted) storage.sync();
    if (!storage.exists("number")) return;
    Bytes bytes(kBytes);
    bytes.resize(storage.open("number")->read(0, bytes));
    if (bytes.size() != kBytes || std::ranges::count(bytes, bytes[0]) != std::ptrdiff_t{kBytes})
      throw Error(ErrorCode::kUnavailable, "the number is torn");
    number_ = static_cast<unsigned>(bytes[0]);
  }
  unsigned number() const { return number_; }
  void write(unsigned number) {
    const bool is_in_place = flaw_ == Flaw::kWrittenInPlace;
    const auto file = storage_.open(is_in_place ? "number" : "number.new");
    file->write(0, Bytes(kBytes, static_cast<std::byte>(number)));
    if (flaw_ != Flaw::kFileNotSynced) sync(*file);
    if (flaw_ == Flaw::kNotReplaced) {
      storage_.remove("number");
      storage_.sync();
    }
    if (!is_in_place) storage_.rename("number.new", "number");
    if (flaw_ != Flaw::kNameNotSynced) storage_.sync();
    number_ = number;
  }

 private:
  static constexpr std::size_t kBytes = 1200;
  void sync(File& file) {
    try {
      file.sync();
    } catch (const Error&) {
      if (flaw_ != Flaw::kSyncedAgain) throw;
      file.sync();
    }
  }
  Storage& storage_;
  const Flaw flaw_;
  unsigned number_ = 0;
};

struct Number {
  unsigned must = 0;
  std::optional<unsigned> may;
};

std::string wrong_with(Flaw flaw, CrashCounts& counts) {
  CrashSearch<Number> search([flaw](Storage& storage, Number& number, unsigned life) {
    NumberFile file(storage, flaw);
    if (file.number() != number.must && file.number() != number.may)
      return "there is " + std::to_string(file.number());
    number = {file.number(), {}};
    for (unsigned left = life == 0 ? 3 : 1; left != 0; --left) {
      number.may = number.must + 1;
      file.write(*number.may);
      number = {*number.may, {}};
    }
    return std::string();
  });
  std::string wrong = search.run();
  counts = search.counts();
  return wrong;
}

TEST(CrashPoints, EachFlawIsFound) {
  CrashCounts counts;
  EXPECT_EQ(wrong_with(Flaw::kNone, counts), "");
  EXPECT_GE(counts.points, 300U);
  EXPECT_GE(counts.states, 1000U);
  EXPECT_GE(counts.restarts, 15U);
  EXPECT_GE(counts.failures, 15U);
  EXPECT_GE(counts.deep, 300U);
  for (const Flaw flaw : {Flaw::kFileNotSynced, Flaw::kNameNotSynced, Flaw::kReadTrusted,
                          Flaw::kWrittenInPlace, Flaw::kSyncedAgain, Flaw::kNotReplaced})
    EXPECT_NE(wrong_with(flaw, counts), "") << static_cast<int>(flaw);
}

// One write of three sectors to a new file: the name, the size and three sectors are in doubt.
TEST(CrashPoints, EveryChoiceOfPiecesIsExplored) {
  CrashDisk disk;
  const auto file = disk.open("f");
  file->write(100, Bytes(1200, std::byte{1}));
  EXPECT_EQ(disk.doubtful(0), 0U);
  EXPECT_EQ(disk.doubtful(1), 1U);
  EXPECT_EQ(disk.doubtful(2), 5U);
  disk.sync();
  EXPECT_EQ(disk.doubtful(3), 4U);
  EXPECT_EQ(disk.doubtful(2), 5U) << "before the sync";
  std::set<Bytes> contents;
  for (unsigned choice = 0; choice < 16; ++choice) {
    unsigned piece = 0;
    contents.insert(disk.left(3, [&] { return (choice >> piece++ & 1) != 0; }).at("f"));
  }
  // With the last sector the size makes no difference.
  EXPECT_EQ(contents.size(), 12U);
  file->sync();
  EXPECT_EQ(disk.doubtful(4), 0U);
  EXPECT_EQ(disk.durable().at("f").size(), 1300U);
}

TEST(CrashPoints, WhatAFailedSyncHasLostStaysInDoubt) {
  CrashDisk disk;
  const auto file = disk.open("f");
  disk.sync();
  file->write(0, Bytes(10, std::byte{1}));
  disk.set_fault(disk.operations(), CrashDisk::Fault::kFails);
  EXPECT_THROW(file->sync(), Error);
  file->sync();
  EXPECT_EQ(disk.durable().at("f").size(), 0U);
  EXPECT_EQ(disk.content("f").size(), 10U) << "the process sees it";
  file->write(0, Bytes(10, std::byte{1}));
  file->sync();
  EXPECT_EQ(disk.durable().at("f"), Bytes(10, std::byte{1}));
}

}  // namespace
}  // namespace pyrdma
