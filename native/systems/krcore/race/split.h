// The split of a subtable (RACE, section 3.4), as a task of the client that needs room or that
// finishes it for a dead client. README.md has the argument that no key is lost or doubled.
//
//   lock       the split word of the subtable gets this client's name
//   pass       each slot of the old depth gets the new one, or is frozen if its key moves
//   copy       the frozen slots go to a new subtable that only this client knows
//   publish    the directory gets the new subtable: from now on it has the keys
//   clean      frozen slots become free
//   unlock     the split word gets the new depth
//
// Each step is a set of compare-and-swaps that fail once somebody has done it, so any number of
// clients may do one split at the same time, also one that was taken for dead and goes on. The lock
// saves work, and keeps the next split from beginning before this one has ended.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "systems/krcore/race/operation.h"
#include "systems/krcore/race/subtable.h"

namespace pyrdma::krcore::race {

class Splitter final : public Task {
 public:
  static constexpr std::uint32_t kMostGroups = 16;  // of a batch

  /// Registered memory: see bytes().
  Splitter(Context& context, std::byte* memory);
  static std::uint64_t bytes(const TableAddress& table);

  /// Splits the subtable, whose split word was read as `word`, or finishes its split if it is
  /// locked. `waiting` wakes when that has ended or has been given up. It waits for the split that
  /// is under way here, if there is one.
  void run_for(Operation& waiting, const Home& home, std::uint64_t word);
  bool is_running() const { return is_running_; }
  void proceed() override;

 private:
  using Next = void (Splitter::*)();

  // split.cc: lock and pass
  void locked();
  void knows_entry();
  void reserve();
  void reserved();
  void pass();
  void read_batch();
  void judge_batch();
  void pass_batch();
  void passed_batch();
  void give_up();
  // split_publish.cc
  void all_passed();
  void copy(Next next);
  void copied();
  void double_directory();
  void doubled();
  void publish();
  void published();
  void clean();
  void clean_batch();
  void cleaned_batch();
  void unlock();
  void unlocked();
  void end();
  void fail(const Error& error);

  void then(Next next) { next_ = next; }
  std::uint64_t batch_at() const { return home_.offset + kSubtableHead + group_ * kGroupBytes; }
  std::uint32_t batch_groups() const;
  std::uint32_t batch_buckets() const { return batch_groups() * kBucketsPerGroup; }
  /// Word `number` of a bucket of the batch: 0 is its header.
  std::uint64_t word(std::uint32_t bucket, std::uint32_t number) const;
  std::uint64_t word_at(std::uint32_t bucket, std::uint32_t number) const {
    return batch_at() + std::uint64_t{bucket} * kBucketBytes + 8ULL * number;
  }
  void put_into_copy(std::uint32_t bucket, std::uint32_t number, Slot slot);
  std::span<std::byte> copy_bytes() const { return {copy_, c_.table.subtable_bytes()}; }
  std::uint32_t moved_index() const { return home_.index | 1U << depth_; }
  void add_beat();
  bool is_owner() const { return c_.options.bugs.holds_lock(beat_result_[0] == beat_before_); }
  void check_time();

  Context& c_;
  std::byte* batch_;            // kMostGroups groups
  std::byte* heads_;            // of their blocks, a unit each
  std::byte* copy_;             // the new subtable
  std::uint64_t* results_;      // of compare-and-swaps, not looked at
  std::uint64_t* beat_result_;  // and others
  std::uint64_t* path_;         // Path::kWords
  Next next_ = nullptr;
  std::vector<Operation*> waiting_;
  bool is_running_ = false, for_other_ = false;

  Home home_;
  std::uint32_t depth_ = 0;
  SplitWord own_;                  // the split word as this client has last written it
  std::uint64_t beat_before_ = 0;  // and the one before
  std::uint64_t group_ = 0;
  Time deadline_ = 0;
  /// Memory of a subtable that nobody knows, by storage node.
  std::vector<std::optional<std::uint64_t>> spare_;
  bool is_published_ = false;
};

}  // namespace pyrdma::krcore::race
