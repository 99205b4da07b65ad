// The second half of a split: the new subtable gets its entries, the directory gets the new
// subtable, and the old subtable's places become free.
#include <utility>

#include "base/error.h"
#include "env/scope.h"
#include "systems/krcore/race/split.h"
#include "systems/krcore/scopes.h"

namespace pyrdma::krcore::race {

void Splitter::all_passed() {
  c_.step(Step::kAllPassed);
  copy(is_published_ ? &Splitter::clean : &Splitter::copied);
}

// The frozen slots do not change until the new subtable is published, so the copy is what it is
// whoever makes it. A read on the same way after the write places it.
void Splitter::copy(Next next) {
  const Scope step(c_.env, scope::race_split_publish);
  const std::uint64_t at = *spare_[home_.node];
  c_.links.write(home_.node, at, copy_, static_cast<std::uint32_t>(c_.table.subtable_bytes()));
  c_.links.read(home_.node, at, results_, 8);
  c_.links.ring(*this, home_.node);
  then(next);
}

void Splitter::copied() {
  c_.step(Step::kCopied);
  double_directory();
}

// The directory is doubled before it gets an entry in its upper half: a client whose copy is older
// than that looks at the lower half, and is told by the header.
void Splitter::double_directory() {
  const std::uint32_t known = c_.directory.global_depth();
  if (known > depth_) return publish();
  c_.links.swap(0, kGlobalDepthAt, known, depth_ + 1ULL, path_);
  c_.links.ring(*this, 0);
  then(&Splitter::doubled);
}

void Splitter::doubled() {
  if (path_[0] == c_.directory.global_depth()) {
    c_.env.reached("race/directory doubled");
    c_.directory.learn_depth(depth_ + 1ULL);
  } else {
    check_time();
    c_.directory.learn_depth(path_[0]);
    return double_directory();
  }
  c_.step(Step::kDoubled);
  publish();
}

void Splitter::publish() {
  const DirectoryEntry entry{home_.node, depth_ + 1, *spare_[home_.node]};
  c_.links.swap(0, kDirectoryAt + 8ULL * moved_index(), 0, entry.word(), path_);
  c_.links.ring(*this, 0);
  then(&Splitter::published);
}

void Splitter::published() {
  if (path_[0] == 0) {
    const DirectoryEntry entry{home_.node, depth_ + 1, *spare_[home_.node]};
    c_.directory.learn(moved_index(), entry.word());
    if (c_.options.bugs.moves_first()) spare_[home_.node].reset();
  } else {
    c_.directory.learn(moved_index(), path_[0]);  // another client was faster
  }
  c_.step(Step::kPublished);
  is_published_ = true;
  if (!c_.options.bugs.moves_first()) return read_batch();
  clean();
}

void Splitter::clean() {
  if (!c_.options.bugs.moves_first()) spare_[home_.node].reset();
  group_ = 0;
  c_.links.read(home_.node, batch_at(), batch_, batch_groups() * kGroupBytes);
  c_.links.ring(*this, home_.node);
  then(&Splitter::clean_batch);
}

void Splitter::clean_batch() {
  const Scope step(c_.env, scope::race_split_clean);
  std::uint32_t swaps = 0;
  for (std::uint32_t bucket = 0; bucket < batch_buckets(); ++bucket) {
    for (std::uint32_t number = 1; number <= kSlotsPerBucket; ++number) {
      const Slot slot(word(bucket, number));
      if (!slot.is_frozen() || slot.depth() != depth_) continue;
      c_.links.swap(home_.node, word_at(bucket, number), slot.word(),
                    Slot::empty(depth_ + 1).word(), results_ + swaps++);
    }
  }
  add_beat();
  c_.links.ring(*this, home_.node);
  then(&Splitter::cleaned_batch);
}

void Splitter::cleaned_batch() {
  if (!is_owner()) return end();
  c_.step(Step::kBatchCleaned);
  group_ += batch_groups();
  if (group_ >= c_.table.groups) return unlock();
  c_.links.read(home_.node, batch_at(), batch_, batch_groups() * kGroupBytes);
  c_.links.ring(*this, home_.node);
  then(&Splitter::clean_batch);
}

void Splitter::unlock() {
  c_.step(Step::kAllCleaned);
  beat_before_ = own_.word();
  c_.links.swap(home_.node, home_.offset, beat_before_, SplitWord{.depth = depth_ + 1}.word(),
                beat_result_);
  c_.links.ring(*this, home_.node);
  then(&Splitter::unlocked);
}

void Splitter::unlocked() {
  if (is_owner() && for_other_) c_.env.reached("race/split finished for another");
  c_.step(Step::kUnlocked);
  end();
}

void Splitter::end() {
  is_running_ = false;
  next_ = nullptr;
  for (Operation* operation : std::exchange(waiting_, {})) operation->wake();
}

void Splitter::fail(const Error& error) {
  is_running_ = false;
  next_ = nullptr;
  for (Operation* operation : std::exchange(waiting_, {})) operation->fail(error);
}

}  // namespace pyrdma::krcore::race
