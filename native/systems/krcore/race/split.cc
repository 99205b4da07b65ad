#include "systems/krcore/race/split.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "env/scope.h"
#include "systems/krcore/scopes.h"

namespace pyrdma::krcore::race {

namespace {

constexpr std::uint32_t kBatchSlots =
    Splitter::kMostGroups * kBucketsPerGroup * (kSlotsPerBucket + 1);

}  // namespace

std::uint64_t Splitter::bytes(const TableAddress& table) {
  return std::uint64_t{kMostGroups} * kGroupBytes + std::uint64_t{kBatchSlots} * kUnit +
         table.subtable_bytes() + (kBatchSlots + 8ULL + Path::kWords) * 8;
}

Splitter::Splitter(Context& context, std::byte* memory)
    : c_(context),
      batch_(memory),
      heads_(batch_ + std::size_t{kMostGroups} * kGroupBytes),
      copy_(heads_ + std::size_t{kBatchSlots} * kUnit),
      results_(reinterpret_cast<std::uint64_t*>(copy_ + context.table.subtable_bytes())),
      beat_result_(results_ + kBatchSlots),
      path_(beat_result_ + 8),
      spare_(context.table.nodes) {}

void Splitter::run_for(Operation& waiting, const Home& home, std::uint64_t word) {
  waiting_.push_back(&waiting);
  if (is_running_) return;
  const Scope step(c_.env, scope::race_split_begin);
  is_running_ = true;
  is_published_ = false;
  home_ = home;
  const SplitWord before = SplitWord::of(word);
  for_other_ = before.is_locked;
  depth_ = before.depth;
  deadline_ = c_.env.now() + c_.options.timeout;
  own_ = {.depth = depth_,
          .is_locked = true,
          .beat = c_.options.first_beat & kMostBeat,
          .client = c_.options.client & 0x3ff,
          .incarnation = c_.env.incarnation() & 0xffff,
          .node = c_.env.node() & 0xffff};
  // The word must change, also if a client takes over from itself.
  if (own_.word() == word) own_.beat = (own_.beat + 1) & kMostBeat;
  beat_before_ = word;
  c_.links.swap(home_.node, home_.offset, word, own_.word(), beat_result_);
  c_.links.ring(*this, home_.node);
  then(&Splitter::locked);
}

void Splitter::proceed() {
  try {
    if (lost())
      throw Error(ErrorCode::kUnavailable,
                  "storage node " + std::to_string(c_.links.node_of(lost_node())) +
                      " does not answer (" + fabric::to_string(c_.links.broken(lost_node())) +
                      "), needed to split subtable " + std::to_string(home_.index) +
                      ": it has ended or is cut off; connect again with a new client",
                  false)
          .blaming({c_.links.node_of(lost_node())});
    (this->*next_)();
  } catch (const Error& error) {
    fail(error);
  }
}

void Splitter::locked() {
  if (!is_owner()) return end();  // somebody else splits it, or has split it
  c_.step(Step::kSplitLocked);
  if (depth_ >= c_.table.max_depth || home_.index >> depth_ != 0)
    throw Error(ErrorCode::kUnavailable,
                "the split word of subtable " + std::to_string(home_.index) + " at node " +
                    std::to_string(c_.links.node_of(home_.node)) + " has depth " +
                    std::to_string(depth_) + "; the table has at most " +
                    std::to_string(c_.table.max_depth) +
                    ": the memory of that node is damaged; fill a new table")
        .blaming({c_.links.node_of(home_.node)});
  c_.links.read(0, kDirectoryAt + 8ULL * moved_index(), path_, 8);
  c_.links.read(0, kGlobalDepthAt, path_ + 1, 8);
  c_.links.ring(*this, 0);
  c_.links.read(home_.node, kAllocationAt, path_ + 2, 8);
  c_.links.ring(*this, home_.node);
  then(&Splitter::knows_entry);
}

// If the new subtable is published, all slots have been passed.
void Splitter::knows_entry() {
  c_.directory.learn_depth(path_[1]);
  if (DirectoryEntry::is_there(path_[0])) {
    c_.directory.learn_depth(depth_ + 1);
    c_.directory.learn(moved_index(), path_[0]);
    return clean();
  }
  reserve();
}

void Splitter::reserve() {
  if (spare_[home_.node]) return pass();
  // A reservation that fails would take what is left from everybody.
  if (!c_.blocks.is_there(home_.node, path_[2], c_.table.subtable_bytes())) return give_up();
  c_.links.fetch_add(home_.node, kAllocationAt, c_.table.subtable_bytes(), path_);
  c_.links.ring(*this, home_.node);
  then(&Splitter::reserved);
}

void Splitter::reserved() {
  if (!c_.blocks.is_there(home_.node, path_[0], c_.table.subtable_bytes())) return give_up();
  spare_[home_.node] = path_[0];
  c_.step(Step::kSplitReserved);
  pass();
}

// Without memory there is no split. Nothing has changed if this client has begun it; a split that
// another one has begun keeps its lock, so that a client with memory can finish it.
void Splitter::give_up() {
  if (!for_other_) {
    c_.links.swap(home_.node, home_.offset, own_.word(), SplitWord{.depth = depth_}.word(),
                  results_);
    c_.links.ring_unawaited(home_.node);
  }
  throw Error(ErrorCode::kExhausted,
              "storage node " + std::to_string(c_.links.node_of(home_.node)) + " has " +
                  std::to_string(c_.table.regions[home_.node].length) +
                  " bytes of memory, and a new subtable of " +
                  std::to_string(c_.table.subtable_bytes()) +
                  " bytes does not fit: give it more (StorageOptions::bytes)");
}

// ---- the pass ----

void Splitter::pass() {
  format_subtable(copy_bytes(), depth_ + 1, moved_index());
  group_ = 0;
  if (!c_.options.bugs.moves_first()) return copy(&Splitter::double_directory);
  read_batch();
}

std::uint32_t Splitter::batch_groups() const {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(c_.options.split_groups, c_.table.groups - group_));
}

