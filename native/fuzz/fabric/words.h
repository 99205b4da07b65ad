// The operations on the words that only atomics change, and the checks that explain them.
//
// These checks take near-linear time. Fetch-and-adds of 1 return each number once, in an
// order that agrees with real time, and leave the right total. A compare-and-swap to unique values
// succeeds at most once from each value, and only from a value that existed. The linearizability
// checker gets the history of every register (word_history.h).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"

namespace pyrdma::fuzz {

struct AtomicOperation {
  Time invoked = 0;
  Time returned = kForever;                 // kForever: the outcome is unknown
  std::uint64_t old = 0;                    // valid when the operation returned
  std::uint64_t expected = 0, desired = 0;  // compare-and-swap only
  std::uint32_t client = 0;
  std::uint32_t operation = 0;

  bool known() const { return returned != kForever; }
};

/// AtomicWord is one word in one incarnation of its node.
struct AtomicWord {
  std::uint32_t node = 0, incarnation = 0, index = 0;
  bool counter = false;
  std::optional<std::uint64_t> last;  // content at the end, if the node survived
  std::vector<AtomicOperation> operations;

  std::string name() const;
};

/// Returns why the word is wrong, or an empty text.
std::string complaint_of_counter(const AtomicWord& word);
std::string complaint_of_register(const AtomicWord& word);

}  // namespace pyrdma::fuzz
