// An operation that a split holds up: its slot is frozen, or its buckets are full. It waits for the
// split's owner, finishes the split of an owner that shows no beat, or begins a split.
#include <string>

#include "systems/krcore/race/operation.h"
#include "systems/krcore/race/split.h"

namespace pyrdma::krcore::race {

void Operation::wait_for_split(bool needs_room) {
  needs_room_ = needs_room;
  if (c_.splitter->is_running()) {
    then(&Operation::after_split);
    return c_.splitter->run_for(*this, home_, 0);
  }
  c_.links.read(home_.node, home_.offset, buffers_.words + Path::kWords, 8);
  c_.links.ring(*this, home_.node);
  c_.directory.read_path(c_.links, hash_, buffers_.words);
  c_.links.ring(*this, 0);
  then(&Operation::saw_split);
}

void Operation::saw_split() {
  if (!c_.directory.take_path(hash_, buffers_.words, home_)) {
    c_.env.reached("race/stale directory");
    return again("its subtable is split again and again");
  }
  std::uint64_t word = buffers_.words[Path::kWords];
  if (!c_.options.bugs.looks_at_lock() && needs_room_)
    word = SplitWord{.depth = header(0, 0).depth}.word();
  const SplitWord split = SplitWord::of(word);
  // The buckets were read before the split word. A split that ended meanwhile has made room.
  if (!split.is_locked) {
    if (!needs_room_ || split.depth != header(0, 0).depth)
      return again("splits of its subtable end and make no room");
    if (split.depth >= c_.table.max_depth)
      throw Error(ErrorCode::kExhausted,
                  "the two buckets for " + describe() +
                      " are full, and the table has its maximum depth, " +
                      std::to_string(c_.table.max_depth) +
                      ": make it with a larger StorageOptions::max_depth or with more groups");
  } else {
    const Time now = c_.env.now();
    if (word != split_word_ || split_since_ == 0) {
      split_word_ = word;
      split_since_ = now;
      return again("the split of its subtable does not end");
    }
    if (now - split_since_ < c_.options.lease || !c_.options.bugs.finishes_for_others())
      return again("the split of its subtable does not end");
    split_since_ = 0;
  }
  then(&Operation::after_split);
  c_.splitter->run_for(*this, home_, word);
}

}  // namespace pyrdma::krcore::race
