// The search of Wing and Gong (1993) with Lowe's memory of configurations (2017). It builds a
// sequence of the operations that respects their intervals and the model, and never visits a pair
// (operations taken, state) twice. It goes depth first, is resumable, and does not recurse.
//
// Beside the memory, four rules make it fast:
// - It takes an operation at once that is possible now and only looks, or that the model calls
//   free. It need not come back for alternatives.
// - Among several interchangeable operations, the one that returns first goes first.
// - It leaves a sequence after which the model sees a dead end.
// - It tries operations of unknown outcome last.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "check/models.h"

namespace pyrdma::check {

/// ConfigurationSet holds the visited configurations. A configuration is a string of words.
class ConfigurationSet {
 public:
  /// Returns false if the configuration was already there.
  bool insert(std::span<const std::uint64_t> words);
  std::size_t size() const { return size_; }

 private:
  struct Slot {
    std::uint64_t offset = 0;
    std::uint32_t hash = 0;
    std::uint32_t length = 0;  // 0: free
  };
  void grow();

  std::vector<Slot> slots_;
  std::vector<std::uint64_t> words_;
  std::size_t size_ = 0;
};

class Search {
 public:
  enum class Progress { kLegal, kIllegal, kOutOfBudget };

  /// `ops` come by invocation, as the model knows them. With `keep_longest`, the search remembers
  /// the longest sequence found.
  Search(std::unique_ptr<Model> model, const History& history, OperationsView ops, StateId start,
         bool keep_longest = false);

  /// Continues for at most `configurations` new configurations, and about `steps` steps.
  Progress run(std::uint64_t configurations, std::uint64_t steps = ~std::uint64_t{0});

  std::size_t configurations() const { return met_.size(); }
  /// Returns how many operations the search has looked at.
  std::uint64_t steps() const { return steps_; }
  /// Returns the latest return (event index) before which an operation had to be taken, in any
  /// sequence tried.
  std::uint32_t furthest() const { return furthest_; }
  /// Returns the end (event index) up to which the search, when it has found no order, has looked.
  /// The history is impossible up to there, given the results of the operations that are open then.
  std::uint32_t conclusive() const { return std::max(furthest_, dead_end_); }
  /// Returns the operation numbers in order; stuck() is the one that had to come next and cannot.
  const std::vector<std::uint32_t>& longest() const { return longest_; }
  std::uint32_t stuck() const { return stuck_; }

 private:
  struct Taken {
    std::uint32_t known;    // its number among the known operations, or kNever
    std::uint32_t unknown;  // its number among the unknown operations
    StateId before;
  };
  struct Frame {
    std::size_t depth;  // depth of the sequence
    std::size_t first_candidate;
    std::size_t next_candidate;
  };
  struct Candidate {
    std::uint32_t ret;
    std::uint32_t number;
    bool known;
  };

  std::uint32_t op_of(const Candidate& c) const {
    return c.known ? known_[c.number] : unknown_[c.number];
  }
  std::uint32_t op_of(const Taken& t) const {
    return t.known != kNever ? known_[t.known] : unknown_[t.unknown];
  }
  void open_frame();
  bool advance();  // takes the next candidate of the last frame; false: none is left
  void take_forced();
  void gather();
  void take_known(std::uint32_t k, StateId to);
  void take_unknown(std::uint32_t u, StateId to);
  void undo_to(std::size_t depth);
  bool is_new();
  void keep_longest_sequence();

  const History& history_;
  std::unique_ptr<Model> model_;
  std::vector<std::uint32_t> known_, unknown_;  // operation numbers, by invocation
  std::vector<std::uint32_t> call_, ret_;       // of the known operations
  std::vector<std::uint32_t> unknown_call_;
  std::vector<std::uint32_t> next_, prev_;  // links the known operations not taken into a ring
  std::vector<std::uint64_t> taken_bits_, unknown_bits_;
  std::vector<std::uint32_t> class_, class_seen_;
  std::uint32_t class_stamp_ = 0;

  StateId state_;
  std::size_t known_taken_ = 0;
  std::vector<Taken> sequence_;
  std::vector<Frame> frames_;
  std::vector<Candidate> candidates_;
  std::vector<std::uint64_t> words_;
  ConfigurationSet met_;
  bool started_ = false;

  std::uint64_t steps_ = 0;
  std::uint32_t furthest_ = 0;
  std::uint32_t dead_end_ = 0;
  bool keep_longest_;
  std::size_t longest_known_ = 0;
  std::vector<std::uint32_t> longest_;
  std::uint32_t stuck_ = kNever;
};

}  // namespace pyrdma::check
