#include "systems/krcore/race/operation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/assert.h"
#include "base/crc32c.h"
#include "env/scope.h"
#include "systems/krcore/race/split.h"
#include "systems/krcore/scopes.h"

namespace pyrdma::krcore::race {

const char* to_string(Kind kind) {
  constexpr std::array<const char*, 4> kNames{"lookup", "insertion", "update", "removal"};
  return kNames[static_cast<std::size_t>(kind)];
}

// ---- the begin ----

void Operation::start(Kind kind, std::uint64_t tag, ByteView key, ByteView value) {
  const Scope step(c_.env, scope::race_start);
  forget_loss();
  kind_ = kind;
  tag_ = tag;
  hash_ = KeyHash::of(key);
  value_ = {};
  error_.reset();
  deadline_ = 0;
  block_.reset();
  units_ = units_for(key.size(), value.size());
  is_written_ = is_placed_ = may_have_changed_ = false;
  rival_ = {};
  split_since_ = 0;
  std::byte* at = buffers_.out + sizeof(BlockHead);
  std::memcpy(at, key.data(), key.size());
  key_ = {at, key.size()};
  if (!value.empty()) std::memcpy(at + key.size(), value.data(), value.size());
  c_.env.charge_copy(key.size() + value.size());
  BlockHead head;
  head.key_bytes = static_cast<std::uint16_t>(key.size());
  head.value_bytes = static_cast<std::uint32_t>(value.size());
  head.hash = hash_.a;
  std::memcpy(buffers_.out, &head, sizeof head);
  then(&Operation::begin);
  proceed();
}

void Operation::proceed() {
  try {
    if (lost()) throw_lost();
    (this->*next_)();
  } catch (const Error& error) {
    fail(error);
  }
}

void Operation::begin() {
  const Scope step(c_.env, scope::race_find_buckets);
  home_ = c_.directory.home(hash_);
  if (writes() && !has_block()) return;
  if (writes() && !is_written_) {
    // The write goes the same way as the compare-and-swap that publishes it, and before it.
    c_.links.write(home_.node, block_->offset, buffers_.out, units_ * kUnit);
    is_written_ = true;
  }
  read_buckets();
  then(&Operation::judge_buckets);
}

// Both reads go behind one doorbell.
void Operation::read_buckets() {
  for (std::uint32_t candidate = 0; candidate < 2; ++candidate) {
    c_.links.read(home_.node, combined_at(candidate),
                  buffers_.buckets + std::size_t{candidate} * kCombinedBytes, kCombinedBytes);
  }
  c_.links.ring(*this, home_.node);
}

// A key's subtables all lie on one storage node, and so do its blocks.
bool Operation::has_block() {
  if (block_) return true;
  block_ = c_.blocks.take(home_.node, units_);
  if (block_) {
    BlockHead head = BlockHead::of(buffers_.out);
    head.version = static_cast<std::uint16_t>(block_->version);
    std::memcpy(buffers_.out, &head, sizeof head);
    const std::size_t bytes = sizeof head + head.key_bytes + head.value_bytes;
    head.crc = crc32c({buffers_.out + kCrcBytes, bytes - kCrcBytes});
    std::memcpy(buffers_.out, &head, sizeof head);
    return true;
  }
  if (c_.blocks.is_exhausted(home_.node))
    throw Error(ErrorCode::kExhausted,
                "storage node " + std::to_string(c_.links.node_of(home_.node)) + " has " +
                    std::to_string(c_.table.regions[home_.node].length) +
                    " bytes of memory, and no chunk of " + std::to_string(c_.options.chunk_bytes) +
                    " bytes of it is left for " + describe() +
                    ": give the storage node more (StorageOptions::bytes), or the clients smaller "
                    "chunks (ClientOptions::chunk_bytes)");
  then(&Operation::begin);
  if (c_.blocks.is_reserving(home_.node)) {
    c_.blocks.wait(home_.node, *this);
    return false;
  }
  c_.blocks.begin_reserving(home_.node);
  is_reserving_ = true;
  c_.links.fetch_add(home_.node, kAllocationAt, c_.options.chunk_bytes, buffers_.words);
  c_.links.ring(*this, home_.node);
  then(&Operation::reserved);
  return false;
}

void Operation::reserved() {
  is_reserving_ = false;
  c_.blocks.end_reserving(home_.node, buffers_.words[0], c_.options.chunk_bytes, c_.links);
  begin();
}

void Operation::again(const char* why) {
  const Time now = c_.env.now();
  if (deadline_ == 0) deadline_ = now + c_.options.timeout;
  if (now > deadline_) throw_overdue(why);
  begin();
}

// ---- the buckets ----

Slot Operation::slot(std::uint32_t candidate, std::uint32_t bucket, std::uint32_t number) const {
  std::uint64_t word = 0;
  std::memcpy(&word,
              buffers_.buckets + candidate * kCombinedBytes + bucket * kBucketBytes + 8 +
                  std::size_t{number} * 8,
              sizeof word);
  return Slot(word);
}

Header Operation::header(std::uint32_t candidate, std::uint32_t bucket) const {
  std::uint64_t word = 0;
  std::memcpy(&word, buffers_.buckets + candidate * kCombinedBytes + bucket * kBucketBytes,
              sizeof word);
  return Header::of(word);
}

// The directory is stale if a header or a slot says that the key belongs to another subtable by
// now. A slot says so before its header does, while a split passes the bucket.
void Operation::judge_buckets() {
  bool is_stale = false;
  {
    const Scope step(c_.env, scope::race_judge_buckets);
    for (std::uint32_t i = 0; i < 4; ++i) {
      const Header found = header(i / 2, i % 2);
      is_stale = is_stale || found.suffix != home_.index || !has_key(found.depth);
      // Nearly all slots have the depth of their header.
      std::uint64_t differs = 0;
      for (std::uint32_t number = 0; number < kSlotsPerBucket; ++number)
        differs |= slot(i / 2, i % 2, number).depth_bits() ^ Slot::empty(found.depth).word();
      for (std::uint32_t number = 0; differs != 0 && number < kSlotsPerBucket; ++number)
        is_stale = is_stale || !has_key(slot(i / 2, i % 2, number).depth());
    }
  }
  if (!is_stale || !c_.options.bugs.checks_header()) return find_matches();
  const Scope step(c_.env, scope::race_look_up_path);
  c_.directory.read_path(c_.links, hash_, buffers_.words);
  c_.links.ring(*this, 0);
  then(&Operation::judge_path);
}

// The path was read after the buckets. If it does not name a new subtable, the key had not left
// this one when the buckets were read.
void Operation::judge_path() {
  bool is_home = false;
  {
    const Scope step(c_.env, scope::race_take_path);
    is_home = c_.directory.take_path(hash_, buffers_.words, home_);
  }
  if (is_home) return find_matches();
  c_.env.reached("race/stale directory");
  again("its subtable is split again and again");
}

// ---- the blocks ----

void Operation::collect(bool with_tentative) {
  count_ = read_ = reading_ = 0;
  for (std::uint32_t i = 0; i < 4; ++i) {
    std::uint32_t hits = 0;
    for (std::uint32_t number = 0; number < kSlotsPerBucket; ++number) {
      const Slot each = slot(i / 2, i % 2, number);
      hits |= std::uint32_t{each.fingerprint() == hash_.fingerprint()} << number;
    }
    for (; hits != 0; hits &= hits - 1) {
      const auto number = static_cast<std::uint32_t>(std::countr_zero(hits));
      const Slot found = slot(i / 2, i % 2, number);
      if (found.is_empty()) continue;
      if (found.is_tentative() && !with_tentative) continue;
      // A frozen slot has a key whose next bit is 1. Its key may have moved long ago, and its block
      // may have another use, if the client died that should have cleaned it.
      if (found.is_frozen() && (hash_.a >> found.depth() & 1) == 0) continue;
      matches_[count_++] = {slot_at(i / 2, i % 2, number), found, nullptr, Verdict::kOther};
    }
  }
}

void Operation::find_matches() {
  collect(false);
  after_blocks_ = &Operation::judged;
  read_blocks();
}

// All matches are read behind one doorbell, as far as their blocks have room here.
void Operation::read_blocks() {
  const Scope step(c_.env, scope::race_read_blocks);
  std::uint32_t used = 0;
  read_ = reading_;
  for (; reading_ < count_; ++reading_) {
    Match& match = matches_[reading_];
    const std::uint32_t bytes = match.slot.units() * kUnit;
    // No client writes such a slot.
    if (match.slot.units() > c_.table.block_units() ||
        !c_.table.holds(home_.node, match.slot.offset(), bytes))
      continue;
    if (used + bytes > buffers_.in_bytes) break;
    match.block = buffers_.in + used;
    c_.links.read(home_.node, match.slot.offset(), buffers_.in + used, bytes);
    used += bytes;
  }
  if (used == 0) return (this->*after_blocks_)();
  c_.links.ring(*this, home_.node);
  then(&Operation::compare_blocks);
}

void Operation::compare_blocks() {
  {
    const Scope step(c_.env, scope::race_compare_keys);
    for (std::uint32_t i = read_; i < reading_; ++i) {
      Match& match = matches_[i];
      if (match.block == nullptr) continue;
      match.verdict = compare(match);
      const bool ends = match.verdict == Verdict::kSame && after_blocks_ == &Operation::judged;
      if (ends) count_ = reading_ = i + 1;  // its block stays where it is
    }
  }
  if (reading_ < count_) return read_blocks();
  (this->*after_blocks_)();
}

// The block may be another one by now, or one that is being written: its version and its checksum
// say so.
Operation::Verdict Operation::compare(const Match& match) const {
  const Bugs& bugs = c_.options.bugs;
  const BlockHead head = BlockHead::of(match.block);
  const std::uint32_t room =
      match.slot.units() * kUnit - static_cast<std::uint32_t>(sizeof(BlockHead));
  if (head.key_bytes > room || head.value_bytes > room - head.key_bytes) return Verdict::kUnsure;
  if (bugs.renews_versions() && head.version != match.slot.version()) return Verdict::kUnsure;
  const std::size_t bytes = sizeof head + head.key_bytes + head.value_bytes;
  if (bugs.checks_crc() && crc32c({match.block + kCrcBytes, bytes - kCrcBytes}) != head.crc)
    return Verdict::kUnsure;
  if (head.key_bytes != key_.size()) return Verdict::kOther;
  const bool is_same =
      std::memcmp(match.block + sizeof head, key_.data(), bugs.compared(key_.size())) == 0;
  return is_same ? Verdict::kSame : Verdict::kOther;
}

void Operation::judged() {
  bool is_unsure = false;
  for (std::uint32_t i = 0; i < count_; ++i) {
    if (matches_[i].verdict == Verdict::kSame) {
      found_ = matches_[i];
      return found();
    }
    is_unsure = is_unsure || matches_[i].verdict == Verdict::kUnsure;
  }
  if (!is_unsure) return missing();
  c_.env.reached("race/CRC retry");
  again("a block with its fingerprint is torn or of another use");
}

// ---- changes and ends ----

void Operation::swap_slot(std::uint64_t at, Slot expected, Slot desired, Next next) {
  const Scope step(c_.env, scope::race_swap_slot);
  expected_ = expected;
  c_.links.swap(home_.node, at, expected.word(), desired.word(), buffers_.words);
  c_.links.ring(*this, home_.node);
  then(next);
}

void Operation::keep_block() { block_.reset(); }

void Operation::free_block() {
  if (block_) c_.blocks.free(home_.node, *block_);
  block_.reset();
}

void Operation::end(Outcome outcome) {
  const Scope step(c_.env, scope::race_finish);
  outcome_ = outcome;
  next_ = nullptr;
  c_.over.push_back(this);
}

// The block is lost if others may see it.
void Operation::fail(const Error& error) {
  if (is_reserving_) {
    is_reserving_ = false;
    c_.blocks.end_reserving(home_.node, std::nullopt, 0, c_.links);
  }
  error_ = Error(error.code(), error.what(), error.definite() && !may_have_changed_);
  if (!error.nodes().empty()) error_ = Error(*error_).blaming(error.nodes());
  is_placed_ || may_have_changed_ ? keep_block() : free_block();
  end(Outcome::kFailed);
}

std::string Operation::describe() const {
  return std::string("the ") + to_string(kind_) + " of a key of " + std::to_string(key_.size()) +
         " bytes in subtable " + std::to_string(home_.index);
}

void Operation::throw_lost() {
  const NodeId node = c_.links.node_of(lost_node());
  throw Error(ErrorCode::kUnavailable,
              "storage node " + std::to_string(node) + " does not answer (" +
                  fabric::to_string(c_.links.broken(lost_node())) + "), needed for " + describe() +
                  ": it has ended or is cut off; connect again with a new client",
              !may_have_changed_)
      .blaming({node});
}

void Operation::throw_overdue(const char* why) {
  throw Error(ErrorCode::kTimeout, describe() + " is not over " +
                                       std::to_string(c_.options.timeout / kMicrosecond) +
                                       " us after its first retry (ClientOptions::timeout): " + why)
      .blaming({c_.links.node_of(home_.node)});
}

}  // namespace pyrdma::krcore::race