std::uint64_t Splitter::word(std::uint32_t bucket, std::uint32_t number) const {
  std::uint64_t word = 0;
  std::memcpy(&word, batch_ + std::size_t{bucket} * kBucketBytes + std::size_t{number} * 8,
              sizeof word);
  return word;
}

void Splitter::put_into_copy(std::uint32_t bucket, std::uint32_t number, Slot slot) {
  const std::uint64_t word = slot.plain().at_depth(depth_ + 1).word();
  std::memcpy(copy_ + (word_at(bucket, number) - home_.offset), &word, sizeof word);
}

void Splitter::read_batch() {
  add_beat();
  c_.links.read(home_.node, batch_at(), batch_, batch_groups() * kGroupBytes);
  c_.links.ring(*this, home_.node);
  then(&Splitter::judge_batch);
}

// A slot of the old depth is not passed. To know whether its key moves, the client reads the head
// of its block.
void Splitter::judge_batch() {
  bool is_passed = true;
  bool reads = false;
  {
    const Scope step(c_.env, scope::race_split_look);
    for (std::uint32_t bucket = 0; bucket < batch_buckets(); ++bucket) {
      is_passed = is_passed && Header::of(word(bucket, 0)).depth != depth_;
      for (std::uint32_t number = 1; number <= kSlotsPerBucket; ++number) {
        const Slot slot(word(bucket, number));
        if (slot.is_frozen()) put_into_copy(bucket, number, slot);
        if (slot.is_frozen() || slot.depth() != depth_) continue;
        if (slot.is_empty() && !c_.options.bugs.passes_free_slots()) continue;
        is_passed = false;
        if (slot.is_empty() || slot.is_tentative()) continue;
        if (!c_.table.holds(home_.node, slot.offset(), std::uint64_t{slot.units()} * kUnit))
          continue;
        c_.links.read(home_.node, slot.offset(),
                      heads_ + std::size_t{bucket * (kSlotsPerBucket + 1) + number} * kUnit,
                      sizeof(BlockHead));
        reads = true;
      }
    }
  }
  if (is_passed) return passed_batch();
  check_time();
  if (!reads) return pass_batch();
  c_.links.ring(*this, home_.node);
  then(&Splitter::pass_batch);
}

// The compare-and-swaps that fail are seen in the batch as it is read after them.
void Splitter::pass_batch() {
  const Scope step(c_.env, scope::race_split_pass);
  std::uint32_t swaps = 0;
  const auto swap = [&](std::uint32_t bucket, std::uint32_t number, std::uint64_t desired) {
    c_.links.swap(home_.node, word_at(bucket, number), word(bucket, number), desired,
                  results_ + swaps++);
  };
  for (std::uint32_t bucket = 0; bucket < batch_buckets(); ++bucket) {
    if (Header::of(word(bucket, 0)).depth == depth_)
      swap(bucket, 0, Header{depth_ + 1, home_.index}.word());
    for (std::uint32_t number = 1; number <= kSlotsPerBucket; ++number) {
      const Slot slot(word(bucket, number));
      if (slot.is_frozen() || slot.depth() != depth_) continue;
      // An insertion that is not over is undone. Its client begins again.
      if (slot.is_empty() || slot.is_tentative()) {
        if (c_.options.bugs.passes_free_slots() || slot.is_tentative())
          swap(bucket, number, Slot::empty(depth_ + 1).word());
        continue;
      }
      const BlockHead head =
          BlockHead::of(heads_ + std::size_t{bucket * (kSlotsPerBucket + 1) + number} * kUnit);
      // If the swap succeeds, the slot has had this block all the time, so the head was whole.
      if (head.version != slot.version() && c_.options.bugs.renews_versions()) continue;
      const bool moves = (head.hash >> depth_ & 1) != 0;
      swap(bucket, number, moves ? slot.frozen().word() : slot.at_depth(depth_ + 1).word());
    }
  }
  add_beat();
  c_.links.read(home_.node, batch_at(), batch_, batch_groups() * kGroupBytes);
  c_.links.ring(*this, home_.node);
  then(&Splitter::judge_batch);
}

void Splitter::passed_batch() {
  // Somebody takes this client for dead, and finishes the split.
  if (!is_owner()) return end();
  c_.step(Step::kBatchPassed);
  group_ += batch_groups();
  if (group_ < c_.table.groups) return read_batch();
  all_passed();
}

void Splitter::add_beat() {
  beat_before_ = own_.word();
  own_.beat = (own_.beat + 1) & kMostBeat;
  c_.links.swap(home_.node, home_.offset, beat_before_, own_.word(), beat_result_);
}

void Splitter::check_time() {
  if (c_.env.now() <= deadline_) return;
  throw Error(ErrorCode::kTimeout,
              "the split of subtable " + std::to_string(home_.index) + " at node " +
                  std::to_string(c_.links.node_of(home_.node)) + " is not over within " +
                  std::to_string(c_.options.timeout / kMicrosecond) +
                  " us (ClientOptions::timeout): a block of groups " + std::to_string(group_) +
                  " to " + std::to_string(group_ + batch_groups() - 1) +
                  " changes again and again, or is damaged",
              false)
      .blaming({c_.links.node_of(home_.node)});
}

}  // namespace pyrdma::krcore::race
