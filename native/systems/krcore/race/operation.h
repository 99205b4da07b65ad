// An operation under way, as a small state machine. Each step posts a round of requests and names
// the step that goes on when the round has ended. The steps of each kind of operation are one file:
// lookup.cc, insert.cc, update.cc, remove.cc. operation.cc has the steps that they share, and
// waiting.cc those of an operation that a split holds up.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "base/error.h"
#include "env/env.h"
#include "systems/krcore/race/blocks.h"
#include "systems/krcore/race/directory.h"
#include "systems/krcore/race/links.h"
#include "systems/krcore/race/options.h"

namespace pyrdma::krcore::race {

class Operation;
class Splitter;

enum class Kind : std::uint8_t { kLookup, kInsert, kUpdate, kRemove };
const char* to_string(Kind kind);

enum class Outcome : std::uint8_t {
  kOk,
  kMissing,  // lookup, update, removal: no such key
  kExists,   // insertion: the key is there, and its value is as it was
  kFailed,   // Result::error says why
};

/// What a client's parts share.
struct Context {
  Env& env;
  const ClientOptions& options;
  const TableAddress& table;
  Links links;
  Directory directory;
  Blocks blocks;
  // Registered: a block head of zeros, and a word for reads that nobody looks at.
  const std::byte* zeros = nullptr;
  std::byte* unread = nullptr;
  Splitter* splitter = nullptr;
  std::deque<Operation*> over{};  // operations that have ended, the oldest first
  std::uint64_t retries = 0;

  void step(Step step) const {
    if (options.at_step) [[unlikely]]
      options.at_step(step);
  }
};

/// The registered memory of an operation.
struct Buffers {
  static constexpr std::uint32_t kWords = 64;
  std::byte* buckets = nullptr;    // the two combined buckets
  std::uint64_t* words = nullptr;  // kWords: results of atomics, and a path
  std::byte* out = nullptr;        // the block that it writes
  std::byte* in = nullptr;         // blocks that it reads
  std::uint32_t in_bytes = 0;
};

class Operation final : public Task {
 public:
  Operation(Context& context, const Buffers& buffers) : c_(context), buffers_(buffers) {}

  /// Requires that no operation is under way here. The sizes of key and value are checked.
  void start(Kind kind, std::uint64_t tag, ByteView key, ByteView value);
  void proceed() override;
  /// Ends it with an error: called while the error is handled, or when a split has failed.
  void fail(const Error& error);
  /// What it waited for has ended.
  void wake() { c_.links.wake(*this); }

  Kind kind() const { return kind_; }
  std::uint64_t tag() const { return tag_; }
  Outcome outcome() const { return outcome_; }
  ByteView value() const { return value_; }
  const std::optional<Error>& error() const { return error_; }

 private:
  using Next = void (Operation::*)();
  enum class Verdict : std::uint8_t { kOther, kSame, kUnsure };
  /// A slot that may be the key's, by its fingerprint.
  struct Match {
    std::uint64_t at = 0;  // of the slot, in the region
    Slot slot;
    const std::byte* block = nullptr;
    Verdict verdict = Verdict::kOther;
  };
  static constexpr std::uint32_t kSlots = 4 * kSlotsPerBucket;

  // operation.cc: the steps of all operations
  void begin();
  void again(const char* why);
  void again() { again("another client changes the key or its bucket"); }
  bool has_block();
  void reserved();
  void read_buckets();
  void judge_buckets();
  void judge_path();
  void find_matches();
  void read_blocks();
  void compare_blocks();
  Verdict compare(const Match& match) const;
  void judged();
  void found();
  void missing();
  void swap_slot(std::uint64_t at, Slot expected, Slot desired, Next next);
  bool has_swapped() const { return buffers_.words[0] == expected_.word(); }
  void end(Outcome outcome);
  void keep_block();  // it is part of the table now, or others may still see it
  void free_block();
  [[noreturn]] void throw_lost();
  [[noreturn]] void throw_overdue(const char* why);
  std::string describe() const;

  // insert.cc
  void place();
  void placed();
  void look_again();
  void looked_again();
  void resolve();
  void withdraw();
  void withdrawn();
  void undo_others();
  void undone();
  void commit();
  void committed();
  bool waits_for_rival();
  // update.cc, remove.cc
  void replace();
  void replaced();
  void erase();
  void erased();
  // waiting.cc
  void wait_for_split(bool needs_room);
  void saw_split();
  void after_split() { again("the split of its subtable has ended"); }

  bool writes() const { return kind_ == Kind::kInsert || kind_ == Kind::kUpdate; }
  void then(Next next) { next_ = next; }
  std::uint64_t combined_at(std::uint32_t candidate) const {
    return home_.offset + hash_.combined(candidate, c_.table.groups);
  }
  Slot slot(std::uint32_t candidate, std::uint32_t bucket, std::uint32_t number) const;
  Header header(std::uint32_t candidate, std::uint32_t bucket) const;
  std::uint64_t slot_at(std::uint32_t candidate, std::uint32_t bucket, std::uint32_t number) const {
    return combined_at(candidate) + bucket * kBucketBytes + 8 + 8ULL * number;
  }
  /// Whether a slot or header of this depth belongs to a subtable that has the key.
  bool has_key(std::uint32_t depth) const {
    return hash_.is_in(home_.index, depth) || !c_.options.bugs.checks_header();
  }
  void collect(bool with_tentative);

  Context& c_;
  const Buffers buffers_;
  Next next_ = nullptr, after_blocks_ = nullptr;
  Kind kind_ = Kind::kLookup;
  Outcome outcome_ = Outcome::kOk;
  std::uint64_t tag_ = 0;
  ByteView key_;  // in the block that it writes
  KeyHash hash_;
  Home home_;
  ByteView value_;
  std::optional<Error> error_;
  Time deadline_ = 0;  // 0: no retry yet

  std::array<Match, kSlots> matches_;
  std::uint32_t count_ = 0, read_ = 0, reading_ = 0;  // matches; whose blocks were read; are read
  Match found_;

  std::optional<Block> block_;
  std::uint32_t units_ = 0;
  bool is_written_ = false, is_reserving_ = false;
  bool is_placed_ = false;         // others may see the block by a tentative slot
  bool may_have_changed_ = false;  // an error leaves open whether the table has changed
  std::uint64_t place_at_ = 0;
  Slot expected_, placed_;
  // The insertion of the same key that this one waits for.
  Match rival_;
  Time rival_since_ = 0;
  std::uint32_t undone_ = 0;
  // The split that holds it up.
  std::uint64_t split_word_ = 0;
  Time split_since_ = 0;
  bool needs_room_ = false;
};

}  // namespace pyrdma::krcore::race
